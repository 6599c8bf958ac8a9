package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
