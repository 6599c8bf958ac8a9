package conformance

import (
	"os"

	"mover/verbs"
)

// recvBit marks the wr_id of a receive, since an error completion has no
// valid opcode.
const recvBit = 1 << 63

const guardByte = 0xA5

// side is one end of a link.
type side struct {
	t    TB
	name string
	ctx  verbs.Context
	port uint8

	pd       verbs.PD
	channel  verbs.CompChannel
	scq, rcq verbs.CQ
	qp       verbs.QP
	mem      []byte // registered
	mapped   []byte // guard page, mem, guard page
	mr       verbs.MR

	// UD: where send goes to, and what precedes the payload of a receive.
	ah       verbs.AH
	peerQPN  uint32
	headroom int

	sent, rcvd []verbs.WC // what was polled
	pollErr    error
	nextID     uint64
	buf        [8]verbs.WC
}

func newSide(t TB, name string, p *Pair, ctx verbs.Context, port uint8, opt linkOpts) *side {
	t.Helper()
	s := &side{t: t, name: name, ctx: ctx, port: port}
	if opt.typ == verbs.UD {
		s.headroom = grhBytes
	}
	page := os.Getpagesize()
	n := (opt.memBytes + page - 1) / page * page
	s.mapped = p.Alloc(t, n+2*page)
	s.mem = s.mapped[page : page+n : page+n]
	for i := range page {
		s.mapped[i], s.mapped[page+n+i] = guardByte, guardByte
	}
	t.Cleanup(s.close)

	var err error
	s.pd, err = ctx.AllocPD()
	must(t, err, "alloc PD")
	s.mr, err = s.pd.RegMR(s.mem, opt.mrAccess)
	must(t, err, "register MR")
	if opt.channel {
		s.channel, err = ctx.CreateCompChannel()
		must(t, err, "create completion channel")
	}
	s.scq, err = ctx.CreateCQ(verbs.CQInitAttr{Entries: opt.cqEntries, Channel: s.channel})
	must(t, err, "create CQ")
	s.rcq = s.scq
	if opt.splitCQ {
		s.rcq, err = ctx.CreateCQ(verbs.CQInitAttr{Entries: opt.cqEntries, Channel: s.channel})
		must(t, err, "create CQ")
	}
	s.qp, err = s.pd.CreateQP(verbs.QPInitAttr{Type: opt.typ, SendCQ: s.scq, RecvCQ: s.rcq, Cap: opt.cap,
		SignalAll: opt.signalAll})
	must(t, err, "create QP")
	return s
}

// close undoes newSide, and fails the test for whatever cannot be undone or
// is left open.
func (s *side) close() {
	t := s.t
	free := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %s: %v", s.name, what, err)
		}
	}
	if s.qp != nil {
		free("destroy QP", s.qp.Destroy())
	}
	if s.ah != nil {
		free("destroy AH", s.ah.Destroy())
	}
	if s.mr != nil {
		free("deregister MR", s.mr.Dereg())
	}
	if s.scq != nil {
		free("destroy CQ", s.scq.Destroy())
	}
	if s.rcq != s.scq && s.rcq != nil {
		free("destroy CQ", s.rcq.Destroy())
	}
	if s.channel != nil {
		free("destroy channel", s.channel.Destroy())
	}
	if s.pd != nil {
		free("dealloc PD", s.pd.Dealloc())
	}
	if c := s.ctx.Counts(); c != (verbs.Counts{}) {
		t.Errorf("%s: left open: %+v", s.name, c)
	}
	free("close", s.ctx.Close())
	if off := s.damaged(); off >= 0 {
		t.Errorf("%s: the byte at %d of the mapping, outside the MR, was overwritten", s.name, off)
	}
}

// damaged is the offset of the first guard byte overwritten, or -1.
func (s *side) damaged() int {
	page := os.Getpagesize()
	for i := range page {
		if s.mapped[i] != guardByte {
			return i
		}
		if j := len(s.mapped) - page + i; s.mapped[j] != guardByte {
			return j
		}
	}
	return -1
}

// pickGID follows the rule that an index is never assumed.
func (s *side) pickGID() verbs.GIDEntry {
	s.t.Helper()
	table, err := s.ctx.QueryGIDTable(s.port)
	must(s.t, err, "query GID table")
	for _, e := range table {
		if e.GID.IsZero() {
			s.t.Fatalf("GID entry %d is zero", e.Index)
		}
	}
	best, err := verbs.ChooseGID(table, verbs.GIDWish{})
	must(s.t, err, "choose a GID")
	return best
}

