package sim

import (
	"fmt"
	"strings"
	"time"
)

// traceKept is how many records Trace can show.
const traceKept = 512

// trace hashes everything that happens and keeps the last records.
type trace struct {
	hash uint64
	n    uint64
	ring [traceKept]traceRecord
}

type traceRecord struct {
	at   int64
	kind string
	a, b uint64
}

func (t *trace) init() { t.hash = 14695981039346656037 } // FNV-1a's offset basis

func (t *trace) mix(x uint64) {
	for range 8 {
		t.hash = (t.hash ^ x&0xff) * 1099511628211
		x >>= 8
	}
}

// record notes an event. Addresses never go in: they differ between runs.
func (f *Fabric) record(kind string, a, b uint64) {
	t := &f.trace
	for i := range len(kind) {
		t.hash = (t.hash ^ uint64(kind[i])) * 1099511628211
	}
	t.mix(uint64(f.now))
	t.mix(a)
	t.mix(b)
	t.ring[t.n%traceKept] = traceRecord{at: f.now, kind: kind, a: a, b: b}
	t.n++
}

// TraceHash is a hash of everything that happened: equal for equal seeds and
// equal calls.
func (f *Fabric) TraceHash() uint64 { return f.trace.hash }

// Trace shows the last records, oldest first: time, what, QPN and a detail.
func (f *Fabric) Trace() string {
	t := &f.trace
	var b strings.Builder
	for i := t.n - min(t.n, traceKept); i < t.n; i++ {
		r := t.ring[i%traceKept]
		fmt.Fprintf(&b, "%12v %-10s %#x %#x\n", time.Duration(r.at), r.kind, r.a, r.b)
	}
	return b.String()
}
