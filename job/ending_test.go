package job

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mover/reason"
)

func TestCancel(t *testing.T) {
	t.Run("queued", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.MaxRunning = 1 })
		defer b.close()
		first := b.submit("a/t", nil)
		id := b.submit("a/t", nil)
		for range 2 {
			if s, err := b.Cancel(id); err != nil || s.State != Canceled || code(s) != reason.Canceled {
				t.Errorf("%s, %v", s.State, err)
			}
		}
		b.next().end(nil)
		b.until(first, Succeeded)
		b.settled()
		b.idle()
	})
	t.Run("backing off", func(t *testing.T) {
		b := newBench(t, nil)
		defer b.close()
		id := b.submit("a/t", nil)
		b.next().end(reason.New(reason.Stalled, "no"))
		b.until(id, Queued)
		if s, err := b.Cancel(id); err != nil || s.State != Canceled || s.NextAttemptAt != nil {
			t.Errorf("%+v, %v", s, err)
		}
		if b.clock.Timers() != 0 {
			t.Errorf("%d timers stay", b.clock.Timers())
		}
	})
	for _, phase := range []State{Preparing, Running, Verifying, Publishing} {
		t.Run(string(phase), func(t *testing.T) {
			b := newBench(t, nil)
			defer b.close()
			id := b.submit("a/t", nil)
			c := b.next()
			for _, p := range []State{Running, Verifying, Publishing} {
				if s, _ := b.Get(id); s.State != phase {
					c.attempt.Phase(p)
				}
			}
			for range 2 {
				if s, err := b.Cancel(id); err != nil || s.State != Canceling {
					t.Fatalf("%s, %v", s.State, err)
				}
			}
			if cause := context.Cause(c.ctx); reason.Of(cause) != reason.Canceled {
				t.Errorf("cause %v", cause)
			}
			c.attempt.Phase(Publishing) // too late to matter
			c.end(reason.New(reason.TransportError, "flushed"))
			if s := b.until(id, Canceled); code(s) != reason.Canceled {
				t.Errorf("%+v", s.LastReason)
			}
			if s, err := b.Cancel(id); err != nil || s.State != Canceled {
				t.Errorf("again: %s, %v", s.State, err)
			}
		})
	}
	t.Run("published already", func(t *testing.T) {
		b := newBench(t, nil)
		defer b.close()
		id := b.submit("a/t", nil)
		c := b.next()
		if _, err := b.Cancel(id); err != nil {
			t.Fatal(err)
		}
		c.reply <- outcome{res: Result{Bytes: 5}}
		if s := b.until(id, Canceled); s.Result == nil || s.Result.Bytes != 5 {
			t.Errorf("the result hides what was published: %+v", s.Result)
		}
	})
	t.Run("does not return", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.MaxRunning = 1 })
		defer b.close()
		id := b.submit("a/t", nil)
		c := b.next()
		if _, err := b.Cancel(id); err != nil {
			t.Fatal(err)
		}
		b.submit("a/t", nil)
		b.clock.Advance(10 * time.Second)
		before := b.until(id, Canceled)
		if b.Stats().Running != 1 {
			t.Error("the place was given away while the attempt still holds it")
		}
		c.end(nil)
		b.next().end(nil) // only now
		b.settled()
		if after, _ := b.Get(id); !cmp.Equal(before, after) {
			t.Error(cmp.Diff(before, after))
		}
	})
	t.Run("ended", func(t *testing.T) {
		b := newBench(t, nil)
		defer b.close()
		id := b.submit("a/t", nil)
		b.next().end(nil)
		b.until(id, Succeeded)
		var te *TransitionError
		if s, err := b.Cancel(id); !errors.As(err, &te) || te.From != Succeeded || s.State != Succeeded {
			t.Errorf("%s, %v", s.State, err)
		}
		if _, err := b.Cancel(ID{9}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestDeadline(t *testing.T) {
	hour := func(s *Spec) { s.Deadline = Duration(time.Hour) }
	t.Run("never ran", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.MaxRunning = 1 })
		defer b.close()
		b.submit("a/t", nil)
		id := b.submit("a/t", hour)
		b.clock.Advance(time.Hour - 1)
		if s, _ := b.Get(id); s.State != Queued || !s.DeadlineAt.Equal(s.CreatedAt.Add(time.Hour)) {
			t.Errorf("%+v", s)
		}
		b.clock.Advance(1)
		if s := b.until(id, Expired); code(s) != reason.Deadline {
			t.Errorf("%+v", s.LastReason)
		}
	})
	for name, c := range map[string]struct {
		err  error
		want State
		code reason.Code
	}{
		"interrupted":         {context.Canceled, Expired, reason.Deadline},
		"retryable":           {reason.New(reason.TransportError, "flushed"), Expired, reason.Deadline},
		"canceled":            {reason.New(reason.Canceled, "stopped"), Expired, reason.Deadline},
		"a reason of its own": {reason.New(reason.NoSpace, "full"), Failed, reason.NoSpace},
		"published":           {nil, Succeeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			defer b.close()
			id := b.submit("a/t", hour)
			call := b.next()
			call.attempt.Phase(Running)
			b.clock.Advance(time.Hour)
			if reason.Of(context.Cause(call.ctx)) != reason.Deadline {
				t.Errorf("cause %v", context.Cause(call.ctx))
			}
			call.end(c.err)
			if s := b.until(id, c.want); code(s) != c.code {
				t.Errorf("%+v", s.LastReason)
			}
			if b.clock.Timers() != 0 {
				t.Errorf("%d timers stay", b.clock.Timers())
			}
		})
	}
	t.Run("does not return", func(t *testing.T) {
		b := newBench(t, nil)
		defer b.close()
		id := b.submit("a/t", hour)
		c := b.next()
		b.clock.Advance(time.Hour + 10*time.Second)
		if s := b.until(id, Expired); code(s) != reason.Deadline {
			t.Errorf("%+v", s.LastReason)
		}
		c.end(nil)
		b.settled()
		b.until(id, Expired)
	})
	t.Run("canceled meanwhile", func(t *testing.T) {
		b := newBench(t, nil)
		defer b.close()
		id := b.submit("a/t", hour)
		c := b.next()
		b.clock.Advance(time.Hour)
		if _, err := b.Cancel(id); err != nil {
			t.Fatal(err)
		}
		b.clock.Advance(time.Minute)
		b.until(id, Canceled)
		c.end(nil)
	})
	t.Run("no time for another attempt", func(t *testing.T) {
		b := newBench(t, nil)
		defer b.close()
		id := b.submit("a/t", func(s *Spec) { s.Deadline = Duration(1500 * time.Millisecond) })
		b.next().end(reason.New(reason.PeerRefused, "busy"))
		b.until(id, Queued)
		b.clock.Advance(time.Second)
		b.next().end(reason.New(reason.Stalled, "no"))
		if s := b.until(id, Failed); code(s) != reason.Stalled {
			t.Errorf("%+v", s.LastReason)
		}
	})
	t.Run("waiting for a place after a failure", func(t *testing.T) {
		b := newBench(t, func(c *Config) { c.MaxRunning = 1 })
		defer b.close()
		id := b.submit("a/t", hour)
		b.next().end(reason.New(reason.PeerRefused, "busy"))
		b.until(id, Queued)
		b.settled()
		b.submit("a/t", nil)
		b.clock.Advance(time.Hour)
		if s := b.until(id, Failed); code(s) != reason.PeerRefused {
			t.Errorf("%+v", s.LastReason)
		}
	})
}
