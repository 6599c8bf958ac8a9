package fileio

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

func TestEarlierAttemptsAreRemoved(t *testing.T) {
	r := newRoot(t)
	dead := []string{partialName("j", 1, 0), partialName("j", 1, 2)}
	for _, n := range dead {
		put(t, r, n, []byte("left"))
	}
	others := map[string]bool{partialName("j", 1, 9): true, partialName("j", 2, 0): true, partialName("k", 1, 0): true, "f": true}
	for n := range others {
		put(t, r, n, []byte("others"))
	}
	live := create(t, r, CreateSpec{Rel: "g", Job: "j", Item: 1, Attempt: 4})
	s := create(t, r, CreateSpec{Rel: "g", Job: "j", Item: 1, Attempt: 5})
	entries, err := os.ReadDir(r.Path())
	if err != nil {
		t.Fatal(err)
	}
	others[live.partial], others[s.partial] = true, true
	if len(entries) != len(others) {
		t.Errorf("%d names left, want %d", len(entries), len(others))
	}
	for _, e := range entries {
		if !others[e.Name()] {
			t.Errorf("%s is still there", e.Name())
		}
	}
	if err := s.Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	// The attempt that was given up and comes late deletes nothing but its own.
	if err := live.Discard(); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "g", nil)
}

func TestSameAttemptTwice(t *testing.T) {
	r := newRoot(t)
	spec := CreateSpec{Rel: "f", Size: 1, Job: "j"}
	first := create(t, r, spec)
	write(t, first, []byte("1"), 0)
	_, err := r.Create(context.Background(), spec)
	wantCode(t, err, reason.Internal)
	if err := first.Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "f", []byte("1"))

	// Its process died: the leftover is nobody's, and longer than the new file.
	r = newRoot(t)
	put(t, r, partialName("j", 0, 0), []byte("left over"))
	if err := publish(r, spec, []byte("2")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "f", []byte("2"))
	wantNames(t, r, "f")
}

// TestSweepTakesTheLock: a sweep that locks the new file before its creator
// gets to remove it, and the creator makes another.
func TestSweepTakesTheLock(t *testing.T) {
	r := newRoot(t)
	tries := 0
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "flock" {
			if tries++; tries == 1 {
				if err := os.Remove(filepath.Join(r.Path(), partialName("", 0, 0))); err != nil {
					t.Error(err)
				}
				return unix.EWOULDBLOCK
			}
		}
		return nil
	}}
	if err := publish(r, CreateSpec{Rel: "f"}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	wantNames(t, r, "f")
}

// TestSweepFollowsNoSymlink: a planted name must not have a file outside the
// root opened, which for a device or a locked file does something.
func TestSweepFollowsNoSymlink(t *testing.T) {
	r := newRoot(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := partialName("j", 0, 0)
	if err := os.Symlink(outside, filepath.Join(r.Path(), link)); err != nil {
		t.Fatal(err)
	}
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "flock" {
			t.Error("a file outside the root was opened and locked")
		}
		return nil
	}}
	swept, err := r.Sweep(context.Background(), ".", time.Time{})
	// The link itself is what a group leaves that was killed between making a
	// symlink and renaming it.
	if err != nil || swept != (Swept{Removed: 1}) {
		t.Errorf("%+v, %v", swept, err)
	}
	wantNames(t, r)
	if got, err := os.ReadFile(outside); string(got) != "x" || err != nil {
		t.Errorf("what the link led to is %q, %v", got, err)
	}
}

func TestWithoutFlock(t *testing.T) {
	r := newRoot(t)
	put(t, r, partialName("j", 0, 0), []byte("maybe alive"))
	failOp(r, "flock", 1, unix.EOPNOTSUPP)
	if err := publish(r, CreateSpec{Rel: "f", Job: "j", Attempt: 1}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	swept, err := r.Sweep(context.Background(), ".", time.Time{})
	if err != nil || swept != (Swept{Left: 1}) {
		t.Errorf("%+v, %v: without locks nothing may be removed", swept, err)
	}
	wantNames(t, r, partialName("j", 0, 0), "f")
}

func TestSweep(t *testing.T) {
	r := newRoot(t)
	at := func(n string) string { return filepath.Join(r.Path(), n) }
	start := time.Now()
	stale, fresh := partialName("stale", 0, 0), partialName("fresh", 0, 0)
	put(t, r, stale, []byte("x"))
	put(t, r, fresh, []byte("x"))
	for name, mtime := range map[string]time.Time{stale: start.Add(-time.Hour), fresh: start.Add(time.Hour)} {
		if err := os.Chtimes(at(name), mtime, mtime); err != nil {
			t.Fatal(err)
		}
	}
	link, dir, fifo := partialName("link", 0, 0), partialName("dir", 0, 0), partialName("fifo", 0, 0)
	put(t, r, "data", []byte("keep"))
	if err := errors.Join(os.Symlink("data", at(link)), os.Mkdir(at(dir), 0o755), unix.Mkfifo(at(fifo), 0o644)); err != nil {
		t.Fatal(err)
	}
	put(t, r, ".mover.other", nil)
	held := create(t, r, CreateSpec{Rel: "f", Job: "held"})
	swept, err := r.Sweep(context.Background(), ".", start)
	if err != nil || swept != (Swept{Removed: 1, Held: 1, Left: 4}) {
		t.Errorf("%+v, %v", swept, err)
	}
	for _, n := range []string{fresh, link, dir, fifo, held.partial, "data", ".mover.other"} {
		if _, err := os.Lstat(at(n)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(at(stale)); err == nil {
		t.Error("the stale partial is still there")
	}
	if err := held.Publish(context.Background()); err != nil {
		t.Error(err)
	}
	_, err = r.Sweep(context.Background(), "none", start)
	wantCode(t, err, reason.DestNotFound)
	_, err = r.Sweep(context.Background(), "../x", start)
	wantCode(t, err, reason.PathOutsideRoot)
}
