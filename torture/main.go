//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	mover   string
	minutes float64
	seed    uint64
	out     string
	race    bool // the binary has the race detector: slower, so fewer jobs at once
	inside  bool // in a mount namespace of its own
}

func main() {
	var o options
	flag.StringVar(&o.mover, "mover", "out/mover", "the binary")
	flag.Float64Var(&o.minutes, "minutes", 2, "how long the schedule of faults lasts")
	flag.Uint64Var(&o.seed, "seed", 0, "draws the schedule and the jobs; 0 chooses one")
	flag.StringVar(&o.out, "out", "out/torture", "where logs go")
	flag.BoolVar(&o.race, "race", false, "the binary was built with -race")
	flag.BoolVar(&o.inside, "inside", false, "set by torture itself")
	flag.Parse()
	if o.seed == 0 {
		o.seed = rand.Uint64() >> 1
	}
	ok, err := begin(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// begin runs the torture, as root in a mount namespace of its own: what is
// mounted there is gone when its processes are, however they ended.
func begin(o options) (ok bool, err error) {
	if o.minutes <= 0 || o.minutes > 24*60 {
		return false, errors.New("-minutes must be above 0, and a day at most")
	}
	for _, path := range []*string{&o.mover, &o.out} {
		if *path, err = filepath.Abs(*path); err != nil {
			return false, fmt.Errorf("finding %s: %w", *path, err)
		}
	}
	if _, err := os.Stat(o.mover); err != nil {
		return false, fmt.Errorf("no mover to torture; run `make build`: %w", err)
	}
	if !o.inside && os.Geteuid() == 0 {
		return apart(o)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return torture(ctx, o)
}

// apart starts this program again in a mount namespace of its own, or, where
// that is not allowed, goes on without.
func apart(o options) (bool, error) {
	self, err := os.Executable()
	if err != nil {
		return false, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(self, "-inside", "-mover", o.mover, "-out", o.out, fmt.Sprintf("-race=%t", o.race),
		"-minutes", fmt.Sprint(o.minutes), "-seed", fmt.Sprint(o.seed))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	// A Ctrl-C reaches the child by itself; this one has to live until it has
	// cleaned up.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "torture: NOT TESTED: a full disk (no mount namespace: %v)\n", err)
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return torture(ctx, o)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s)
			}
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return false, fmt.Errorf("waiting for the torture: %w", err)
			}
			return err == nil, nil
		}
	}
}

// pause waits for d, or less if ctx ends first, which it reports as false.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// between draws a duration from [low, high).
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}
