// Command agent is the lab's program in a guest: it finds the virtio-serial
// port that leads to the host and serves package remote on it, until the host
// ends the connection. It is built without cgo and needs no file of the guest.
// The guest's first process starts it; nobody else has a use for it.
//
//	agent
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mover/lab/remote"
)

// patience is how long the port and the host's side of it may take to appear.
const patience = time.Minute

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "lab: agent:", err)
		os.Exit(1)
	}
}

func serve() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var device string
	err := poll(ctx, func() (err error) {
		device, err = findPort("/sys/class/virtio-ports", remote.PortName)
		return err
	})
	if err != nil {
		return err
	}
	port, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := poll(ctx, func() error { return connected(port) }); err != nil {
		return err
	}
	return remote.Serve(conn{port})
}

// poll tries until there is no error: there is no event for what it is used
// for.
func poll(ctx context.Context, try func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// findPort returns the device of the virtio-serial port of that name.
func findPort(class, name string) (string, error) {
	ports, err := filepath.Glob(filepath.Join(class, "*", "name"))
	if err != nil {
		return "", err
	}
	for _, file := range ports {
		text, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(text)) == name {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(file))), nil
		}
	}
	return "", fmt.Errorf("no virtio-serial port %s under %s", name, class)
}

// connected tells whether the host's side is open: until then a read returns
// the end of the file, and poll(2) POLLHUP (drivers/char/virtio_console.c).
func connected(port *os.File) error {
	raw, err := port.SyscallConn()
	if err != nil {
		return err
	}
	fds := []unix.PollFd{{Events: unix.POLLIN}}
	controlErr := raw.Control(func(fd uintptr) {
		fds[0].Fd = int32(fd)
		_, err = unix.Poll(fds, 0)
	})
	if err = errors.Join(err, controlErr); err != nil {
		return err
	}
	if fds[0].Revents&unix.POLLHUP != 0 {
		return errors.New("the host's side of the port is not open")
	}
	return nil
}

// conn makes the port a net.Conn.
type conn struct{ *os.File }

type address struct{ name string }

func (a address) Network() string { return "virtio-serial" }
func (a address) String() string  { return a.name }

// LocalAddr implements net.Conn.
func (c conn) LocalAddr() net.Addr { return address{c.Name()} }

// RemoteAddr implements net.Conn.
func (c conn) RemoteAddr() net.Addr { return address{"host"} }
