//go:build linux

package soft

import "mover/verbs"

// sendRing is a send queue. Positions count WRs since RESET;
// free <= acked <= post <= free + len(entries). An entry is free when a
// completion at or after it was polled, as on hardware: WRs without a
// completion occupy theirs until then.
type sendRing struct {
	entries []sendEntry
	pieces  []piece // sges for each entry
	inline  []byte  // MaxInlineBytes for each entry
	sges    int

	free  uint64 // the first not free
	acked uint64 // the first not completed
	post  uint64 // the next to be posted
}

type sendEntry struct {
	wrid, raddr, length uint64
	rkey, imm           uint32
	pieces              int
	op                  frameOp
	signaled, solicited bool
	inline, resolved    bool
	hdr                 [headerBytes]byte // RC: of the frame being sent
	to                  destination       // UD
}

// piece is an SGE; buf and mr are set when the WR is executed.
type piece struct {
	sge verbs.SGE
	buf []byte
	mr  *memory
}

func (s *sendRing) init(c verbs.QPCap) {
	s.entries = make([]sendEntry, c.MaxSendWR)
	s.pieces = make([]piece, c.MaxSendWR*c.MaxSendSGE)
	s.inline = make([]byte, c.MaxSendWR*c.MaxInlineBytes)
	s.sges = c.MaxSendSGE
}

func (s *sendRing) reset() {
	clear(s.pieces)
	s.free, s.acked, s.post = 0, 0, 0
}

func (s *sendRing) slot(pos uint64) int { return int(pos % uint64(len(s.entries))) }

func (s *sendRing) entry(pos uint64) *sendEntry { return &s.entries[s.slot(pos)] }

// piecesOf are the SGEs of the WR at pos; an inline WR has none.
func (s *sendRing) piecesOf(pos uint64) []piece {
	slot := s.slot(pos)
	return s.pieces[slot*s.sges:][:s.entries[slot].pieces]
}

func (s *sendRing) inlineOf(slot int) []byte {
	n := len(s.inline) / len(s.entries)
	return s.inline[slot*n : (slot+1)*n]
}

// resolve looks up the WR's memory when the WR is executed, and its length.
func (s *sendRing) resolve(pd *domain, pos uint64) verbs.WCStatus {
	e := s.entry(pos)
	if !e.inline {
		e.length = 0
		pieces := s.piecesOf(pos)
		for i := range pieces {
			p := &pieces[i]
			if !p.find(pd, 0) {
				return verbs.WCLocProtErr
			}
			e.length += uint64(p.sge.Length)
		}
		if e.length > maxMsg {
			return verbs.WCLocLenErr
		}
	}
	e.resolved = true
	return verbs.WCSuccess
}

// find looks up the region of an SGE; false when there is none of this PD, not
// with that access, or not that large. An SGE of no bytes needs none.
func (p *piece) find(pd *domain, access verbs.Access) bool {
	p.buf, p.mr = nil, nil
	if p.sge.Length == 0 {
		return true
	}
	m := pd.keys.local(p.sge.LKey)
	if m == nil || m.access&access != access {
		return false
	}
	p.mr = m
	p.buf = m.slice(p.sge.Addr, p.sge.Length)
	return p.buf != nil
}

// gather adds n bytes of the resolved message at pos, from offset from, to v.
// It returns how many: fewer when the vector is full, and gone is true when it
// is because memory was deregistered.
func (s *sendRing) gather(v *vector, pos, from, n uint64) (added uint64, gone bool) {
	if e := s.entry(pos); e.inline {
		v.add(s.inlineOf(s.slot(pos))[from : from+n])
		return n, false
	}
	pieces := s.piecesOf(pos)
	for i := range pieces {
		if added == n || v.full() {
			break
		}
		p := &pieces[i]
		if from >= uint64(len(p.buf)) {
			from -= uint64(len(p.buf))
			continue
		}
		b := p.buf[from:]
		b = b[:min(uint64(len(b)), n-added)]
		from = 0
		if !v.addMemory(p.mr, b) {
			return added, true
		}
		added += uint64(len(b))
	}
	return added, false
}

