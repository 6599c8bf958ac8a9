//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// connection is a TCP connection of a node, held by a second descriptor that
// pidfd_getfd(2) gives. A proxy in between could hold the control connection
// alone: software verbs tell each other the addresses that they listen on. The
// descriptor reaches every connection, and needs no more than that the node is
// a child of ours.
type connection struct {
	fd      int
	control bool // else of the data path
}

// connections returns the connections of a node to its peer. The caller closes
// them. A node that is not there has none.
func (n *node) connections(controlPorts [2]int) ([]connection, error) {
	pid := n.pid()
	if pid == 0 {
		return nil, nil
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("a descriptor of process %d: %w", pid, err)
	}
	defer unix.Close(process)
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil // it has just ended
	}
	var found []connection
	for _, name := range names {
		link, err := os.Readlink(filepath.Join(dir, name.Name()))
		if err != nil || !strings.HasPrefix(link, "socket:") {
			continue
		}
		number, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PidfdGetfd(process, number, 0)
		switch err {
		case nil:
		case unix.EBADF, unix.ESRCH: // closed, or ended, since
			continue
		default:
			closeAll(found)
			return nil, fmt.Errorf("taking a connection of process %d (pidfd_getfd): %w", pid, err)
		}
		// Asked of our own descriptor: the number may be another socket's by now.
		if control, ok := n.classify(fd, controlPorts); ok {
			found = append(found, connection{fd, control})
		} else {
			unix.Close(fd)
		}
	}
	return found, nil
}

// classify reports whether fd is a connection to the peer, and which kind.
func (n *node) classify(fd int, controlPorts [2]int) (control, ok bool) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil || kind != unix.IPPROTO_TCP {
		return false, false
	}
	local, remote := portOf(unix.Getsockname(fd)), portOf(unix.Getpeername(fd))
	if remote == 0 || local == n.apiPort {
		return false, false
	}
	for _, p := range controlPorts {
		control = control || local == p || remote == p
	}
	return control, true
}

// portOf is the port of an address, 0 if there is none.
func portOf(address unix.Sockaddr, err error) int {
	if err != nil {
		return 0
	}
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	return 0
}

// cut ends the connection for both ends.
func (c connection) cut() { _ = unix.Shutdown(c.fd, unix.SHUT_RDWR) }

// stall has the kernel drop whatever arrives, as a cable does that is pulled:
// nobody is told, and the peer sends again and again.
func (c connection) stall() {
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	_ = unix.SetsockoptSockFprog(c.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
}

// release ends a stall.
func (c connection) release() {
	_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}

func closeAll(all []connection) {
	for _, c := range all {
		unix.Close(c.fd)
	}
}
