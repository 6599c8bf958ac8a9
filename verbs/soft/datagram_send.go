//go:build linux

package soft

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// burstPackets bounds what a QP sends in one Poll. Nothing tells the sender
// how much the receiver's socket still holds, so it does not fill it while the
// receiver had no chance to run.
const burstPackets = 2 * batchPackets

// outgoing is the sending half of a datagramPair. The message being sent is
// the oldest that is not completed: a WR completes when the kernel has its
// last packet.
type outgoing struct {
	token [tokenBytes]byte // UC
	psn   uint32
	pay   uint64 // bytes of the message that are gone
	// failed is set when the kernel refused the packet; the error may have
	// been that of an earlier one (udp(7)), so it is tried once more.
	failed bool
	// kept is set when the packet was spared by the loss rule.
	kept bool

	vec  vector
	hdrs [batchPackets][packetBytes]byte
	msgs [batchPackets]mmsghdr
	plan [batchPackets]planned
	n    int // entries of plan
	m    int // entries of msgs
}

// planned is a packet of the batch.
type planned struct {
	end  uint64 // pay behind it
	last bool   // of its message
	psns uint32 // 1, or 0 for a message that no packet is sent of
	lost bool   // not in msgs
}

func (o *outgoing) reset() { *o = outgoing{} }

func (q *datagramPair) hasOutput() bool {
	return q.state == verbs.StateRTS && q.sq.acked < q.sq.post
}

// transmit sends until the burst is over, EAGAIN, or nothing is left.
func (q *datagramPair) transmit() (moved int) {
	o := &q.out
	for packets := 0; packets < burstPackets && q.hasOutput(); packets += o.n {
		limit := batchPackets
		rule := q.dev.loss.Load()
		if rule != nil {
			limit = 1 // the rule decides when it is the packet's turn
		}
		fault := q.fillBatch(limit, rule)
		sent, bytes := 0, o.vec.bytes
		if o.m > 0 {
			var errno unix.Errno
			sent, errno = sendPackets(q.fd, o.msgs[:o.m])
			if errno == unix.EAGAIN {
				o.vec.reset()
				q.writable = false
				return moved
			}
			if errno != 0 {
				sent = q.refusedByKernel()
			}
		}
		o.vec.reset()
		moved += bytes
		whole := sent == o.m
		q.commit(sent)
		if whole && fault != verbs.WCSuccess && q.state != verbs.StateErr {
			q.fail(fault)
		}
		if o.n == 0 {
			break
		}
	}
	return moved
}

// refusedByKernel is how many packets count as sent after an error: none at
// first, one, which is lost, when it happens to the same packet again.
func (q *datagramPair) refusedByKernel() int {
	if !q.out.failed {
		q.out.failed = true
		return 0
	}
	q.dev.drops.unsent.Add(1)
	return 1
}

// fillBatch plans the next packets. A status other than success is that of the
// WR behind them.
func (q *datagramPair) fillBatch(limit int, rule *lossRule) verbs.WCStatus {
	o, s := &q.out, &q.sq
	o.n, o.m = 0, 0
	pos, pay, psn := s.acked, o.pay, o.psn
	for o.n < limit && pos < s.post {
		e := s.entry(pos)
		if !e.resolved {
			if st := s.resolve(q.pd, pos); st != verbs.WCSuccess {
				return st
			}
		}
		p := &o.plan[o.n]
		n := min(e.length-pay, uint64(q.mtu))
		*p = planned{end: pay + n, last: pay+n == e.length, psns: 1}
		if q.typ == verbs.UD && !p.last {
			// Too long for a datagram: no packet, and no error (InfiniBand
			// Architecture Specification volume 1, C10-93.1.1).
			*p = planned{last: true, lost: true}
		} else if o.takenBy(rule) {
			p.lost = true
			q.dev.drops.unsent.Add(1)
		} else {
			if o.vec.n+1+max(e.pieces, 1) > iovMax {
				break
			}
			if !q.addPacket(pos, pay, n, psn, p.last) {
				return verbs.WCLocProtErr
			}
		}
		o.n++
		psn = (psn + p.psns) & 0xffffff
		if pay = p.end; p.last {
			pos, pay = pos+1, 0
		}
	}
	return verbs.WCSuccess
}

// takenBy asks the rule once for each packet.
func (o *outgoing) takenBy(rule *lossRule) bool {
	if rule == nil || o.kept {
		return false
	}
	o.kept = !rule.lost()
	return !o.kept
}

// addPacket adds n bytes of the message at pos to the batch; false when their
// memory was deregistered.
func (q *datagramPair) addPacket(pos, pay, n uint64, psn uint32, last bool) bool {
	o, e := &q.out, q.sq.entry(pos)
	p := packet{op: e.op, service: q.typ, psn: psn, msgLen: uint32(e.length)}
	if pay == 0 {
		p.flags = packetFirst
	}
	if last {
		p.flags |= packetLast
	}
	if e.solicited {
		p.flags |= packetSolicited
	}
	if e.op.hasImm() {
		p.imm = e.imm
	}
	m := &o.msgs[o.m]
	*m = mmsghdr{}
	if q.typ == verbs.UC {
		p.dstQPN, p.token = q.attr.DestQPN, o.token
		if !e.op.sends() {
			p.addr, p.rkey = e.raddr, e.rkey
		}
	} else {
		p.dstQPN, p.qkey, p.srcQPN = e.to.qpn, e.to.qkey, q.qpn
		if p.qkey>>31 != 0 {
			// Only the owner of the QP knows such a key (InfiniBand
			// Architecture Specification volume 1, 10.2.5).
			p.qkey = q.attr.QKey
		}
		m.hdr.Name, m.hdr.Namelen = (*byte)(unsafe.Pointer(&e.to.addr.sa)), e.to.addr.len
	}
	hdr := &o.hdrs[o.m]
	p.encode(hdr)
	start, bytes := o.vec.n, o.vec.bytes
	o.vec.add(hdr[:])
	if added, _ := q.sq.gather(&o.vec, pos, pay, n); added < n {
		o.vec.n, o.vec.bytes = start, bytes
		return false
	}
	m.hdr.Iov = &o.vec.iov[start]
	m.hdr.SetIovlen(o.vec.n - start)
	o.m++
	return true
}

// commit takes note that the first sent of the batch's messages are gone, and
// completes the WRs whose last packet that was.
func (q *datagramPair) commit(sent int) {
	o := &q.out
	for i := range o.plan[:o.n] {
		p := &o.plan[i]
		if !p.lost {
			if sent == 0 {
				return
			}
			sent--
			o.failed, o.kept = false, false
		}
		o.psn = (o.psn + p.psns) & 0xffffff
		if o.pay = p.end; !p.last {
			continue
		}
		o.pay = 0
		if q.completeSend(verbs.WCSuccess); q.state == verbs.StateErr {
			return // the CQ overran
		}
	}
}
