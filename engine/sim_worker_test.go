package engine

import (
	"iter"
	"slices"
	"unsafe"
)

// simWorker is a worker with an op. It is a coroutine: a file system that hangs
// holds it in the middle of a call, with all that the engine counts as in use,
// and the world goes on around it.
type simWorker struct {
	side   *simSide
	op     *Op
	memory []byte // which it may touch until it is done
	yield  func(int64) bool
	resume func() (int64, bool)
	stop   func()
}

// give starts a worker on an op after a delay.
func (s *simSide) give(op *Op, delay int64) {
	k := &simWorker{side: s, op: op}
	if op.kind == opLoad || op.kind == opStore {
		// The memory of a sum is guarded by inbox.enter, or its item is not over.
		k.memory = op.memory
	}
	s.working = append(s.working, k)
	s.after(delay, "op", k.begin)
}

func (k *simWorker) begin() {
	s := k.side
	scratch := new(Scratch)
	if n := len(s.scratch); n > 0 {
		scratch, s.scratch = s.scratch[n-1], s.scratch[:n-1]
	}
	if !s.w.hangs { // then nothing makes it wait, and a plain call does
		s.working = slices.DeleteFunc(s.working, func(o *simWorker) bool { return o == k })
		k.op.Execute(scratch)
		s.scratch = append(s.scratch, scratch)
		return
	}
	k.resume, k.stop = iter.Pull(func(yield func(int64) bool) {
		k.yield = yield
		k.op.Execute(scratch)
		s.scratch = append(s.scratch, scratch)
	})
	s.w.coroutines = append(s.w.coroutines, k)
	k.goOn()
}

// goOn runs the worker until it is done or waits.
func (k *simWorker) goOn() {
	w := k.side.w
	w.current = k
	delay, more := k.resume()
	w.current = nil
	if more {
		k.side.after(delay, "op goes on", k.goOn)
		return
	}
	k.side.working = slices.DeleteFunc(k.side.working, func(o *simWorker) bool { return o == k })
	w.coroutines = slices.DeleteFunc(w.coroutines, func(o *simWorker) bool { return o == k })
}

// wait holds the worker that runs for a time; false when its process is killed
// meanwhile, and nothing that it does now matters.
func (w *world) wait(delay int64) bool {
	if w.current == nil {
		return true
	}
	return w.current.yield(delay)
}

// stopWorkers ends the coroutines of processes that are no more, or all.
func (w *world) stopWorkers(of func(*simSide) bool) {
	var kept []*simWorker
	for _, k := range w.coroutines {
		if of(k.side) {
			k.stop()
		} else {
			kept = append(kept, k)
		}
	}
	w.coroutines = kept
}

func overlaps(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}
