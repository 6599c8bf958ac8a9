//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"mover/verbs"
)

// resource is what PDs, MRs, CQs, QPs, AHs and channels have in common: a
// handle of libibverbs, a place in the device's counts, and parents that must
// outlive it. users is guarded by device.mu; gone changes under it, and may be
// read without: it is set before libibverbs frees anything.
type resource struct {
	ptr     C.uintptr_t
	what    string      // "QP 0x12", for messages
	count   *int        // in device.counts
	parents []*resource // of which this is a user
	users   int
	gone    atomic.Bool
}

// claim counts a resource before it is made, so that neither the device nor a
// parent can go away meanwhile. The lock is not held while the kernel works:
// registrations run in parallel.
func (d *device) claim(op string, r *resource) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return fmt.Errorf("%s: %w", op, verbs.ErrClosed)
	}
	if d.dead.Load() {
		return &verbs.Error{Op: op, Errno: syscall.EIO, Detail: d.info.Name + " is gone (DEVICE_FATAL): close it, and open it again when it is back"}
	}
	for _, p := range r.parents {
		if p.gone.Load() {
			return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: p.what + " was destroyed"}
		}
	}
	*r.count++
	for _, p := range r.parents {
		p.users++
	}
	return nil
}

// release takes back a claim.
func (d *device) release(r *resource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*r.count--
	for _, p := range r.parents {
		p.users--
	}
}

// destroy runs free once nothing uses r. When free fails r stays as it was and
// counted: the error is the caller's to deal with, and Close goes on refusing.
// What belonged to a device that is gone was destroyed with it by the kernel.
func (d *device) destroy(op string, r *resource, free func() C.int) error {
	d.mu.Lock()
	if r.gone.Load() {
		d.mu.Unlock()
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: r.what + " was destroyed before"}
	}
	if r.users != 0 {
		n := r.users
		d.mu.Unlock()
		return &verbs.Error{Op: op, Errno: syscall.EBUSY, Detail: fmt.Sprintf("%s is still used by %d others", r.what, n)}
	}
	r.gone.Store(true) // nothing can be made on it from here on
	d.mu.Unlock()
	// Outside the lock: it waits for events to be acknowledged
	// (ibv_destroy_qp(3), ibv_destroy_cq(3)).
	if errno := free(); errno != 0 && !d.goneErrno(syscall.Errno(errno)) {
		d.mu.Lock()
		r.gone.Store(false)
		d.mu.Unlock()
		return d.failed(op, errno, r.what)
	}
	d.release(r)
	return nil
}

// goneErrno reports an error that says no more than that the device is gone.
func (d *device) goneErrno(errno syscall.Errno) bool {
	return d.dead.Load() && (errno == syscall.EIO || errno == syscall.ENODEV)
}

// failed makes the error of a verb.
func (d *device) failed(op string, errno C.int, detail string) error {
	return &verbs.Error{Op: op + " on " + d.info.Name, Errno: syscall.Errno(errno), Detail: detail}
}
