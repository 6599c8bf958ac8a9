package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// filePeer is a tool that copies the source file of a place, or its tree. It is
// bound to what it was made for and used by one goroutine.
type filePeer interface {
	// settings is how many ways to run it the warm-up chooses from.
	settings() int
	// describe names a setting for people.
	describe(setting int) string
	// copy copies that to dst, which does not exist, and returns when
	// the tool says it is done; on a durable place, when it is durable.
	copy(ctx context.Context, setting int, dst string) error
	// stop ends what the peer started. It is called once.
	stop() error
}

// startFilePeer starts the peer with the given name for sourceName or treeName
// of a place.
func startFilePeer(ctx context.Context, name string, p *place, what string) (filePeer, error) {
	switch {
	case name == "rsync":
		return startRsync(ctx, p, what)
	case name == "cp" && what == sourceName:
		return newCp(p)
	case name == "gridftp" && what == sourceName:
		return startGridFTP(ctx, p)
	}
	return nil, fmt.Errorf("no peer called %q copies %s", name, what)
}

// timeCopy runs one copy of a peer and returns seconds. The copy is checked
// when check is set, and always removed, outside the timed part.
func timeCopy(ctx context.Context, p *place, what string, peer filePeer, setting, run int, check bool) (float64, error) {
	dst := p.peerFile(run)
	start := time.Now()
	err := peer.copy(ctx, setting, dst)
	took := time.Since(start)
	if err == nil && check {
		err = p.check(ctx, what, dst)
	}
	if derr := p.discard(dst); err == nil {
		err = derr
	}
	if err != nil {
		return 0, err
	}
	return took.Seconds(), nil
}

// timeOurs runs one copy by mover to the name out and returns seconds. As with
// the peers, the copy is checked when asked and always removed, outside the
// timed part.
func timeOurs(ctx context.Context, p *place, nodes Nodes, what, out string, check bool) (float64, error) {
	took, err := nodes.Copy(ctx, what, out)
	dst := filepath.Join(p.incoming(), out)
	if err == nil && check {
		err = p.check(ctx, what, dst)
	}
	if derr := p.discard(dst); err == nil {
		err = derr
	}
	if err != nil {
		return 0, err
	}
	return took.Seconds(), nil
}
