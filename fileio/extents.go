package fileio

import (
	"errors"
	"slices"
	"sync"
)

// extentsMax bounds the pieces a Sink remembers. Chunks arrive roughly in
// order, so a healthy transfer has about as many pieces as chunks in flight;
// only a peer that sends confetti on purpose gets here.
const extentsMax = 1 << 16

// errConfetti is returned when the bytes written are in too many pieces.
var errConfetti = errors.New("the file arrives in more than 65536 disjoint pieces")

// extent is the range [start, end) of a file, in bytes.
type extent struct{ start, end int64 }

// extents is the exact set of bytes written: disjoint, sorted, and merged when
// they touch. A count of bytes would call a file whole when one chunk came
// twice and another never. Safe for concurrent use.
type extents struct {
	mu      sync.Mutex
	set     []extent
	covered int64
}

// newExtents preallocates so that a transfer in roughly ascending order never
// allocates.
func newExtents() *extents { return &extents{set: make([]extent, 0, 256)} }

// add marks [start, end) as written and returns how many of its bytes were
// new. It fails when the set would exceed extentsMax.
func (e *extents) add(start, end int64) (int64, error) {
	if start >= end {
		return 0, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// First piece that ends at or after start: the first that can touch.
	lo, hi := 0, len(e.set)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if e.set[mid].end < start {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	merged, old, last := extent{start, end}, int64(0), lo
	for last < len(e.set) && e.set[last].start <= end {
		x := e.set[last]
		old += x.end - x.start
		merged.start = min(merged.start, x.start)
		merged.end = max(merged.end, x.end)
		last++
	}
	if last == lo {
		if len(e.set) >= extentsMax {
			return 0, errConfetti
		}
		e.set = slices.Insert(e.set, lo, merged)
	} else {
		e.set[lo] = merged
		e.set = slices.Delete(e.set, lo+1, last)
	}
	fresh := merged.end - merged.start - old
	e.covered += fresh
	return fresh, nil
}

// bytes returns how many distinct bytes were written.
func (e *extents) bytes() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.covered
}

// covers reports whether all of [start, end) was added.
func (e *extents) covers(start, end int64) bool {
	if start >= end {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.set {
		if x.end >= end {
			return x.start <= start
		}
	}
	return false
}
