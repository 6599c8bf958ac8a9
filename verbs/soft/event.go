//go:build linux

package soft

import (
	"sync/atomic"
	"time"

	"mover/verbs"
)

// eventsKept bounds the async events that wait for their reader.
const eventsKept = 1024

// events is a device's queue of asynchronous events. put may be called from
// any goroutine and never blocks.
type events struct {
	queue chan verbs.AsyncEvent
	// lost is set when the queue was full. The reader then gets DEVICE_FATAL:
	// an event nobody saw could have been any, so everything has to be taken
	// as failed.
	lost   atomic.Bool
	closed chan struct{}
}

func (e *events) init() {
	e.queue = make(chan verbs.AsyncEvent, eventsKept)
	e.closed = make(chan struct{})
}

func (e *events) put(ev verbs.AsyncEvent) {
	select {
	case e.queue <- ev:
	default:
		e.lost.Store(true)
	}
}

func (e *events) get(timeout time.Duration) (verbs.AsyncEvent, error) {
	if e.lost.Swap(false) {
		return verbs.AsyncEvent{Type: verbs.EventDeviceFatal}, nil
	}
	select {
	case ev := <-e.queue:
		return ev, nil
	case <-e.closed:
		return verbs.AsyncEvent{}, verbs.ErrClosed
	default:
	}
	if timeout <= 0 {
		return verbs.AsyncEvent{}, verbs.ErrTimeout
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case ev := <-e.queue:
		return ev, nil
	case <-e.closed:
		return verbs.AsyncEvent{}, verbs.ErrClosed
	case <-t.C:
		return verbs.AsyncEvent{}, verbs.ErrTimeout
	}
}
