//go:build linux

package ibv

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"mover/verbs"
)

// postBatch is how many WRs of a chain cross into C at once; a longer chain
// takes more crossings.
const postBatch = 64

// queuePair is a QP. What is below dev, and the methods that use it, belong to
// the owner of its CQs.
type queuePair struct {
	resource
	pd       *domain
	dev      *device
	typ      verbs.QPType
	qpn      uint32
	cap      verbs.QPCap
	scq, rcq *compQueue

	// state is what Modify made of it. The device moves a QP to ERR by itself;
	// Query asks.
	state verbs.QPState
	port  uint8 // since INIT

	// C memory, linked once: sends[i].next is sends[i+1], and its sg_list the
	// SGEs from i*MaxSendSGE on.
	sends     []C.struct_mv_send_wr
	sendSGEs  []C.struct_mv_sge
	recvs     []C.struct_mv_recv_wr
	recvSGEs  []C.struct_mv_sge
	ops       uint32 // the operations that the transport has, a bit each
	maxInline uint64
}

func (p *domain) CreateQP(attr verbs.QPInitAttr) (verbs.QP, error) {
	const op = "create QP"
	d := p.dev
	scq, rcq, err := d.checkQP(op, &attr)
	if err != nil {
		return nil, err
	}
	q := &queuePair{pd: p, dev: d, typ: attr.Type, scq: scq, rcq: rcq, ops: operations(attr.Type),
		resource: resource{what: "the QP", count: &d.counts.QP, parents: []*resource{&p.resource, &scq.resource, &rcq.resource}}}
	if err := d.claim(op, &q.resource); err != nil {
		return nil, err
	}
	c := attr.Cap
	init := C.struct_mv_qp_init{send_cq: scq.ptr, recv_cq: rcq.ptr, qp_type: C.uint32_t(attr.Type), cap: C.struct_mv_cap{
		send_wr: C.uint32_t(c.MaxSendWR), recv_wr: C.uint32_t(c.MaxRecvWR), send_sge: C.uint32_t(c.MaxSendSGE),
		recv_sge: C.uint32_t(c.MaxRecvSGE), inline_bytes: C.uint32_t(c.MaxInlineBytes)}}
	if attr.SignalAll {
		init.signal_all = 1
	}
	r := C.mv_create_qp(d.lib.handle, p.ptr, init)
	if r.err != 0 {
		d.release(&q.resource)
		return nil, d.failed(op, r.err, d.qpDetail(syscall.Errno(r.err), &attr))
	}
	q.ptr, q.qpn = r.ptr, uint32(r.qpn)
	q.what = fmt.Sprintf("QP %#x", q.qpn)
	q.cap = verbs.QPCap{MaxSendWR: int(r.cap.send_wr), MaxRecvWR: int(r.cap.recv_wr), MaxSendSGE: int(r.cap.send_sge),
		MaxRecvSGE: int(r.cap.recv_sge), MaxInlineBytes: int(r.cap.inline_bytes)}
	q.maxInline = uint64(q.cap.MaxInlineBytes)
	if err := q.allocate(); err != nil {
		q.abandon()
		return nil, err
	}
	return q, nil
}

// abandon undoes CreateQP, which may run beside the owner of the CQs: they are
// not polled, as Destroy does. A QP in RESET has nothing there.
func (q *queuePair) abandon() {
	d := q.dev
	err := d.destroy("destroy QP", &q.resource, func() C.int { return C.mv_destroy_qp(d.lib.handle, q.ptr) })
	if err != nil {
		d.cfg.Logger.Error("destroying a QP", "device", d.info.Name, "error", err)
	}
	q.free()
}

// checkQP refuses what does not fit the C types, and what belongs elsewhere.
func (d *device) checkQP(op string, a *verbs.QPInitAttr) (scq, rcq *compQueue, err error) {
	bad := func(format string, args ...any) (*compQueue, *compQueue, error) {
		return nil, nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf(format, args...)}
	}
	if operations(a.Type) == 0 {
		return bad("%v is no transport service", a.Type)
	}
	scq, okS := a.SendCQ.(*compQueue)
	rcq, okR := a.RecvCQ.(*compQueue)
	if !okS || !okR || scq.dev != d || rcq.dev != d {
		return bad("a QP needs a send and a receive CQ of %s", d.info.Name)
	}
	c := a.Cap
	switch {
	case c.MaxSendWR < 0 || c.MaxRecvWR < 0 || c.MaxSendWR > d.attr.MaxQPWR || c.MaxRecvWR > d.attr.MaxQPWR:
		return bad("%d and %d WRs; %s allows 0 to %d", c.MaxSendWR, c.MaxRecvWR, d.info.Name, d.attr.MaxQPWR)
	case c.MaxSendSGE < 0 || c.MaxRecvSGE < 0 || c.MaxSendSGE > d.attr.MaxSGE || c.MaxRecvSGE > d.attr.MaxSGE:
		return bad("%d and %d SGEs a WR; %s allows 0 to %d", c.MaxSendSGE, c.MaxRecvSGE, d.info.Name, d.attr.MaxSGE)
	case c.MaxInlineBytes < 0 || c.MaxInlineBytes > 1<<20:
		return bad("%d bytes inline", c.MaxInlineBytes)
	}
	return scq, rcq, nil
}

