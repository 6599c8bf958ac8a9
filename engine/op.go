package engine

import (
	"errors"
	"fmt"
	"sync/atomic"

	"mover/reason"
	"mover/ring"
)

// opKind is a kind of work that takes too long for a poller.
type opKind uint8

const (
	opLoad    opKind = 1 + iota // read a chunk into a slot, checksum it, write the trailer
	opStore                     // check a received slot's records and write them to their sinks
	opSum                       // checksum a received segment
	opSource                    // checksum a segment at its source
	opVerify                    // ask a source whether it changed; submitted by a session
	opResum                     // checksum a source segment once more; submitted by a session
	opConnect                   // move a lane's QP to RTS; for SessionConfig.Aside
)

// Op is a piece of work for a worker. Ops are embedded in what they work on
// and are never allocated on the data path. Between submission and return the
// worker owns the op and the memory it names.
type Op struct {
	kind    opKind
	class   class
	group   *group   // opLoad, opStore, opSum, opSource: whose poller gets it back
	session *Session // who hears the result
	index   uint32   // of the slot or segment
	memory  []byte   // the slot, or the segment's bytes
	bytes   uint32   // opLoad: length of the write; opStore: byte_len
	chunk   *chunk
	ref     ItemRef
	seg     SlotRef
	item    *sendItem
	offset  int64
	verify  bool
	crc     uint32 // opVerify: of the whole item; opSum, opSource: of the bytes done
	done    int    // opSum, opSource: of memory
	refused bool   // opStore: the peer broke the protocol
	lost    bool   // opSum, opSource: memory is not there any more
	connect *connection
}

// Scratch is a worker's private memory, reused for every op.
type Scratch struct {
	trailer [MaxTrailerBytes]byte
	records [MaxRecords]Record
	acks    [MaxRecords]RecordAck
}

// WorkQueue carries ops from pollers and sessions to workers. Its capacity is
// reserved when a session is built, so that a push never fails.
type WorkQueue struct {
	ops      [classes]*ring.MPMC[*Op]
	pops     atomic.Uint64
	pool     interface{ Wake(n int) int }
	reserved atomic.Int64
}

// bulkTurn: of so many pops, one takes bulk first, so that it gets on beside
// any amount of express.
const bulkTurn = 4

// NewWorkQueue makes a queue of a power of two ops; pool wakes parked workers.
func NewWorkQueue(capacity int, pool interface{ Wake(n int) int }) *WorkQueue {
	q := &WorkQueue{pool: pool}
	for c := range q.ops {
		q.ops[c] = ring.NewMPMC[*Op](capacity) // any op may be of either class
	}
	return q
}

// Pop takes the next op, for a worker: express before bulk, mostly. Every op
// popped is executed.
func (q *WorkQueue) Pop() (*Op, bool) {
	first := express
	if q.ops[express].Len() > 0 && q.pops.Add(1)%bulkTurn == 0 {
		first = bulk
	}
	op, ok := q.ops[first].TryPop()
	if !ok {
		op, ok = q.ops[1-first].TryPop()
	}
	if ok && q.Len() > 0 {
		// Whoever was woken for what is left may have found nothing to take
		// while this op was in the way; see ring.MPMC.
		q.pool.Wake(1)
	}
	return op, ok
}

// Len is about how many ops wait.
func (q *WorkQueue) Len() int { return q.ops[bulk].Len() + q.ops[express].Len() }

func (q *WorkQueue) cap() int { return q.ops[bulk].Cap() }

// reserve sets room for n ops apart; false when there is not as much left.
func (q *WorkQueue) reserve(n int) bool {
	if q.reserved.Add(int64(n)) > int64(q.cap()) {
		q.reserved.Add(int64(-n))
		return false
	}
	return true
}

func (q *WorkQueue) unreserve(n int) { q.reserved.Add(int64(-n)) }

// push hands an op to the workers; false when the queue is full, then the
// caller keeps the op and tries again at its next step.
func (q *WorkQueue) push(op *Op) bool {
	if !q.ops[op.class].TryPush(op) {
		return false
	}
	q.pool.Wake(1)
	return true
}

// Execute does the work and returns the op to its owner. Any goroutine may
// call it, with a Scratch of its own, which the ops of SessionConfig.Aside do
// without; file work blocks as long as the file system does.
func (op *Op) Execute(s *Scratch) {
	session := op.session
	switch op.kind {
	case opLoad:
		op.load(s)
		op.group.poller.giveBack(op)
	case opStore:
		op.store(s)
		op.group.poller.giveBack(op)
	case opSum, opSource:
		op.sum(len(op.memory))
		op.summed()
	case opConnect:
		op.connect.run()
		op.group.poller.giveBack(op)
	case opVerify:
		session.deliver(result{kind: resultVerified, item: op.item, err: asReason(op.item.item.Source.Verify(op.crc), reason.IOError)})
	case opResum:
		crc, ok := updateGuarded(0, op.memory)
		session.deliver(result{kind: resultResum, group: op.group.id, seg: op.seg, item: op.item, crc: crc, err: lostMemory(!ok)})
	}
}

