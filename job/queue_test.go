package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIdempotency(t *testing.T) {
	b := newBench(t, func(c *Config) { c.KeepMax = 1 })
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
	b.drained()
	// Only the last that ended is kept, and its key with it.
	var keys int
	if err := b.db.read.QueryRow("SELECT count(*) FROM jobs WHERE key IS NOT NULL").Scan(&keys); err != nil {
		t.Fatal(err)
	}
	if n := len(b.keys); n != 0 || keys > 1 {
		t.Errorf("%d keys in memory, %d kept", n, keys)
	}
}

func TestBoundsAndKeeping(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxQueued, c.MaxRunning, c.KeepMax = 2, 1, 3 })
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
	b.drained()
	if len(b.live) != 0 || len(b.small.ready.owners) != 0 || len(b.items.mem) != 0 {
		t.Errorf("%d live, %d owners", len(b.live), len(b.small.ready.owners))
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
	dir := t.TempDir()
	b := newBench(t, func(c *Config) { c.MaxRunning, c.StateDir = 2, dir })
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
	if _, err := b.Get(canceling); !errors.Is(err, ErrClosed) {
		t.Errorf("an ended job after Close: %v", err)
	}
	for id, want := range map[ID]State{running: Queued, waiting: Queued} {
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
	again := newBench(t, func(c *Config) { c.StateDir, c.Clock = dir, b.clock })
	defer again.close()
	if s, err := again.Get(canceling); err != nil || s.State != Canceled {
		t.Errorf("reopened: %s, %v", s.State, err)
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