// completeSend completes the oldest WR.
func (q *qpBase) completeSend(status verbs.WCStatus) {
	s := q.sends
	e := s.entry(s.acked)
	s.acked++
	if status == verbs.WCSuccess && !e.signaled {
		return
	}
	c := cqe{qp: q, freed: s.acked, wc: verbs.WC{WRID: e.wrid, Status: status, QPN: q.qpn}}
	if status == verbs.WCSuccess {
		c.wc.ByteLen = uint32(e.length)
		c.wc.Opcode = verbs.WCRDMAWrite
		if e.op.sends() {
			c.wc.Opcode = verbs.WCSend
		}
	}
	q.sendCQ.push(&c)
}

// recvRing is a receive queue. Positions count WRs since RESET;
// free <= taken <= post <= free + len(entries).
type recvRing struct {
	entries []recvEntry
	pieces  []piece // sges for each entry
	sges    int

	free  uint64 // the first not free: its completion was not polled
	taken uint64 // the first not consumed
	post  uint64 // the next to be posted
}

type recvEntry struct {
	wrid   uint64
	pieces int
}

func (r *recvRing) init(c verbs.QPCap) {
	r.entries = make([]recvEntry, c.MaxRecvWR)
	r.pieces = make([]piece, c.MaxRecvWR*c.MaxRecvSGE)
	r.sges = c.MaxRecvSGE
}

func (r *recvRing) reset() {
	clear(r.pieces)
	r.free, r.taken, r.post = 0, 0, 0
}

func (r *recvRing) slot(pos uint64) int { return int(pos % uint64(len(r.entries))) }

// oldest are the SGEs of the oldest receive WR.
func (r *recvRing) oldest() []piece {
	slot := r.slot(r.taken)
	return r.pieces[slot*r.sges:][:r.entries[slot].pieces]
}

// open looks up the memory of the oldest receive WR; false when it is not to
// be written.
func (r *recvRing) open(pd *domain) bool {
	pieces := r.oldest()
	for i := range pieces {
		if !pieces[i].find(pd, verbs.AccessLocalWrite) {
			return false
		}
	}
	return true
}

// room is the size of the oldest receive WR.
func (r *recvRing) room() (n uint64) {
	pieces := r.oldest()
	for i := range pieces {
		n += uint64(pieces[i].sge.Length)
	}
	return n
}

// target is the place of the bytes at offset at of a message that goes into
// the oldest receive WR, at most n; nil behind its end.
func (r *recvRing) target(at, n uint64) (*memory, []byte) {
	pieces := r.oldest()
	for i := range pieces {
		p := &pieces[i]
		if at < uint64(len(p.buf)) {
			b := p.buf[at:]
			return p.mr, b[:min(uint64(len(b)), n)]
		}
		at -= uint64(len(p.buf))
	}
	return nil, nil
}

// completeRecv completes the oldest receive WR; wc lacks only id and QPN.
func (q *qpBase) completeRecv(wc *verbs.WC) {
	r := q.recvs
	c := cqe{qp: q, recv: true, freed: r.taken + 1, wc: *wc}
	c.wc.WRID = r.entries[r.slot(r.taken)].wrid
	c.wc.QPN = q.qpn
	r.taken++
	q.recvCQ.push(&c)
}

// flush completes everything outstanding. The state is ERR already, since a
// flush may overrun a CQ, which comes back to toErr.
func (q *qpBase) flush() {
	for q.sends.acked < q.sends.post {
		q.completeSend(verbs.WCFlushErr)
	}
	for q.recvs.taken < q.recvs.post {
		q.completeRecv(&verbs.WC{Status: verbs.WCFlushErr})
	}
}
