package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// stateLock keeps a second process off a state directory: two nodes with one
// key and one journal would each undo what the other does. The kernel drops a
// flock(2) with its process, however that ends.
type stateLock struct{ file *os.File }

func lockState(dir string) (*stateLock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("node.state_dir: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := os.ReadFile(path) // for the message alone
		f.Close()
		return nil, fmt.Errorf("node.state_dir: another mover (process %s) uses %s; stop it, or give this node a state_dir of its own",
			strings.TrimSpace(string(holder)), dir)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("node.state_dir: locking %s: %w; use a local file system", path, err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(f, os.Getpid()) // a lock without a name still locks
	}
	return &stateLock{f}, nil
}

func (l *stateLock) release() {
	if l != nil {
		l.file.Close()
	}
}
