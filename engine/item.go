package engine

import (
	"sync/atomic"

	"mover/reason"
)

// Source gives the bytes of a Staged item. Workers call it, several at once.
type Source interface {
	// ReadAt fills p, which is page aligned registered memory whose capacity is
	// rounded up to the page, from the offset. Fewer bytes than len(p) come
	// with an error; a *reason.Error carries its code to the job.
	ReadAt(p []byte, offset int64) (int, error)
	// Verify tells, after the last read, whether the bytes read are still what
	// the source is: reason.SourceChanged otherwise. crc is the item's CRC32C,
	// 0 for an item without Verify.
	Verify(crc uint32) error
}

// Sink takes the bytes of a Staged item. Workers call it, several at once.
type Sink interface {
	// WriteAt writes all of p, registered memory that the caller keeps.
	WriteAt(p []byte, offset int64) (int, error)
}

// Item is one attempt at sending one file or memory range. Session.Send takes
// it; the caller changes nothing in it afterwards.
type Item struct {
	Attempt uint32
	Kind    ItemKind
	Bytes   int64
	Verify  bool
	Meta    []byte // for the peer's Receiver

	Source Source // Staged
	// Memory is the range of a Direct item: whole pages, not Go heap memory,
	// kept mapped and unchanged by the caller until Done.
	Memory []byte

	// Pace are the limits of its rate, all of which hold; the one shared by most
	// comes last. At most MaxPacers; a nil one counts as none.
	Pace []*Pacer

	// Done is called once, on the session's goroutine (on the caller's of Send
	// when the session has ended before), when nothing of the item is in flight
	// any more: Source and Memory are the caller's again. It must not block.
	Done func(ItemResult)

	acked   atomic.Int64
	verify  atomic.Bool // every byte is acked
	publish atomic.Bool // committed to the receiver
}

// ItemResult is the end of an Item.
type ItemResult struct {
	Err  *reason.Error // nil: published at the destination
	CRC  uint32        // CRC32C of the item, with Verify
	Meta []byte        // of the peer's Receiver
}

// Acked is how many bytes the destination has verified and written. Any
// goroutine may call it.
func (i *Item) Acked() int64 { return i.acked.Load() }

// Verifying reports that every byte is acked and the source is checked once
// more; Publishing that the destination was told to publish. Any goroutine may
// call them.
func (i *Item) Verifying() bool { return i.verify.Load() }

// Publishing is described at Verifying.
func (i *Item) Publishing() bool { return i.publish.Load() }

// Report says how far an item is that another carrier than a session takes to
// its destination; see Acked and Verifying.
func (i *Item) Report(acked int64, verifying, publishing bool) {
	i.acked.Store(acked)
	i.verify.Store(verifying)
	i.publish.Store(publishing)
}

// Receiver accepts, publishes and discards items on behalf of the node. The
// session's goroutine calls it; it must not block, does the work elsewhere and
// answers through Session.Opened, Session.Published and Session.Discarded.
type Receiver interface {
	// Open decides on an offer and makes its target.
	Open(s *Session, ref ItemRef, offer *ItemOffer)
	// Publish makes the complete item appear under its name. verified says
	// that crc, its CRC32C, is the same at both ends.
	Publish(s *Session, ref ItemRef, target *Target, crc uint32, verified bool)
	// Discard removes whatever of the target was not published. No worker
	// uses the target any more.
	Discard(s *Session, ref ItemRef, target *Target, why *reason.Error)
}

// Target is where an accepted item's bytes go.
type Target struct {
	Sink   Sink   // Staged
	Memory []byte // Direct: whole pages, not Go heap memory; len >= Bytes
	Handle any    // the Receiver's own
}

// Control sends messages to the peer, in order per stream, without blocking.
type Control interface {
	// Send fails when the connection is gone or its queue is full: either ends
	// the session.
	Send(m Message) error
}

// Waker wakes a machine that may have parked. It never blocks; any goroutine
// and any poller may call it.
type Waker interface{ Wake() bool }
