//go:build linux

package soft

import (
	"syscall"
	"unsafe"

	"mover/verbs"
)

// The errors of posting exist once: a full queue is no rare event.
var (
	errSendFull   = &verbs.Error{Op: "post send", Errno: syscall.ENOMEM, Detail: "the send queue is full"}
	errSendState  = &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: "the QP is not in RTS"}
	errSendSGE    = &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: "more SGEs than MaxSendSGE"}
	errSendInline = &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: "more inline data than MaxInlineBytes"}
	errSendOp     = &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: "unknown opcode"}
	errRecvFull   = &verbs.Error{Op: "post receive", Errno: syscall.ENOMEM, Detail: "the receive queue is full"}
	errRecvState  = &verbs.Error{Op: "post receive", Errno: syscall.EINVAL, Detail: "the QP is in RESET"}
	errRecvSGE    = &verbs.Error{Op: "post receive", Errno: syscall.EINVAL, Detail: "more SGEs than MaxRecvSGE"}
	errSendAH     = &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: "a UD send needs an AH of the QP's PD that is not destroyed"}
	errSendQPN    = &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: "the remote QPN does not fit 24 bits"}
	errOnlyRC     = &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: "reads and atomics need an RC QP"}
	errOnlySends  = &verbs.Error{Op: "post send", Errno: syscall.EINVAL, Detail: "UD has only sends"}
	errNoRead     = &verbs.UnsupportedError{Provider: providerName, What: "RDMA read"}
	errNoAtomic   = &verbs.UnsupportedError{Provider: providerName, What: "atomics"}
)

// refusals are the errors of the operations that a transport does not have, by
// opcode.
type refusals [verbs.OpFetchAdd + 1]error

var (
	refusedOnRC = refusals{verbs.OpRead: errNoRead, verbs.OpCompareSwap: errNoAtomic, verbs.OpFetchAdd: errNoAtomic}
	refusedOnUC = refusals{verbs.OpRead: errOnlyRC, verbs.OpCompareSwap: errOnlyRC, verbs.OpFetchAdd: errOnlyRC}
	refusedOnUD = refusals{verbs.OpWrite: errOnlySends, verbs.OpWriteWithImm: errOnlySends,
		verbs.OpRead: errOnlySends, verbs.OpCompareSwap: errOnlySends, verbs.OpFetchAdd: errOnlySends}
)

// PostSend queues; the next Poll of one of the QP's CQs sends. In ERR it
// accepts the WRs and flushes them.
func (q *qpBase) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if err := q.postSend(&wrs[i]); err != nil {
			q.posted(i)
			return i, err
		}
	}
	q.posted(len(wrs))
	return len(wrs), nil
}

// posted lets the CQs know.
func (q *qpBase) posted(n int) {
	if n == 0 {
		return
	}
	if q.fd >= 0 {
		q.wake()
	}
	q.sendCQ.touch()
	if q.recvCQ != q.sendCQ {
		q.recvCQ.touch()
	}
}

func (q *qpBase) postSend(wr *verbs.SendWR) error {
	s := q.sends
	switch {
	case q.state != verbs.StateRTS && q.state != verbs.StateErr || q.destroyed:
		return errSendState
	case len(wr.SGL) > q.cap.MaxSendSGE && !(wr.Flags&verbs.SendInline != 0 && len(wr.SGL) <= maxSGE):
		return errSendSGE
	case s.post-s.free == uint64(len(s.entries)):
		return errSendFull
	case wr.Op > verbs.OpFetchAdd:
		return errSendOp
	case q.noOps[wr.Op] != nil:
		return q.noOps[wr.Op]
	}
	slot := s.slot(s.post)
	e := &s.entries[slot]
	if q.state == verbs.StateErr {
		// The entry's header may still be on its way (farewell), so only the id.
		e.wrid = wr.WRID
		s.post++
		q.completeSend(verbs.WCFlushErr)
		return nil
	}
	inline := wr.Flags&verbs.SendInline != 0
	if inline {
		var total uint64
		for i := range wr.SGL {
			total += uint64(wr.SGL[i].Length)
		}
		if total > uint64(q.cap.MaxInlineBytes) {
			return errSendInline
		}
	}
	if q.typ == verbs.UD {
		if err := e.to.take(q.pd, wr); err != nil {
			return err
		}
	}
	e.wrid, e.raddr, e.rkey, e.imm = wr.WRID, wr.RemoteAddr, wr.RKey, wr.Imm
	e.op = frameWrite + frameOp(wr.Op) // both are in the order write, write imm, send, send imm
	e.signaled = q.signalAll || wr.Flags&verbs.SendSignaled != 0
	e.solicited = wr.Flags&verbs.SendSolicited != 0
	e.inline = inline
	e.resolved = false
	if inline {
		e.length = uint64(s.copyInline(slot, wr.SGL))
	} else {
		e.pieces = len(wr.SGL)
		for i := range wr.SGL {
			s.pieces[slot*s.sges+i].sge = wr.SGL[i]
		}
	}
	s.post++
	return nil
}

// copyInline reads the data at once, so the caller may reuse its memory; it
// needs no registration (ibv_post_send(3), IBV_SEND_INLINE).
func (s *sendRing) copyInline(slot int, sgl []verbs.SGE) int {
	n := 0
	dst := s.inlineOf(slot)
	for i := range sgl {
		addr := uintptr(sgl[i].Addr)
		// The caller's memory is alive and does not move, see package verbs.
		src := unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), sgl[i].Length)
		n += copy(dst[n:], src)
	}
	return n
}

// PostRecv posts receives.
func (q *qpBase) PostRecv(wrs []verbs.RecvWR) (int, error) {
	for i := range wrs {
		if err := q.postRecv(&wrs[i]); err != nil {
			q.posted(i)
			return i, err
		}
	}
	q.posted(len(wrs))
	return len(wrs), nil
}

func (q *qpBase) postRecv(wr *verbs.RecvWR) error {
	r := q.recvs
	switch {
	case q.state == verbs.StateReset || q.destroyed:
		return errRecvState
	case len(wr.SGL) > q.cap.MaxRecvSGE:
		return errRecvSGE
	case r.post-r.free == uint64(len(r.entries)):
		return errRecvFull
	}
	slot := r.slot(r.post)
	e := &r.entries[slot]
	e.wrid, e.pieces = wr.WRID, len(wr.SGL)
	for i := range wr.SGL {
		r.pieces[slot*r.sges+i].sge = wr.SGL[i]
	}
	r.post++
	if q.state == verbs.StateErr {
		q.completeRecv(&verbs.WC{Status: verbs.WCFlushErr})
	}
	return nil
}
