package conformance

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"mover/verbs"
)

// recvBit marks the wr_id of a receive, since an error completion has no
// valid opcode.
const recvBit = 1 << 63

const guardByte = 0xA5

// testQKey has the upper bit clear: with it set a send would use its own QP's
// Q_Key (InfiniBand Architecture Specification volume 1, 10.2.5).
const testQKey = 0x11

// linkOpts says how to build a link; zero values stand for the defaults.
type linkOpts struct {
	typ        verbs.QPType // RC
	cap        verbs.QPCap  // 16, 16, 4, 4
	memBytes   int          // 256 KiB, rounded up to pages
	qpAccess   verbs.Access // remote write
	noAccess   bool         // qpAccess is none at all
	mrAccess   verbs.Access // local write, remote write
	rnrRetry   uint8        // 7 (for ever); 1..6
	retryCnt   uint8        // 3
	timeout    uint8        // 10: 4 ms
	minRNR     uint8        // 12: 0.64 ms
	cqEntries  int          // 64
	signalAll  bool
	splitCQ    bool // a CQ per queue
	noConnect  bool // leave the QPs in RESET
	channel    bool // a completion channel for the CQs
	rdAtomic   uint8
	cqEntriesB int
}

// link is two connected QPs with all they need.
type link struct {
	t    TB
	pair *Pair
	h    Harness
	opt  linkOpts
	a, b *side
}

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

func newLink(t TB, h Harness, opt linkOpts) *link {
	t.Helper()
	p := h.Open(t)
	p.setDefaults()
	if opt.timeout == 0 {
		opt.timeout = h.AckTimeout
	}
	opt.setDefaults()
	l := &link{t: t, pair: p, h: h, opt: opt}
	l.a = newSide(t, "A", p, p.A, p.PortA, opt)
	if opt.cqEntriesB != 0 {
		opt.cqEntries = opt.cqEntriesB
	}
	l.b = newSide(t, "B", p, p.B, p.PortB, opt)
	if !opt.noConnect {
		l.connect()
	}
	return l
}

