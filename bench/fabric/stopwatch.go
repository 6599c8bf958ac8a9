package fabric

import (
	"errors"
	"math"
	"time"
)

// counter reads the processor's time stamp counter (amd64: RDTSC, arm64:
// CNTVCT_EL0), as perftest's get_cycles.
func counter() int64

// ErrCounter: the processor's counter cannot be trusted after all.
var ErrCounter = errors.New("the processor's time stamp counter ran backwards, as where the counters of CPUs differ; pin the poller with --cpus")

const (
	calibration = 2 * time.Millisecond // each of two
	// steady is by how much the two may differ: a virtual CPU that is taken
	// away between the two readings of a pair spoils one.
	steady = 0.01
)

// stopwatch measures short times for less than the kernel's clock costs: that
// is a system call of some us where the kernel does not trust the counter
// itself, as in many virtual machines, and would be a good part of a latency.
type stopwatch struct {
	nsPerTick float64
	counter   bool // else ticks are nanoseconds of base
	base      time.Time
}

// newStopwatch takes the counter if its rate is the same twice in a row, which
// takes two calibrations, and else the kernel's clock.
func newStopwatch() stopwatch {
	base := time.Now()
	first, second := tickLength(), tickLength()
	if first > 0 && second > 0 && math.Abs(first/second-1) < steady {
		return stopwatch{nsPerTick: (first + second) / 2, counter: true}
	}
	return stopwatch{nsPerTick: 1, base: base}
}

// tickLength is in ns.
func tickLength() float64 {
	c0, t0 := pairOfReadings()
	for time.Since(t0) < calibration {
	}
	c1, t1 := pairOfReadings()
	if c1 <= c0 {
		return 0
	}
	return float64(t1.Sub(t0)) / float64(c1-c0)
}

// pairOfReadings reads both clocks as close to each other as a few tries give.
func pairOfReadings() (ticks int64, at time.Time) {
	best := int64(math.MaxInt64)
	for range 8 {
		before := counter()
		t := time.Now()
		after := counter()
		if d := after - before; d >= 0 && d < best {
			best, ticks, at = d, before+d/2, t
		}
	}
	return ticks, at
}

// now is in ticks from some moment.
func (w *stopwatch) now() int64 {
	if w.counter {
		return counter()
	}
	return int64(time.Since(w.base))
}

// ticks is how many a time has.
func (w *stopwatch) ticks(d time.Duration) int64 { return int64(float64(d) / w.nsPerTick) }

// nanoseconds turns a list of ticks into times, in place.
func (w *stopwatch) nanoseconds(list []int64) error {
	for i, t := range list {
		if t < 0 {
			return ErrCounter
		}
		list[i] = int64(float64(t) * w.nsPerTick)
	}
	return nil
}
