//go:build linux

package ibv

// #cgo noescape mv_poll
// #cgo nocallback mv_poll
// #cgo noescape mv_req_notify
// #cgo nocallback mv_req_notify
// #include "shim.h"
import "C"

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"syscall"
	"unsafe"

	"mover/verbs"
)

// pollBatch is how many completions cross from C at once.
const pollBatch = 64

// What is wrong with a CQ; anything but cqFine is final.
const (
	cqFine       = int32(iota)
	cqOverrun    // CQ_ERR
	cqDeviceGone // DEVICE_FATAL
	cqPollFailed // ibv_poll_cq answered negative
	cqDestroyed
)

// compQueue is a completion queue. Poll and ReqNotify belong to the owner;
// fault is set by the reader of asynchronous events too.
type compQueue struct {
	resource
	dev     *device
	channel *compChannel
	number  uint64 // in device.cqs, and in C the cq_context
	entries int
	fault   atomic.Int32
	wcs     []C.struct_mv_wc // C memory

	// kept are completions taken off the queue when a QP was destroyed or reset, of
	// other QPs: the next Poll gives them out. See drop.
	kept []verbs.WC
}

func (d *device) CreateCQ(attr verbs.CQInitAttr) (verbs.CQ, error) {
	const op = "create CQ"
	if attr.Entries < 1 || attr.Entries > d.attr.MaxCQE {
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("%d entries; %s allows 1 to %d", attr.Entries, d.info.Name, d.attr.MaxCQE)}
	}
	if attr.Vector < 0 || attr.Vector >= max(d.vectors, 1) {
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("completion vector %d of %d", attr.Vector, d.vectors)}
	}
	q := &compQueue{dev: d, resource: resource{what: "the CQ", count: &d.counts.CQ}}
	var channel C.uintptr_t
	if attr.Channel != nil {
		c, ok := attr.Channel.(*compChannel)
		if !ok || c.dev != d {
			return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: "the channel belongs to another device"}
		}
		q.channel, channel = c, c.ptr
		q.parents = []*resource{&c.resource}
	}
	if err := d.claim(op, &q.resource); err != nil {
		return nil, err
	}
	mem := C.mv_alloc(pollBatch * C.sizeof_struct_mv_wc)
	if mem == nil {
		d.release(&q.resource)
		return nil, &verbs.Error{Op: op, Errno: syscall.ENOMEM}
	}
	q.wcs = unsafe.Slice((*C.struct_mv_wc)(mem), pollBatch)
	// Known before it is made: its first event may come before create returns.
	d.addCQ(q)
	r := C.mv_create_cq(d.lib.handle, d.ctx, C.int(attr.Entries), C.uint64_t(q.number), channel, C.int(attr.Vector))
	if r.err != 0 {
		d.forgetCQ(q)
		C.mv_free(mem)
		d.release(&q.resource)
		return nil, d.failed(op, r.err, fmt.Sprintf("%d entries", attr.Entries))
	}
	q.ptr, q.entries = r.ptr, int(r.entries)
	return q, nil
}

func (d *device) addCQ(q *compQueue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastCQ++
	q.number = d.lastCQ
	d.cqs[q.number] = q
	if d.dead.Load() { // between the claim and here
		q.fault.Store(cqDeviceGone)
	}
}

func (d *device) forgetCQ(q *compQueue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.cqs, q.number)
}

func (q *compQueue) Entries() int { return q.entries }

// Poll gives out a batch with one crossing. The answer to a queue that failed
// is final, though completions may still lie in it: what an overrun queue
// holds is not defined.
func (q *compQueue) Poll(wcs []verbs.WC) (int, error) {
	if q.fault.Load() != cqFine {
		return 0, q.failure()
	}
	total := 0
	if len(q.kept) != 0 {
		total = copy(wcs, q.kept)
		q.kept = q.kept[total:]
	}
	for total < len(wcs) {
		want := min(len(wcs)-total, pollBatch)
		n := int(C.mv_poll(q.ptr, C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(q.wcs)))), C.int(want)))
		if n < 0 {
			q.fault.CompareAndSwap(cqFine, cqPollFailed)
			if total == 0 {
				return 0, q.failure()
			}
			return total, nil // the next Poll tells
		}
		q.translate(wcs[total:total+n], q.wcs[:n])
		total += n
		if n < want {
			break
		}
	}
	return total, nil
}

