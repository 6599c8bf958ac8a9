package guest

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Wire is a cable between two guests' network cards: two connected sockets
// that carry Ethernet frames (QEMU's -netdev socket).
type Wire struct{ A, B *os.File }

// NewWire makes one. Each end is given to one guest's Config; who made the
// wire closes it once both have booted, or failed to.
func NewWire() (Wire, error) {
	a, b, err := socketPair()
	if err != nil {
		return Wire{}, fmt.Errorf("make a wire: %w", err)
	}
	return Wire{a, b}, nil
}

// Close closes this process's ends; the guests have their own.
func (w Wire) Close() error { return errors.Join(w.A.Close(), w.B.Close()) }

func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "socket pair"), os.NewFile(uintptr(fds[1]), "socket pair"), nil
}

// channel is a socket pair of which one end is a connection here and the other
// a file to hand to QEMU.
func channel() (net.Conn, *os.File, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	defer ours.Close() // net.FileConn has a duplicate
	conn, err := net.FileConn(ours)
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}
