package job

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mover/reason"
)

// reopen closes b's queue and opens its directory again.
func (b *bench) reopen(dir string) *bench {
	b.t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- b.Close(context.Background()) }()
	for _, c := range b.taken {
		<-c.ctx.Done() // as a router that returns when it is told to
		select {
		case c.reply <- outcome{err: context.Cause(c.ctx)}:
		default:
		}
	}
	if err := <-closed; err != nil {
		b.t.Fatal(err)
	}
	again := newBench(b.t, func(c *Config) { c.StateDir, c.Clock, c.MaxRunning = dir, b.clock, 1 })
	again.clock = b.clock
	return again
}

func durable(t testing.TB) (*bench, string) {
	dir := t.TempDir()
	return newBench(t, func(c *Config) { c.StateDir, c.MaxRunning = dir, 1 }), dir
}

func TestEverythingComesBack(t *testing.T) {
	b, dir := durable(t)
	ended := b.submit("a/t", func(s *Spec) { s.Labels = map[string]string{"k": "v"} })
	c := b.next()
	c.attempt.Items.Add(ItemRecord{Path: []byte("x\xff"), Kind: EntryFile, State: ItemSucceeded, Bytes: 7, CRC32C: "0a1b2c3d"})
	c.reply <- outcome{res: Result{Bytes: 7, Items: 1}}
	b.until(ended, Succeeded)

	running := b.submit("a/t", nil)
	c = b.next()
	backing := b.submit("a/t", nil)
	paused := b.submit("a/t", func(s *Spec) { s.Deadline = Duration(time.Hour) })
	if _, err := b.Pause(paused); err != nil {
		t.Fatal(err)
	}
	keyed, _, err := b.Submit(t.Context(), testSpec(func(s *Spec) { s.Priority = -1 }), "a/t", "key")
	if err != nil {
		t.Fatal(err)
	}
	c.end(reason.New(reason.Stalled, "no")) // running waits; backing starts
	b.until(running, Queued)
	c = b.next()
	if c.attempt.Job.ID != backing {
		t.Fatal("the wrong job runs")
	}
	limit := Rate(1000)
	if _, err := b.Patch(keyed.ID, Patch{BandwidthLimit: &limit}, 0); err != nil {
		t.Fatal(err)
	}
	want := map[ID]Snapshot{}
	for _, id := range []ID{ended, running, paused, keyed.ID} {
		want[id], _ = b.Get(id)
	}
	seq := b.LastEvent()

	b = b.reopen(dir)
	defer func() { b.close() }()
	for id, w := range want {
		if got, err := b.Get(id); err != nil || !cmp.Equal(w, got) {
			t.Errorf("%v\n%s", err, cmp.Diff(w, got))
		}
	}
	c = b.next() // the interrupted one, and its attempt is another
	if c.attempt.Job.ID != backing || c.attempt.Number != 2 || c.attempt.Job.LastReason != nil {
		t.Errorf("%+v", c.attempt.Job)
	}
	if s, replay, err := b.Submit(t.Context(), testSpec(func(s *Spec) { s.Priority = -1 }), "a/t", "key"); err != nil || !replay || s.ID != keyed.ID {
		t.Errorf("the key: %v %v", replay, err)
	}
	if got := b.LastEvent(); got <= seq {
		t.Errorf("events go on at %d after %d", got, seq)
	}
	if items, _, err := b.Items(ended, ItemFilter{}, "", 10); err != nil || len(items) != 1 || string(items[0].Path) != "x\xff" || items[0].CRC32C != "0a1b2c3d" {
		t.Errorf("%+v, %v", items, err)
	}
	if page, _, err := b.List(Filter{LabelKey: "k", LabelValue: "v"}, "", 10); err != nil || len(page) != 1 || page[0].ID != ended {
		t.Errorf("by label: %d, %v", len(page), err)
	}
	if page, _, err := b.List(Filter{}, "", 10); err != nil || len(page) != 5 {
		t.Errorf("%d listed, %v", len(page), err)
	}
	b.clock.Advance(time.Hour) // the paused one's deadline, after the restart
	if s := b.until(paused, Expired); code(s) != reason.Deadline {
		t.Errorf("%+v", s.LastReason)
	}
}

