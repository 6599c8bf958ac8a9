package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"mover/lab/guest"
	"mover/lab/remote"
)

// Node is one of the two guests, and the mover node that may run in it. Unless
// said otherwise, methods may be called by several goroutines, and every
// process they start ends with ctx.
type Node struct {
	Name string // "a", "b": of guest and mover node

	lab   *Lab
	peer  *Node
	index int // 0, 1
	guest *guest.Guest

	fingerprint string // of the identity made at boot
	mover       moverProcess
}

// Peer is the other one.
func (n *Node) Peer() *Node { return n.peer }

// Remote is the channel into the guest, for what the methods here do not do:
// standard input, terminals, files, connections to what listens there.
func (n *Node) Remote() *remote.Client { return n.guest.Remote() }

// Address is the IPv4 address of one of the node's rails.
func (n *Node) Address(rail int) string { return fmt.Sprintf("10.77.%d.%d", rail, n.index+1) }

func (n *Node) boot(ctx context.Context, rails []*os.File) error {
	h := n.lab.host
	g, err := guest.Boot(ctx, guest.Config{
		Name: n.Name, Index: n.index, Image: h.image, Rails: rails, Console: filepath.Join(h.out, n.Name+".console"),
		MemoryMiB: guestMiB, KVM: h.kvm, Lifetime: lifetime,
	})
	if err != nil {
		return err
	}
	n.guest = g
	if err := n.nameRails(ctx); err != nil {
		return fmt.Errorf("set up guest %s: %w", n.Name, err)
	}
	mover, err := n.lab.InGuest(h.mover)
	if err != nil {
		return err
	}
	if _, err := n.Run(ctx, "cp", mover, MoverProgram); err != nil {
		return fmt.Errorf("set up guest %s: %w", n.Name, err)
	}
	return n.Reset(ctx)
}

// Run runs a program in the guest to its end and returns its standard output
// without the last newline. A code other than 0 is a *remote.ExitError with the
// end of what it printed.
func (n *Node) Run(ctx context.Context, args ...string) (string, error) {
	return n.run(ctx, remote.Command{Args: args})
}

// Sh runs a shell script, which ends at its first command that fails; args are
// its $1 and on.
func (n *Node) Sh(ctx context.Context, script string, args ...string) (string, error) {
	return n.run(ctx, remote.Command{Args: append([]string{"sh", "-euc", script, "sh"}, args...)})
}

func (n *Node) run(ctx context.Context, command remote.Command) (string, error) {
	n.lab.Note("%s$ %s", n.Name, command)
	r, err := n.Remote().Run(ctx, command)
	text := strings.TrimSuffix(string(r.Stdout), "\n")
	for _, out := range []string{text, strings.TrimSpace(string(r.Stderr))} {
		if out != "" {
			n.lab.Note("%s: %s", n.Name, strings.ReplaceAll(out, "\n", "\n         "+n.Name+": "))
		}
	}
	if err != nil {
		n.lab.Note("%s: %v", n.Name, err)
		return text, fmt.Errorf("guest %s: %w", n.Name, err)
	}
	return text, nil
}

// Background is a program that runs in a guest.
type Background struct {
	*remote.Process
	path string
	file *os.File
}

// Start starts a program. What it prints goes to the scenario's file
// NAME.NODE.name.log, after what another of the name left there.
func (n *Node) Start(ctx context.Context, name string, command remote.Command) (*Background, error) {
	path := n.lab.OutFile(n.Name + "." + name + ".log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if command.Stdout == nil {
		command.Stdout = f
	}
	if command.Stderr == nil {
		command.Stderr = f
	}
	n.lab.Note("%s$ %s &", n.Name, command)
	p, err := n.Remote().Start(ctx, command)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("guest %s: %w", n.Name, err), f.Close())
	}
	b := &Background{Process: p, path: path, file: f}
	go func() {
		<-p.Done()
		_ = f.Close() // what could not be written is missed by who reads it
		exit, err := p.Wait()
		n.lab.Note("%s: %s (%d) ended: %+v %v", n.Name, name, p.PID(), exit, err)
	}()
	return b, nil
}

// Output is all that the program, and those of the name before it, printed so
// far.
func (b *Background) Output() string {
	data, err := os.ReadFile(b.path)
	if err != nil {
		return ""
	}
	return string(data)
}

// Tail is the end of Output, for messages.
func (b *Background) Tail() string {
	text := strings.TrimSpace(b.Output())
	const most = 2048
	if len(text) > most {
		text = "..." + text[len(text)-most:]
	}
	return text
}

// Generate writes size bytes of noise to a file in the guest, whose directory
// is made, and returns its SHA-256.
func (n *Node) Generate(ctx context.Context, path string, size int64) (string, error) {
	_, err := n.Sh(ctx, `mkdir -p "$(dirname "$1")"; head -c "$2" /dev/urandom >"$1"`, path, strconv.FormatInt(size, 10))
	if err != nil {
		return "", err
	}
	return n.SHA256(ctx, path)
}

var sumPattern = regexp.MustCompile(`^\\?([0-9a-f]{64}) `)

// SHA256 is the checksum of a file in the guest, in hex.
func (n *Node) SHA256(ctx context.Context, path string) (string, error) {
	out, err := n.Run(ctx, "sha256sum", path)
	if err != nil {
		return "", err
	}
	sum := sumPattern.FindStringSubmatch(out)
	if sum == nil {
		return "", fmt.Errorf("guest %s: sha256sum prints %q", n.Name, out)
	}
	return sum[1], nil
}

// SameFile is an error unless both files have the same SHA-256; it returns it.
func SameFile(ctx context.Context, from *Node, source string, to *Node, destination string) (string, error) {
	sent, err := from.SHA256(ctx, source)
	if err != nil {
		return "", err
	}
	got, err := to.SHA256(ctx, destination)
	if err != nil {
		return "", err
	}
	if sent != got {
		return "", fmt.Errorf("%s in guest %s is %s, but %s in guest %s is %s", source, from.Name, sent, destination, to.Name, got)
	}
	return sent, nil
}

// ReadFile returns a file of the guest, as those of proc and sysfs, without the
// last newline.
func (n *Node) ReadFile(ctx context.Context, path string) (string, error) {
	data, err := n.Remote().ReadFile(ctx, path)
	if err != nil {
		return "", fmt.Errorf("guest %s: %w", n.Name, err)
	}
	return string(bytes.TrimSuffix(data, []byte("\n"))), nil
}

// Await calls check every 100 ms until it is done or fails, or ctx ends: then
// the error says what was awaited, and check's last reason why not.
func Await(ctx context.Context, what string, check func(ctx context.Context) (done bool, why string, err error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := "not looked at yet"
	for {
		done, why, err := check(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("await %s: %w", what, err)
		case err == nil && done:
			return nil
		case err == nil:
			last = why
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w; last: %s", what, context.Cause(ctx), last)
		}
	}
}
