package ring

import "sync/atomic"

// spscIndexes are the two words the halves share. Both are free-running counts, not positions: tail-head is the number
// of entries also after the 64-bit wrap, and the whole capacity is usable.
type spscIndexes struct {
	_    [padBytes]byte
	tail atomic.Uint64 // entries published; stored by Tx only
	_    [padBytes - 8]byte
	head atomic.Uint64 // entries taken; stored by Rx only
	_    [padBytes - 8]byte
}

// Tx is the producer's half of a single-producer single-consumer ring. One goroutine at a time may use it; handing it
// to another one needs synchronisation by the caller. Obtain it from [NewSPSC].
type Tx[T any] struct {
	_         [padBytes]byte
	idx       *spscIndexes
	buf       []T
	mask      uint64
	staged    uint64 // entries written to buf, published or not
	published uint64 // our own copy of idx.tail
	headSeen  uint64 // idx.head as last loaded: may be old, which only makes the ring look fuller
	_         [padBytes]byte
}

// Rx is the consumer's half of a single-producer single-consumer ring. One goroutine at a time may use it; handing it
// to another one needs synchronisation by the caller. Obtain it from [NewSPSC].
type Rx[T any] struct {
	_        [padBytes]byte
	idx      *spscIndexes
	buf      []T
	mask     uint64
	taken    uint64 // our own copy of idx.head
	tailSeen uint64 // idx.tail as last loaded: may be old, which only makes the ring look emptier
	_        [padBytes]byte
}

// NewSPSC makes a ring for capacity entries of T and returns its two halves. capacity is a power of two from 2 to
// 1<<20; anything else panics, being a mistake in the program, never an input. All memory is allocated here.
//
// A slot is set to T's zero value when its entry is taken, so the ring never keeps garbage alive; that costs one store
// of T's size an entry, into a line the consumer has just read.
func NewSPSC[T any](capacity int) (*Tx[T], *Rx[T]) {
	return newSPSC[T](capacity, 0)
}

// newSPSC starts the counts at start, so that tests cross the 64-bit wrap.
func newSPSC[T any](capacity int, start uint64) (*Tx[T], *Rx[T]) {
	checkCapacity(capacity)
	idx := &spscIndexes{}
	idx.tail.Store(start)
	idx.head.Store(start)
	buf := make([]T, capacity)
	mask := uint64(capacity - 1)
	return &Tx[T]{idx: idx, buf: buf, mask: mask, staged: start, published: start, headSeen: start},
		&Rx[T]{idx: idx, buf: buf, mask: mask, taken: start, tailSeen: start}
}

// Stage writes v into the next free slot without showing it to the consumer; false means the ring is full and v was
// not taken. Staged entries count as used.
func (t *Tx[T]) Stage(v T) bool {
	if t.staged-t.headSeen > t.mask {
		// Only now the consumer's line is touched: a ring that is not full costs no cache miss here.
		t.headSeen = t.idx.head.Load()
		if t.staged-t.headSeen > t.mask {
			return false
		}
	}
	t.buf[t.staged&t.mask] = v
	t.staged++
	return true
}

// Publish makes all staged entries visible to the consumer in one store and returns how many there were. A caller with
// a consumer that parks calls its Wake afterwards, never before.
func (t *Tx[T]) Publish() int {
	n := t.staged - t.published
	if n != 0 {
		t.published = t.staged
		t.idx.tail.Store(t.staged)
	}
	return int(n)
}

// Push is Stage and, when that succeeds, Publish of v and all entries staged before it.
func (t *Tx[T]) Push(v T) bool {
	if !t.Stage(v) {
		return false
	}
	t.Publish()
	return true
}

// Free returns how many entries can be staged now, 0 to [Tx.Cap]. The consumer may only make it more.
func (t *Tx[T]) Free() int {
	t.headSeen = t.idx.head.Load()
	return len(t.buf) - int(t.staged-t.headSeen)
}

// Cap returns the capacity in entries.
func (t *Tx[T]) Cap() int { return len(t.buf) }

// ready returns the number of entries that can be taken, and loads the producer's count only when fewer than want are
// known of.
func (r *Rx[T]) ready(want uint64) uint64 {
	n := r.tailSeen - r.taken
	if n < want {
		r.tailSeen = r.idx.tail.Load()
		n = r.tailSeen - r.taken
	}
	return n
}

// Pop takes the oldest entry; false means there is none.
func (r *Rx[T]) Pop() (T, bool) {
	var zero T
	if r.ready(1) == 0 {
		return zero, false
	}
	slot := &r.buf[r.taken&r.mask]
	v := *slot
	*slot = zero
	r.taken++
	r.idx.head.Store(r.taken)
	return v, true
}

// PopBatch takes the oldest entries, at most len(dst), into dst in order and returns how many. The slots are given
// back to the producer in one store.
func (r *Rx[T]) PopBatch(dst []T) int {
	n := min(r.ready(uint64(len(dst))), uint64(len(dst)))
	if n == 0 {
		return 0
	}
	first := r.buf[r.taken&r.mask:]
	first = first[:min(uint64(len(first)), n)]
	copied := copy(dst, first)
	clear(first)
	rest := r.buf[:n-uint64(copied)]
	copy(dst[copied:], rest)
	clear(rest)
	r.taken += n
	r.idx.head.Store(r.taken)
	return int(n)
}

// Peek returns a copy of the oldest entry without taking it; false means there is none.
func (r *Rx[T]) Peek() (T, bool) {
	if r.ready(1) == 0 {
		var zero T
		return zero, false
	}
	return r.buf[r.taken&r.mask], true
}

// Len returns how many entries can be taken now, 0 to [Rx.Cap]. The producer may only make it more.
func (r *Rx[T]) Len() int { return int(r.ready(uint64(len(r.buf)))) }

// Cap returns the capacity in entries.
func (r *Rx[T]) Cap() int { return len(r.buf) }
