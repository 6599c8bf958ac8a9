//go:build linux && cgo

package ibv

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"mover/verbs"
)

// TestSendFields: every operation, field by field, as libibverbs gets it; what
// an earlier WR left in the array does not show.
func TestSendFields(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	sgl := []verbs.SGE{{Addr: 1 << 40, Length: 100, LKey: 7}, {Addr: 2 << 40, Length: 200, LKey: 8}}
	chain := []verbs.SendWR{
		{WRID: 1, Op: verbs.OpWrite, Flags: verbs.SendSignaled | verbs.SendFence, SGL: sgl, RemoteAddr: 3 << 40, RKey: 0xfedcba98},
		{WRID: 2, Op: verbs.OpWriteWithImm, Imm: 0x01020304, RemoteAddr: 4 << 40, RKey: 5},
		{WRID: 1<<64 - 1, Op: verbs.OpCompareSwap, SGL: []verbs.SGE{{Addr: 9, Length: 8, LKey: 10}}, RemoteAddr: 5 << 40, RKey: 6,
			CompareAdd: 11, Swap: 12},
		{WRID: 4, Op: verbs.OpFetchAdd, SGL: []verbs.SGE{{Addr: 9, Length: 8}}, RemoteAddr: 6 << 40, RKey: 13, CompareAdd: 14},
		{WRID: 5, Op: verbs.OpRead, SGL: sgl, RemoteAddr: 7 << 40, RKey: 15},
		{WRID: 6, Op: verbs.OpSend, Flags: verbs.SendInline | verbs.SendSolicited, SGL: []verbs.SGE{{Addr: 1, Length: 64}}},
		{WRID: 7, Op: verbs.OpSendWithImm, Imm: 0xff},
	}
	post(t, r.qp, chain)
	post(t, r.qp, chain[:1])
	if r.get("POST_CALLS") != 2 {
		t.Errorf("%d crossings for two chains", r.get("POST_CALLS"))
	}
	for i, wr := range append(chain, chain[0]) {
		p := r.post(i)
		if p.u64(0) != wr.WRID || p.u32(28) != uint32(wr.Op) || p.u32(32) != uint32(wr.Flags) || p.u32(24) != uint32(len(wr.SGL)) {
			t.Errorf("WR %d: %x", i, p.b)
		}
		if (p.u64(8) == 0) != (i == len(chain)-1 || i == len(chain)) {
			t.Errorf("WR %d: next is %#x", i, p.u64(8))
		}
		imm := [4]byte{byte(wr.Imm >> 24), byte(wr.Imm >> 16), byte(wr.Imm >> 8), byte(wr.Imm)} // network order
		if [4]byte(p.b[36:40]) != imm {
			t.Errorf("WR %d: immediate % x, want % x", i, p.b[36:40], imm)
		}
		if p.u64(40) != wr.RemoteAddr {
			t.Errorf("WR %d: remote address %#x", i, p.u64(40))
		}
		rkeyAt := 48
		if wr.Op >= verbs.OpCompareSwap {
			rkeyAt = 64
			if p.u64(48) != wr.CompareAdd || p.u64(56) != wr.Swap {
				t.Errorf("WR %d: operands %d, %d", i, p.u64(48), p.u64(56))
			}
		}
		if p.u32(rkeyAt) != wr.RKey {
			t.Errorf("WR %d: rkey %#x, want %#x", i, p.u32(rkeyAt), wr.RKey)
		}
		for j, s := range wr.SGL {
			if p.sge(j) != s {
				t.Errorf("WR %d: SGE %d is %+v, want %+v", i, j, p.sge(j), s)
			}
		}
	}
}

func TestDatagramFields(t *testing.T) {
	r := newRig(t, verbs.UD)
	r.connect(r.qp)
	ah, err := r.pd.CreateAH(verbs.AHAttr{IsGlobal: true, SGIDIndex: 1, HopLimit: 64, Port: 1, DLID: 3})
	must(t, err)
	post(t, r.qp, []verbs.SendWR{{WRID: 1, Op: verbs.OpSend, AH: ah, RemoteQPN: 0x123456, RemoteQKey: 0x81234567}})
	if p := r.post(0); p.u64(40) != r.get("AH_HANDLE") || p.u32(48) != 0x123456 || p.u32(52) != 0x81234567 {
		t.Errorf("%x", p.b)
	}
	other, err := r.dev.AllocPD()
	must(t, err)
	foreign, err := other.CreateAH(verbs.AHAttr{IsGlobal: true, SGIDIndex: 1, Port: 1})
	must(t, err)
	gone, err := r.pd.CreateAH(verbs.AHAttr{IsGlobal: true, SGIDIndex: 1, Port: 1})
	must(t, err)
	must(t, gone.Destroy()) // libibverbs has freed what the driver would read
	for name, a := range map[string]verbs.AH{"none": nil, "nil": (*addressHandle)(nil), "of another PD": foreign, "destroyed": gone} {
		if n, err := r.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, AH: a}}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("address handle %s: %d, %v", name, n, err)
		}
	}
	must(t, foreign.Destroy())
	must(t, other.Dealloc())
	must(t, ah.Destroy())
}

