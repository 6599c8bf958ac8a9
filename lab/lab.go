package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"mover/lab/guest"
	"mover/lab/image"
)

const (
	// Rails is how many each guest has.
	Rails = 2
	// guestMiB holds the arenas of a node and what jobs move, which is in
	// memory. QEMU takes what is touched.
	guestMiB = 3072
	// bootDeadline is for a machine that does other things too: it takes half a
	// minute on two CPUs.
	bootDeadline = 4 * time.Minute
	// lifetime ends guests that everybody forgot.
	lifetime = 4 * time.Hour
)

// Lab is two guests that run, joined by rails. A scenario owns it while it
// runs; methods may be called by several goroutines.
type Lab struct {
	A, B *Node

	host host
	// stretch is how many times as much as usual a long transfer moves.
	stretch int64

	mu      sync.Mutex
	log     *scenarioLog
	context context.Context // of the scenario
}

// host is what the lab knows of the machine it runs on.
type host struct {
	out    string      // absolute: where logs and results go
	mover  string      // absolute path of the program under test
	kvm    bool        // guests are not emulated
	image  image.Image // what they boot
	stdout io.Writer   // for people
}

// boot starts both guests and sets them up. It tries twice: an emulated host
// that gets no CPU for long may fail in ways that no real one does.
func boot(ctx context.Context, h host) (*Lab, error) {
	l, err := bootOnce(ctx, h)
	if err == nil || ctx.Err() != nil {
		return l, err
	}
	fmt.Fprintf(h.stdout, "lab: booting again: %v\n", err)
	return bootOnce(ctx, h)
}

// bootOnce starts both guests at the same time.
func bootOnce(ctx context.Context, h host) (_ *Lab, err error) {
	ctx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	l := &Lab{host: h, context: context.WithoutCancel(ctx), log: &scenarioLog{out: h.stdout, prefix: "lab"}}
	var a, b []*os.File
	for range Rails {
		wire, err := guest.NewWire()
		if err != nil {
			return nil, err
		}
		defer wire.Close()
		a, b = append(a, wire.A), append(b, wire.B)
	}
	l.A = &Node{Name: "a", lab: l, index: 0}
	l.B = &Node{Name: "b", lab: l, index: 1}
	l.A.peer, l.B.peer = l.B, l.A
	err = both(func(n *Node) error {
		rails := a
		if n == l.B {
			rails = b
		}
		err := n.boot(ctx, rails)
		if err != nil {
			cancel() // one alone is of no use
		}
		return err
	}, l.A, l.B)
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// both runs f for two nodes at once and returns all errors.
func both(f func(*Node) error, nodes ...*Node) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Both runs f for a and b at the same time and returns the errors of both.
func (l *Lab) Both(f func(*Node) error) error { return both(f, l.A, l.B) }

// close ends both guests.
func (l *Lab) close() error {
	return l.Both(func(n *Node) error {
		if n.guest == nil {
			return nil
		}
		return n.guest.Close()
	})
}

// alive tells whether both guests still run.
func (l *Lab) alive() bool {
	for _, n := range []*Node{l.A, l.B} {
		select {
		case <-n.guest.Exited():
			return false
		default:
		}
	}
	return true
}

// Step tells, on the terminal and in the scenario's log, what comes next.
func (l *Lab) Step(format string, a ...any) { l.scenarioLog().step(fmt.Sprintf(format, a...)) }

// Note writes to the scenario's log alone.
func (l *Lab) Note(format string, a ...any) { l.scenarioLog().note(fmt.Sprintf(format, a...)) }

func (l *Lab) scenarioLog() *scenarioLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log
}

// life is the scenario's context: what runs longer than the call that starts
// it ends with it.
func (l *Lab) life() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.context
}

func (l *Lab) enter(ctx context.Context, log *scenarioLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.context, l.log = ctx, log
}

// OutFile is a path on the host for a file that the scenario leaves behind:
// out/lab/SCENARIO.suffix.
func (l *Lab) OutFile(suffix string) string {
	return filepath.Join(l.host.out, l.scenarioLog().name+"."+suffix)
}

// InGuest is the path in a guest of a file of the host. Files made after the
// boot are there too. path is absolute or below the directory the lab runs in.
func (l *Lab) InGuest(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return image.HostRoot + abs, nil
}

// scenarioLog is where a scenario tells what it does. Safe for concurrent use.
type scenarioLog struct {
	name   string
	prefix string
	out    io.Writer // the terminal
	begin  time.Time

	mu   sync.Mutex
	file *os.File // nil outside scenarios
}

func newScenarioLog(h host, name string) (*scenarioLog, error) {
	f, err := os.Create(filepath.Join(h.out, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("make the log of %s: %w", name, err)
	}
	return &scenarioLog{name: name, prefix: "lab: " + name, out: h.stdout, begin: time.Now(), file: f}, nil
}

func (s *scenarioLog) step(text string) {
	s.mu.Lock()
	_, _ = fmt.Fprintf(s.out, "%s: %s\n", s.prefix, text) // a terminal that went away is no failure
	s.mu.Unlock()
	s.note("== " + text)
}

func (s *scenarioLog) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		_, _ = fmt.Fprintf(s.file, "%8.3f %s\n", time.Since(s.begin).Seconds(), text)
	}
}

func (s *scenarioLog) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil // what still runs may have something to say
	return f.Close()
}
