//go:build linux

package soft

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"mover/verbs"
)

func TestMain(m *testing.M) {
	if os.Getenv(benchRoleEnv) != "" {
		os.Exit(benchProcess())
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test; it is not part of what is tested.
const patience = 20 * time.Second

func mapped(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// side is one end: a device with a PD, a CQ, a QP and memory.
type side struct {
	t   testing.TB
	ctx verbs.Context
	pd  verbs.PD
	ch  verbs.CompChannel
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
	wcs []verbs.WC // polled, not yet taken
}

type sideOptions struct {
	typ      verbs.QPType // RC
	addr     string
	cap      verbs.QPCap
	entries  int
	memBytes int
	channel  bool
	mrAccess verbs.Access
	cfg      Config
}

func (o *sideOptions) defaults() {
	if o.typ == 0 {
		o.typ = verbs.RC
	}
	if o.addr == "" {
		o.addr = "127.0.0.1"
	}
	if o.cap == (verbs.QPCap{}) {
		o.cap = verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineBytes: 64}
	}
	if o.entries == 0 {
		o.entries = 64
	}
	if o.memBytes == 0 {
		o.memBytes = 1 << 20
	}
	if o.mrAccess == 0 {
		o.mrAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	}
}

func newSide(t testing.TB, o sideOptions) *side {
	t.Helper()
	o.defaults()
	o.cfg.Addresses = []netip.Addr{netip.MustParseAddr(o.addr)}
	p := must[*Provider](t)(New(o.cfg))
	s := &side{t: t, mem: mapped(t, o.memBytes)}
	s.ctx = must[verbs.Context](t)(p.OpenDevice("soft0"))
	s.pd = must[verbs.PD](t)(s.ctx.AllocPD())
	s.mr = must[verbs.MR](t)(s.pd.RegMR(s.mem, o.mrAccess))
	if o.channel {
		s.ch = must[verbs.CompChannel](t)(s.ctx.CreateCompChannel())
	}
	s.cq = must[verbs.CQ](t)(s.ctx.CreateCQ(verbs.CQInitAttr{Entries: o.entries, Channel: s.ch}))
	s.qp = must[verbs.QP](t)(s.pd.CreateQP(verbs.QPInitAttr{Type: o.typ, SendCQ: s.cq, RecvCQ: s.cq, Cap: o.cap}))
	t.Cleanup(s.close)
	return s
}

func (s *side) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Error(err)
	}
}

func (s *side) close() {
	s.t.Helper()
	if s.qp != nil {
		s.check(s.qp.Destroy())
	}
	s.check(s.cq.Destroy())
	if s.ch != nil {
		s.check(s.ch.Destroy())
	}
	if s.mr != nil {
		s.check(s.mr.Dereg())
	}
	s.check(s.pd.Dealloc())
	if c := s.ctx.Counts(); c != (verbs.Counts{}) {
		s.t.Errorf("left open: %+v", c)
	}
	s.check(s.ctx.Close())
}

func gidOf(ctx verbs.Context) verbs.GID {
	g, err := ctx.QueryGIDTable(1)
	if err != nil || len(g) != 1 {
		panic("no GID")
	}
	return g[0].GID
}

type connectOptions struct {
	access                       verbs.Access
	timeout, retry, rnr, minWait uint8
}

var usual = connectOptions{access: verbs.AccessRemoteWrite, timeout: 14, retry: 6, rnr: 7, minWait: 12}

func toInit(qp verbs.QP, o connectOptions) error {
	return qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1, AccessFlags: o.access, QKey: testQKey}, verbs.InitMask(qp.Type()))
}

func toRTR(qp, peer verbs.QP, o connectOptions) error {
	return qp.Modify(&verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU4096, DestQPN: peer.QPN(), RQPSN: 1,
		MinRNRTimer: o.minWait, AV: verbs.AHAttr{IsGlobal: true, Port: 1, HopLimit: 64, DGID: gidOf(peer.PD().Context())},
		RemoteConnData: peer.ConnData()}, verbs.RTRMask(qp.Type()))
}

func toRTS(qp verbs.QP, o connectOptions) error {
	return qp.Modify(&verbs.QPAttr{State: verbs.StateRTS, SQPSN: 1, Timeout: o.timeout, RetryCnt: o.retry, RNRRetry: o.rnr},
		verbs.RTSMask(qp.Type()))
}

const testQKey = 0x1234

// join connects the two QPs up to RTS.
func join(t testing.TB, a, b verbs.QP, o connectOptions) {
	t.Helper()
	for _, f := range []func() error{
		func() error { return toInit(a, o) }, func() error { return toInit(b, o) },
		func() error { return toRTR(a, b, o) }, func() error { return toRTR(b, a, o) },
		func() error { return toRTS(a, o) }, func() error { return toRTS(b, o) },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
}

func pair(t testing.TB, oa, ob sideOptions, c connectOptions) (a, b *side) {
	t.Helper()
	a, b = newSide(t, oa), newSide(t, ob)
	join(t, a.qp, b.qp, c)
	return a, b
}

// drive polls the sides in turn until done reports true.
func drive(t testing.TB, what string, done func() bool, sides ...*side) {
	t.Helper()
	deadline := time.Now().Add(patience)
	var wcs [8]verbs.WC
	for !done() {
		for _, s := range sides {
			n, err := s.cq.Poll(wcs[:])
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			s.wcs = append(s.wcs, wcs[:n]...)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// take waits for n completions of s, while all sides are driven.
func (s *side) take(n int, others ...*side) []verbs.WC {
	s.t.Helper()
	drive(s.t, "completions", func() bool { return len(s.wcs) >= n }, append(others, s)...)
	got := append([]verbs.WC(nil), s.wcs[:n]...)
	s.wcs = s.wcs[n:]
	return got
}

func (s *side) sge(off, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: s.mr.Addr() + uint64(off), Length: uint32(n), LKey: s.mr.LKey()}}
}

func (s *side) send(wrs ...verbs.SendWR) {
	s.t.Helper()
	if n, err := s.qp.PostSend(wrs); err != nil || n != len(wrs) {
		s.t.Fatalf("PostSend: %d, %v", n, err)
	}
}

func (s *side) recv(wrs ...verbs.RecvWR) {
	s.t.Helper()
	if n, err := s.qp.PostRecv(wrs); err != nil || n != len(wrs) {
		s.t.Fatalf("PostRecv: %d, %v", n, err)
	}
}

func (s *side) write(id uint64, to *side, off, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Op: verbs.OpWrite, Flags: verbs.SendSignaled, SGL: s.sge(off, n),
		RemoteAddr: to.mr.Addr() + uint64(off), RKey: to.mr.RKey()}
}
