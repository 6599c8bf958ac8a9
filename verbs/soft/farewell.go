//go:build linux

package soft

import "golang.org/x/sys/unix"

// zeros fill a frame that was cut off: a QP in ERR no longer reads registered
// memory, and the NAK has to start at a frame's boundary. The message fails at
// the peer, so its content there is undefined anyway.
var zeros [64 << 10]byte

// planFarewell fills the vector for a QP in ERR: the rest of what is open, and
// the NAK.
func (q *queuePair) planFarewell() {
	s, v := &q.sq, &q.out
	if s.hdr > 0 {
		v.add(s.entry(s.next).hdr[s.hdr:])
		for left := s.end - s.pay; left > 0; {
			if v.full() {
				return
			}
			n := min(left, uint64(len(zeros)))
			v.add(zeros[:n])
			left -= n
		}
		if v.full() {
			return
		}
	}
	if s.ctrlOff == 0 || s.hdr > 0 {
		h := header{op: frameNak, code: uint8(s.nak), msn: s.nakMsn, ack: q.rq.msn, credit: uint32(q.rq.post)}
		h.encode(&s.ctrl)
		s.ctrlOff, s.ctrlLen = 0, headerBytes
		s.ctrlNak = true
	}
	v.add(s.ctrl[s.ctrlOff:s.ctrlLen])
}

// advanceFarewell takes note that n bytes are gone; behind the NAK comes the
// end of the stream.
func (q *queuePair) advanceFarewell(n int) {
	s := &q.sq
	left := uint64(n)
	if s.hdr > 0 {
		k := min(left, uint64(headerBytes-s.hdr))
		s.hdr += int(k)
		left -= k
		k = min(left, s.end-s.pay)
		s.pay += k
		left -= k
		if s.hdr < headerBytes || s.pay < s.end {
			return
		}
		s.hdr = 0
	}
	s.ctrlOff += int(left)
	if s.ctrlOff < s.ctrlLen {
		return
	}
	nak := s.ctrlNak
	s.ctrlOff, s.ctrlLen = 0, 0
	if nak {
		s.nak = nakNone
		unix.Shutdown(q.fd, unix.SHUT_WR)
	}
}

// discard reads and drops what a refused peer still sends: closing with unread
// data would reset the connection, and a reset may overtake the NAK.
func (q *queuePair) discard(budget int) (moved int) {
	for moved < budget {
		q.in.reset()
		q.in.add(q.rq.stage[:])
		n, errno := recvVector(q.fd, &q.in)
		q.in.reset()
		switch {
		case errno == unix.EAGAIN:
			q.readable = false
			return moved
		case errno != 0 || n == 0:
			q.closeConn()
			return moved
		}
		moved += n
	}
	return moved
}