func (d *device) qpDetail(errno syscall.Errno, a *verbs.QPInitAttr) string {
	switch errno {
	case syscall.ENOMEM:
		return fmt.Sprintf("%s allows %d QPs; queues are locked memory too, and the memlock limit is %s", d.info.Name, d.attr.MaxQP,
			limitText(memlockLimit()))
	case syscall.EINVAL:
		return fmt.Sprintf("%v with %+v", a.Type, a.Cap)
	case syscall.EOPNOTSUPP, syscall.ENOSYS:
		return fmt.Sprintf("%s has no %v", d.info.Name, a.Type)
	}
	return ""
}

// allocate makes the arrays and links them.
func (q *queuePair) allocate() error {
	sends, recvs := min(q.cap.MaxSendWR, postBatch), min(q.cap.MaxRecvWR, postBatch)
	sendSGEs, recvSGEs := sends*q.cap.MaxSendSGE, recvs*q.cap.MaxRecvSGE
	q.sends = array[C.struct_mv_send_wr](sends)
	q.sendSGEs = array[C.struct_mv_sge](sendSGEs)
	q.recvs = array[C.struct_mv_recv_wr](recvs)
	q.recvSGEs = array[C.struct_mv_sge](recvSGEs)
	if len(q.sends) != sends || len(q.recvs) != recvs || len(q.sendSGEs) != sendSGEs || len(q.recvSGEs) != recvSGEs {
		return &verbs.Error{Op: "create QP", Errno: syscall.ENOMEM}
	}
	for i := range q.sends {
		if i+1 < sends {
			q.sends[i].next = addressOf(q.sends, i+1)
		}
		q.sends[i].sg_list = addressOf(q.sendSGEs, i*q.cap.MaxSendSGE)
	}
	for i := range q.recvs {
		if i+1 < recvs {
			q.recvs[i].next = addressOf(q.recvs, i+1)
		}
		q.recvs[i].sg_list = addressOf(q.recvSGEs, i*q.cap.MaxRecvSGE)
	}
	return nil
}

func (q *queuePair) PD() verbs.PD       { return q.pd }
func (q *queuePair) Type() verbs.QPType { return q.typ }
func (q *queuePair) QPN() uint32        { return q.qpn }
func (q *queuePair) Cap() verbs.QPCap   { return q.cap }
func (q *queuePair) ConnData() []byte   { return nil }

func (q *queuePair) Destroy() error {
	d := q.dev
	err := d.destroy("destroy QP", &q.resource, func() C.int {
		errno := C.mv_destroy_qp(d.lib.handle, q.ptr)
		if errno == 0 || d.goneErrno(syscall.Errno(errno)) {
			q.dropCompletions() // while the CQs are sure to be there: this QP is still a user
		}
		return errno
	})
	if err != nil {
		return err
	}
	q.free()
	q.state = verbs.StateReset // without arrays, and in RESET, it posts nothing any more
	return nil
}

// dropCompletions takes what the QP has on its CQs, as their owner.
func (q *queuePair) dropCompletions() {
	q.scq.drop(q.qpn)
	if q.rcq != q.scq {
		q.rcq.drop(q.qpn)
	}
}

func (q *queuePair) free() {
	freeArray(q.sends)
	freeArray(q.sendSGEs)
	freeArray(q.recvs)
	freeArray(q.recvSGEs)
	q.sends, q.sendSGEs, q.recvs, q.recvSGEs = nil, nil, nil, nil
}

// array is n zeroed elements of C memory, nil when n is 0 or there is none.
func array[T any](n int) []T {
	if n == 0 {
		return nil
	}
	var t T
	p := C.mv_alloc(C.size_t(uintptr(n) * unsafe.Sizeof(t)))
	if p == nil {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}

// blocks is how many arrays exist, for leak checks.
func blocks() int { return int(C.mv_blocks()) }

func freeArray[T any](a []T) { C.mv_free(unsafe.Pointer(unsafe.SliceData(a))) }

// addressOf is the address of a[i] as C keeps it, 0 for an empty array.
func addressOf[T any](a []T, i int) C.uint64_t {
	if len(a) == 0 {
		return 0
	}
	return C.uint64_t(uintptr(unsafe.Pointer(&a[i])))
}
