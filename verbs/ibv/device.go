//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// device is an open device, a struct ibv_context. Its methods may be called
// from any goroutine.
type device struct {
	cfg     Config
	lib     *library
	info    verbs.DeviceInfo
	sys     sysDevice
	ctx     C.uintptr_t
	attr    verbs.DeviceAttr
	vectors int

	asyncFD, closeFD int
	reader           sync.Mutex // one GetAsyncEvent at a time; Close waits for it

	// use is held for reading by queries, so that Close cannot pull the
	// context from under them. What is claimed needs no such lock: Close
	// refuses while anything is open.
	use    sync.RWMutex
	closed atomic.Bool
	dead   atomic.Bool // DEVICE_FATAL

	mu         sync.Mutex
	counts     verbs.Counts
	registered uint64                // bytes in MRs
	cqs        map[uint64]*compQueue // by the number that libibverbs keeps for us
	lastCQ     uint64
}

func (d *device) Device() verbs.DeviceInfo { return d.info }

// enter begins a query; the caller unlocks d.use when err is nil.
func (d *device) enter(op string) error {
	d.use.RLock()
	if d.closed.Load() {
		d.use.RUnlock()
		return fmt.Errorf("%s: %w", op, verbs.ErrClosed)
	}
	return nil
}

// QueryDevice answers from what was read when the device was opened: limits do
// not change.
func (d *device) QueryDevice() (verbs.DeviceAttr, error) {
	if d.closed.Load() {
		return verbs.DeviceAttr{}, fmt.Errorf("query device: %w", verbs.ErrClosed)
	}
	return d.attr, nil
}

func (d *device) Counts() verbs.Counts {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.counts
}

// fail makes everything on the device answer with a final error, since no
// completion may ever come.
func (d *device) fail() {
	d.dead.Store(true)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.cqs {
		q.fault.CompareAndSwap(cqFine, cqDeviceGone)
	}
}

func (d *device) Close() error {
	d.mu.Lock()
	switch {
	case d.closed.Load():
		d.mu.Unlock()
		return fmt.Errorf("close %s: %w", d.info.Name, verbs.ErrClosed)
	case d.counts != (verbs.Counts{}):
		c := d.counts
		d.mu.Unlock()
		return &verbs.Error{Op: "close " + d.info.Name, Errno: syscall.EBUSY, Detail: fmt.Sprintf("still open: %+v", c)}
	}
	d.closed.Store(true)
	d.mu.Unlock()

	// Wake the reader of events and wait until it has left.
	if _, err := unix.Write(d.closeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		d.cfg.Logger.Warn("waking the reader of asynchronous events", "device", d.info.Name, "error", err)
	}
	d.reader.Lock()
	defer d.reader.Unlock()
	d.use.Lock()
	defer d.use.Unlock()
	unix.Close(d.closeFD)
	if errno := C.mv_close(d.lib.handle, d.ctx); errno != 0 && !d.goneErrno(syscall.Errno(errno)) {
		return d.failed("close", errno, "")
	}
	return nil
}
