//go:build linux

package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// smallRoot is the directory of the small file system that is a root of
	// the node; what fills it lies beside.
	smallRoot  = "root"
	smallBytes = 96 << 20
)

// disk is a small file system under a node's root "small".
type disk struct {
	dir     string
	mounted bool
}

// mountSmall mounts a node's small file system, and where it is not allowed to
// says so; then jobs have room there always.
func mountSmall(dir string, inside bool) disk {
	d := disk{dir: dir}
	var err error
	if !inside {
		err = fmt.Errorf("only root, in a mount namespace of its own, can mount")
	} else {
		err = unix.Mount("torture", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", smallBytes))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "torture: NOT TESTED: a full disk (%v); run it as root\n", err)
		return d
	}
	d.mounted = true
	return d
}

// ownSharedMemory gives the nodes a /dev/shm that goes with the namespace, so
// that their buffers do not stay if torture is killed.
func ownSharedMemory() error {
	if err := unix.Mount("torture", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("mounting a /dev/shm: %w", err)
	}
	return nil
}

// fill leaves at most the given number of bytes free.
func (d disk) fill(leave int64) error {
	f, err := os.OpenFile(d.filler(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("filling the small disk: %w", err)
	}
	defer f.Close()
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &stat); err != nil {
		return fmt.Errorf("filling the small disk: %w", err)
	}
	if take := int64(stat.Bavail)*int64(stat.Bsize) - leave; take > 0 {
		// Others write meanwhile; not to get as much is no failure.
		_ = unix.Fallocate(int(f.Fd()), 0, 0, take)
	}
	return nil
}

// empty makes room again.
func (d disk) empty() { _ = os.Remove(d.filler()) }

func (d disk) filler() string { return d.dir + "/filler" }

// unmount takes the small file system away, with what is on it.
func (d disk) unmount() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) }
