package sim

import "mover/verbs"

// incoming is a message that a UC responder has the beginning of. What follows
// has to come without a gap, or all the rest is dropped.
type incoming struct {
	w      *sendWQE
	recv   *recvWQE // of a SEND: it stays the next one until the message is whole
	target []dest   // places for what is to come; of a SEND maybe too few
}

// arriveIn has more packets of the oldest message on the wire arrive.
func (q *qp) arriveIn(delay int64) { q.f.after(delay, "arrive", q.qpn, q.arriveUC) }

// arriveUC brings some packets of the oldest message, at least one. Messages of
// a QP arrive in order; those of others come in between.
func (q *qp) arriveUC() {
	f, fl := q.f, q.wire[0]
	n := fl.end - fl.next
	if !f.opt.Calm && n > 1 && f.rng.IntN(3) == 0 {
		n = 1 + f.rng.IntN(n)
	}
	f.deliver(fl, fl.next+n)
	if fl.next == fl.end {
		f.landed(fl)
		q.wire[0] = nil
		q.wire = q.wire[1:]
	}
	if len(q.wire) > 0 {
		gap := int64(0)
		if !f.opt.Calm {
			gap = f.rng.Int64N(300)
		}
		q.arriveIn(gap)
	}
}

// deliver brings the packets before end to the responder, except those lost.
func (f *Fabric) deliver(fl *flight, end int) {
	var p *qp
	if fl.next == 0 {
		p = f.meet(fl)
	} else {
		p = f.responderOf(fl)
	}
	if p == nil {
		f.lose(fl, end)
		return
	}
	f.checkPath(fl, p)
	for fl.next < end {
		first := fl.next
		for fl.next < end && !f.losesNext(fl) {
			fl.next++
		}
		if fl.next > first {
			p.take(fl, first, fl.next)
		}
		if fl.next < end {
			f.lose(fl, fl.next+1)
		}
	}
}

// checkPath records two ends that do not fit together. Unlike RC, UC then
// delivers: the first packet of a message sets the PSN expected, and nothing
// in a packet names the sender's QP.
func (f *Fabric) checkPath(fl *flight, p *qp) {
	if fl.sender.reported || fl.mtu == p.attr.PathMTU.Bytes() && fl.firstPSN == p.attr.RQPSN && fl.src == p.attr.DestQPN {
		return
	}
	fl.sender.reported = true
	f.violate(BadPath, fl.from.dev, fl.src, "PSN %#x, QPN %#x and MTU %d here; %#x, %#x and %v at the peer", fl.firstPSN,
		fl.src, fl.mtu, p.attr.RQPSN, p.attr.DestQPN, p.attr.PathMTU)
}

// take is the responder's part for the packets i to j of a message, which
// follow each other. The first packet of a message is always welcome; any other
// one only when it continues the message in progress, whose rest is dropped
// otherwise (InfiniBand Architecture, volume 1, 9.8.2; drivers/infiniband/sw/
// rxe/rxe_resp.c, check_psn and check_op_seq). The bytes that came before stay.
func (p *qp) take(fl *flight, i, j int) {
	if !p.receives() {
		return
	}
	psn := (fl.psn + uint32(i)) & maxPSN
	switch {
	case i == 0:
		p.in = p.begin(fl)
	case p.in != nil && (psn != p.rqPSN || p.in.w.isWrite() != fl.w.isWrite() || p.revoked(p.in)):
		p.in = nil
	}
	p.rqPSN = (fl.psn + uint32(j)) & maxPSN
	if p.in == nil {
		return
	}
	last := j == fl.packets
	if last && fl.w.isWrite() && fl.w.takesReceive() && len(p.rq) == 0 {
		// Only the last packet needs the receive. Those before it are taken.
		p.f.stats.RNR++
		p.store(fl, i, j-1)
		p.in = nil
		return
	}
	if !p.store(fl, i, j) {
		p.in = nil
		p.tooLong()
		return
	}
	if last {
		fl.whole = true
		p.in = nil
		if fl.w.takesReceive() {
			p.consume(fl.w, uint32(len(fl.data)), 0)
		}
	}
}

// begin checks the first packet of a message, and finds the places for all of
// it; nil when it is dropped.
func (p *qp) begin(fl *flight) *incoming {
	mtu := p.attr.PathMTU.Bytes()
	if fl.packets > 1 && fl.mtu != mtu || len(fl.data) > mtu && fl.packets == 1 {
		return nil // a first packet has to be full, an only one to fit
	}
	in := &incoming{w: fl.w}
	switch {
	case fl.w.isWrite() && fl.w.length > 0:
		m, status := p.writable(fl.w)
		if status != verbs.WCSuccess {
			return nil
		}
		in.target = []dest{{m, m.slice(fl.w.wr.RemoteAddr, fl.w.length)}}
	case !fl.w.isWrite():
		if len(p.rq) == 0 {
			p.f.stats.RNR++
			return nil
		}
		target, status := p.spread(fl.w.length)
		if status == verbs.WCLocProtErr { // an error of its own
			p.spoil(status)
			return nil
		}
		in.recv, in.target = p.rq[0], target
	}
	p.msgs++
	return in
}

// revoked reports whether the memory of the message in progress was
// deregistered: every packet is checked.
func (p *qp) revoked(in *incoming) bool {
	for _, d := range in.target {
		if d.mr != nil && d.mr.dead {
			if in.recv == nil {
				p.f.violate(WriteRevoked, p.dev, p.qpn, "rkey %#x, WR %d of the peer", d.mr.rkey, in.w.wr.WRID)
			}
			return true
		}
	}
	return false
}

// store takes the bytes of the packets i to j. It reports whether there was
// room; of packets that have none, nothing is taken.
func (p *qp) store(fl *flight, i, j int) bool {
	in := p.in
	from, to := i*fl.mtu, min(j*fl.mtu, len(fl.data))
	if from >= to {
		return true
	}
	room := 0
	for _, d := range in.target {
		room += len(d.mem)
	}
	fits := true
	if room < to-from {
		to = from + room/fl.mtu*fl.mtu
		fits = false
	}
	if to > from {
		var now []dest
		now, in.target = splitPlaces(in.target, to-from)
		fl.left = true
		p.keep(fl.w, in.recv, now, fl.data[from:to])
	}
	return fits
}

// splitPlaces splits places into those of the first n bytes and the rest.
func splitPlaces(places []dest, n int) (first, rest []dest) {
	for i, d := range places {
		if n < len(d.mem) {
			if n > 0 {
				first = append(first, dest{d.mr, d.mem[:n]})
			}
			return first, append([]dest{{d.mr, d.mem[n:]}}, places[i+1:]...)
		}
		first = append(first, d)
		n -= len(d.mem)
	}
	return first, nil
}

// tooLong ends a message of UC or UD that is longer than the receive. Adapters
// differ: it is dropped and the receive stays (rxe_resp.c, RESPST_ERR_LENGTH),
// or the receive ends with LOC_LEN_ERR and takes the QP with it.
func (p *qp) tooLong() {
	if p.f.rng.IntN(2) == 0 {
		p.spoil(verbs.WCLocLenErr)
	}
}
