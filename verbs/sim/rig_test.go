package sim_test

import (
	"fmt"
	"testing"
	"time"

	"mover/verbs"
	"mover/verbs/conformance"
	"mover/verbs/sim"
)

// rig is host a and host b with some QPs between them, each end on one CQ.
type rig struct {
	t    *testing.T
	f    *sim.Fabric
	typ  verbs.QPType // of the QPs that connect makes
	a, b *end
	next uint64
	ahs  []verbs.AH
}

type end struct {
	ctx verbs.Context
	pd  verbs.PD
	cq  verbs.CQ
	mem []byte
	mr  verbs.MR
	qps []verbs.QP
	wcs []verbs.WC // polled
	err error
}

const rigBytes = 320 << 10

func newRig(t *testing.T, seed uint64, opt sim.Options, qps int) *rig {
	t.Helper()
	return newRigOf(t, verbs.RC, seed, opt, qps)
}

func newRigOf(t *testing.T, typ verbs.QPType, seed uint64, opt sim.Options, qps int) *rig {
	t.Helper()
	r := &rig{t: t, f: sim.New(seed, opt), typ: typ}
	r.a, r.b = r.newEnd("a"), r.newEnd("b")
	for range qps {
		r.connect()
	}
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) newEnd(host string) *end {
	r.t.Helper()
	ctx, err := r.f.Provider(host).OpenDevice("sim0")
	r.must(err)
	e := &end{ctx: ctx, mem: conformance.MapPages(r.t, rigBytes)}
	e.pd, err = ctx.AllocPD()
	r.must(err)
	e.mr, err = e.pd.RegMR(e.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	r.must(err)
	e.cq, err = ctx.CreateCQ(verbs.CQInitAttr{Entries: 4096})
	r.must(err)
	return e
}

func gidOf(r *rig, ctx verbs.Context, port uint8) verbs.GIDEntry {
	r.t.Helper()
	table, err := ctx.QueryGIDTable(port)
	r.must(err)
	for _, e := range table {
		if !e.GID.Addr().IsLinkLocalUnicast() {
			return e
		}
	}
	r.t.Fatal("no GID")
	return verbs.GIDEntry{}
}

// connect adds a connected QP to both ends.
func (r *rig) connect() {
	r.t.Helper()
	for _, e := range []*end{r.a, r.b} {
		qp, err := e.pd.CreateQP(verbs.QPInitAttr{Type: r.typ, SendCQ: e.cq, RecvCQ: e.cq,
			Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2}})
		r.must(err)
		r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite,
			QKey: rigQKey}, verbs.InitMask(r.typ)))
		e.qps = append(e.qps, qp)
	}
	i := len(r.a.qps) - 1
	for _, s := range [][2]*end{{r.a, r.b}, {r.b, r.a}} {
		me, peer := s[0], s[1]
		r.must(me.qps[i].Modify(r.rtr(me, peer, i), verbs.RTRMask(r.typ)))
		r.must(me.qps[i].Modify(&verbs.QPAttr{State: verbs.StateRTS, SQPSN: 5, Timeout: 8, RetryCnt: 2, RNRRetry: 7},
			verbs.RTSMask(r.typ)))
	}
}

func (r *rig) rtr(me, peer *end, i int) *verbs.QPAttr {
	r.t.Helper()
	return &verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU4096, DestQPN: peer.qps[i].QPN(), RQPSN: 5,
		MinRNRTimer: 1, AV: verbs.AHAttr{IsGlobal: true, DGID: gidOf(r, peer.ctx, 1).GID,
			SGIDIndex: gidOf(r, me.ctx, 1).Index, HopLimit: 64, Port: 1}}
}

// write makes a signalled write of n bytes at off to the same place at the
// peer.
func (r *rig) write(from, to *end, off, n int) verbs.SendWR {
	r.next++
	return verbs.SendWR{WRID: r.next, Op: verbs.OpWrite, Flags: verbs.SendSignaled,
		SGL:        []verbs.SGE{{Addr: from.mr.Addr() + uint64(off), Length: uint32(n), LKey: from.mr.LKey()}},
		RemoteAddr: to.mr.Addr() + uint64(off), RKey: to.mr.RKey()}
}

func (r *rig) writeImm(from, to *end, off, n int) verbs.SendWR {
	wr := r.write(from, to, off, n)
	wr.Op = verbs.OpWriteWithImm
	return wr
}

// send makes a signalled SEND of n bytes at off.
func (r *rig) send(from *end, off, n int) verbs.SendWR {
	r.next++
	return verbs.SendWR{WRID: r.next, Op: verbs.OpSend, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{{Addr: from.mr.Addr() + uint64(off), Length: uint32(n), LKey: from.mr.LKey()}}}
}

// message makes a signalled SEND for the QP number i of the peer; on UD with an
// address handle of its own.
func (r *rig) message(from, to *end, i, off, n int) verbs.SendWR {
	r.t.Helper()
	wr := r.send(from, off, n)
	if r.typ != verbs.UD {
		return wr
	}
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = r.handle(from, to), to.qps[i].QPN(), rigQKey
	return wr
}

