//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// GetAsyncEvent acknowledges the event before it takes a lock or looks at a Go
// object: destroying a QP or a CQ waits for the acknowledgement. CQ_ERR and
// DEVICE_FATAL take effect here, on Poll: without a reader they have none.
// After the device is gone it is EIO.
func (d *device) GetAsyncEvent(timeout time.Duration) (verbs.AsyncEvent, error) {
	d.reader.Lock()
	defer d.reader.Unlock()
	deadline := time.Now().Add(timeout)
	for {
		if d.closed.Load() {
			return verbs.AsyncEvent{}, fmt.Errorf("asynchronous event of %s: %w", d.info.Name, verbs.ErrClosed)
		}
		e := C.mv_get_event(d.lib.handle, d.ctx)
		switch syscall.Errno(e.err) {
		case 0:
			if ev, ok := d.event(&e); ok {
				return ev, nil
			}
			continue
		case syscall.EAGAIN:
		case syscall.EINTR:
			continue
		default:
			// The kernel closed the queue of a device that was unplugged, after
			// DEVICE_FATAL (ib_uverbs_event_read).
			d.fail()
			return verbs.AsyncEvent{}, d.failed("asynchronous event", e.err, "the device is gone")
		}
		left := time.Until(deadline)
		if left <= 0 {
			return verbs.AsyncEvent{}, verbs.ErrTimeout
		}
		if err := d.waitEvent(left); err != nil {
			return verbs.AsyncEvent{}, err
		}
	}
}

// waitEvent returns when there may be an event, on Close, or after left.
func (d *device) waitEvent(left time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(d.asyncFD), Events: unix.POLLIN}, {Fd: int32(d.closeFD), Events: unix.POLLIN}}
	// Rounded up, so that the last fraction of a millisecond does not spin.
	ms := min((left+time.Millisecond-1)/time.Millisecond, 1<<30)
	if _, err := unix.Poll(fds, int(ms)); err != nil && err != unix.EINTR {
		return &verbs.Error{Op: "wait for asynchronous events of " + d.info.Name, Errno: errnoOf(err)}
	}
	return nil
}

// event translates; false drops an event of a CQ that is destroyed already.
func (d *device) event(e *C.struct_mv_event) (verbs.AsyncEvent, bool) {
	ev := verbs.AsyncEvent{Type: verbs.EventType(e.kind), QPN: uint32(e.qpn), Port: uint8(e.port)}
	switch ev.Type {
	case verbs.EventCQErr:
		d.mu.Lock()
		q := d.cqs[uint64(e.owner)]
		d.mu.Unlock()
		if q == nil {
			return ev, false
		}
		q.fault.CompareAndSwap(cqFine, cqOverrun)
		ev.CQ = q
	case verbs.EventDeviceFatal:
		d.fail()
	}
	return ev, true
}
