package datapath

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"mover/engine"
	"mover/numa"
	"mover/ring"
)

// maxPark bounds how long a parked poller sleeps when nothing is due.
const maxPark = time.Second

// thread is a poller's own OS thread: locked and pinned, never unlocked.
type thread struct {
	index   int
	machine *engine.Poller
	parker  *ring.Parker
	clock   clock
	place   numa.PollerPlace
	spin    bool          // never park
	after   time.Duration // adaptive: idle for so long before parking
	fds     []unix.PollFd

	started  bool
	stopping atomic.Bool
	stopped  chan struct{}
	stats    ThreadStats
}

func newThread(index int, m *engine.Poller, parker *ring.Parker, c clock, place numa.PollerPlace, spin bool, after time.Duration) *thread {
	t := &thread{index: index, machine: m, parker: parker, clock: c, place: place, spin: spin, after: after,
		stopped: make(chan struct{})}
	for _, ch := range m.Channels() {
		t.fds = append(t.fds, unix.PollFd{Fd: int32(ch.FD()), Events: unix.POLLIN})
	}
	return t
}

func (t *thread) cpu() string {
	if !t.place.Pinned {
		return "any"
	}
	return fmt.Sprint(t.place.CPU)
}

// start runs the loop on a thread of its own; it returns once the thread is
// pinned.
func (t *thread) start() error {
	t.started = true
	pinned := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread dies with the loop
		if t.place.Pinned {
			if err := numa.PinThread(numa.CPUSetOf(t.place.CPU)); err != nil {
				close(t.stopped)
				pinned <- fmt.Errorf("pinning poller %d to CPU %d: %w", t.index, t.place.CPU, err)
				return
			}
		}
		t.stats.tid.Store(int64(unix.Gettid()))
		pinned <- nil
		defer close(t.stopped)
		t.loop()
	}()
	return <-pinned
}

func (t *thread) stop() {
	if !t.started {
		return
	}
	t.stopping.Store(true)
	t.parker.Wake()
	<-t.stopped
}

// loop is the busy loop: step, and when idle for long enough, park.
func (t *thread) loop() {
	last := t.clock.now()
	busy := last
	worked := false
	for !t.stopping.Load() {
		now := t.clock.now()
		t.gap(now-last, worked)
		last = now
		if worked = t.machine.Step(now) > 0; worked {
			busy = now
			continue
		}
		if t.spin || now-busy < int64(t.after) {
			continue
		}
		t.park()
		last = t.clock.now()
		busy = last
	}
}

// park waits for the rings, the CQs or the next deadline. It loses no wake-up:
// first the producers are told, then the CQs are armed, then both are polled
// once more.
func (t *thread) park() {
	t.parker.Prepare()
	if t.machine.Arm() != nil || t.machine.Step(t.clock.now()) > 0 || t.stopping.Load() {
		t.parker.Cancel()
		return
	}
	timeout := maxPark
	if at := t.machine.Deadline(); at != math.MaxInt64 {
		timeout = min(timeout, max(time.Duration(at-t.clock.now()), 0))
	}
	add(&t.stats.Parks, 1)
	// An error is a lost descriptor: then the next rounds find out why.
	_, _ = t.parker.Park(t.fds, timeout)
	for _, ch := range t.machine.Channels() {
		_ = ch.Drain()
	}
}

// gap counts the time from one step to the next; worked says that the first
// found something to do.
func (t *thread) gap(ns int64, worked bool) {
	n := uint64(max(ns, 0))
	add(&t.stats.gaps[min(bits.Len64(n), gapBuckets-1)], 1)
	add(&t.stats.gapSum, n)
	if worked {
		add(&t.stats.busy, n)
	}
	if n > t.stats.gapMax.Load() {
		t.stats.gapMax.Store(n)
	}
}

// add counts for a single writer.
func add(c *atomic.Uint64, n uint64) { c.Store(c.Load() + n) }