// sum goes on with a segment's checksum for at most so many bytes, and reports
// whether it is whole. At the destination the item is held meanwhile: a peer
// that aborts it right behind its write would else have the memory unmapped
// under this thread.
func (op *Op) sum(most int) bool {
	if !op.verify {
		return true
	}
	if op.kind == opSum {
		item := op.session.inbox.enter(op.ref)
		if item == nil {
			return true // it has ended; nobody asks for the result
		}
		defer op.session.inbox.leave(item)
	}
	part := op.memory[op.done:min(op.done+most, len(op.memory))]
	crc, ok := updateGuarded(op.crc, part)
	op.crc, op.lost = crc, !ok
	op.done += len(part)
	return op.lost || op.done == len(op.memory)
}

// summed hands the checksum to the session.
func (op *Op) summed() {
	r := result{kind: resultSegment, group: op.group.id, seg: op.seg, ref: op.ref, bytes: op.bytes, offset: op.offset, crc: op.crc, err: lostMemory(op.lost)}
	if op.kind == opSource {
		r.kind, r.item = resultSourceSum, op.item
	}
	session := op.session
	// The op first: once the session has the result it may grant the entry, and
	// the op in it, again.
	op.group.poller.giveBack(op)
	session.deliver(r)
}

// load fills the slot: payload, then trailer.
func (op *Op) load(s *Scratch) {
	c := op.chunk
	if c.item.stopped.Load() {
		c.failed = reason.New(reason.Canceled, "the item ended before this range was read")
		return
	}
	payload := op.memory[:c.bytes:alignUp(int(c.bytes), 4096)]
	if n, err := c.item.item.Source.ReadAt(payload, c.offset); err != nil || n != len(payload) {
		if err == nil {
			err = fmt.Errorf("%d of %d bytes at offset %d", n, len(payload), c.offset)
		}
		c.failed = asReason(err, reason.IOError)
		return
	}
	r := &s.records[0]
	*r = Record{Item: c.item.ref.Item, Attempt: c.item.ref.Attempt, Offset: c.offset, Bytes: c.bytes}
	if c.item.item.Verify {
		r.CRC = Checksum(payload)
		c.crc.Store(r.CRC)
	}
	op.bytes = uint32(encodeTrailer(op.memory, int(c.bytes), s.records[:1]))
}

// store checks every record against the destination memory and writes it. A
// record that fails never fails its slot-mates.
func (op *Op) store(s *Scratch) {
	records, err := decodeTrailer(op.memory[:op.bytes], s.trailer[:], s.records[:])
	if err != nil {
		op.refused = true
		op.session.deliver(result{kind: resultViolation, err: reason.New(reason.TransportError, "slot %d: %v", op.index, err)})
		return
	}
	urgent := false
	for i := range records {
		ack, last := op.storeRecord(&records[i])
		s.acks[i] = ack
		urgent = urgent || last || ack.Code != 0
	}
	op.session.deliverAcks(s.acks[:len(records)], urgent)
}

// storeRecord checks and writes one record; last tells that its item is whole.
func (op *Op) storeRecord(r *Record) (ack RecordAck, last bool) {
	ack = RecordAck{Ref: ItemRef{Item: r.Item, Attempt: r.Attempt}, Offset: r.Offset, Bytes: r.Bytes}
	item := op.session.inbox.enter(ack.Ref)
	if item == nil {
		// Ended here while the chunk was on its way; the source knows by now.
		ack.Code, ack.Detail = reason.Canceled.Wire(), "the item is not open at the destination"
		return ack, false
	}
	defer op.session.inbox.leave(item)
	if err := item.storeRecord(op.memory[r.SlotOffset:r.SlotOffset+r.Bytes:len(op.memory)], r); err != nil {
		ack.Code, ack.Detail = err.Code.Wire(), err.Detail
	}
	got, _ := item.counted()
	return ack, got >= item.offer.Bytes
}

// asReason finds the *reason.Error in err, or makes one with the code.
func asReason(err error, code reason.Code) *reason.Error {
	if err == nil {
		return nil
	}
	var r *reason.Error
	if errors.As(err, &r) {
		return r
	}
	return &reason.Error{Code: code, Detail: err.Error(), Err: err}
}