func TestStateFilesAreRefusedOrPrivate(t *testing.T) {
	open := func(dir string) error {
		q, err := NewQueue(Config{NodeName: "a", Router: panicRouter{}, StateDir: dir})
		if err != nil {
			return err
		}
		return q.Close(context.Background())
	}
	dir := t.TempDir()
	if err := open(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, dbName)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	d, err := openDatabase(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.write.Exec("PRAGMA user_version=9"); err != nil {
		t.Fatal(err)
	}
	d.close()
	if err := open(dir); err == nil || !strings.Contains(err.Error(), "its schema is 9") {
		t.Errorf("a later schema: %v", err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("garbage ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(dir); err == nil {
		t.Error("garbage was opened")
	}
	for version, ok := range map[string]bool{"3.51.3": true, "3.51.2": false, "3.50.9": false, "3.52.0": true, "4.0.0": true, "2.99.99": false, "x": false} {
		if err := checkSQLite(version); (err == nil) != ok {
			t.Errorf("%s: %v", version, err)
		}
	}
	for magic, name := range networkFS {
		if err := refuseFileSystem(magic); !errors.Is(err, ErrNetworkFS) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, local := range []uint32{0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794c7630} { // ext4 xfs btrfs tmpfs overlay
		if err := refuseFileSystem(local); err != nil {
			t.Error(err)
		}
	}
}

// TestStoreFails: the disk refuses writes for a while.
func TestStoreFails(t *testing.T) {
	b, _ := durable(t)
	defer b.close()
	id := b.submit("a/t", nil)
	c := b.next()
	// A trigger fails the transaction as a full disk would.
	must := func(text string) {
		t.Helper()
		if _, err := b.db.write.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	must("CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'disk full'); END")
	if _, _, err := b.Submit(t.Context(), testSpec(nil), "a/t", "k"); !errors.Is(err, ErrStore) || strings.Contains(err.Error(), "disk full") {
		t.Errorf("submit: %v", err)
	}
	var se *StoreError
	if err := b.Stats().Store; !errors.As(err, &se) || !strings.Contains(se.Err.Error(), "disk full") {
		t.Errorf("stats: %v", err)
	}
	c.end(nil)
	b.settled()
	if s, err := b.Get(id); err != nil || s.State.Terminal() {
		t.Errorf("an end is shown that is not durable: %s, %v", s.State, err)
	}
	if _, err := b.Cancel(id); !errors.Is(err, ErrStore) {
		t.Errorf("cancel: %v", err)
	}
	must("DROP TRIGGER full")
	for s, _ := b.Get(id); !s.State.Terminal(); s, _ = b.Get(id) {
		b.clock.Advance(retryAfter)
		time.Sleep(time.Millisecond) // the writer tries again in its own time
	}
	b.until(id, Succeeded)
	if err := b.Stats().Store; err != nil {
		t.Errorf("stats: %v", err)
	}
	if _, replay, err := b.Submit(t.Context(), testSpec(nil), "a/t", "k"); err != nil || replay {
		t.Errorf("the failed submit again: %v, %v", replay, err)
	}
	b.next().end(nil)
	b.settled()
}

func TestRetentionByTime(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Keep = time.Hour })
	defer b.close()
	old := b.submit("a/t", nil)
	c := b.next()
	c.attempt.Items.Add(ItemRecord{Path: []byte("x"), Kind: EntryFile, State: ItemSucceeded})
	c.end(nil)
	b.until(old, Succeeded)
	b.drained()
	b.clock.Advance(time.Hour + time.Second)
	kept := b.submit("a/t", nil)
	b.next().end(nil)
	b.until(kept, Succeeded)
	b.drained()
	if _, err := b.Get(old); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	b.items.mu.Lock()
	defer b.items.mu.Unlock()
	if n := b.Counts()[Succeeded]; n != 1 || len(b.items.mem) != 0 {
		t.Errorf("%d counted, %d files", n, len(b.items.mem))
	}
}
