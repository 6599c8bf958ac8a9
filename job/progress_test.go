package job_test

import (
	"context"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mover/job"
	"mover/job/jobtest"
)

// progressOf returns the Progress of an attempt under way, and a view of it
// through the queue.
func progressOf(t testing.TB, clock *jobtest.Clock) (*job.Progress, func() job.ProgressView, func()) {
	got, release := make(chan *job.Attempt, 1), make(chan struct{})
	q, err := job.NewQueue(job.Config{NodeName: "a", Clock: clock, Router: routerFunc(
		func(ctx context.Context, a *job.Attempt) (job.Result, error) {
			got <- a
			<-release
			return job.Result{}, nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := q.Submit(t.Context(), spec("x"), "a/t", "")
	if err != nil {
		t.Fatal(err)
	}
	a := <-got
	view := func() job.ProgressView {
		s, err := q.Get(s.ID)
		if err != nil {
			t.Fatal(err)
		}
		return s.Progress
	}
	return a.Progress, view, func() {
		close(release)
		if err := q.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func TestProgressRateAndETA(t *testing.T) {
	clock := jobtest.NewClock()
	p, view, end := progressOf(t, clock)
	defer end()
	if v := view(); v.ETASeconds != nil || v.RateBytesPerSecond != 0 {
		t.Errorf("before anything: %+v", v)
	}
	p.SetTotal(10_000, 1)
	if v := view(); v.ETASeconds != nil {
		t.Errorf("an ETA without a rate: %+v", v)
	}
	for range 40 { // 1000 bytes a second for 4 seconds and more
		clock.Advance(100 * time.Millisecond)
		p.Add(100)
	}
	v := view()
	if v.BytesDone != 4000 || v.RateBytesPerSecond != 1000 || v.ETASeconds == nil || *v.ETASeconds != 6 {
		t.Errorf("after 4 s: %+v", v)
	}
	clock.Advance(10 * time.Second)
	if v = view(); v.RateBytesPerSecond != 0 || v.ETASeconds != nil {
		t.Errorf("after a stall: %+v", v)
	}
	p.Add(7000) // 11000 of 10000
	p.AddItems(3)
	if v = view(); v.BytesDone != 10_000 || v.ItemsDone != 1 || v.ETASeconds == nil || *v.ETASeconds != 0 {
		t.Errorf("over the total: %+v", v)
	}
}

func TestProgressIsAlwaysSane(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		clock := jobtest.NewClock()
		p, view, end := progressOf(t, clock)
		defer end()
		any64 := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-5, 5000), rapid.Just(int64(math.MaxInt64)), rapid.Just(int64(math.MinInt64)))
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "op") {
			case 0:
				p.SetTotal(any64.Draw(rt, "bytes"), any64.Draw(rt, "items"))
			case 1:
				p.Add(any64.Draw(rt, "n"))
			case 2:
				p.AddItems(any64.Draw(rt, "n"))
			case 3:
				clock.Advance(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(rt, "d")))
			}
			v := view()
			if v.BytesDone < 0 || v.BytesDone > v.BytesTotal || v.ItemsDone < 0 || v.ItemsDone > v.ItemsTotal ||
				v.RateBytesPerSecond < 0 || v.ETASeconds != nil && *v.ETASeconds < 0 {
				rt.Fatalf("%+v", v)
			}
		}
	})
}
