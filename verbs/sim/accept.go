package sim

import (
	"slices"
	"syscall"

	"mover/verbs"
)

// recvWQE is a WR of the receive queue.
type recvWQE struct {
	wr verbs.RecvWR
}

func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	const op = "post receive"
	if err := q.usable(op); err != nil {
		return 0, err
	}
	for i := range wrs {
		if q.state == verbs.StateReset {
			return i, invalid(op, "the QP is in RESET")
		}
		if len(wrs[i].SGL) > q.cap.MaxRecvSGE {
			return i, invalid(op, "more SGEs than the QP's max_recv_sge")
		}
		if q.state == verbs.StateErr && q.f.chance(0.5) {
			return i, invalid(op, "the QP is in ERR")
		}
		if q.rqTaken == q.cap.MaxRecvWR {
			q.f.violate(QueueOverflow, q.dev, q.qpn, "the receive queue has %d entries", q.cap.MaxRecvWR)
			return i, &verbs.Error{Op: op, Errno: syscall.ENOMEM, Detail: "the receive queue is full"}
		}
		r := &recvWQE{wr: wrs[i]}
		r.wr.SGL = slices.Clone(wrs[i].SGL)
		q.rqTaken++
		q.f.record("postrecv", uint64(q.qpn), r.wr.WRID)
		if q.state == verbs.StateErr {
			q.completeRecv(r, verbs.WCFlushErr)
		} else {
			q.rq = append(q.rq, r)
		}
	}
	return len(wrs), nil
}

// completeRecv ends a receive that failed.
func (q *qp) completeRecv(r *recvWQE, status verbs.WCStatus) {
	q.rqOut = append(q.rqOut, r)
	q.out(&q.recv, cqe{q: q, recv: r, wc: q.f.newWC(q, r.wr.WRID, status)})
}

// acceptRNR is accept's answer when no receive is posted; it is no status of
// a completion.
const acceptRNR verbs.WCStatus = 255

// accept is the responder's part: it takes the message of q, or says with
// which status it fails there.
func (p *qp) accept(q *qp, w *sendWQE) verbs.WCStatus {
	var target []dest
	if w.isWrite() && w.length > 0 {
		m, status := p.writable(w)
		if status != verbs.WCSuccess {
			return status
		}
		target = []dest{{m, m.slice(w.wr.RemoteAddr, w.length)}}
	}
	if w.takesReceive() {
		if len(p.rq) == 0 {
			return acceptRNR
		}
		if !w.isWrite() {
			var status verbs.WCStatus
			if target, status = p.scatter(w); status != verbs.WCSuccess {
				return status
			}
		}
	}
	q.checkSource(w, "transmission")
	data := q.gather(w)
	q.damage(data)
	p.msgs++
	p.f.stats.Messages++
	p.f.stats.Bytes += uint64(len(data))
	p.keep(w, nil, target, data)
	if w.takesReceive() {
		p.consume(w, w.length, 0)
	}
	return verbs.WCSuccess
}

// writable checks what the message may write to.
func (p *qp) writable(w *sendWQE) (*mr, verbs.WCStatus) {
	if p.attr.AccessFlags&verbs.AccessRemoteWrite == 0 {
		p.refuse(verbs.EventQPReqErr)
		return nil, verbs.WCRemInvReqErr
	}
	m := p.dev.rkeys[w.wr.RKey]
	if m == nil && p.dev.revoked[w.wr.RKey] {
		p.f.violate(WriteRevoked, p.dev, p.qpn, "rkey %#x, WR %d of the peer", w.wr.RKey, w.wr.WRID)
	}
	if m == nil || m.pd != p.pd || m.access&verbs.AccessRemoteWrite == 0 || m.slice(w.wr.RemoteAddr, w.length) == nil {
		p.refuse(verbs.EventQPAccessErr)
		return nil, verbs.WCRemAccessErr
	}
	return m, verbs.WCSuccess
}

// refuse ends the responder because of what the peer asked for. One of UC drops
// the message and goes on, in silence (drivers/infiniband/sw/rxe/rxe_resp.c,
// check_op_valid and RESPST_ERR_RKEY_VIOLATION, class D).
func (p *qp) refuse(ev verbs.EventType) {
	if p.typ != verbs.RC {
		return
	}
	p.pd.ctx.notify(verbs.AsyncEvent{Type: ev, QPN: p.qpn})
	p.enterErr(false)
}

// scatter finds the places of a SEND of RC in the first receive's buffer. When
// they do not suffice, that receive fails here and the message there.
func (p *qp) scatter(w *sendWQE) ([]dest, verbs.WCStatus) {
	target, local := p.spread(w.length)
	switch local {
	case verbs.WCSuccess:
		return target, verbs.WCSuccess
	case verbs.WCLocLenErr:
		p.spoil(local)
		return nil, verbs.WCRemInvReqErr
	}
	p.spoil(local)
	return nil, verbs.WCRemOpErr
}

// spread finds the places of n bytes in the first receive's buffer, as far as
// there are any: LOC_LEN_ERR when it is too short, LOC_PROT_ERR when it may not
// be written to.
func (p *qp) spread(n uint32) ([]dest, verbs.WCStatus) {
	var target []dest
	left := n
	for _, s := range p.rq[0].wr.SGL {
		if left == 0 {
			break
		}
		m, b := p.local(s, verbs.AccessLocalWrite)
		if m == nil && s.Length > 0 {
			return target, verbs.WCLocProtErr
		}
		n := min(left, s.Length)
		target = append(target, dest{m, b[:n]})
		left -= n
	}
	if left > 0 {
		return target, verbs.WCLocLenErr
	}
	return target, verbs.WCSuccess
}

// spoil fails the first receive, and the QP with it.
func (p *qp) spoil(status verbs.WCStatus) {
	r := p.rq[0]
	p.rq = p.rq[1:]
	p.completeRecv(r, status)
	p.enterErr(false)
}

// consume uses up the first receive for the message just accepted, of n bytes
// with the GRH that a datagram has. The sender's QPN is told on UD only.
func (p *qp) consume(w *sendWQE, n, srcQPN uint32) {
	r := p.rq[0]
	p.rq = p.rq[1:]
	p.rqOut = append(p.rqOut, r)
	wc := p.f.newWC(p, r.wr.WRID, verbs.WCSuccess)
	wc.Opcode, wc.ByteLen = verbs.WCRecv, n
	if w.isWrite() {
		wc.Opcode = verbs.WCRecvRDMAWithIm
	}
	if w.hasImm() {
		wc.Flags, wc.Imm = verbs.WCWithImm, w.wr.Imm
	}
	if p.typ == verbs.UD {
		wc.SrcQPN = srcQPN
		wc.Flags |= verbs.WCGRH
	}
	p.out(&p.recv, cqe{q: p, recv: r, wc: wc, msg: p.msgs, success: true,
		solicited: w.wr.Flags&verbs.SendSolicited != 0})
}

// loseReceives turns the latest receive completions that are not on the CQ
// yet into flushes: the peer may have been told that its messages arrived.
func (q *qp) loseReceives() {
	from := q.f.rng.IntN(len(q.recv.list) + 1)
	for i := from; i < len(q.recv.list); i++ {
		e := &q.recv.list[i]
		if e.success {
			e.success, e.msg = false, 0
			e.wc = q.f.newWC(q, e.wc.WRID, verbs.WCFlushErr)
		}
	}
}
