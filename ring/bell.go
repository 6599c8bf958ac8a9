package ring

import (
	"context"
	"sync/atomic"
	"time"
)

// Waker is the producer's view of a sleeping consumer: a [Parker] or a [Bell]. Wake is called after the entries are
// visible, never blocks, and says whether the consumer had to be woken.
type Waker interface {
	Wake() bool
}

var (
	_ Waker = (*Parker)(nil)
	_ Waker = (*Bell)(nil)
)

// Bell is a Parker for a consumer that is an ordinary goroutine, such as a session's: it waits on a Go channel and so
// keeps no OS thread while it sleeps. The protocol is the same: Prepare, poll once more, then Cancel or Wait. Waking
// goes through the Go scheduler, which is slower than an eventfd for the consumer; it must not be used for a poller,
// nor for anything that waits for descriptors.
//
// Prepare, Cancel and Wait are the consumer's; any goroutine may call Wake.
type Bell struct {
	_      [padBytes]byte
	parked atomic.Uint32
	_      [padBytes - 4]byte
	signal chan struct{} // holds one signal, like an eventfd whose count does not matter
	timer  *time.Timer
}

// NewBell makes a bell. It holds no descriptor and needs no Close.
func NewBell() *Bell {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &Bell{signal: make(chan struct{}, 1), timer: timer}
}

// Prepare announces that the consumer is about to sleep; before Wait it polls every queue once more.
func (b *Bell) Prepare() { b.parked.Store(1) }

// Cancel takes Prepare back, after the second poll found work. A signal that was already sent ends the next Wait early.
func (b *Bell) Cancel() { b.parked.Store(0) }

// Wait sleeps until a producer calls Wake, timeout (0 or more) has passed, or ctx ends; woken is true in the first
// case, and err is ctx's error in the last. A negative timeout is refused with ErrNoDeadline. The caller polls its
// queues afterwards, whatever Wait returned.
func (b *Bell) Wait(ctx context.Context, timeout time.Duration) (woken bool, err error) {
	defer b.parked.Store(0)
	if timeout < 0 {
		return false, ErrNoDeadline
	}
	select {
	case <-b.signal: // also with a timeout of 0, and before ctx is looked at
		return true, nil
	default:
	}
	b.timer.Reset(timeout)
	defer b.timer.Stop() // since Go 1.23 nothing stale is left in the channel
	select {
	case <-b.signal:
		return true, nil
	case <-b.timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Wake ends the consumer's Wait, or the one it has prepared, and says whether it had to. It costs one load when the
// consumer is awake. A nil Bell may be woken: it stands for a consumer that never sleeps.
func (b *Bell) Wake() bool {
	if b == nil || b.parked.Load() == 0 || !b.parked.CompareAndSwap(1, 0) {
		return false
	}
	select {
	case b.signal <- struct{}{}:
	default: // one is there already, which does as well
	}
	return true
}
