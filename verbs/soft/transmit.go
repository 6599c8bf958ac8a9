//go:build linux

package soft

import (
	"golang.org/x/sys/unix"

	"mover/verbs"
)

// transmit sends until budget, EAGAIN, or nothing is left.
func (q *queuePair) transmit(budget int) (moved int) {
	for moved < budget && q.hasOutput() {
		if q.linger {
			q.planFarewell()
		} else {
			q.plan(q.dev.cfg.CallBytes)
		}
		want := q.out.bytes
		if want == 0 {
			q.out.reset()
			break
		}
		n, errno := sendVector(q.fd, &q.out, &q.msg)
		q.out.reset()
		switch errno {
		case 0:
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			q.writable = false
			return moved
		default:
			q.sendFailed()
			return moved
		}
		moved += n
		if q.linger {
			q.advanceFarewell(n)
		} else {
			q.advance(n)
		}
		if n < want {
			// The kernel will tell: a short write asks for the event
			// (epoll(7), question 9).
			q.writable = false
			break
		}
	}
	q.checkFault()
	return moved
}

// sendFailed leaves it to receive to find the end: the peer's reason may be
// waiting there.
func (q *queuePair) sendFailed() {
	q.broken = true
	q.writable = false
	q.readable = true
}

// plan fills the vector: the rest of the open frame, a control frame if one is
// due and no data frame can carry its content, new data frames.
func (q *queuePair) plan(limit int) {
	s, v := &q.sq, &q.out
	s.planAck, s.planCredit = q.rq.msn, uint32(q.rq.post)
	pos, pay, used := s.next, s.pay, s.used
	if s.hdr > 0 {
		e := s.entry(pos)
		v.add(e.hdr[s.hdr:])
		left := s.end - pay
		if q.addPayload(pos, pay, min(left, uint64(limit))) < left {
			return
		}
		if s.end < e.length {
			return // the next frame needs the header that is still in use
		}
		pos, pay = pos+1, 0
	}
	if s.ctrlOff == 0 {
		s.ctrlLen = 0
		q.planControl(pos, used)
	}
	if s.ctrlLen > 0 {
		v.add(s.ctrl[s.ctrlOff:s.ctrlLen])
	}
	for v.n+2 <= iovMax && v.bytes < limit && (pay > 0 && s.continues() || s.startable(pos, used)) {
		e := s.entry(pos)
		if !e.resolved && !q.resolve(pos) {
			return
		}
		end := min(e.length, pay+maxFrameBytes)
		q.encodeData(e, pos, pay, end)
		v.add(e.hdr[:])
		if pay == 0 && e.op.wantsReceive() {
			used++
		}
		n := min(end-pay, uint64(max(limit-v.bytes, 1)))
		if q.addPayload(pos, pay, n) < end-pay || end < e.length {
			return
		}
		pos, pay = pos+1, 0
	}
}

// planControl builds the control frame that is due before message pos, if any.
func (q *queuePair) planControl(pos uint64, used uint32) {
	s := &q.sq
	s.ctrlWant = 0
	h := header{ack: s.planAck, credit: s.planCredit, msn: uint32(pos)}
	switch {
	case s.pay > 0 && pos == s.next:
		// Between two frames of a message.
		if !q.ackDue() {
			return
		}
		h.op = frameAck
	case pos == s.next && s.wantDue():
		h.op, h.code = frameWant, q.attr.RNRRetry
		s.ctrlWant = pos + 1
	case q.ackDue() && !s.startable(pos, used):
		h.op = frameAck
	default:
		return
	}
	h.encode(&s.ctrl)
	s.ctrlLen = headerBytes
}

func (q *queuePair) encodeData(e *sendEntry, pos, pay, end uint64) {
	h := header{op: e.op, length: uint32(end - pay), imm: e.imm, addr: e.raddr + pay, rkey: e.rkey,
		msn: uint32(pos), ack: q.sq.planAck, credit: q.sq.planCredit}
	if end == e.length {
		h.flags = flagLast
	}
	if e.solicited {
		h.flags |= flagSolicited
	}
	h.encode(&e.hdr)
}

// resolve looks up the WR's memory when the WR is executed. False sets fault.
func (q *queuePair) resolve(pos uint64) bool {
	s := &q.sq
	if st := s.sendRing.resolve(q.pd, pos); st != verbs.WCSuccess {
		s.fault, s.faultAt = st, pos
		return false
	}
	return true
}

// addPayload adds n bytes of the message from offset from, or fewer when the
// vector is full or memory is gone, and returns how many.
func (q *queuePair) addPayload(pos, from, n uint64) uint64 {
	added, gone := q.sq.gather(&q.out, pos, from, n)
	if gone {
		q.sq.fault, q.sq.faultAt = verbs.WCLocProtErr, pos
	}
	return added
}

// advance takes note that n bytes of the vector are gone.
func (q *queuePair) advance(n int) {
	s := &q.sq
	left := uint64(n)
	s.sent += left
	if s.hdr > 0 {
		left = q.advanceFrame(left)
	}
	if left > 0 && s.hdr == 0 && s.ctrlLen > 0 {
		if s.ctrlOff == 0 {
			q.told()
			if s.ctrlWant != 0 {
				s.wanted, s.ctrlWant = s.ctrlWant, 0
			}
		}
		k := min(left, uint64(s.ctrlLen-s.ctrlOff))
		s.ctrlOff += int(k)
		left -= k
		if s.ctrlOff == s.ctrlLen {
			s.ctrlOff, s.ctrlLen = 0, 0
		}
	}
	for left > 0 {
		left = q.advanceFrame(left)
	}
}

// told notes what the headers that begin to go out say.
func (q *queuePair) told() {
	s := &q.sq
	s.ackSent, s.creditSent, s.announce = s.planAck, s.planCredit, false
	if s.creditSent != uint32(q.rq.taken) {
		q.rq.awaited = false
	}
}

func (q *queuePair) advanceFrame(n uint64) uint64 {
	s := &q.sq
	e := s.entry(s.next)
	if s.hdr == 0 {
		q.told()
		s.end = min(e.length, s.pay+maxFrameBytes)
		if s.pay == 0 && e.op.wantsReceive() {
			s.used++
		}
	}
	k := min(n, uint64(headerBytes-s.hdr))
	s.hdr += int(k)
	n -= k
	k = min(n, s.end-s.pay)
	s.pay += k
	n -= k
	if s.hdr == headerBytes && s.pay == s.end {
		s.hdr = 0
		if s.end == e.length {
			s.next++
			s.pay = 0
		}
	}
	return n
}
