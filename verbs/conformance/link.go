package conformance

import (
	"errors"
	"syscall"
	"unsafe"

	"mover/verbs"
)

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
