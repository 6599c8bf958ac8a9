package sim

import "mover/verbs"

// flight is a message of UC or UD on the wire. Its sender is done with it and
// knows nothing of what becomes of it: it goes on when the QP fails, is reset
// or destroyed.
type flight struct {
	sender     *qp // a fault may strike it
	typ        verbs.QPType
	w          *sendWQE
	data       []byte // the whole payload
	from, to   *port
	sgid, dgid verbs.GID
	src, dest  uint32 // QPNs
	qkey       uint32 // UD

	mtu      int          // bytes of a full packet
	psn      uint32       // of the first packet
	firstPSN uint32       // UC: of the connection, at the sender
	packets  int          // of the whole message
	end      int          // packets that left the sender
	next     int          // the first that has not arrived
	lost     map[int]bool // chosen by LosePackets; only looked up

	whole bool // accepted
	left  bool // some of its bytes were taken
}

// transmit sends the first pending message of a UC or UD QP. Nobody answers:
// the WR succeeds when the message has left the adapter.
func (q *qp) transmit() {
	if q.state != verbs.StateRTS || len(q.pending) == 0 || q.flying || q.dev.fatal {
		return
	}
	f := q.f
	q.flying = true
	q.port.txFree = max(q.port.txFree, f.now) + q.port.wireTime(q.pending[0].length)
	epoch := q.epoch
	f.after(q.port.txFree-f.now, "sent", q.qpn, func() {
		if q.epoch == epoch && !q.dev.fatal {
			q.flying = false
			q.sent()
		}
	})
}

// sent is the moment at which the first pending message has left.
func (q *qp) sent() {
	w := q.pending[0]
	if q.killed {
		q.die()
		return
	}
	if status := q.sendable(w); status != verbs.WCSuccess {
		q.fail(w, status)
		return
	}
	q.checkSource(w, "transmission")
	q.pending = q.pending[1:]
	fl := q.newFlight(w)
	q.launch(fl, fl.packets)
	q.complete(w, verbs.WCSuccess)
	q.transmit()
}

// sendable is the status with which a WR fails in the sender's adapter: the
// only failures of UC and UD.
func (q *qp) sendable(w *sendWQE) verbs.WCStatus {
	switch {
	case !q.readable(w):
		return verbs.WCLocProtErr
	case !q.port.up && q.port.opErr:
		return verbs.WCLocQPOpErr
	case w.ah == nil:
		return verbs.WCSuccess
	case w.ah.pd != q.pd: // drivers/infiniband/sw/rxe/rxe_av.c, rxe_get_av
		return verbs.WCLocQPOpErr
	case w.ah.gone && q.f.rng.IntN(2) == 0: // the adapter may have read it in time
		return verbs.WCLocQPOpErr
	}
	return verbs.WCSuccess
}

// newFlight takes a copy of the message.
func (q *qp) newFlight(w *sendWQE) *flight {
	fl := &flight{sender: q, typ: q.typ, w: w, data: q.gather(w), from: q.port, src: q.qpn}
	if a := w.ah; a != nil {
		fl.to, fl.sgid, fl.dgid, fl.dest = a.remote, a.sgid, a.attr.DGID, w.wr.RemoteQPN
		fl.qkey = w.wr.RemoteQKey
		if fl.qkey>>31 != 0 { // stands for the QP's own (InfiniBand Architecture, volume 1, 10.2.5)
			fl.qkey = q.attr.QKey
		}
		fl.mtu, fl.packets = q.port.cfg.MTU.Bytes(), 1
		return fl
	}
	fl.to, fl.sgid, fl.dgid, fl.dest = q.remote, q.sgid, q.attr.AV.DGID, q.attr.DestQPN
	fl.mtu, fl.psn, fl.firstPSN = q.attr.PathMTU.Bytes(), q.sqPSN, q.attr.SQPSN
	fl.packets = max(1, (len(fl.data)+fl.mtu-1)/fl.mtu)
	return fl
}

// launch lets the first n packets of a message go.
func (q *qp) launch(fl *flight, n int) {
	if fl.typ == verbs.UD && len(fl.data) > fl.mtu {
		// Not sent, and no error either (C10-93.1.1; drivers/infiniband/sw/
		// rxe/rxe_req.c fakes a success too).
		q.f.stats.LostMessages++
		return
	}
	fl.end = n
	if c := q.pd.ctx; c.losing != nil {
		fl.lost = map[int]bool{}
		for i := range n {
			if c.losing(c.left) {
				fl.lost[i] = true
			}
			c.left++
		}
	}
	q.sqPSN = (q.sqPSN + uint32(n)) & maxPSN
	if fl.typ == verbs.UD {
		q.flyAlone(fl)
		return
	}
	q.wire = append(q.wire, fl)
	if len(q.wire) == 1 { // nothing in front of it
		q.arriveIn(minLatency + q.f.delay(q.f.opt.MaxLatency))
	}
}

const (
	maxPSN     = 1<<24 - 1
	minLatency = 500 // ns
)

// escape lets some packets of a message go that the end of its QP cut off,
// maybe all of them.
func (q *qp) escape(w *sendWQE) {
	if q.f.opt.Calm || q.f.rng.IntN(2) == 0 || q.dev.fatal || q.sendable(w) != verbs.WCSuccess {
		return
	}
	fl := q.newFlight(w)
	if n := q.f.rng.IntN(fl.packets + 1); n > 0 {
		q.launch(fl, n)
	}
}

// losesNext draws whether the next packet of a message is lost.
func (f *Fabric) losesNext(fl *flight) bool {
	return fl.lost[fl.next] || f.chance(f.opt.Faults.LosePacket)
}

// lose notes that the packets from next to end got nowhere.
func (f *Fabric) lose(fl *flight, end int) {
	f.record("lost", uint64(fl.src), uint64(fl.psn)<<32|uint64(end-fl.next))
	f.stats.LostPackets += uint64(end - fl.next)
	fl.next = end
}

// landed ends a message of which nothing more comes.
func (f *Fabric) landed(fl *flight) {
	if fl.whole {
		f.stats.Messages++
		f.stats.Bytes += uint64(len(fl.data))
		return
	}
	f.stats.LostMessages++
	if fl.left && fl.w.isWrite() {
		f.stats.PartialWrites++
	}
}

// responderOf is the QP that a message arrives at, or nil when there is none,
// or no way to it.
func (f *Fabric) responderOf(fl *flight) *qp {
	if !f.path(fl.from, fl.to, fl.sgid, fl.dgid) {
		return nil
	}
	p := f.qps[fl.dest]
	if p == nil || p.typ != fl.typ || p.port != fl.to || !p.receives() {
		return nil
	}
	if p.typ == verbs.UC && p.remote != fl.from {
		return nil // the source address is not the peer's
	}
	return p
}

// meet is responderOf at the time the first packet arrives, which is when
// random faults strike.
func (f *Fabric) meet(fl *flight) *qp {
	p := f.responderOf(fl)
	if p == nil {
		return nil
	}
	q := fl.sender
	f.strike(q, p, fl.from, fl.to)
	q.die()
	q.damage(fl.data)
	return f.responderOf(fl)
}
