package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mover/reason"
)

// handClock is moved by Advance. (Package jobtest has the same for others; it
// imports this package and cannot serve here.)
type handClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*handTimer
}

type handTimer struct {
	c   *handClock
	due time.Time
	f   func()
}

func newHandClock() *handClock { return &handClock{now: time.Unix(1e9, 0)} }

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) AfterFunc(d time.Duration, f func()) Stopper {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{c, c.now.Add(d), f}
	c.timers = append(c.timers, t)
	return t
}

func (t *handTimer) Stop() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	i := slices.Index(t.c.timers, t)
	if i >= 0 {
		t.c.timers = slices.Delete(t.c.timers, i, i+1)
	}
	return i >= 0
}

func (c *handClock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		var next *handTimer
		for _, t := range c.timers {
			if !t.due.After(end) && (next == nil || t.due.Before(next.due)) {
				next = t
			}
		}
		if next == nil {
			break
		}
		c.now = next.due
		c.mu.Unlock()
		next.Stop()
		next.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

// bench is a queue with a clock and a router in the test's hands.
type bench struct {
	t      testing.TB
	clock  *handClock
	script *script
	taken  []*scripted
	*Queue
}

func newBench(t testing.TB, change func(*Config)) *bench {
	b := &bench{t: t, clock: newHandClock(), script: newScript()}
	cfg := Config{NodeName: "a", Router: b.script, Clock: b.clock, Rand: func() float64 { return 0.5 }}
	if change != nil {
		change(&cfg)
	}
	q, err := NewQueue(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Queue = q
	return b
}

// close ends the queue; attempts still under way are answered.
func (b *bench) close() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, c := range b.taken {
		select {
		case c.reply <- outcome{err: ErrClosed}:
		default: // the test answered, and nobody has listened yet
		}
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		if err := b.Close(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	for {
		select {
		case c := <-b.script.calls:
			c.end(context.Cause(c.ctx))
		case <-stop:
			return
		}
	}
}

func testSpec(change func(*Spec)) Spec {
	s := Spec{Source: Place{Path: "data/x"}, Destination: Place{Node: "b", Path: "in/"}}
	if change != nil {
		change(&s)
	}
	return s
}

func (b *bench) submit(owner string, change func(*Spec)) ID {
	b.t.Helper()
	s, replay, err := b.Submit(b.t.Context(), testSpec(change), owner, "")
	if err != nil || replay {
		b.t.Fatalf("submit: %v, replay %v", err, replay)
	}
	return s.ID
}

// next returns the next attempt that started.
func (b *bench) next() *scripted {
	b.t.Helper()
	select {
	case c := <-b.script.calls:
		b.taken = append(b.taken, c)
		return c
	case <-time.After(10 * time.Second):
		b.t.Fatal("no attempt started")
		return nil
	}
}

// idle fails if an attempt has started. Attempts start under the lock, in the
// call that gave the reason, so their number is exact at once.
func (b *bench) idle() {
	b.t.Helper()
	if n := b.Stats().Running; n != 0 {
		b.t.Fatalf("%d attempts are under way", n)
	}
}

// until waits for the job to come to a state.
func (b *bench) until(id ID, want State) Snapshot {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := b.Get(id)
	for err == nil && s.State != want {
		if s.State.Terminal() {
			b.t.Fatalf("the job is %s (%+v), want %s", s.State, s.LastReason, want)
		}
		s, err = b.Wait(ctx, id, s.Version)
	}
	if err != nil {
		b.t.Fatalf("wait for %s: %v; it is %s", want, err, s.State)
	}
	return s
}

func (b *bench) settled() {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); b.Stats().Running > 0; runtime.Gosched() {
		if time.Now().After(end) {
			b.t.Fatal("attempts do not return")
		}
	}
}

func code(s Snapshot) reason.Code {
	if s.LastReason == nil {
		return ""
	}
	return s.LastReason.Code
}

func TestJobSucceeds(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	id := b.submit("a/t", nil)
	c := b.next()
	if c.attempt.Number != 1 || c.attempt.Job.State != Preparing || c.attempt.Job.Spec.Destination.Path != "in/x" {
		t.Errorf("attempt %+v", c.attempt)
	}
	c.attempt.Progress.SetTotal(100, 1)
	b.clock.Advance(time.Second)
	var seen []State
	for _, phase := range []State{Running, Running, Verifying, Publishing} {
		c.attempt.Phase(phase)
		s, _ := b.Get(id)
		seen = append(seen, s.State)
	}
	if diff := cmp.Diff([]State{Running, Running, Verifying, Publishing}, seen); diff != "" {
		t.Error(diff)
	}
	c.attempt.Progress.Add(100)
	b.clock.Advance(time.Second)
	c.reply <- outcome{res: Result{CRC32C: "0a1b2c3d", Bytes: 100, Durable: true, Verified: true, Providers: []string{"soft"}}}
	s := b.until(id, Succeeded)
	if s.Version != 6 || s.Attempts != 1 || s.LastReason != nil || s.Result.Seconds != 2 || s.Result.Bytes != 100 ||
		s.Progress.BytesDone != 100 || s.FinishedAt == nil || s.FinishedAt.Sub(*s.StartedAt) != 2*time.Second {
		t.Errorf("%+v, result %+v", s, s.Result)
	}
	if st := b.Stats(); st.Bytes != 100 || st.Attempts[""] != 1 || st.Jobs[Succeeded] != 1 || st.Running != 0 {
		t.Errorf("%+v", st)
	}
	c.attempt.Phase(Running) // late
	c.attempt.Progress.Add(1)
	if again, _ := b.Get(id); !cmp.Equal(s, again) {
		t.Error(cmp.Diff(s, again))
	}
}

func TestSuccessWithoutPhasesGoesThroughTheTable(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	id := b.submit("a/t", nil)
	b.next().end(nil)
	if s := b.until(id, Succeeded); s.Version != 6 {
		t.Errorf("version %d", s.Version)
	}
	id = b.submit("a/t", nil)
	b.next().reply <- outcome{res: Result{Skipped: true}}
	if s := b.until(id, Succeeded); s.Version != 3 || !s.Result.Skipped {
		t.Errorf("skipped: version %d", s.Version)
	}
}

func TestIllegalPhases(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	id := b.submit("a/t", nil)
	c := b.next()
	for _, p := range append(States(), "nope") {
		if p != Running {
			c.attempt.Phase(p)
		}
	}
	if s, _ := b.Get(id); s.State != Preparing || s.Version != 2 {
		t.Errorf("%s, version %d", s.State, s.Version)
	}
	c.attempt.Phase(Running)
	c.attempt.Phase(Preparing)
	if s, _ := b.Get(id); s.State != Running {
		t.Errorf("%s", s.State)
	}
}

func TestRetryUntilAttemptsAreUsedUp(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxAttempts = 10 })
	defer b.close()
	id := b.submit("a/t", nil)
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}
	for i := range 10 {
		c := b.next()
		if c.attempt.Number != i+1 {
			t.Fatalf("attempt %d, want %d", c.attempt.Number, i+1)
		}
		s, _ := b.Get(id)
		if s.Progress.BytesDone != 0 || s.NextAttemptAt != nil || s.Attempts != i+1 {
			t.Fatalf("attempt %d begins with %+v", i+1, s)
		}
		c.attempt.Progress.SetTotal(10, 1)
		c.attempt.Progress.Add(int64(i + 1))
		c.attempt.Phase(Running)
		if s, _ := b.Get(id); s.Progress.BytesDone != int64(i+1) {
			t.Fatalf("progress %+v", s.Progress)
		}
		c.end(reason.New(reason.PeerUnreachable, "dial b: %w", io.EOF))
		if i == 9 {
			break
		}
		s = b.until(id, Queued)
		if d := s.NextAttemptAt.Sub(b.clock.Now()); code(s) != reason.PeerUnreachable || !s.LastReason.Retryable ||
			s.LastReason.Detail != "dial b: EOF" || d != want[i]*time.Second {
			t.Fatalf("after failure %d: %+v, next in %v, want %vs", i+1, s.LastReason, d, want[i])
		}
		b.clock.Advance(want[i]*time.Second - 1)
		b.idle()
		b.clock.Advance(1)
	}
	s := b.until(id, Failed)
	if s.Attempts != 10 || code(s) != reason.PeerUnreachable || s.NextAttemptAt != nil {
		t.Errorf("%+v", s)
	}
	b.clock.Advance(time.Hour)
	b.idle()
	if n := b.Stats().Attempts[reason.PeerUnreachable]; n != 10 {
		t.Errorf("%d attempts counted", n)
	}
}

