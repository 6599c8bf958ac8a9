package engine

import (
	"sync"
	"sync/atomic"

	"mover/reason"
)

// inbox holds the items that workers may write to.
type inbox struct {
	mu    sync.RWMutex
	items map[uint64]*recvItem
	waker Waker
}

func (b *inbox) add(i *recvItem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items[i.ref.Item] = i
}

// close takes an item away from workers; those that have it leave in due
// course, and the last wakes the session.
func (b *inbox) close(i *recvItem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.items, i.ref.Item)
	i.closed.Store(true)
}

// enter finds an item for a worker and keeps its target in use until leave.
func (b *inbox) enter(ref ItemRef) *recvItem {
	b.mu.RLock()
	defer b.mu.RUnlock()
	i := b.items[ref.Item]
	if i == nil || i.ref != ref {
		return nil
	}
	i.busy.Add(1)
	return i
}

func (b *inbox) leave(i *recvItem) {
	if i.busy.Add(-1) == 0 && i.closed.Load() {
		b.waker.Wake()
	}
}

// recvPhase is where an item is at its destination.
type recvPhase uint8

const (
	recvOpening    recvPhase = 1 + iota // the Receiver decides
	recvReceiving                       // bytes arrive
	recvPublishing                      // the Receiver publishes
	recvEnding                          // closed; its last users leave
	recvDiscarding                      // the Receiver removes what is left
)

// recvItem is an item at its destination. The session owns it; workers use
// the part that says so, between enter and leave.
type recvItem struct {
	ref    ItemRef
	offer  *ItemOffer
	phase  recvPhase
	target *Target
	why    *reason.Error // why it ends

	// Direct.
	mrs     []registration
	next    int64         // offset of the next segment to grant
	granted []heldSegment // in the source's hands
	failed  bool          // told the source ItemDone with a failure

	// Workers.
	busy   atomic.Int32
	closed atomic.Bool
	mu     sync.Mutex
	got    int64
	crc    uint32
}

type heldSegment struct {
	group  uint16
	seg    SlotRef
	offset int64
	bytes  uint32
}

// badMemory is what to do about bytes that changed on their way: links and
// networks have checksums of their own and hardly ever let that pass.
const badMemory = "if that happens again, look for bad memory or a bad adapter in either host"

// storeRecord checks a record's bytes where they lie, in the destination
// memory, and writes them.
func (i *recvItem) storeRecord(p []byte, r *Record) *reason.Error {
	if i.target.Sink == nil || r.Offset > i.offer.Bytes-int64(len(p)) {
		return reason.New(reason.Internal, "a record outside the item's %d bytes", i.offer.Bytes)
	}
	if i.offer.Verify {
		if crc := Checksum(p); crc != r.CRC {
			return reason.New(reason.ChecksumMismatch, "bytes %d..%d arrived with CRC32C %08x, sent with %08x; "+badMemory,
				r.Offset, r.Offset+int64(len(p)), crc, r.CRC)
		}
	}
	if _, err := i.target.Sink.WriteAt(p, r.Offset); err != nil {
		return asReason(err, reason.IOError)
	}
	i.count(r.Offset, int64(len(p)), r.CRC)
	return nil
}

// count adds verified bytes, in any order.
func (i *recvItem) count(offset, bytes int64, crc uint32) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got += bytes
	if i.offer.Verify {
		i.crc ^= crcShift(crc, uint64(i.offer.Bytes-offset-bytes))
	}
}

func (i *recvItem) counted() (got int64, crc uint32) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.got, i.crc
}
