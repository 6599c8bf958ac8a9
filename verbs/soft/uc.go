//go:build linux

package soft

import (
	"crypto/subtle"

	"mover/verbs"
)

// ucReceiver is the responder of a UC QP. Packets of a message come in
// sequence or the rest of it is dropped: there is nobody to ask for them again
// (InfiniBand Architecture Specification volume 1, 9.8.2; rxe_resp.c,
// check_psn and check_op_seq). What was placed stays, no immediate is
// delivered, and the receive WR that a send had begun to fill takes the next
// message.
type ucReceiver struct {
	token [tokenBytes]byte
	psn   uint32 // of the packet that comes next
	mid   bool   // inside a message
	op    frameOp
	size  uint64  // of the message
	got   uint64  // bytes of it placed
	mr    *memory // writes: the region, and the rest of the message's place
	dst   []byte
}

func (u *ucReceiver) reset(psn uint32) { *u = ucReceiver{token: u.token, psn: psn} }

// takeUC takes a packet of a UC QP. Only one that carries the token is looked
// at. The first packet of a message is taken whatever its PSN.
func (q *datagramPair) takeUC(p *packet, payload []byte) {
	u := &q.uc
	if subtle.ConstantTimeCompare(p.token[:], u.token[:]) != 1 {
		q.dev.drops.foreign.Add(1)
		return
	}
	if p.flags&packetFirst != 0 {
		u.mid = false // what was not finished never will be
		if !q.beginUC(p) {
			return
		}
	} else if !u.mid || p.psn != u.psn || p.op != u.op || uint64(p.msgLen) != u.size {
		u.mid = false
		q.dev.drops.gap.Add(1)
		return
	}
	u.psn = (p.psn + 1) & 0xffffff
	last := p.flags&packetLast != 0
	n := min(u.size-u.got, uint64(q.mtu))
	if uint64(len(payload)) != n || last != (u.got+n == u.size) {
		u.mid = false
		q.dev.drops.malformed.Add(1)
		return
	}
	if last && p.op == frameWriteImm && q.rq.taken == q.rq.post {
		u.mid = false
		q.dev.drops.noReceive.Add(1)
		return
	}
	if !q.placeUC(payload) {
		return
	}
	u.got += n
	if last {
		u.mid = false
		q.finishUC(p)
	}
}

// beginUC finds the place of a message. There is no NAK on UC: a message that
// has none, or may not go there, is dropped, and the QP lives on (as
// rxe_resp.c does: class D without a shared receive queue).
func (q *datagramPair) beginUC(p *packet) bool {
	u := &q.uc
	u.op, u.size, u.got, u.mr, u.dst = p.op, uint64(p.msgLen), 0, nil, nil
	if p.op.sends() {
		if q.rq.taken == q.rq.post {
			q.dev.drops.noReceive.Add(1)
			return false
		}
		if !q.rq.open(q.pd) {
			q.receiveFault(verbs.WCLocProtErr)
			return false
		}
		if u.size > q.rq.room() {
			q.receiveFault(verbs.WCLocLenErr)
			return false
		}
		u.mid = true
		return true
	}
	if q.attr.AccessFlags&verbs.AccessRemoteWrite == 0 {
		q.dev.drops.access.Add(1)
		return false
	}
	if p.msgLen > 0 { // a write of no bytes needs no key
		m := q.pd.keys.remote(p.rkey)
		if m == nil || m.access&verbs.AccessRemoteWrite == 0 {
			q.dev.drops.access.Add(1)
			return false
		}
		if u.dst = m.slice(p.addr, p.msgLen); u.dst == nil {
			q.dev.drops.access.Add(1)
			return false
		}
		u.mr = m
	}
	u.mid = true
	return true
}

// placeUC writes the next bytes of the message.
func (q *datagramPair) placeUC(payload []byte) bool {
	u := &q.uc
	switch {
	case len(payload) == 0:
	case u.op.sends():
		if !q.scatter(u.got, payload) {
			q.receiveFault(verbs.WCLocProtErr)
			return false
		}
	case !u.mr.enter(): // deregistered between two packets
		u.mid = false
		q.dev.drops.access.Add(1)
		return false
	default:
		copy(u.dst, payload)
		u.mr.leave()
		u.dst = u.dst[len(payload):]
	}
	return true
}

func (q *datagramPair) finishUC(p *packet) {
	u := &q.uc
	u.mr, u.dst = nil, nil
	if p.op == frameWrite {
		return
	}
	wc := verbs.WC{Opcode: verbs.WCRecv, ByteLen: p.msgLen}
	if p.op == frameWriteImm {
		wc.Opcode = verbs.WCRecvRDMAWithIm
	}
	if p.op.hasImm() {
		wc.Flags, wc.Imm = verbs.WCWithImm, p.imm
	}
	q.completeRecv(&wc)
}