// translate copies completions out of C memory. Of an error only four fields
// are valid (ibv_poll_cq(3)); the others are zeroed, so that nobody uses them.
func (q *compQueue) translate(to []verbs.WC, from []C.struct_mv_wc) {
	for i := range from {
		c, w := &from[i], &to[i]
		w.WRID = uint64(c.wr_id)
		w.Status = verbs.WCStatus(min(c.status, 255))
		w.QPN = uint32(c.qp_num)
		w.VendorErr = uint32(c.vendor_err)
		if c.status != 0 {
			w.Opcode, w.Flags, w.ByteLen, w.Imm, w.SrcQPN = 0, 0, 0, 0, 0
			continue
		}
		w.Opcode = verbs.WCOpcode(c.opcode)
		w.Flags = verbs.WCFlags(c.wc_flags) & (verbs.WCGRH | verbs.WCWithImm)
		w.ByteLen = uint32(c.byte_len)
		w.Imm = bits.ReverseBytes32(uint32(c.imm))
		w.SrcQPN = uint32(c.src_qp)
	}
}

func (q *compQueue) failure() error {
	const op = "poll CQ"
	switch q.fault.Load() {
	case cqOverrun:
		return fmt.Errorf("%s of %s: %w", op, q.dev.info.Name, verbs.ErrCQOverrun)
	case cqDeviceGone:
		return &verbs.Error{Op: op, Errno: syscall.EIO, Detail: q.dev.info.Name + " is gone (DEVICE_FATAL)"}
	case cqDestroyed:
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: "the CQ was destroyed"}
	}
	return &verbs.Error{Op: op, Errno: syscall.EIO, Detail: "the driver of " + q.dev.info.Name + " reports a broken CQ"}
}

// drop takes what is on the queue and keeps what is not of the QP, which was
// just destroyed or reset: its WRs complete no more. Drivers of adapters clean
// the queue themselves, rxe leaves its completions there. The caller is the
// owner of the queue, as Destroy and Modify demand.
func (q *compQueue) drop(qpn uint32) {
	other := q.kept[:0:0]
	for _, wc := range q.kept {
		if wc.QPN != qpn {
			other = append(other, wc)
		}
	}
	q.kept = other
	var buf [pollBatch]verbs.WC
	// A queue holds no more than its entries; other QPs may refill it meanwhile.
	for taken := 0; taken < q.entries && q.fault.Load() == cqFine; {
		n := int(C.mv_poll(q.ptr, C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(q.wcs)))), pollBatch))
		if n < 0 {
			q.fault.CompareAndSwap(cqFine, cqPollFailed)
			return
		}
		q.translate(buf[:n], q.wcs[:n])
		for _, wc := range buf[:n] {
			if wc.QPN != qpn {
				q.kept = append(q.kept, wc)
			}
		}
		taken += n
		if n < pollBatch {
			return
		}
	}
}

func (q *compQueue) ReqNotify(solicitedOnly bool) error {
	const op = "arm CQ"
	switch {
	case q.channel == nil:
		return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: "the CQ has no completion channel"}
	case q.fault.Load() == cqDestroyed:
		return q.failure()
	}
	only := C.int(0)
	if solicitedOnly {
		only = 1
	}
	if errno := C.mv_req_notify(q.ptr, only); errno != 0 {
		return q.dev.failed(op, errno, "")
	}
	return nil
}

func (q *compQueue) Destroy() error {
	d := q.dev
	err := d.destroy("destroy CQ", &q.resource, func() C.int { return C.mv_destroy_cq(d.lib.handle, q.ptr) })
	if err != nil {
		return err
	}
	d.forgetCQ(q)
	q.fault.Store(cqDestroyed)
	C.mv_free(unsafe.Pointer(unsafe.SliceData(q.wcs)))
	q.wcs, q.kept = nil, nil
	return nil
}
