//go:build linux

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// loopback is a connection of this process to itself.
func loopback(t *testing.T) (dialled, accepted net.Conn, port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialled, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled, accepted, l.Addr().(*net.TCPAddr).Port
}

// self is this process as a node.
func self(t *testing.T, apiPort int) *node {
	t.Helper()
	process, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return &node{apiPort: apiPort, cmd: &exec.Cmd{Process: process}}
}

func take(t *testing.T, n *node, control int) []connection {
	t.Helper()
	all, err := n.connections([2]int{control, control})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(all) })
	return all
}

func TestConnectionsAreToldApart(t *testing.T) {
	_, _, control := loopback(t)
	loopback(t)
	_, _, api := loopback(t)
	kinds, seen := map[bool]int{}, map[uint64]bool{}
	for _, c := range take(t, self(t, api), control) {
		// This process's own second descriptors may be among what is found.
		cookie, err := unix.GetsockoptUint64(c.fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		if err != nil {
			t.Fatal(err)
		}
		if !seen[cookie] {
			kinds[c.control]++
		}
		seen[cookie] = true
	}
	// Both ends are this process's; of the API's only the end that serves is
	// known by its port.
	if kinds[true] != 2 || kinds[false] != 3 {
		t.Errorf("%d connections of control, %d others, want 2 and 3", kinds[true], kinds[false])
	}
}

func TestACutEndsBothEnds(t *testing.T) {
	dialled, accepted, port := loopback(t)
	all := take(t, self(t, 0), port)
	if len(all) == 0 {
		t.Fatal("no connection found")
	}
	all[0].cut()
	for _, c := range []net.Conn{dialled, accepted} {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("reading from a connection that was cut: %v, want EOF", err)
		}
	}
}

func TestAStallHoldsBackAndLosesNothing(t *testing.T) {
	dialled, accepted, port := loopback(t)
	for _, c := range take(t, self(t, 0), port) {
		c.stall()
		defer c.release()
	}
	if _, err := dialled.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if err := accepted.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if n, err := accepted.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes came through a stall (%v)", n, err)
	}
	for _, c := range take(t, self(t, 0), port) {
		c.release()
	}
	if err := accepted.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(accepted, got); err != nil || string(got) != "late" {
		t.Errorf("after the stall: %q, %v", got, err)
	}
}