func TestEveryReason(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	for _, c := range reason.All() {
		t.Run(string(c), func(t *testing.T) {
			id := b.submit("a/t", nil)
			call := b.next()
			call.attempt.Phase(Running)
			call.end(reason.New(c, "no"))
			want := Failed
			switch {
			case c.Retryable():
				want = Queued
			case c == reason.Canceled:
				want = Canceled
			case c == reason.Deadline:
				want = Expired
			}
			if s := b.until(id, want); code(s) != c || s.LastReason.Retryable != c.Retryable() {
				t.Errorf("%+v", s.LastReason)
			}
			if _, err := b.Cancel(id); want == Queued && err != nil {
				t.Error(err)
			}
		})
	}
	b.clock.Advance(time.Hour)
	b.idle()
}

func TestUnwrappedErrorAndPanicAreInternal(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	id := b.submit("a/t", nil)
	b.next().end(errors.New("odd\x1b[2J\xff"))
	if s := b.until(id, Failed); code(s) != reason.Internal || s.LastReason.Detail != `odd\u001b[2J`+"\uFFFD" {
		t.Errorf("%+v", s.LastReason)
	}
	q, err := NewQueue(Config{NodeName: "a", Router: panicRouter{}})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := q.Submit(t.Context(), testSpec(nil), "a/t", "")
	if err != nil {
		t.Fatal(err)
	}
	for !s.State.Terminal() {
		if s, err = q.Wait(t.Context(), s.ID, s.Version); err != nil {
			t.Fatal(err)
		}
	}
	if s.State != Failed || code(s) != reason.Internal || strings.Contains(s.LastReason.Detail, "secret") {
		t.Errorf("%s, %+v", s.State, s.LastReason)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

type panicRouter struct{}

func (panicRouter) Run(context.Context, *Attempt) (Result, error) { panic("secret") }

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
		if len(b.clock.timers) != 0 {
			t.Errorf("%d timers stay", len(b.clock.timers))
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
			if len(b.clock.timers) != 0 {
				t.Errorf("%d timers stay", len(b.clock.timers))
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

func TestIdempotency(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Keep = 1 })
	defer b.close()
	submit := func(owner, key string, change func(*Spec)) (Snapshot, bool, error) {
		return b.Submit(t.Context(), testSpec(change), owner, key)
	}
	first, replay, err := submit("a/t", "k", nil)
	if err != nil || replay {
		t.Fatal(err, replay)
	}
	again, replay, err := submit("a/t", "k", func(s *Spec) { s.Destination.Path, s.Overwrite = "in/./x", "fail" })
	if err != nil || !replay || again.ID != first.ID {
		t.Errorf("the same job in other words: %v, %v", replay, err)
	}
	if _, _, err := submit("a/t", "k", func(s *Spec) { s.Priority = 1 }); !errors.Is(err, ErrKeyConflict) {
		t.Errorf("another job: %v", err)
	}
	if other, replay, err := submit("a/u", "k", func(s *Spec) { s.Priority = 1 }); err != nil || replay || other.ID == first.ID {
		t.Errorf("another owner: %v, %v", replay, err)
	}
	if other, replay, err := submit("a/t", "", nil); err != nil || replay || other.ID == first.ID {
		t.Errorf("no key: %v, %v", replay, err)
	}
	for range 3 {
		b.next().end(nil)
	}
	b.settled()
	// Only the last that ended is kept, and its key with it.
	kept := 0
	for _, owner := range []string{"a/t", "a/u"} {
		if _, ok := b.store.byKey(keyOf{owner, "k"}); ok {
			kept++
		}
	}
	if n := len(b.store.(*memory).keys); n != kept || n > 1 {
		t.Errorf("%d keys for %d jobs", n, len(b.store.(*memory).records))
	}
}

func TestBoundsAndKeeping(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxQueued, c.MaxRunning, c.Keep = 2, 1, 3 })
	defer b.close()
	for range 3 {
		b.submit("a/t", nil)
	}
	if _, _, err := b.Submit(t.Context(), testSpec(nil), "a/t", ""); !errors.Is(err, ErrQueueFull) {
		t.Errorf("got %v", err)
	}
	for range 3 {
		b.next().end(nil)
	}
	b.settled()
	for range 50 {
		b.submit("a/t", nil)
		b.next().end(nil)
		b.settled()
	}
	m := b.store.(*memory)
	if len(m.records) != 3 || len(m.order) != 3 || len(m.ended) != 3 || len(b.live) != 0 || len(b.ready.owners) != 0 {
		t.Errorf("%d records, %d ids, %d ended, %d live, %d owners", len(m.records), len(m.order), len(m.ended), len(b.live), len(b.ready.owners))
	}
	if n := b.Counts()[Succeeded]; n != 3 {
		t.Errorf("%d counted", n)
	}
}

