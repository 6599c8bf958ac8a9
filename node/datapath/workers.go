package datapath

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"mover/engine"
	"mover/numa"
	"mover/ring"
)

// workers execute ops: they read and write files and compute checksums.
type workers struct {
	queue    *engine.WorkQueue
	seats    *ring.Pool
	cpus     numa.CPUSet // empty does not bind
	stopping atomic.Bool
	done     sync.WaitGroup
	busy     atomic.Int64
}

func newWorkers(queue *engine.WorkQueue, seats *ring.Pool, cpus numa.CPUSet) *workers {
	return &workers{queue: queue, seats: seats, cpus: cpus}
}

func (w *workers) start() {
	for i := range w.seats.Len() {
		w.done.Add(1)
		go w.run(i)
	}
}

func (w *workers) run(i int) {
	defer w.done.Done()
	if !w.cpus.Empty() {
		runtime.LockOSThread()
		_ = numa.PinThread(w.cpus) // slower without, not wrong
	}
	scratch := new(engine.Scratch)
	seat := w.seats.Seat(i)
	for !w.stopping.Load() {
		if op, ok := w.queue.Pop(); ok {
			w.execute(op, scratch)
			continue
		}
		seat.Prepare()
		if op, ok := w.queue.Pop(); ok {
			seat.Cancel() // before the work: it may hand on a wake-up
			w.execute(op, scratch)
			continue
		}
		if w.stopping.Load() {
			seat.Cancel()
			return
		}
		_, _ = seat.Park(nil, time.Second)
	}
}

func (w *workers) execute(op *engine.Op, s *engine.Scratch) {
	w.busy.Add(1)
	op.Execute(s)
	w.busy.Add(-1)
}

// stop ends the workers; one that hangs in a file system is left behind.
func (w *workers) stop(ctx context.Context) {
	w.stopping.Store(true)
	w.seats.Wake(w.seats.Len())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.done.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