// handle makes an address handle.
func (r *rig) handle(from, to *end) verbs.AH {
	r.t.Helper()
	ah, err := from.pd.CreateAH(r.ahAttr(from, to))
	r.must(err)
	r.ahs = append(r.ahs, ah)
	return ah
}

func (r *rig) ahAttr(from, to *end) verbs.AHAttr {
	r.t.Helper()
	return verbs.AHAttr{IsGlobal: true, DGID: gidOf(r, to.ctx, 1).GID, SGIDIndex: gidOf(r, from.ctx, 1).Index, HopLimit: 64,
		Port: 1, TClass: 9}
}

func (r *rig) post(qp verbs.QP, wrs ...verbs.SendWR) {
	r.t.Helper()
	_, err := qp.PostSend(wrs)
	r.must(err)
}

func (r *rig) recv(qp verbs.QP) {
	r.t.Helper()
	_, err := qp.PostRecv([]verbs.RecvWR{{WRID: recvID}})
	r.must(err)
}

const (
	recvID  = 1 << 40
	rigQKey = 0x77
)

// recvInto posts a receive of n bytes at off.
func (r *rig) recvInto(e *end, qp verbs.QP, off, n int) {
	r.t.Helper()
	_, err := qp.PostRecv([]verbs.RecvWR{{WRID: recvID,
		SGL: []verbs.SGE{{Addr: e.mr.Addr() + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}}}})
	r.must(err)
}

// settle lets everything that is under way arrive.
func (r *rig) settle() {
	r.f.Advance(100 * ms)
	for before := -1; before != len(r.a.wcs)+len(r.b.wcs); {
		before = len(r.a.wcs) + len(r.b.wcs)
		r.poll()
	}
}

func (r *rig) wantState(qp verbs.QP, want verbs.QPState) {
	r.t.Helper()
	attr, err := qp.Query()
	r.must(err)
	if attr.State != want {
		r.t.Errorf("QP %#x is in %v, want %v", qp.QPN(), attr.State, want)
	}
}

// stopped is the state of a QP whose send failed: SQE or ERR.
func (r *rig) stopped(qp verbs.QP) verbs.QPState {
	r.t.Helper()
	attr, err := qp.Query()
	r.must(err)
	if attr.State != verbs.StateErr && attr.State != verbs.StateSQE {
		r.t.Errorf("QP %#x is in %v, want SQE or ERR", qp.QPN(), attr.State)
	}
	return attr.State
}

// split parts the completions of sends from those of receives.
func split(wcs []verbs.WC) (sent, received []verbs.WC) {
	for _, wc := range wcs {
		if wc.WRID == recvID {
			received = append(received, wc)
		} else {
			sent = append(sent, wc)
		}
	}
	return sent, received
}

// wantAll asserts n completions, all of one status.
func (r *rig) wantAll(wcs []verbs.WC, n int, want verbs.WCStatus) {
	r.t.Helper()
	ok := len(wcs) == n
	for _, wc := range wcs {
		ok = ok && wc.Status == want
	}
	if !ok {
		r.t.Fatalf("statuses %v, want %d times %v", statuses(wcs), n, want)
	}
}

func (r *rig) poll() {
	var wcs [16]verbs.WC
	for _, e := range []*end{r.a, r.b} {
		n, err := e.cq.Poll(wcs[:])
		e.wcs = append(e.wcs, wcs[:n]...)
		e.err = err
	}
}

// until steps the fabric until cond holds.
func (r *rig) until(cond func() bool) {
	r.t.Helper()
	if !progress(r.f, func() bool { r.poll(); return cond() }) {
		r.t.Fatalf("no progress; A: %+v, B: %+v\n%s", r.a.wcs, r.b.wcs, r.f.Trace())
	}
}

// event waits for an asynchronous event of a type.
func (r *rig) event(e *end, want verbs.EventType) verbs.AsyncEvent {
	r.t.Helper()
	var ev verbs.AsyncEvent
	r.until(func() bool {
		var err error
		ev, err = e.ctx.GetAsyncEvent(0)
		return err == nil && ev.Type == want
	})
	return ev
}

func (r *rig) wantViolation(kind sim.ViolationKind) {
	r.t.Helper()
	for _, v := range r.f.Violations() {
		if v.Kind == kind {
			return
		}
	}
	r.t.Errorf("no violation %q was recorded; there are %v", kind, r.f.Violations())
}

func (r *rig) wantNoViolation() {
	r.t.Helper()
	for _, v := range r.f.Violations() {
		r.t.Errorf("violation: %v", v)
	}
}

func fillRandomly(b []byte, seed byte) {
	x := uint32(seed) + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x>>24) | 1 // never 0, the value of untouched memory
	}
}

// forSeeds runs a test over seeds, as subtests.
func forSeeds(t *testing.T, n uint64, run func(t *testing.T, seed uint64)) {
	for seed := range n {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { run(t, seed) })
	}
}

const ms = time.Millisecond
