package job

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// The rate is that of the last rateWindow, counted in buckets: long enough to
// be readable, short enough to show a stall within seconds.
const (
	rateBucket  = 250 * time.Millisecond
	rateBuckets = 20
	rateWindow  = rateBucket * rateBuckets
	// maxETA is where "seconds left" stops meaning anything.
	maxETA = 10 * 365 * 24 * time.Hour
)

// Progress counts what one attempt has done. An attempt that starts again gets
// a new one, so counts return to 0 and a late call of the old attempt counts
// nowhere. Every method may be called from any goroutine. It takes a short
// lock and reads the clock: call it per chunk, not per byte.
type Progress struct {
	clock Clock
	start time.Time
	moved *atomic.Uint64 // of all attempts, for metrics
	large int64          // when the total is more, grow is called, once
	grow  func()         // nil if nobody asks
	grown atomic.Bool

	mu         sync.Mutex
	known      bool
	bytesTotal int64
	itemsTotal int64
	bytesDone  int64
	itemsDone  int64
	buckets    [rateBuckets]struct{ index, bytes int64 }
}

// ProgressView is progress at one moment. Done is never more than total, and
// nothing is ever negative; totals are 0 until preparing has found them.
type ProgressView struct {
	BytesTotal         int64  `json:"bytes_total"`
	BytesDone          int64  `json:"bytes_done"`
	ItemsTotal         int64  `json:"items_total"`
	ItemsDone          int64  `json:"items_done"`
	RateBytesPerSecond int64  `json:"rate_bytes_per_second"` // over the last 5 s
	ETASeconds         *int64 `json:"eta_seconds"`           // null when unknown
}

func newProgress(clock Clock, moved *atomic.Uint64) *Progress {
	return &Progress{clock: clock, start: clock.Now(), moved: moved}
}

// SetTotal says how much there is to do. Negative values count as 0.
func (p *Progress) SetTotal(bytes, items int64) {
	p.mu.Lock()
	p.known, p.bytesTotal, p.itemsTotal = true, max(bytes, 0), max(items, 0)
	p.mu.Unlock()
	if p.grow != nil && bytes > p.large && p.grown.CompareAndSwap(false, true) {
		p.grow() // without the lock: it takes the queue's
	}
}

// Add counts bytes that the destination holds and need not be sent again. A
// range that is sent twice is to be counted once. n <= 0 does nothing.
func (p *Progress) Add(n int64) {
	if n <= 0 {
		return
	}
	p.moved.Add(uint64(n))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytesDone = addClamped(p.bytesDone, n)
	index := p.index()
	b := &p.buckets[index%rateBuckets]
	if b.index != index {
		b.index, b.bytes = index, 0
	}
	b.bytes = addClamped(b.bytes, n)
}

// AddItems counts items that are published. n <= 0 does nothing.
func (p *Progress) AddItems(n int64) {
	if n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.itemsDone = addClamped(p.itemsDone, n)
}

// index is the number of the current bucket, from 1: 0 marks an unused one.
func (p *Progress) index() int64 {
	return int64(max(p.clock.Now().Sub(p.start), 0)/rateBucket) + 1
}

func addClamped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// View returns the progress now. moving is false for a job at rest, which has
// neither rate nor ETA.
func (p *Progress) View(moving bool) ProgressView {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := ProgressView{
		BytesTotal: p.bytesTotal, BytesDone: min(p.bytesDone, p.bytesTotal),
		ItemsTotal: p.itemsTotal, ItemsDone: min(p.itemsDone, p.itemsTotal),
	}
	if !moving {
		return v
	}
	now := p.index()
	var sum int64
	for _, b := range p.buckets {
		if b.index > 0 && b.index > now-rateBuckets {
			sum = addClamped(sum, b.bytes)
		}
	}
	// The window's first bucket is whole and its last has just begun. Less
	// than one bucket of time would make a rate out of noise.
	elapsed := p.clock.Now().Sub(p.start)
	if whole := elapsed - elapsed%rateBucket; whole > rateWindow-rateBucket {
		elapsed = rateWindow - rateBucket + elapsed%rateBucket
	}
	rate := float64(sum) / max(elapsed, rateBucket).Seconds()
	v.RateBytesPerSecond = int64(min(rate, math.MaxInt64/2))
	left := v.BytesTotal - v.BytesDone
	switch {
	case !p.known:
	case left == 0:
		v.ETASeconds = new(int64)
	case v.RateBytesPerSecond > 0:
		if eta := math.Ceil(float64(left) / float64(v.RateBytesPerSecond)); eta <= maxETA.Seconds() {
			seconds := int64(eta)
			v.ETASeconds = &seconds
		}
	}
	return v
}
