package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/node/config"
)

func TestServe(t *testing.T) {
	broken := errors.New("broken")
	obedient := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	stuck := make(chan struct{})
	defer close(stuck)
	deaf := func(context.Context) error { <-stuck; return nil }
	for _, c := range []struct {
		name    string
		signals int
		within  time.Duration
		start   func(context.Context) error
		want    func(error) bool
	}{
		{"ends by itself", 0, time.Hour, func(context.Context) error { return broken }, func(err error) bool { return err == broken }},
		{"stops when asked", 1, time.Hour, obedient, func(err error) bool { return err == nil }},
		{"fails to stop cleanly", 1, time.Hour, func(ctx context.Context) error { <-ctx.Done(); return broken }, func(err error) bool { return err == broken }},
		{"second signal", 2, time.Hour, deaf, func(err error) bool { return err == errStoppedAtOnce }},
		{"does not stop", 1, time.Millisecond, deaf, func(err error) bool { return err != nil && err != errStoppedAtOnce }},
	} {
		signals := make(chan os.Signal, 2)
		for range c.signals {
			signals <- unix.SIGTERM
		}
		if err := serve(t.Context(), signals, c.within, discard, c.start); !c.want(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// reloads is a node that is told to reload.
type reloads struct {
	next        chan *config.Config
	needRestart []string
	err         error
}

func (r *reloads) Reload(next *config.Config) ([]string, error) {
	r.next <- next
	return r.needRestart, r.err
}

func TestReloadOnSIGHUP(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "c.yaml"), "node: {name: before}\n")
	var text bytes.Buffer // read when reloadOn has returned
	log := slog.New(slog.NewTextHandler(&text, nil))
	n := &reloads{next: make(chan *config.Config), needRestart: []string{"memory.arena", "workers"}, err: errors.New("roots.data: gone")}
	signals := make(chan os.Signal) // unbuffered: taken means that the last reload is over
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		reloadOn(ctx, signals, file, n, log)
	}()
	signals <- unix.SIGHUP
	if got := (<-n.next).Node.Name; got != "before" {
		t.Errorf("the first reload has node %q", got)
	}
	writeFile(t, file, "nod: {}\n")
	signals <- unix.SIGHUP // refused: nothing comes to the node
	signals <- unix.SIGHUP
	stop()
	<-done
	for _, want := range []string{"memory.arena workers", "what is named is as before", "roots.data: gone", "not reloaded", "did you mean node?"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, text.String())
		}
	}
}
