package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// clientDeadline ends a peer's client, or one copy by mover, that hangs.
	clientDeadline = 5 * time.Minute
	// startDeadline bounds how long a daemon may take to answer.
	startDeadline = 30 * time.Second
	// stopGrace is how long a daemon has to leave after SIGTERM. mover
	// promises to stop within 10 s.
	stopGrace = 15 * time.Second
	// outputLimit bounds what is kept of a process's output, for errors.
	outputLimit = 64 << 10
)

// boundedBuffer keeps the last outputLimit bytes written to it. It is safe
// for concurrent use: a daemon writes while the harness reads.
type boundedBuffer struct {
	mu  sync.Mutex
	buf []byte
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	if n := len(b.buf); n > outputLimit {
		b.buf = append(b.buf[:0], b.buf[n-outputLimit:]...)
	}
	return len(p), nil
}

func (b *boundedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(bytes.TrimSpace(b.buf))
}

// ownGroup puts cmd in a process group of its own, so that its children can be
// ended with it, and has the kernel end it should the harness be killed.
// (Pdeathsig follows the thread that forked; Go ends a thread only if a locked
// goroutine does, and the harness locks none.)
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signalGroup sends sig to the group led by pid; a group that is gone is fine.
func signalGroup(pid int, sig syscall.Signal) error {
	err := syscall.Kill(-pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// runClient runs a command to its end within the deadline and returns its
// standard output. A failure carries the command line and the end of what it
// printed. Whatever it leaves in its process group is killed.
func runClient(ctx context.Context, deadline time.Duration, env []string, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	ownGroup(cmd)
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), env...)
	var stdout bytes.Buffer
	var stderr boundedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if cmd.Process != nil {
		_ = signalGroup(cmd.Process.Pid, syscall.SIGKILL)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
		said := strings.TrimSpace(stderr.String() + "\n" + tail(stdout.String(), 2048))
		return stdout.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, said)
	}
	return stdout.Bytes(), nil
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}

// daemon is a long-running process of the harness. stop ends it; every daemon
// started must be stopped by whoever started it.
type daemon struct {
	name   string
	cmd    *exec.Cmd
	output *boundedBuffer
	exited chan struct{} // closed once the process was reaped
	err    error         // its exit, valid after exited is closed
}

// startDaemon starts a command in its own process group and returns at once.
func startDaemon(name string, env []string, path string, args ...string) (*daemon, error) {
	d := &daemon{name: name, output: &boundedBuffer{}, exited: make(chan struct{})}
	d.cmd = exec.Command(path, args...)
	ownGroup(d.cmd)
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stdout, d.cmd.Stderr = d.output, d.output
	d.cmd.WaitDelay = 5 * time.Second // a grandchild may hold the pipe open
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		d.err = d.cmd.Wait()
		// Children it left behind; now, while its number cannot yet have been
		// given to somebody else.
		_ = signalGroup(d.pid(), syscall.SIGKILL)
		close(d.exited)
	}()
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// awaitReady calls ready every few milliseconds until it returns nil, the
// daemon exits, or startDeadline passes.
func (d *daemon) awaitReady(ctx context.Context, ready func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-d.exited:
			return fmt.Errorf("%s ended while starting (%v): %s", d.name, d.err, tail(d.output.String(), 2048))
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready in time: %w (it said: %s)", d.name, err, tail(d.output.String(), 2048))
		case <-tick.C:
		}
	}
}

// stop asks the daemon to end, waits stopGrace, then kills its group. It
// returns an error if it had to be killed. Calling it again does nothing.
func (d *daemon) stop() error {
	if d == nil {
		return nil
	}
	select {
	case <-d.exited:
		return nil
	default:
	}
	_ = signalGroup(d.pid(), syscall.SIGTERM)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-d.exited:
		return nil
	case <-grace.C:
	}
	_ = signalGroup(d.pid(), syscall.SIGKILL)
	<-d.exited
	return fmt.Errorf("%s did not stop within %v of SIGTERM and was killed", d.name, stopGrace)
}

// accepting returns a readiness check that connects to a TCP address and
// closes the connection again.
func accepting(address string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var dialer net.Dialer
		c, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// freePort returns a TCP port of 127.0.0.1 that nobody listened on just now.
// Between this and its use another process may take it; a daemon that finds
// it taken ends and the start reports that.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// lookTool finds a peer's program. Daemons live in /usr/sbin, which is not in
// every user's PATH. A missing one is an error that says what to install.
func lookTool(name, debianPackage string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: run `apt-get install %s` (bench/packages.txt lists all peers)", name, debianPackage)
}
