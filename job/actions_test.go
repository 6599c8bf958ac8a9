package job

import (
	"context"
	"errors"
	"testing"
	"time"

	"mover/reason"
)

func TestPauseAndResume(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	id := b.submit("a/t", nil)
	c := b.next()
	c.attempt.Phase(Running)
	for range 2 {
		if s, err := b.Pause(id); err != nil || !s.Pausing || s.State != Running {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if !errors.Is(context.Cause(c.ctx), ErrPaused) {
		t.Error(context.Cause(c.ctx))
	}
	c.end(context.Cause(c.ctx))
	b.until(id, Paused)
	b.settled()
	if s, err := b.Resume(id); err != nil || s.State == Paused {
		t.Errorf("%s, %v", s.State, err)
	}
	c = b.next()
	if c.attempt.Number != 2 {
		t.Error("not another attempt")
	}
	c.end(reason.New(reason.Stalled, "no"))
	b.until(id, Queued)
	if s, err := b.Pause(id); err != nil || s.State != Paused || s.NextAttemptAt != nil {
		t.Errorf("backing off: %s, %v", s.State, err)
	}
	if s, err := b.Cancel(id); err != nil || s.State != Canceled {
		t.Errorf("%s, %v", s.State, err)
	}
	var te *TransitionError
	if _, err := b.Pause(id); !errors.As(err, &te) {
		t.Error(err)
	}
	if _, err := b.Resume(id); !errors.As(err, &te) {
		t.Error(err)
	}
}

func TestRetryAndDelete(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	id := b.submit("a/t", nil)
	c := b.next()
	c.attempt.Items.Add(ItemRecord{Path: []byte("x"), Kind: EntryFile, State: ItemSucceeded})
	c.attempt.Items.Add(ItemRecord{Path: []byte("y"), Kind: EntryFile, State: ItemFailed, Reason: &Reason{Code: reason.NoSpace, Detail: "full"}})
	var te *TransitionError
	if err := b.Delete(id); !errors.As(err, &te) {
		t.Error(err)
	}
	if _, err := b.Retry(id); !errors.As(err, &te) {
		t.Error(err)
	}
	why := NewReason(reason.New(reason.NoSpace, "full"))
	c.reply <- outcome{res: Result{Items: 1, ItemsFailed: 1, FirstFailure: &why}}
	if s := b.until(id, Partial); code(s) != reason.NoSpace {
		t.Errorf("%+v", s.LastReason)
	}
	if s, err := b.Retry(id); err != nil || s.Retries != 1 || s.FinishedAt != nil || s.State.Terminal() {
		t.Errorf("%+v, %v", s, err)
	}
	c = b.next()
	if _, err := b.Retry(id); err != nil {
		t.Errorf("repeated: %v", err)
	}
	if c.attempt.Number != 2 || !c.attempt.Items.Done([]byte("x")) || c.attempt.Items.Done([]byte("y")) {
		t.Error("what was published is not known")
	}
	c.end(nil)
	b.until(id, Succeeded)
	if items, _, err := b.Items(id, ItemFilter{State: ItemFailed}, "", 10); err != nil || len(items) != 1 || items[0].Reason.Code != reason.NoSpace {
		t.Errorf("%+v, %v", items, err)
	}
	items, next, err := b.Items(id, ItemFilter{}, "", 1)
	if err != nil || len(items) != 1 || next == "" {
		t.Errorf("%d, %q, %v", len(items), next, err)
	}
	if items, next, err = b.Items(id, ItemFilter{}, next, 1); err != nil || string(items[0].Path) != "y" || next != "" {
		t.Errorf("%+v, %q, %v", items, next, err)
	}
	if _, err := b.Retry(id); !errors.As(err, &te) {
		t.Errorf("a success again: %v", err)
	}
	if err := b.Delete(id); err != nil {
		t.Error(err)
	}
	if err := b.Delete(id); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if n := b.Counts()[Succeeded]; n != 0 || len(b.live) != 0 {
		t.Errorf("%d counted, %d live", n, len(b.live))
	}
	page, err := b.Events(t.Context(), EventFilter{Job: &id}, 100)
	if err != nil || len(page) == 0 || page[len(page)-1].Type != EventDeleted {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestPatchAndDrain(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxRunning = 1 })
	defer b.close()
	first := b.submit("a/t", nil)
	c := b.next()
	second, third := b.submit("a/t", nil), b.submit("a/t", nil)
	s, _ := b.Get(third)
	up, limit, soon := 7, Rate(5000), Duration(time.Minute)
	if _, err := b.Patch(third, Patch{Priority: &up}, s.Version+1); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	if p, err := b.Patch(third, Patch{Priority: &up, Deadline: &soon, Labels: map[string]string{"a": "b"}}, s.Version); err != nil ||
		p.Version != s.Version+1 || p.Spec.Labels["a"] != "b" || p.DeadlineAt == nil {
		t.Errorf("%+v, %v", p, err)
	}
	bad := 1000
	var fe *FieldError
	if _, err := b.Patch(third, Patch{Priority: &bad}, 0); !errors.As(err, &fe) {
		t.Error(err)
	}
	if _, err := b.Patch(first, Patch{BandwidthLimit: &limit}, 0); err != nil || c.attempt.Limit() != limit {
		t.Errorf("%v, %v", c.attempt.Limit(), err)
	}
	b.Drain(true)
	if _, _, err := b.Submit(t.Context(), testSpec(nil), "a/t", ""); !errors.Is(err, ErrDraining) {
		t.Error(err)
	}
	c.end(nil)
	b.until(first, Succeeded)
	b.settled()
	b.idle()
	b.Drain(false)
	if c = b.next(); c.attempt.Job.ID != third {
		t.Error("the patched priority does not count")
	}
	c.end(nil)
	b.next().end(nil)
	b.until(second, Succeeded)
	if p, err := ParsePatch([]byte(`{"bandwidth_limit":"none","priority":3}`)); err != nil || *p.BandwidthLimit != 0 || *p.Priority != 3 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestStubs(t *testing.T) {
	b := newBench(t, nil)
	defer b.close()
	pull := func(s *Spec) { s.Source.Node = "far" }
	id, refused, canceled := b.submit("a/t", pull), b.submit("a/t", pull), b.submit("a/t", pull)
	b.idle()
	if s := b.Stubs(); len(s) != 3 || s[0].ID != id || s[0].Forwarded.Node != "far" || s[0].Forwarded.Accepted {
		t.Fatalf("%+v", s)
	}
	if s, err := b.Cancel(canceled); err != nil || s.State != Canceled {
		t.Errorf("%s, %v", s.State, err)
	}
	if s, err := b.UpdateStub(canceled, Snapshot{State: Running}); err != nil || s.State != Canceled {
		t.Errorf("%s, %v", s.State, err)
	}
	if _, err := b.RefuseStub(refused, reason.New(reason.NotAuthorized, "no")); err != nil {
		t.Error(err)
	}
	b.until(refused, Failed)
	if s, err := b.UpdateStub(id, Snapshot{State: Running, Version: 4, Attempts: 1, Progress: ProgressView{BytesDone: 5, BytesTotal: 9}}); err != nil ||
		s.State != Running || !s.Forwarded.Accepted || s.Progress.BytesDone != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := b.Cancel(id); !errors.Is(err, ErrStub) {
		t.Error(err)
	}
	if _, err := b.UpdateStub(id, Snapshot{State: "odd"}); err == nil {
		t.Error("an unknown state was taken")
	}
	if _, err := b.UpdateStub(id, Snapshot{State: Failed, Version: 9}); err != nil {
		t.Error(err)
	}
	b.until(id, Failed)
	if s, err := b.UpdateStub(id, Snapshot{State: Queued, Version: 10, Retries: 1}); err != nil || s.State != Queued {
		t.Errorf("retried there: %s, %v", s.State, err)
	}

	far := newBench(t, func(c *Config) { c.NodeName = "far" })
	defer far.close()
	spec, err := testSpec(pull).Normalize("a")
	if err != nil {
		t.Fatal(err)
	}
	s, replay, err := far.Accept(t.Context(), id, spec, "a/t", "a")
	if err != nil || replay || s.ID != id || s.Origin != "a" {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, replay, err := far.Accept(t.Context(), id, spec, "a/t", "a"); err != nil || !replay {
		t.Error(replay, err)
	}
	far.next().end(nil)
	far.until(id, Succeeded)
	if _, replay, err := far.Accept(t.Context(), id, spec, "a/t", "a"); err != nil || !replay {
		t.Error(replay, err)
	}
	// The answer was lost, and the stub patched before it was offered again.
	spec.Priority, spec.BandwidthLimit, spec.Labels = 5, 1<<20, map[string]string{"a": "b"}
	spec.Deadline = Duration(time.Hour)
	if s, replay, err := far.Accept(t.Context(), id, spec, "a/t", "a"); err != nil || !replay || s.State != Succeeded {
		t.Error(s.State, replay, err)
	}
	spec.Overwrite = OverwriteAlways
	if _, _, err := far.Accept(t.Context(), id, spec, "a/t", "a"); !errors.Is(err, ErrKeyConflict) {
		t.Error(err)
	}
}

// TestLargeJobsLeaveRoom: however many large jobs there are, a small one starts.
func TestLargeJobsLeaveRoom(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxRunning = 2 })
	defer b.close()
	var large []*scripted
	for range 3 {
		b.submit("a/t", nil)
		c := b.next()
		c.attempt.Phase(Running)
		c.attempt.Progress.SetTotal(1<<40, 1)
		large = append(large, c)
	}
	third := large[2]
	if !errors.Is(context.Cause(third.ctx), ErrYield) {
		t.Fatalf("the third goes on: %v", context.Cause(third.ctx))
	}
	third.end(context.Cause(third.ctx))
	b.until(third.attempt.Job.ID, Queued)
	small := b.submit("a/t", nil)
	if c := b.next(); c.attempt.Job.ID != small {
		t.Error("the small one waits")
	} else {
		c.end(nil)
	}
	b.until(small, Succeeded)
	large[0].end(nil)
	if c := b.next(); c.attempt.Job.ID != third.attempt.Job.ID || c.attempt.Number != 2 {
		t.Error("the large one does not get the place")
	}
}