// TestBadWR: what a driver might misplace is refused where it stands; what is
// in front of it is posted.
func TestBadWR(t *testing.T) {
	five := make([]verbs.SGE, 5)
	huge := []verbs.SGE{{Length: 1 << 31}, {Length: 1}}
	for _, c := range []struct {
		typ  verbs.QPType
		part string
		wr   verbs.SendWR
	}{
		{verbs.RC, "Opcode(7)", verbs.SendWR{Op: 7}}, {verbs.RC, "Opcode(200)", verbs.SendWR{Op: 200}},
		{verbs.UC, "UC has no RDMA_READ", verbs.SendWR{Op: verbs.OpRead}},
		{verbs.UC, "UC has no ATOMIC_FETCH_AND_ADD", verbs.SendWR{Op: verbs.OpFetchAdd, SGL: []verbs.SGE{{Length: 8}}}},
		{verbs.UD, "UD has no RDMA_WRITE", verbs.SendWR{Op: verbs.OpWrite}},
		{verbs.RC, "unknown flags", verbs.SendWR{Op: verbs.OpSend, Flags: 1 << 4}},
		{verbs.RC, "5 SGEs", verbs.SendWR{Op: verbs.OpSend, SGL: five}},
		{verbs.RC, "a message has at most", verbs.SendWR{Op: verbs.OpWrite, SGL: huge}},
		{verbs.RC, "65 bytes inline", verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendInline, SGL: []verbs.SGE{{Length: 60}, {Length: 5}}}},
		{verbs.RC, "can't be inline", verbs.SendWR{Op: verbs.OpRead, Flags: verbs.SendInline}},
		{verbs.RC, "8 bytes", verbs.SendWR{Op: verbs.OpFetchAdd, SGL: []verbs.SGE{{Length: 4}}}},
		{verbs.RC, "8 bytes", verbs.SendWR{Op: verbs.OpCompareSwap, SGL: []verbs.SGE{{Length: 4}, {Length: 4}}}},
	} {
		t.Run(fmt.Sprint(c.typ, " ", c.part), func(t *testing.T) {
			r := newRig(t, c.typ)
			r.connect(r.qp)
			good := verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled}
			if c.typ == verbs.UD {
				ah, err := r.pd.CreateAH(verbs.AHAttr{IsGlobal: true, SGIDIndex: 1, Port: 1})
				must(t, err)
				defer func() { must(t, ah.Destroy()) }()
				good.AH, c.wr.AH = ah, ah
			}
			for at := range 3 {
				before := r.get("POSTED")
				chain := []verbs.SendWR{good, good, good}
				chain[at] = c.wr
				n, err := r.qp.PostSend(chain)
				if n != at || !errors.Is(err, syscall.EINVAL) || !strings.Contains(fmt.Sprint(err), c.part) {
					t.Errorf("bad one at %d: %d accepted, %v", at, n, err)
				}
				if got := r.get("POSTED") - before; got != uint64(at) {
					t.Errorf("bad one at %d: %d reached the driver", at, got)
				}
			}
			if n, err := r.cq.Poll(make([]verbs.WC, 10)); n != 3 || err != nil {
				t.Errorf("%d completions, %v; want those of the 3 good ones", n, err)
			}
		})
	}
}

// TestBadWRFromDriver: bad_wr tells how far a chain got, whatever the sign of
// the errno, also in the second crossing of a long one.
func TestBadWRFromDriver(t *testing.T) {
	for _, negative := range []uint64{0, 1} {
		for _, good := range []int{0, 1, 5, 9} {
			r := newRig(t, verbs.RC)
			r.connect(r.qp)
			r.set("POST_RET", uint64(syscall.ENOMEM))
			r.set("POST_GOOD", uint64(good))
			r.set("NEGATIVE", negative)
			n, err := r.qp.PostSend(sends(10))
			if n != good || !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("%d accepted, %v; want %d, ENOMEM", n, err, good)
			}
			if n, err := r.cq.Poll(make([]verbs.WC, 20)); n != good || err != nil {
				t.Errorf("%d completions, %v", n, err)
			}
			r.set("POST_RET", 0)
			post(t, r.qp, sends(10)) // the chain is linked as before
			if n, err := r.cq.Poll(make([]verbs.WC, 20)); n != 10 || err != nil {
				t.Errorf("%d completions, %v", n, err)
			}
		}
	}
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	r.set("HOLD", 1)
	n, err := r.qp.PostSend(sends(120)) // a queue of 100: 64 and then 36
	if n != 100 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%d accepted by a queue of 100, %v", n, err)
	}
}

