package job

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mover/reason"
)

// started returns the owners in the order in which n attempts start, each
// ending before the next.
func (b *bench) started(n int) string {
	var out []string
	for range n {
		c := b.next()
		out = append(out, strings.TrimPrefix(c.attempt.Job.Owner, "a/"))
		c.end(nil)
		b.until(c.attempt.Job.ID, Succeeded)
	}
	return strings.Join(out, " ")
}

func TestFairBetweenOwners(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxRunning = 1 })
	defer b.close()
	for range 4 {
		b.submit("a/x", nil) // the first of them starts at once
	}
	for range 2 {
		b.submit("a/y", nil)
		b.submit("a/z", nil)
	}
	if got, want := b.started(8), "x y z x y z x x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPriorityBeforeFairness(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxRunning = 1 })
	defer b.close()
	b.submit("a/x", nil)
	b.submit("a/x", nil)
	b.submit("a/low", func(s *Spec) { s.Priority = -1 })
	for range 2 {
		b.submit("a/x", func(s *Spec) { s.Priority = 5 })
	}
	b.submit("a/y", nil)
	if got, want := b.started(6), "x x x y x low"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOwnerWithFewerRunningGoesFirst(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxRunning = 3 })
	defer b.close()
	for range 5 {
		b.submit("a/x", nil) // three start
	}
	b.submit("a/y", nil)
	b.submit("a/y", nil)
	calls := []*scripted{b.next(), b.next(), b.next()}
	calls[0].end(nil)
	if o := b.next().attempt.Job.Owner; o != "a/y" {
		t.Errorf("%s starts, want a/y (none running)", o)
	}
	calls[1].end(nil)
	if o := b.next().attempt.Job.Owner; o != "a/x" {
		t.Errorf("%s starts, want a/x: both have one running, and a/y started one later", o)
	}
	calls[2].end(nil)
	if o := b.next().attempt.Job.Owner; o != "a/y" {
		t.Errorf("%s starts, want a/y", o)
	}
}

func TestBackoffBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.Float64Range(0, 0.9999).Draw(t, "rand")
		failures := rapid.IntRange(1, 100000).Draw(t, "failures")
		c := Config{Backoff: time.Second, BackoffMax: time.Minute, Rand: func() float64 { return r }}
		base := time.Minute
		if failures < 7 {
			base = time.Second << (failures - 1)
		}
		if d := c.backoff(failures); d < base*4/5-1 || d > min(base*6/5, time.Minute) {
			t.Fatalf("%v after %d failures", d, failures)
		}
	})
}

// legal checks the events that a history left.
func (b *bench) legal(t *rapid.T) {
	last := map[ID]Event{}
	for after := uint64(0); ; {
		page, err := b.Events(b.t.Context(), EventFilter{After: after}, MaxPage)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return
		}
		for _, e := range page {
			old, seen := last[e.Job]
			if seen != (e.Type != EventSubmitted) || e.Version != old.Version+1 {
				t.Fatalf("%+v after %+v", e, old)
			}
			if seen && e.State != old.State && !old.State.CanMove(e.State) {
				t.Fatalf("%s -> %s", old.State, e.State)
			}
			last[e.Job], after = e, e.Seq
		}
	}
}

// TestAnyHistory: whatever users, the clock and attempts do, moves are legal,
// bounds hold, and in the end everything ended or waits.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, func(c *Config) { c.MaxRunning, c.MaxQueued, c.MaxAttempts = 2, 5, 3 })
		defer b.close()
		var ids []ID
		var calls []*scripted
		running := func() int { return b.Stats().Running }
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			b.drained()
			for len(calls) < running() {
				calls = append(calls, b.next())
			}
			switch op := rapid.SampledFrom([]string{"submit", "cancel", "phase", "end", "time"}).Draw(rt, "op"); {
			case op == "submit":
				spec := testSpec(func(s *Spec) {
					s.Priority = rapid.IntRange(-1, 1).Draw(rt, "priority")
					s.Deadline = Duration(rapid.IntRange(0, 20).Draw(rt, "deadline")) * Duration(time.Second)
				})
				s, _, err := b.Submit(t.Context(), spec, fmt.Sprint("a/", rapid.IntRange(0, 2).Draw(rt, "owner")), "")
				if err == nil {
					ids = append(ids, s.ID)
				} else if err != ErrQueueFull {
					rt.Fatal(err)
				}
			case op == "cancel" && len(ids) > 0:
				if s, err := b.Cancel(rapid.SampledFrom(ids).Draw(rt, "id")); err != nil && !s.State.Terminal() {
					rt.Fatal(err)
				}
			case op == "phase" && len(calls) > 0:
				rapid.SampledFrom(calls).Draw(rt, "call").attempt.Phase(rapid.SampledFrom(States()).Draw(rt, "state"))
			case op == "end" && len(calls) > 0:
				i := rapid.IntRange(0, len(calls)-1).Draw(rt, "call")
				before := b.Stats()
				if code := rapid.SampledFrom(append(reason.All(), "")).Draw(rt, "code"); code == "" {
					calls[i].end(nil)
				} else {
					calls[i].end(reason.New(code, "no"))
				}
				calls = append(calls[:i], calls[i+1:]...)
				total := func(s Stats) (n uint64) {
					for _, v := range s.Attempts {
						n += v
					}
					return n
				}
				for total(b.Stats()) == total(before) {
					runtime.Gosched() // until the attempt's goroutine has told
				}
			case op == "time":
				b.clock.Advance(time.Duration(rapid.IntRange(0, 15000).Draw(rt, "ms")) * time.Millisecond)
			}
			b.drained() // an end counts when it is durable
			st := b.Stats()
			sum, queued := 0, st.Jobs[Queued]
			for _, n := range st.Jobs {
				if n < 0 {
					rt.Fatalf("%v", st.Jobs)
				}
				sum += n
			}
			if st.Running > 2 || sum != len(ids) || queued != b.waiting {
				rt.Fatalf("%+v, %d submitted, %d waiting", st, len(ids), b.waiting)
			}
		}
		for len(calls) < running() {
			calls = append(calls, b.next())
		}
		for _, c := range calls {
			c.end(nil)
		}
		b.legal(rt)
	})
}
