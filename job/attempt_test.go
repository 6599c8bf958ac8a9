package job

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mover/reason"
)

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
