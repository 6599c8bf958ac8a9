package node

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"mover/reason"
)

func key(item uint32) itemKey {
	return itemKey{peer: "a", job: uuid.MustParse("01a22d60-0275-765d-b10a-57ad86a82dda"), item: item}
}

func newInbound(item uint32) *inbound { return &inbound{key: key(item), over: make(chan struct{})} }

// TestPublishedIsRemembered: when only the answer was lost, the next attempt
// learns that the file is its own.
func TestPublishedIsRemembered(t *testing.T) {
	b := newInbounds()
	first := newInbound(1)
	if meta, err := b.begin(first, time.Second); meta != nil || err != nil {
		t.Fatal(meta, err)
	}
	b.end(first, []byte("done"))
	if meta, err := b.begin(newInbound(1), time.Second); string(meta) != "done" || err != nil {
		t.Errorf("got %q, %v", meta, err)
	}
	if meta, err := b.begin(newInbound(2), time.Second); meta != nil || err != nil {
		t.Errorf("another item: got %q, %v", meta, err)
	}
}

// TestFailedIsForgotten: what was discarded may be received again.
func TestFailedIsForgotten(t *testing.T) {
	b := newInbounds()
	first := newInbound(1)
	if _, err := b.begin(first, time.Second); err != nil {
		t.Fatal(err)
	}
	b.end(first, nil)
	if meta, err := b.begin(newInbound(1), time.Second); meta != nil || err != nil {
		t.Errorf("got %q, %v", meta, err)
	}
}

// TestEarlierAttemptIsWaitedFor: two attempts at one item never write at once,
// and the second learns what became of the first.
func TestEarlierAttemptIsWaitedFor(t *testing.T) {
	b := newInbounds()
	first := newInbound(1)
	if _, err := b.begin(first, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := b.begin(newInbound(1), time.Millisecond); reason.Of(err) != reason.PeerRefused {
		t.Errorf("got %v, want PEER_REFUSED: it is retried", err)
	}
	got := make(chan []byte)
	go func() {
		meta, err := b.begin(newInbound(1), time.Minute)
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

// TestMemoryOfPublishedIsBounded keeps the latest and no more.
func TestMemoryOfPublishedIsBounded(t *testing.T) {
	b := newInbounds()
	for i := range uint32(rememberPublished + 10) {
		in := newInbound(i)
		if _, err := b.begin(in, time.Second); err != nil {
			t.Fatal(err)
		}
		b.end(in, []byte("x"))
	}
	if len(b.published) != rememberPublished || len(b.order) != rememberPublished || len(b.open) != 0 {
		t.Errorf("%d, %d remembered, %d open", len(b.published), len(b.order), len(b.open))
	}
	if b.published[key(0)] != nil || b.published[key(rememberPublished+9)] == nil {
		t.Error("the wrong ones were kept")
	}
}
