//go:build linux

package soft

import (
	"errors"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// stageBytes is what is read beyond the payload in progress: several small
// frames, or the next header and the start of its payload, which is then
// copied to its place.
const stageBytes = 4096

// recvQueue is the receive queue of an RC QP and what comes in on its
// connection.
type recvQueue struct {
	recvRing

	msn     uint32 // messages placed
	awaited bool   // the peer waits for a receive WR

	mid   bool    // between two frames of a message
	op    frameOp // of the message
	bytes uint64  // payload of the message so far

	open bool   // a frame's payload is being placed
	h    header // of that frame
	left uint64 // bytes of it still to come
	mr   *memory
	dst  []byte // writes: the rest of the frame's place

	stage  [stageBytes]byte
	lo, hi int // what is in the stage
}

var (
	errAck      = errors.New("soft: acknowledgement of a message never sent")
	errCredit   = errors.New("soft: receive credit ran backwards or too far")
	errSequence = errors.New("soft: message out of sequence")
	errNoCredit = errors.New("soft: message without a receive WR")
)

func (r *recvQueue) reset() {
	r.recvRing.reset()
	*r = recvQueue{recvRing: r.recvRing}
}

// receive reads until budget, EAGAIN or the end. Each call reads the rest of
// the payload in progress into its place and what follows into the stage.
func (q *queuePair) receive(budget int) (moved int) {
	if q.linger {
		return q.discard(budget)
	}
	r, v := &q.rq, &q.in
	for moved < budget && q.readable && q.state != verbs.StateErr {
		if !q.aim() {
			v.reset()
			return moved
		}
		want, direct := v.bytes, 0
		if r.open {
			direct = v.bytes
		}
		if uint64(direct) == r.left || !r.open {
			v.add(r.stage[r.hi:])
			want = v.bytes
		}
		n, errno := recvVector(q.fd, v)
		v.reset()
		switch {
		case errno == unix.EAGAIN:
			q.readable = false
			return moved
		case errno != 0 || n == 0:
			q.lost()
			return moved
		}
		moved += n
		if n < want && !q.ending {
			// Short means empty; the kernel tells of what comes next
			// (epoll(7), question 9).
			q.readable = false
		}
		k := min(n, direct)
		r.placed(k)
		r.hi += n - k
		q.digest()
	}
	return moved
}

// aim fills the vector with the place of the payload in progress. False when
// the QP failed.
func (q *queuePair) aim() bool {
	r, v := &q.rq, &q.in
	if !r.open {
		return true
	}
	limit := min(r.left, uint64(q.dev.cfg.CallBytes))
	if !r.h.op.sends() {
		if !v.addMemory(r.mr, r.dst[:limit]) {
			q.refuse(nakAccess, verbs.EventQPAccessErr)
			return false
		}
		return true
	}
	for limit > 0 && v.n+1 < iovMax {
		m, b := r.target(r.bytes+uint64(v.bytes), limit)
		if m == nil {
			break
		}
		if !v.addMemory(m, b) {
			q.receiveFault(verbs.WCLocProtErr, nakOperation)
			return false
		}
		limit -= uint64(len(b))
	}
	return true
}

// placed takes note of n bytes of payload.
func (r *recvQueue) placed(n int) {
	if !r.open {
		return
	}
	r.left -= uint64(n)
	r.bytes += uint64(n)
	if r.dst != nil {
		r.dst = r.dst[n:]
	}
}

// digest works off the stage: it leaves less than a header there, or nothing.
func (q *queuePair) digest() {
	r := &q.rq
	for q.state != verbs.StateErr {
		if r.open {
			if r.left > 0 && r.lo < r.hi && !q.copyStaged() {
				return
			}
			if r.left > 0 {
				break
			}
			q.finishFrame()
			continue
		}
		if r.hi-r.lo < headerBytes {
			break
		}
		b := (*[headerBytes]byte)(r.stage[r.lo:])
		r.lo += headerBytes
		if err := r.h.decode(b); err != nil {
			q.violated(err)
			return
		}
		q.begin()
	}
	r.hi = copy(r.stage[:], r.stage[r.lo:r.hi])
	r.lo = 0
}

// copyStaged places payload that came in behind its header.
func (q *queuePair) copyStaged() bool {
	r, v := &q.rq, &q.in
	for r.left > 0 && r.lo < r.hi {
		n := min(r.left, uint64(r.hi-r.lo))
		m, b := r.mr, r.dst
		if r.h.op.sends() {
			m, b = r.target(r.bytes, n)
		}
		b = b[:min(uint64(len(b)), n)]
		if m == nil || !m.enter() {
			if r.h.op.sends() {
				q.receiveFault(verbs.WCLocProtErr, nakOperation)
			} else {
				q.refuse(nakAccess, verbs.EventQPAccessErr)
			}
			return false
		}
		copy(b, r.stage[r.lo:])
		m.leave()
		r.lo += len(b)
		r.placed(len(b))
	}
	v.reset()
	return true
}

// begin acts on a header: the fields that every frame has, then its own.
func (q *queuePair) begin() {
	r, s := &q.rq, &q.sq
	h := &r.h
	if !q.acknowledged(h.ack) {
		q.violated(errAck)
		return
	}
	if q.state == verbs.StateErr {
		return // a local fault was waiting for that acknowledgement
	}
	if d := h.credit - s.limit; d > maxQPWR {
		q.violated(errCredit)
		return
	}
	s.limit, s.heard = h.credit, true
	switch h.op {
	case frameAck:
	case frameNak:
		q.refused()
	case frameWant:
		q.wanted()
	default:
		if h.msn != r.msn {
			q.violated(errSequence)
			return
		}
		q.beginData()
	}
}

// refused is the peer's NAK: it names the oldest message.
func (q *queuePair) refused() {
	if q.rq.h.msn != uint32(q.sq.acked) || q.sq.acked == q.sq.post {
		q.violated(errSequence)
		return
	}
	q.fail([...]verbs.WCStatus{
		nakAccess: verbs.WCRemAccessErr, nakInvalid: verbs.WCRemInvReqErr,
		nakRNR: verbs.WCRNRRetryExcErr, nakOperation: verbs.WCRemOpErr}[q.rq.h.code])
}

// wanted is a peer that waits for a receive WR. If none is posted this is what
// hardware answers with an RNR NAK; the peer's retries are spent here, where
// it is known whether one was posted meanwhile.
func (q *queuePair) wanted() {
	r := &q.rq
	r.awaited = true
	if r.taken < r.post {
		return // the credit is on its way
	}
	q.dev.rnrEvents.Add(1)
	if r.h.code != 7 { // 7 is infinite
		q.receiveBy = deadline{at: nanotime() + int64(rnrTime(q.attr.MinRNRTimer, r.h.code))}
	}
}

// beginData checks a message's frame and finds its place.
func (q *queuePair) beginData() {
	r, h := &q.rq, &q.rq.h
	if !r.mid {
		r.bytes = 0
		r.mid, r.op = true, h.op
		if h.op.wantsReceive() && r.taken == r.post {
			q.violated(errNoCredit) // a sound peer waits for credit
			return
		}
		if h.op.sends() && !q.openReceive() {
			return
		}
	}
	if h.op != r.op {
		q.violated(errSequence)
		return
	}
	if r.bytes+uint64(h.length) > maxMsg {
		q.refuse(nakInvalid, verbs.EventQPReqErr)
		return
	}
	r.mr, r.dst = nil, nil
	if h.op.sends() {
		if r.bytes+uint64(h.length) > r.room() {
			q.receiveFault(verbs.WCLocLenErr, nakInvalid)
			return
		}
	} else if !q.openWrite() {
		return
	}
	r.open, r.left = true, uint64(h.length)
}

// openWrite checks the remote key. A write of no bytes needs none, but the
// permission of the QP (InfiniBand Architecture Specification volume 1, C9-88).
func (q *queuePair) openWrite() bool {
	r, h := &q.rq, &q.rq.h
	if q.attr.AccessFlags&verbs.AccessRemoteWrite == 0 {
		q.refuse(nakAccess, verbs.EventQPAccessErr)
		return false
	}
	if h.length == 0 {
		return true
	}
	m := q.pd.keys.remote(h.rkey)
	if m == nil || m.access&verbs.AccessRemoteWrite == 0 {
		q.refuse(nakAccess, verbs.EventQPAccessErr)
		return false
	}
	if r.dst = m.slice(h.addr, h.length); r.dst == nil {
		q.refuse(nakAccess, verbs.EventQPAccessErr)
		return false
	}
	r.mr = m
	return true
}

// openReceive looks up the memory of the oldest receive WR.
func (q *queuePair) openReceive() bool {
	if !q.rq.recvRing.open(q.pd) {
		q.receiveFault(verbs.WCLocProtErr, nakOperation)
		return false
	}
	return true
}

// receiveFault is an error of the oldest receive WR, which carries it here.
func (q *queuePair) receiveFault(status verbs.WCStatus, code nakCode) {
	q.completeRecv(&verbs.WC{Status: status})
	q.refuse(code, noEvent)
}

// finishFrame ends a frame and, with the last, its message.
func (q *queuePair) finishFrame() {
	r, h := &q.rq, &q.rq.h
	r.open, r.mr, r.dst = false, nil, nil
	if h.flags&flagLast == 0 {
		return
	}
	r.mid = false
	r.msn++
	if h.op == frameWrite {
		return
	}
	wc := verbs.WC{Opcode: verbs.WCRecv, ByteLen: uint32(r.bytes)}
	if h.op == frameWriteImm {
		wc.Opcode = verbs.WCRecvRDMAWithIm
	}
	if h.op != frameSend {
		wc.Flags, wc.Imm = verbs.WCWithImm, h.imm
	}
	q.completeRecv(&wc)
}