func (o *linkOpts) setDefaults() {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def8 := func(v *uint8, d uint8) {
		if *v == 0 {
			*v = d
		}
	}
	if o.typ == 0 {
		o.typ = verbs.RC
	}
	def(&o.cap.MaxSendWR, 16)
	def(&o.cap.MaxRecvWR, 16)
	def(&o.cap.MaxSendSGE, 4)
	def(&o.cap.MaxRecvSGE, 4)
	def(&o.memBytes, 256<<10)
	def(&o.cqEntries, 64)
	if o.qpAccess == 0 && !o.noAccess {
		o.qpAccess = verbs.AccessRemoteWrite
	}
	if o.mrAccess == 0 {
		o.mrAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	}
	def8(&o.rnrRetry, 7)
	def8(&o.retryCnt, 3)
	def8(&o.timeout, 10)
	def8(&o.minRNR, 12)
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

func must(t TB, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func wantErrno(t TB, err error, want syscall.Errno, what string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func wantState(t TB, qp verbs.QP, want verbs.QPState) {
	t.Helper()
	attr, err := qp.Query()
	must(t, err, "query QP")
	if attr.State != want {
		t.Errorf("the QP is in %v, want %v", attr.State, want)
	}
}

// pickGID follows the rule that an index is never assumed: link-local only
// when nothing else is there.
func (s *side) pickGID() verbs.GIDEntry {
	s.t.Helper()
	table, err := s.ctx.QueryGIDTable(s.port)
	must(s.t, err, "query GID table")
	best := -1
	for i, e := range table {
		if e.GID.IsZero() {
			s.t.Fatalf("GID entry %d is zero", e.Index)
		}
		if e.Type == verbs.GIDRoCEv1 {
			continue
		}
		if best < 0 || table[best].GID.Addr().IsLinkLocalUnicast() {
			best = i
		}
	}
	if best < 0 {
		s.t.Fatalf("port %d has no usable GID", s.port)
	}
	return table[best]
}

// initAttr, rtrAttr and rtsAttr are what connect passes to Modify.
func (l *link) initAttr(s *side) *verbs.QPAttr {
	return &verbs.QPAttr{State: verbs.StateInit, Port: s.port, AccessFlags: l.opt.qpAccess, QKey: testQKey}
}

func (l *link) rtrAttr(s, peer *side) *verbs.QPAttr {
	l.t.Helper()
	port, err := s.ctx.QueryPort(s.port)
	must(l.t, err, "query port")
	peerPort, err := peer.ctx.QueryPort(peer.port)
	must(l.t, err, "query port")
	return &verbs.QPAttr{
		State: verbs.StateRTR, PathMTU: min(port.ActiveMTU, peerPort.ActiveMTU),
		DestQPN: peer.qp.QPN(), RQPSN: peer.psn(), MaxDestRdAtomic: l.opt.rdAtomic, MinRNRTimer: l.opt.minRNR,
		AV: verbs.AHAttr{IsGlobal: true, DGID: peer.pickGID().GID, SGIDIndex: s.pickGID().Index,
			HopLimit: 64, Port: s.port, DLID: peerPort.LID},
		RemoteConnData: peer.qp.ConnData(),
	}
}

func (l *link) rtsAttr(s *side) *verbs.QPAttr {
	return &verbs.QPAttr{State: verbs.StateRTS, SQPSN: s.psn(), Timeout: l.opt.timeout,
		RetryCnt: l.opt.retryCnt, RNRRetry: l.opt.rnrRetry, MaxRdAtomic: l.opt.rdAtomic}
}

// ownFault are the statuses with which a provider may tell the side at fault:
// the exact one, and the others where it is not exact.
func (h Harness) ownFault(exact verbs.WCStatus) []verbs.WCStatus {
	if h.Lacks&ExactStatus == 0 {
		return []verbs.WCStatus{exact}
	}
	return []verbs.WCStatus{exact, verbs.WCLocQPOpErr, verbs.WCRemInvReqErr}
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

// aim makes s.send go to peer.
func (l *link) aim(s, peer *side) {
	l.t.Helper()
	ah, err := s.pd.CreateAH(l.ahAttr(s, peer))
	must(l.t, err, "create AH")
	s.ah, s.peerQPN = ah, peer.qp.QPN()
}

func (l *link) ahAttr(s, peer *side) verbs.AHAttr { return l.rtrAttr(s, peer).AV }

// mtu is the payload of a full packet on the link's path.
func (l *link) mtu() int {
	l.t.Helper()
	return l.rtrAttr(l.a, l.b).PathMTU.Bytes()
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

func (l *link) poll() {
	l.a.poll()
	l.b.poll()
}

// until lets the link work until cond holds.
func (l *link) until(what string, cond func() bool) {
	l.t.Helper()
	if !l.pair.Progress(func() bool { l.poll(); return cond() }) {
		l.t.Fatalf("no progress while waiting for %s\nA sent %+v\nA received %+v (%v)\nB sent %+v\nB received %+v (%v)",
			what, l.a.sent, l.a.rcvd, l.a.pollErr, l.b.sent, l.b.rcvd, l.b.pollErr)
	}
}

// settle lets the link work until nothing more happens by itself.
func (l *link) settle() { l.pair.Settle(l.poll) }

// event waits for the next asynchronous event of a side, COMM_EST aside.
func (l *link) event(s *side) verbs.AsyncEvent {
	l.t.Helper()
	var ev verbs.AsyncEvent
	l.until("an asynchronous event", func() bool {
		var err error
		ev, err = s.ctx.GetAsyncEvent(0)
		if err != nil && !errors.Is(err, verbs.ErrTimeout) {
			l.t.Fatalf("get async event: %v", err)
		}
		// Hardware announces the first message in RTR; that is no news here.
		return err == nil && ev.Type != verbs.EventCommEst
	})
	return ev
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

// fence sends an empty message from s to peer and waits for its receive
// completion: what s wrote before is then visible at peer.
func (l *link) fence(s, peer *side) {
	l.t.Helper()
	peer.recv(0, 0)
	wr := s.send(0, 0)
	rcvd := len(peer.rcvd)
	s.post(wr)
	l.until("the fence", func() bool {
		return len(peer.rcvd) > rcvd && len(s.sent) > 0 && s.sent[len(s.sent)-1].WRID == wr.WRID
	})
	for _, wc := range []verbs.WC{peer.rcvd[rcvd], s.sent[len(s.sent)-1]} {
		if wc.Status != verbs.WCSuccess {
			l.t.Fatalf("fence: %v", wc.Status)
		}
	}
	peer.rcvd = peer.rcvd[:rcvd]
	s.sent = s.sent[:len(s.sent)-1]
}

func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
