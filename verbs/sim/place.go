package sim

import (
	"slices"
	"unsafe"

	"mover/verbs"
)

// dest is a place that a message goes to.
type dest struct {
	mr  *mr
	mem []byte
}

// piece is a part of an accepted message that is not in memory yet.
type piece struct {
	mr   *mr
	mem  []byte // where it goes
	data []byte
	w    *sendWQE
	recv *recvWQE // UC: the receive whose buffer it goes to
	msg  uint64
	born int64
}

// keep takes the bytes of a message into the adapter, in random pieces. They
// reach memory when something makes them visible, or some time before. r is
// set when a message that is cut short leaves the receive to the next one.
func (p *qp) keep(w *sendWQE, r *recvWQE, target []dest, data []byte) {
	p.orderOverlaps(w, r, target)
	for _, d := range target {
		p.cut(w, r, d, data[:len(d.mem)])
		data = data[len(d.mem):]
	}
	if p.f.opt.Calm || p.f.rng.IntN(3) == 0 {
		p.placeRange(p.msgs, p.msgs) // overtaking what came before
		return
	}
	p.seep()
}

// cut splits the bytes for one place into up to 6 pieces.
func (p *qp) cut(w *sendWQE, r *recvWQE, d dest, data []byte) {
	for at := 0; at < len(data); {
		n := len(data) - at
		if !p.f.opt.Calm && p.f.rng.IntN(6) != 0 {
			n = 1 + p.f.rng.IntN(n)
		}
		p.pieces = append(p.pieces, piece{mr: d.mr, mem: d.mem[at : at+n], data: data[at : at+n], w: w, recv: r,
			msg: p.msgs, born: p.f.now})
		at += n
	}
}

// orderOverlaps: of two writes to the same bytes, the second is only ordered
// behind the first when its poster had polled the first one's completion, on
// the same QP. Anything else leaves undefined content.
func (p *qp) orderOverlaps(w *sendWQE, r *recvWQE, target []dest) {
	for _, other := range p.dev.qps {
		for i := 0; i < len(other.pieces); {
			x := other.pieces[i]
			if !slices.ContainsFunc(target, func(d dest) bool { return overlap(d.mem, x.mem) }) {
				i++
				continue
			}
			// A message repeated after RNR may find its own leftover, and one
			// of UC that of a message that was cut short in the same receive.
			if x.w == w || r != nil && x.recv == r || other == p && x.w.polledAt != 0 && x.w.polledAt < w.postedAt {
				other.land(i)
				continue
			}
			p.f.violate(OverlappingWrites, p.dev, p.qpn, "WR %d of the peer meets WR %d", w.wr.WRID, x.w.wr.WRID)
			i++
		}
	}
}

func overlap(a, b []byte) bool {
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y+uintptr(len(b)) && y < x+uintptr(len(a))
}

// land puts piece i into memory.
func (p *qp) land(i int) {
	x := p.pieces[i]
	last := len(p.pieces) - 1
	p.pieces[i] = p.pieces[last]
	p.pieces[last] = piece{}
	p.pieces = p.pieces[:last]
	copy(x.mem, x.data)
	p.f.record("land", uint64(p.qpn), x.msg<<32|uint64(len(x.data)))
}

// place puts n pieces into memory, in random order.
func (p *qp) place(n int) {
	for ; n > 0 && len(p.pieces) > 0; n-- {
		p.land(p.f.rng.IntN(len(p.pieces)))
	}
}

// placeUpTo puts every piece of the messages up to msg into memory.
func (p *qp) placeUpTo(msg uint64) { p.placeRange(0, msg) }

// placeRange does so for the messages from first to last, in random order.
func (p *qp) placeRange(first, last uint64) {
	for {
		var due []int
		for i, x := range p.pieces {
			if first <= x.msg && x.msg <= last {
				due = append(due, i)
			}
		}
		if len(due) == 0 {
			return
		}
		p.land(due[p.f.rng.IntN(len(due))])
	}
}

// seep lets pieces reach memory by themselves, soon or late.
func (p *qp) seep() {
	if p.seeping || len(p.pieces) == 0 {
		return
	}
	p.seeping = true
	most := int64(p.f.opt.MaxPlacementDelay) / 2
	delay := p.f.rng.Int64N(most + 1)
	if p.f.rng.IntN(2) == 0 {
		delay /= 256
	}
	p.f.after(delay, "seep", p.qpn, func() {
		p.seeping = false
		if p.gone || p.dev.fatal {
			return
		}
		for i := 0; i < len(p.pieces); {
			if p.pieces[i].born+most <= p.f.now {
				p.land(i)
			} else {
				i++
			}
		}
		p.place(1)
		p.seep()
	})
}

// dropPieces loses, at a QP's end, some of the pieces that no completion will
// make visible. The rest lands before the last flush.
func (q *qp) dropPieces() {
	if q.f.opt.Calm {
		return
	}
	var covered uint64
	for _, e := range q.recv.list {
		if e.success {
			covered = max(covered, e.msg)
		}
	}
	q.pieces = slices.DeleteFunc(q.pieces, func(x piece) bool {
		lose := x.msg > covered && q.f.rng.IntN(2) == 0
		if lose {
			q.f.stats.LostPlacement++
		}
		return lose
	})
}

// leavePart gives the responder of RC some packets of a write that fails.
func (q *qp) leavePart(w *sendWQE) {
	if q.f.opt.Calm || !w.isWrite() || w.length == 0 || !q.readable(w) || q.f.rng.IntN(2) == 0 {
		return
	}
	p := q.responder()
	if p == nil || p.attr.AccessFlags&verbs.AccessRemoteWrite == 0 {
		return
	}
	m := p.dev.rkeys[w.wr.RKey]
	if m == nil || m.pd != p.pd || m.access&verbs.AccessRemoteWrite == 0 {
		return
	}
	mem := m.slice(w.wr.RemoteAddr, w.length)
	packet := q.attr.PathMTU.Bytes()
	n := q.f.rng.IntN(len(mem)/packet+1) * packet
	if n == 0 || n >= len(mem) || mem == nil {
		return
	}
	q.f.stats.PartialWrites++
	p.msgs++ // its bytes become visible with whatever comes next, if anything
	p.cut(w, nil, dest{m, mem[:n]}, q.gather(w)[:n])
	p.seep()
}

// pointer is the memory of an inline SGE, which needs no registration.
func pointer(s verbs.SGE) []byte {
	if s.Length == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&s.Addr))), s.Length)
}
