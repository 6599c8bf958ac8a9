package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// filePeer is a tool that copies the source file of a place. It is bound to
// the place it was made for and used by one goroutine.
type filePeer interface {
	// settings is how many ways to run it the warm-up chooses from.
	settings() int
	// describe names a setting for people.
	describe(setting int) string
	// copy copies the source to dst, which does not exist, and returns when
	// the tool says it is done; on a durable place, when it is durable.
	copy(ctx context.Context, setting int, dst string) error
	// stop ends what the peer started. It is called once.
	stop() error
}

// startFilePeer starts the peer with the given name for a place.
func startFilePeer(ctx context.Context, name string, p *place) (filePeer, error) {
	switch name {
	case "cp":
		return newCp(p)
	case "rsync":
		return startRsync(ctx, p)
	case "gridftp":
		return startGridFTP(ctx, p)
	}
	return nil, fmt.Errorf("no file peer is called %q", name)
}

// timeCopy runs one copy of a peer and returns seconds. The copy is checked
// when check is set, and always removed, outside the timed part.
func timeCopy(ctx context.Context, p *place, peer filePeer, setting, run int, check bool) (float64, error) {
	dst := p.peerFile(run)
	start := time.Now()
	err := peer.copy(ctx, setting, dst)
	took := time.Since(start)
	if err == nil && check {
		err = p.check(ctx, dst)
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
func timeOurs(ctx context.Context, p *place, nodes Nodes, out string, check bool) (float64, error) {
	took, err := nodes.Copy(ctx, out)
	dst := filepath.Join(p.incoming(), out)
	if err == nil && check {
		err = p.check(ctx, dst)
	}
	if derr := p.discard(dst); err == nil {
		err = derr
	}
	if err != nil {
		return 0, err
	}
	return took.Seconds(), nil
}
