//go:build linux

package soft

import "mover/verbs"

// sendQueue is the send queue of an RC QP and what goes out on its connection.
type sendQueue struct {
	sendRing
	next uint64 // the first not wholly sent; acked <= next <= post

	// The frame that is being sent, of message next: bytes of its header that
	// are gone (0: none is open), bytes of the message's payload that are
	// gone, and where in the payload the frame ends.
	hdr      int
	pay, end uint64
	sent     uint64 // bytes sent, a mark of progress

	// fault is the local error of WR faultAt. It completes in its turn, when
	// all before it are acknowledged.
	fault   verbs.WCStatus
	faultAt uint64

	// Flow control of receives, modulo 2^32: limit is how many the peer has
	// posted in all, used how many the messages sent so far consume.
	heard       bool // the peer has announced its limit
	limit, used uint32
	wanted      uint64 // position+1 for which frameWant was sent

	// What this side last told as responder.
	announce         bool // nothing yet
	ackSent          uint32
	creditSent       uint32
	planAck          uint32 // of the headers in the vector
	planCredit       uint32
	ctrl             [headerBytes]byte
	ctrlOff, ctrlLen int // ctrlLen 0: none built
	ctrlWant         uint64

	nak     nakCode
	nakMsn  uint32
	ctrlNak bool // ctrl holds the NAK
}

func (s *sendQueue) reset() {
	s.sendRing.reset()
	*s = sendQueue{sendRing: s.sendRing}
}

// acknowledged takes the peer's count of placed messages.
func (q *queuePair) acknowledged(ack uint32) bool {
	s := &q.sq
	to := s.acked + uint64(ack-uint32(s.acked))
	if to > s.next {
		return false // never sent
	}
	for s.acked < to && q.state != verbs.StateErr {
		q.completeSend(verbs.WCSuccess)
	}
	q.checkFault()
	return true
}

// checkFault completes a WR with a local error once it is the oldest.
func (q *queuePair) checkFault() {
	if q.sq.fault != verbs.WCSuccess && q.sq.acked == q.sq.faultAt && q.state != verbs.StateErr {
		q.fail(q.sq.fault)
	}
}

// needsCredit reports whether the message at pos may not start for want of a
// receive WR at the peer, of which used are taken.
func (s *sendQueue) needsCredit(pos uint64, used uint32) bool {
	return s.entry(pos).op.wantsReceive() && int32(s.limit-used) <= 0
}

// starved reports whether sending waits for a receive WR of the peer.
func (q *queuePair) starved() bool {
	s := &q.sq
	return s.hdr == 0 && s.pay == 0 && s.next < s.post && s.acked == s.next && s.needsCredit(s.next, s.used)
}

// wantDue reports whether the peer should be told of that: the attempt that
// meets RNR on hardware.
func (s *sendQueue) wantDue() bool {
	return s.heard && s.hdr == 0 && s.pay == 0 && s.next < s.post && s.wanted != s.next+1 && s.fault == 0 &&
		s.needsCredit(s.next, s.used)
}

// ackDue reports whether the peer has to hear of placed messages or of new
// receives. Receives alone are announced when the peer has used up half of
// those it knows.
func (q *queuePair) ackDue() bool {
	s, r := &q.sq, &q.rq
	if s.announce || r.msn != s.ackSent {
		return true
	}
	known := s.creditSent - uint32(r.taken)
	return uint32(r.post) != s.creditSent && (r.awaited || int(known) <= len(r.entries)/2)
}

// startable reports whether the message at pos can go out now.
func (s *sendQueue) startable(pos uint64, used uint32) bool {
	return pos < s.post && (s.fault == 0 || pos < s.faultAt) && !s.needsCredit(pos, used)
}

// continues reports whether a message is between two of its frames.
func (s *sendQueue) continues() bool { return s.pay > 0 && s.hdr == 0 && s.fault == 0 }

// hasOutput reports whether transmit would send something.
func (q *queuePair) hasOutput() bool {
	s := &q.sq
	switch {
	case q.fd < 0 || q.broken:
		return false
	case q.linger:
		return s.nak != nakNone
	case s.hdr > 0:
		return s.fault == 0 || s.next != s.faultAt
	}
	return s.ctrlLen > 0 || s.continues() || s.startable(s.next, s.used) || s.wantDue() || q.ackDue()
}
