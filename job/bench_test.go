package job

import (
	"context"
	"runtime"
	"testing"
	"time"

	"mover/job/jobtest"
	"mover/reason"
)

// bench is a queue with a clock and a router in the test's hands.
type bench struct {
	t      testing.TB
	clock  *jobtest.Clock
	script *script
	taken  []*scripted
	*Queue
}

func newBench(t testing.TB, change func(*Config)) *bench {
	b := &bench{t: t, clock: jobtest.NewClock(), script: newScript()}
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

func settled(op *write) bool {
	select {
	case <-op.settled:
		return true
	default:
		return false
	}
}

// drained waits until every end, and every beginning of an attempt, is durable.
func (b *bench) drained() {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		b.mu.Lock()
		pending := 0
		for _, e := range b.live {
			if e.pending != nil || e.attempt != nil && e.last != nil && !settled(e.last) {
				pending++
			}
		}
		b.mu.Unlock()
		if pending == 0 {
			return
		}
		if time.Now().After(end) {
			b.t.Fatal("ends do not become durable")
		}
	}
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