// TestSilentDriver: an error without bad_wr leaves open what is in the queue.
// The WRs count as accepted, and the QP goes to ERR, which flushes them.
func TestSilentDriver(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	r.set("POST_RET", uint64(syscall.EINVAL))
	r.set("POST_SILENT", 1)
	if n, err := r.qp.PostSend(sends(3)); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if r.get("MOD_STATE") != uint64(verbs.StateErr) {
		t.Error("the QP did not go to ERR")
	}

	r = newRig(t, verbs.RC)
	r.connect(r.qp)
	r.set("POST_RET", uint64(syscall.EIO)) // the doorbell of a device that is gone
	r.set("POST_SILENT", 1)
	if n, err := r.qp.PostSend(sends(3)); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := r.cq.Poll(make([]verbs.WC, 4)); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("poll of a device that is gone: %d, %v", n, err)
	}
}

// TestStates: sends from RTS on, receives from INIT on and not in ERR.
func TestStates(t *testing.T) {
	r := newRig(t, verbs.RC)
	try := func(state string, send, recv bool) {
		t.Helper()
		n, err := r.qp.PostSend(sends(1))
		if (err == nil) != send || err != nil && (n != 0 || !errors.Is(err, syscall.EINVAL)) {
			t.Errorf("send in %s: %d, %v", state, n, err)
		}
		n, err = r.qp.PostRecv(make([]verbs.RecvWR, 1))
		if (err == nil) != recv || err != nil && (n != 0 || !errors.Is(err, syscall.EINVAL)) {
			t.Errorf("receive in %s: %d, %v", state, n, err)
		}
		if n, err := r.qp.PostSend(nil); n != 0 || err != nil {
			t.Errorf("post nothing in %s: %d, %v", state, n, err)
		}
		if n, err := r.qp.PostRecv(nil); n != 0 || err != nil {
			t.Errorf("post nothing in %s: %d, %v", state, n, err)
		}
	}
	try("RESET", false, false)
	must(t, r.qp.Modify(initAttr(), verbs.InitMask(verbs.RC)))
	try("INIT", false, true)
	must(t, r.qp.Modify(r.rtrAttr(), verbs.RTRMask(verbs.RC)))
	try("RTR", false, true)
	must(t, r.qp.Modify(rtsAttr(), verbs.RTSMask(verbs.RC)))
	try("RTS", true, true)
	must(t, r.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	try("ERR", true, false)
	must(t, r.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
	try("RESET", false, false)
}

// TestFlush: everything outstanding completes once when the QP goes to ERR.
func TestFlush(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	r.set("HOLD", 1)
	post(t, r.qp, sends(5))
	if n, err := r.qp.PostRecv(make([]verbs.RecvWR, 90)); n != 90 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	must(t, r.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	wcs := make([]verbs.WC, 200)
	n, err := r.cq.Poll(wcs)
	if n != 95 || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	for _, wc := range wcs[:n] {
		if wc.Status != verbs.WCFlushErr || wc.Flags != 0 || wc.ByteLen != 0 || wc.QPN != r.qp.QPN() {
			t.Fatalf("%+v", wc)
		}
	}
}

func TestRecvFields(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	sgl := []verbs.SGE{{Addr: 1 << 40, Length: 100, LKey: 7}, {Addr: 2 << 40, Length: 200, LKey: 8}}
	n, err := r.qp.PostRecv([]verbs.RecvWR{{WRID: 1 << 63, SGL: sgl}, {WRID: 2}})
	if n != 2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if p := r.post(0); p.u64(0) != 1<<63 || p.u32(24) != 2 || p.sge(0) != sgl[0] || p.sge(1) != sgl[1] {
		t.Errorf("%x", p.b)
	}
	if p := r.post(1); p.u64(0) != 2 || p.u32(24) != 0 {
		t.Errorf("%x", p.b)
	}
	n, err = r.qp.PostRecv([]verbs.RecvWR{{}, {SGL: make([]verbs.SGE, 5)}, {}})
	if n != 1 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a receive of 5 SGEs: %d, %v", n, err)
	}
	n, err = r.qp.PostRecv(make([]verbs.RecvWR, 120))
	if n != 97 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%d accepted by a queue of 100 with 3, %v", n, err)
	}
}

// TestNoQueue: a QP made with no entries for one side refuses there.
func TestNoQueue(t *testing.T) {
	r := newRig(t, verbs.RC)
	qp, err := r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq})
	must(t, err)
	r.connect(qp)
	if n, err := qp.PostSend(sends(1)); n != 0 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("send: %d, %v", n, err)
	}
	if n, err := qp.PostRecv(make([]verbs.RecvWR, 1)); n != 0 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("receive: %d, %v", n, err)
	}
	must(t, qp.Destroy())
}
