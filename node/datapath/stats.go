package datapath

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"mover/engine"
	"mover/numa"
)

// PollerStats are a poller's counters, to be read at any time.
type PollerStats struct {
	Place  numa.PollerPlace
	Spins  bool
	Engine *engine.PollerStats
	Thread *ThreadStats
}

// Stats has the counters of every poller, by its index.
func (p *Path) Stats() []PollerStats {
	stats := make([]PollerStats, len(p.threads))
	for i, t := range p.threads {
		stats[i] = PollerStats{Place: t.place, Spins: t.spin, Engine: t.machine.Stats(), Thread: &t.stats}
	}
	return stats
}

// ArenaStats are what is left of an arena, at one moment.
type ArenaStats struct {
	Node        int   // NUMA node
	Bytes       int64 // all of it
	Free        int64 // bytes that are not leased
	LargestFree int64 // bytes of the largest free piece: a share is one piece
	Shares      int   // leases that are out
}

// Arenas has every arena, by NUMA node.
func (p *Path) Arenas() []ArenaStats {
	var out []ArenaStats
	for _, node := range slices.Sorted(maps.Keys(p.arenas)) {
		a := p.arenas[node]
		free, largest := a.FreeBytes()
		out = append(out, ArenaStats{Node: node, Bytes: int64(len(a.Bytes())), Free: free, LargestFree: largest, Shares: a.Leases()})
	}
	return out
}

// ThreadStats are counters with one writer, the thread.
type ThreadStats struct {
	Parks atomic.Uint64
	// gaps counts the time between two steps by its power of two: gaps[i] has
	// those of less than 2^i ns. Time spent parked is not a gap.
	gaps   [gapBuckets]atomic.Uint64
	gapSum atomic.Uint64 // ns
	gapMax atomic.Uint64 // ns
	busy   atomic.Uint64 // ns, of the gaps after a step that found work
	tid    atomic.Int64  // of the thread
}

// LongestGap is the longest time between two steps so far.
func (s *ThreadStats) LongestGap() time.Duration { return time.Duration(s.gapMax.Load()) }

// Busy is how long the thread worked so far: the time of the steps that found
// something to do.
func (s *ThreadStats) Busy() time.Duration { return time.Duration(s.busy.Load()) }

// CPUSeconds is the processor time of the thread (proc_pid_task(5), schedstat:
// the first number, in ns). It is not known where the kernel keeps none, and
// before and after the thread runs.
func (s *ThreadStats) CPUSeconds() (seconds float64, known bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", s.tid.Load()))
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(text), " ")
	ns, err := strconv.ParseUint(first, 10, 64)
	if err != nil {
		return 0, false
	}
	return float64(ns) / 1e9, true
}

const gapBuckets = 36 // up to 34 s

// GapHistogram is the cumulative histogram of gaps, in seconds, from 256 ns.
func (s *ThreadStats) GapHistogram() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = map[float64]uint64{}
	for i := range s.gaps {
		count += s.gaps[i].Load()
		if i >= 8 && i < gapBuckets-1 {
			buckets[float64(uint64(1)<<i)/1e9] = count
		}
	}
	return count, float64(s.gapSum.Load()) / 1e9, buckets
}
