package ring

import "sync/atomic"

// MPMC is a bounded queue for many producers and many consumers; any goroutine may call any method. Each cell carries
// a sequence number that says whose turn it is: for the cell of position p, p means free for the producer of p, p+1
// filled for the consumer of p, p+capacity free for the next round. A producer or consumer claims a position by one
// compare-and-swap and then owns its cell alone. Entries of one producer are taken in the order it pushed them.
//
// A claimed cell that is not yet filled hides the filled ones behind it: TryPop then answers false although another
// producer's push has returned. That producer's push is not lost (the slow one wakes the consumer when it is done), but
// it is why a consumer in a [Pool] uses [MPMC.TryPopWake].
type MPMC[T any] struct {
	_     [padBytes]byte
	enq   atomic.Uint64 // next position to push
	_     [padBytes - 8]byte
	deq   atomic.Uint64 // next position to pop
	_     [padBytes - 8]byte
	cells []mpmcCell[T]
	mask  uint64
}

// mpmcCell is not padded: neighbouring cells share a line, which halves the memory touched in the usual case of few
// producers, and costs some bouncing when many push at once.
type mpmcCell[T any] struct {
	seq   atomic.Uint64
	value T
}

// NewMPMC makes a queue for capacity entries of T. capacity is a power of two from 2 to 1<<20; anything else panics.
// All memory is allocated here. A cell is set to T's zero value when its entry is taken, at the cost of one store of
// T's size, so the queue keeps no garbage alive.
func NewMPMC[T any](capacity int) *MPMC[T] {
	return newMPMC[T](capacity, 0)
}

// newMPMC starts the positions at start, so that tests cross the 64-bit wrap.
func newMPMC[T any](capacity int, start uint64) *MPMC[T] {
	checkCapacity(capacity)
	q := &MPMC[T]{cells: make([]mpmcCell[T], capacity), mask: uint64(capacity - 1)}
	q.enq.Store(start)
	q.deq.Store(start)
	for i := range uint64(capacity) {
		pos := start + i
		q.cells[pos&q.mask].seq.Store(pos)
	}
	return q
}

// TryPush appends v; false means the queue is full and v was not taken. It can also be false while a consumer is in
// the middle of taking the oldest entry of a full queue.
func (q *MPMC[T]) TryPush(v T) bool {
	pos := q.enq.Load()
	for {
		cell := &q.cells[pos&q.mask]
		// The difference is signed so that "ahead" and "behind" survive the 64-bit wrap.
		switch turn := int64(cell.seq.Load() - pos); {
		case turn == 0:
			if q.enq.CompareAndSwap(pos, pos+1) {
				cell.value = v
				cell.seq.Store(pos + 1)
				return true
			}
			pos = q.enq.Load()
		case turn < 0:
			return false
		default: // another producer had this position already
			pos = q.enq.Load()
		}
	}
}

// TryPop takes the oldest entry; false means there is none, or that the oldest one is still being written.
func (q *MPMC[T]) TryPop() (T, bool) {
	var zero T
	pos := q.deq.Load()
	for {
		cell := &q.cells[pos&q.mask]
		switch turn := int64(cell.seq.Load() - (pos + 1)); {
		case turn == 0:
			if q.deq.CompareAndSwap(pos, pos+1) {
				v := cell.value
				cell.value = zero
				cell.seq.Store(pos + q.mask + 1)
				return v, true
			}
			pos = q.deq.Load()
		case turn < 0:
			return zero, false
		default: // another consumer had this position already
			pos = q.deq.Load()
		}
	}
}

// TryPopWake is TryPop for a consumer in pool: when it took an entry and leaves others behind, it wakes one more
// consumer. Without it an entry could wait for a busy consumer while an idle one sleeps (see [MPMC]). pool may be nil.
func (q *MPMC[T]) TryPopWake(pool *Pool) (T, bool) {
	v, ok := q.TryPop()
	if ok && pool != nil && q.Len() > 0 {
		pool.Wake(1)
	}
	return v, ok
}

// Len returns the number of entries, 0 to [MPMC.Cap], pushes and pops in progress included or not: it is exact only
// when nobody else is at work.
func (q *MPMC[T]) Len() int {
	// deq first: enq only grows, so the difference cannot turn negative; it may be too large by what happened between
	// the loads, hence the bound.
	deq := q.deq.Load()
	enq := q.enq.Load()
	return int(min(enq-deq, q.mask+1))
}

// Cap returns the capacity in entries.
func (q *MPMC[T]) Cap() int { return len(q.cells) }