// psn is the side's first packet sequence number, near the 24-bit wrap.
func (s *side) psn() uint32 { return (0xffffff - s.qp.QPN()%16) & 0xffffff }

func (l *link) connect() {
	l.t.Helper()
	for _, s := range []*side{l.a, l.b} {
		must(l.t, s.qp.Modify(l.initAttr(s), verbs.InitMask(l.opt.typ)), s.name+" to INIT")
	}
	must(l.t, l.a.qp.Modify(l.rtrAttr(l.a, l.b), verbs.RTRMask(l.opt.typ)), "A to RTR")
	must(l.t, l.b.qp.Modify(l.rtrAttr(l.b, l.a), verbs.RTRMask(l.opt.typ)), "B to RTR")
	for _, s := range []*side{l.a, l.b} {
		must(l.t, s.qp.Modify(l.rtsAttr(s), verbs.RTSMask(l.opt.typ)), s.name+" to RTS")
	}
	if l.opt.typ == verbs.UD {
		l.aim(l.a, l.b)
		l.aim(l.b, l.a)
	}
}

func (s *side) toErr() {
	s.t.Helper()
	must(s.t, s.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState), s.name+" to ERR")
}

// poll takes what is on the side's queues.
func (s *side) poll() {
	s.pollCQ(s.scq)
	if s.rcq != s.scq {
		s.pollCQ(s.rcq)
	}
}

func (s *side) pollCQ(cq verbs.CQ) {
	if s.pollErr != nil {
		return
	}
	for {
		n, err := cq.Poll(s.buf[:])
		for _, wc := range s.buf[:n] {
			if s.qp == nil {
				s.t.Errorf("%s: a completion of a destroyed QP", s.name)
			} else if wc.QPN != s.qp.QPN() {
				s.t.Errorf("%s: a completion names QP %#x, not %#x", s.name, wc.QPN, s.qp.QPN())
			}
			if wc.WRID&recvBit != 0 {
				s.rcvd = append(s.rcvd, wc)
			} else {
				s.sent = append(s.sent, wc)
			}
		}
		if err != nil {
			s.pollErr = err
			return
		}
		if n < len(s.buf) {
			return
		}
	}
}

// addr is the address of the byte at off of the side's registered memory.
func (s *side) addr(off int) uint64 { return s.mr.Addr() + uint64(off) }

func (s *side) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: s.addr(off), Length: uint32(n), LKey: s.mr.LKey()}
}

func (s *side) id() uint64 { s.nextID++; return s.nextID }

// write makes a signalled RDMA Write of n bytes from s.mem[off:] to
// peer.mem[to:].
func (s *side) write(peer *side, off, to, n int) verbs.SendWR {
	wr := verbs.SendWR{WRID: s.id(), Op: verbs.OpWrite, Flags: verbs.SendSignaled,
		RemoteAddr: peer.addr(to), RKey: peer.mr.RKey()}
	if n > 0 {
		wr.SGL = []verbs.SGE{s.sge(off, n)}
	}
	return wr
}

func (s *side) writeImm(peer *side, off, to, n int, imm uint32) verbs.SendWR {
	wr := s.write(peer, off, to, n)
	wr.Op, wr.Imm = verbs.OpWriteWithImm, imm
	return wr
}

func (s *side) send(off, n int) verbs.SendWR {
	wr := verbs.SendWR{WRID: s.id(), Op: verbs.OpSend, Flags: verbs.SendSignaled}
	if s.ah != nil {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = s.ah, s.peerQPN, testQKey
	}
	if n > 0 {
		wr.SGL = []verbs.SGE{s.sge(off, n)}
	}
	return wr
}

func (s *side) post(wrs ...verbs.SendWR) {
	s.t.Helper()
	if n, err := s.qp.PostSend(wrs); n != len(wrs) || err != nil {
		s.t.Fatalf("%s: post %d sends: %d accepted, %v", s.name, len(wrs), n, err)
	}
}

// recv posts a receive into s.mem[off:off+n] and returns its wr_id.
func (s *side) recv(off, n int) uint64 {
	s.t.Helper()
	wr := verbs.RecvWR{WRID: recvBit | s.id()}
	if n > 0 {
		wr.SGL = []verbs.SGE{s.sge(off, n)}
	}
	s.postRecv(wr)
	return wr.WRID
}

func (s *side) postRecv(wrs ...verbs.RecvWR) {
	s.t.Helper()
	if n, err := s.qp.PostRecv(wrs); n != len(wrs) || err != nil {
		s.t.Fatalf("%s: post %d receives: %d accepted, %v", s.name, len(wrs), n, err)
	}
}
