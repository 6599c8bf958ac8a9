package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"mover/fileio"
	"mover/job"
	"mover/node/config"
	"mover/reason"
)

func key(item uint32) itemKey {
	return itemKey{jobKey: jobKey{peer: "a", job: uuid.MustParse("01a22d60-0275-765d-b10a-57ad86a82dda")}, place: fmt.Sprint("in/", item)}
}

func newInbound(item, attempt uint32) *inbound {
	return &inbound{key: key(item), attempt: attempt, over: make(chan struct{})}
}

// TestPublishedIsRemembered: when only the answer was lost, the next attempt
// learns that the file is its own.
func TestPublishedIsRemembered(t *testing.T) {
	b := newInbounds()
	first := newInbound(1, 1)
	if meta, err := b.begin(first, time.Second); meta != nil || err != nil {
		t.Fatal(meta, err)
	}
	b.end(first, []byte("done"))
	if meta, err := b.begin(newInbound(1, 2), time.Second); string(meta) != "done" || err != nil {
		t.Errorf("got %q, %v", meta, err)
	}
	if meta, err := b.begin(newInbound(2, 2), time.Second); meta != nil || err != nil {
		t.Errorf("another item: got %q, %v", meta, err)
	}
}

// TestFailedIsForgotten: what was discarded may be received again.
func TestFailedIsForgotten(t *testing.T) {
	b := newInbounds()
	first := newInbound(1, 1)
	if _, err := b.begin(first, time.Second); err != nil {
		t.Fatal(err)
	}
	b.end(first, nil)
	if meta, err := b.begin(newInbound(1, 2), time.Second); meta != nil || err != nil {
		t.Errorf("got %q, %v", meta, err)
	}
}

// TestEarlierAttemptIsWaitedFor: two attempts at one item never write at once,
// and the second learns what became of the first.
func TestEarlierAttemptIsWaitedFor(t *testing.T) {
	b := newInbounds()
	first := newInbound(1, 1)
	if _, err := b.begin(first, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := b.begin(newInbound(1, 2), time.Millisecond); reason.Of(err) != reason.PeerRefused {
		t.Errorf("got %v, want PEER_REFUSED: it is retried", err)
	}
	got := make(chan []byte)
	go func() {
		meta, err := b.begin(newInbound(1, 2), time.Minute)
		if err != nil {
			t.Error(err)
		}
		got <- meta
	}()
	b.end(first, []byte("published meanwhile"))
	if meta := <-got; string(meta) != "published meanwhile" {
		t.Errorf("got %q", meta)
	}
}

// TestEarlierAttemptIsWaitedForAtEveryItem: what an old attempt still has open
// may be published under any name of the job, so no item of a later one begins
// before; and an old attempt does not begin again.
func TestEarlierAttemptIsWaitedForAtEveryItem(t *testing.T) {
	b := newInbounds()
	first := newInbound(1, 1)
	if _, err := b.begin(first, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := b.begin(newInbound(2, 1), time.Second); err != nil {
		t.Errorf("another item of the same attempt: %v", err)
	}
	if _, err := b.begin(newInbound(1, 1), time.Second); reason.Of(err) != reason.PeerRefused {
		t.Errorf("the same item twice: %v, want PEER_REFUSED", err)
	}
	if _, err := b.begin(newInbound(3, 2), time.Millisecond); reason.Of(err) != reason.PeerRefused {
		t.Errorf("a later attempt beside an earlier: %v, want PEER_REFUSED", err)
	}
	other := newInbounds()
	if _, err := other.begin(newInbound(3, 2), time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := other.begin(newInbound(1, 1), time.Second); reason.Of(err) != reason.PeerRefused {
		t.Errorf("an earlier attempt after a later: %v, want PEER_REFUSED", err)
	}
}

// TestNamesOfGroupsAreRemembered, of a bounded number of groups, and of this
// job alone.
func TestNamesOfGroupsAreRemembered(t *testing.T) {
	b := newInbounds()
	var forgotten int
	for i := range uint32(rememberGroups + 3) {
		in := newInbound(0, 1)
		in.key.attempt, in.key.group = 1, i+1
		if _, err := b.begin(in, time.Second); err != nil {
			t.Fatal(err)
		}
		b.naming(in.key, "in", "base", []fileio.NameInode{{Rel: fmt.Sprint("f", i)}})
		forgotten += len(b.end(in, []byte("x")))
	}
	names := b.named(key(0).jobKey, "in", "base")
	if _, ok := names["f3"]; len(names) != rememberGroups || forgotten != 3 || !ok || len(b.grouping) != rememberGroups {
		t.Errorf("%d names, %d forgotten, %d kept, f3: %v", len(names), forgotten, len(b.grouping), ok)
	}
	if len(b.named(key(0).jobKey, "in", "other")) != 0 || len(b.named(jobKey{peer: "b"}, "in", "base")) != 0 {
		t.Error("another directory, or another job, has names")
	}
}

// TestMemoryOfPublishedIsBounded keeps the latest and no more.
func TestMemoryOfPublishedIsBounded(t *testing.T) {
	b := newInbounds()
	for i := range uint32(rememberItems + 10) {
		in := newInbound(i, 1)
		if _, err := b.begin(in, time.Second); err != nil {
			t.Fatal(err)
		}
		b.end(in, []byte("x"))
	}
	if len(b.published) != rememberItems || len(b.order) != rememberItems || len(b.open) != 0 {
		t.Errorf("%d, %d remembered, %d open", len(b.published), len(b.order), len(b.open))
	}
	if b.published[key(0)] != nil || b.published[key(rememberItems+9)] == nil {
		t.Error("the wrong ones were kept")
	}
}

// TestPublishedHardLinkIsNoConflict: the answer to a group that gave a name to
// a hard link was lost. The next attempt finds the name, which is its own.
func TestPublishedHardLinkIsNoConflict(t *testing.T) {
	j := newJournalled(t)
	book, roots, _ := j.process(t)
	r := &receiver{node: &Node{roots: roots, journal: book, inbounds: newInbounds()}, peer: "a"}
	roots.config["in"] = config.Root{Path: j.dir, Write: []string{"a"}}
	for attempt := uint32(1); attempt <= 2; attempt++ {
		g := job.GroupManifest{Job: key(0).job, Group: 1, Attempt: attempt, Root: "in", Base: []byte("sub"), Overwrite: job.OverwriteFail,
			Entries: []job.GroupEntry{{Kind: job.EntryFile, Path: []byte("f")}, {Kind: job.EntryHardlink, Path: []byte("g"), Target: []byte("f")}}}
		o := offered{group: &g, Manifest: job.Manifest{Job: g.Job, Item: g.Group, Attempt: attempt, Root: g.Root, Path: g.Base}}
		in := &inbound{key: o.key("a"), attempt: attempt, over: make(chan struct{})}
		_, meta, err := r.arriveGroup(t.Context(), in, o)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := job.DecodeGroupDone(meta, len(g.Entries)); err != nil || len(done.Exceptions) > 0 {
			t.Errorf("attempt %d: %+v, %v", attempt, done.Exceptions, err)
		}
	}
}