func TestWait(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	id := b.submit("a/t", nil)
	c := b.next()
	s, _ := b.Get(id)
	if got, err := b.Wait(t.Context(), id, s.Version-1); err != nil || got.Version != s.Version {
		t.Errorf("an old version waits: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := b.Wait(ctx, id, s.Version); !errors.Is(err, context.Canceled) || got.ID != id {
		t.Errorf("%v, %v", got.ID, err)
	}
	if _, err := b.Wait(ctx, ID{1}, 0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	woken := make(chan Snapshot, 20)
	for range 20 {
		go func() {
			got, _ := b.Wait(t.Context(), id, s.Version)
			woken <- got
		}()
	}
	c.attempt.Progress.SetTotal(5, 1) // progress wakes nobody
	c.attempt.Phase(Running)
	for range 20 {
		if got := <-woken; got.Version != s.Version+1 || got.State != Running {
			t.Errorf("woken with %s, version %d", got.State, got.Version)
		}
	}
	c.end(nil)
	s = b.until(id, Succeeded)
	if got, err := b.Wait(t.Context(), id, s.Version); err != nil || got.State != Succeeded {
		t.Errorf("an ended job waits: %v", err)
	}
}

func TestList(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxRunning = 1 })
	defer b.close()
	var ids []ID
	for i := range 25 {
		ids = append(ids, b.submit(fmt.Sprint("a/t", i%2), func(s *Spec) { s.Labels = map[string]string{"n": fmt.Sprint(i % 5)} }))
		b.clock.Advance(time.Second)
	}
	slices.Reverse(ids)
	var got []ID
	token, pages := "", 0
	for {
		page, next, err := b.List(Filter{}, token, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			got = append(got, s.ID)
		}
		if pages++; pages == 1 {
			b.submit("a/new", nil) // does not shift the pages
		}
		if token = next; token == "" {
			break
		}
	}
	if diff := cmp.Diff(ids, got); diff != "" || pages != 3 {
		t.Errorf("%d pages\n%s", pages, diff)
	}
	first, _ := b.Get(ids[24])
	for name, c := range map[string]struct {
		f    Filter
		want int
	}{
		"state":   {Filter{States: []State{Preparing}}, 1},
		"states":  {Filter{States: []State{Preparing, Queued}}, 26},
		"owner":   {Filter{Owner: "a/t1"}, 12},
		"label":   {Filter{LabelKey: "n", LabelValue: "3"}, 5},
		"created": {Filter{CreatedAfter: first.CreatedAt}, 25},
		"all":     {Filter{Owner: "a/t1", LabelKey: "n", LabelValue: "3", States: []State{Failed}}, 0},
	} {
		if page, _, err := b.List(c.f, "", 100); err != nil || len(page) != c.want {
			t.Errorf("%s: %d, %v, want %d", name, len(page), err, c.want)
		}
	}
	for _, bad := range []string{"x", "AAAAAAAAAAAAAAAAAAAAAA", strings.Repeat("A", 1000), "!!"} {
		if _, _, err := b.List(Filter{}, bad, 10); !errors.Is(err, ErrPageToken) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestClose(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxRunning = 2 })
	running := b.submit("a/t", func(s *Spec) { s.Deadline = Duration(time.Hour) })
	canceling := b.submit("a/t", nil)
	waiting := b.submit("a/t", nil)
	first, second := b.next(), b.next()
	if first.attempt.Job.ID != running {
		first, second = second, first
	}
	if _, err := b.Cancel(canceling); err != nil {
		t.Fatal(err)
	}
	s, _ := b.Get(waiting)
	waited := make(chan error, 1)
	go func() {
		_, err := b.Wait(context.Background(), waiting, s.Version)
		waited <- err
	}()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Close(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 attempts") {
		t.Errorf("Close with attempts that do not return: %v", err)
	}
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("a waiter got %v", err)
	}
	if !errors.Is(context.Cause(first.ctx), ErrClosed) {
		t.Errorf("cause %v", context.Cause(first.ctx))
	}
	first.end(context.Cause(first.ctx))
	second.end(context.Canceled)
	b.close()
	for id, want := range map[ID]State{running: Queued, canceling: Canceled, waiting: Queued} {
		if s, err := b.Get(id); err != nil || s.State != want {
			t.Errorf("%s, %v, want %s", s.State, err, want)
		}
	}
	if _, _, err := b.Submit(context.Background(), testSpec(nil), "a/t", ""); !errors.Is(err, ErrClosed) {
		t.Errorf("submit: %v", err)
	}
	b.clock.Advance(2 * time.Hour)
	b.idle()
	if s, _ := b.Get(running); s.State != Queued {
		t.Errorf("a closed queue moved a job to %s", s.State)
	}
}

func TestConfigRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"name":     {Router: panicRouter{}},
		"router":   {NodeName: "a"},
		"negative": {NodeName: "a", Router: panicRouter{}, MaxRunning: -1},
		"backoff":  {NodeName: "a", Router: panicRouter{}, Backoff: -1},
	} {
		if _, err := NewQueue(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
