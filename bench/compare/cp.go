package main

import (
	"context"
	"strings"
)

// cpSettings: coreutils 9 copies with copy_file_range(2) by default and with
// read and write given --reflink=never; which is faster depends on the file
// system.
var cpSettings = [][]string{{"--reflink=never"}, {}}

// sharing lists file systems where copy_file_range may share blocks, or copy
// on a server, instead of moving bytes. That is another service than a copy,
// so plain cp is no candidate there.
var sharing = map[string]bool{
	"btrfs": true, "xfs": true, "bcachefs": true, "zfs": true, "ocfs2": true,
	"nfs": true, "nfs4": true, "cifs": true, "smb3": true, "overlay": true, "fuse": true,
}

// cp is the coreutils program, the floor of what a copy on one host costs.
type cp struct {
	path  string
	place *place
}

func newCp(p *place) (*cp, error) {
	path, err := lookTool("cp", "coreutils")
	if err != nil {
		return nil, err
	}
	return &cp{path: path, place: p}, nil
}

func (c *cp) settings() int {
	if sharing[c.place.filesystem] {
		return 1
	}
	return len(cpSettings)
}

func (c *cp) describe(setting int) string {
	s := strings.Join(append([]string{"cp"}, cpSettings[setting]...), " ")
	if c.place.durable() {
		s += " + fsync"
	}
	return s
}

func (c *cp) copy(ctx context.Context, setting int, dst string) error {
	args := append(append([]string{}, cpSettings[setting]...), c.place.source(), dst)
	if _, err := runClient(ctx, clientDeadline, nil, c.path, args...); err != nil {
		return err
	}
	if c.place.durable() {
		return makeDurable(dst)
	}
	return nil
}

func (c *cp) stop() error { return nil }
