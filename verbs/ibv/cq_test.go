//go:build linux && cgo

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

func sends(n int) []verbs.SendWR {
	wrs := make([]verbs.SendWR, n)
	for i := range wrs {
		wrs[i] = verbs.SendWR{WRID: uint64(1000 + i), Op: verbs.OpSend, Flags: verbs.SendSignaled}
	}
	return wrs
}

func post(t *testing.T, qp verbs.QP, wrs []verbs.SendWR) {
	t.Helper()
	if n, err := qp.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatalf("post %d: %d, %v", len(wrs), n, err)
	}
}

// TestPoll: in order, a crossing for each 64 and none in vain.
func TestPoll(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	for _, c := range []struct{ posted, room, got, crossings int }{
		{0, 0, 0, 0}, {0, 10, 0, 1}, {5, 10, 5, 1}, {64, 64, 64, 1}, {64, 65, 64, 2}, {100, 100, 100, 2}, {100, 64, 64, 1}, {0, 64, 36, 1},
	} {
		post(t, r.qp, sends(c.posted))
		before := r.get("POLL_CALLS")
		wcs := make([]verbs.WC, c.room)
		n, err := r.cq.Poll(wcs)
		if err != nil || n != c.got || r.get("POLL_CALLS")-before != uint64(c.crossings) {
			t.Errorf("%+v: got %d, %v, with %d crossings", c, n, err, r.get("POLL_CALLS")-before)
		}
		for i, wc := range wcs[:n] {
			if c.posted != 0 && wc.WRID != uint64(1000+i) {
				t.Errorf("%+v: completion %d is %d", c, i, wc.WRID)
			}
		}
	}
}

// TestCompletion: all fields of a success; of an error only four.
func TestCompletion(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	r.set("WC_FLAGS", 0xff)
	poll := func() verbs.WC {
		t.Helper()
		post(t, r.qp, []verbs.SendWR{{WRID: 1 << 63, Op: verbs.OpFetchAdd, Flags: verbs.SendSignaled, Imm: 0x01020304,
			SGL: []verbs.SGE{{Length: 8}}}})
		wcs := make([]verbs.WC, 2)
		wcs[0] = verbs.WC{Opcode: 99, Flags: 99, ByteLen: 99, Imm: 99, SrcQPN: 99}
		if n, err := r.cq.Poll(wcs); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		return wcs[0]
	}
	want := verbs.WC{WRID: 1 << 63, Opcode: verbs.WCFetchAdd, Flags: verbs.WCGRH | verbs.WCWithImm, ByteLen: 0x1234, Imm: 0x01020304,
		QPN: r.qp.QPN(), SrcQPN: 0x99, VendorErr: 0x77}
	if got := poll(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, status := range []uint64{1, 5, 12, 21, 22, 255, 256, 1 << 20} {
		r.set("WC_STATUS", status)
		want := verbs.WC{WRID: 1 << 63, Status: verbs.WCStatus(min(status, 255)), QPN: r.qp.QPN(), VendorErr: 0x77}
		if got := poll(); got != want {
			t.Errorf("status %d: %+v, want %+v", status, got, want)
		}
	}
}

// TestPollFails: a negative answer is final; what came before it is given out
// first.
func TestPollFails(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	post(t, r.qp, sends(10))
	q := r.cq.(*compQueue)
	q.kept = []verbs.WC{{WRID: 7}}
	r.set("POLL_FAILS", 1)
	wcs := make([]verbs.WC, 20)
	if n, err := r.cq.Poll(wcs); n != 1 || err != nil || wcs[0].WRID != 7 {
		t.Errorf("%d, %v", n, err)
	}
	r.set("POLL_FAILS", 0)
	for range 3 {
		if n, err := r.cq.Poll(wcs); n != 0 || !errors.Is(err, syscall.EIO) {
			t.Errorf("poll of a broken queue: %d, %v", n, err)
		}
	}
}

// TestDestroyDropsCompletions: what a destroyed QP left on the queue is never
// polled, what its neighbours have is, in order.
func TestDestroyDropsCompletions(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	third, other := r.newQP(verbs.RC), r.newQP(verbs.RC)
	r.connect(third)
	r.connect(other)
	id := uint64(0)
	var want []uint64
	for i := range 90 {
		qp := []verbs.QP{r.qp, other, third}[i%3]
		id++
		post(t, qp, []verbs.SendWR{{WRID: id, Op: verbs.OpSend, Flags: verbs.SendSignaled}})
		if qp == r.qp {
			want = append(want, id)
		}
	}
	must(t, other.Destroy())
	must(t, third.Destroy())
	post(t, r.qp, []verbs.SendWR{{WRID: 1000, Op: verbs.OpSend, Flags: verbs.SendSignaled}})
	want = append(want, 1000)
	var got []uint64
	var wcs [7]verbs.WC
	for {
		n, err := r.cq.Poll(wcs[:])
		must(t, err)
		for _, wc := range wcs[:n] {
			if wc.QPN != r.qp.QPN() {
				t.Errorf("a completion of the destroyed QP: %+v", wc)
			}
			got = append(got, wc.WRID)
		}
		if n < len(wcs) {
			break
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d completions, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("completion %d has wr_id %d, want %d", i, got[i], want[i])
		}
	}
}

// TestResetDropsCompletions: a QP's next life does not see those of the one
// before; its neighbours lose none.
func TestResetDropsCompletions(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	other := r.newQP(verbs.RC)
	r.connect(other)
	post(t, r.qp, sends(3))
	post(t, other, sends(2))
	must(t, r.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
	r.connect(r.qp)
	post(t, r.qp, []verbs.SendWR{{WRID: 7, Op: verbs.OpSend, Flags: verbs.SendSignaled}})
	wcs := make([]verbs.WC, 10)
	n, err := r.cq.Poll(wcs)
	if n != 3 || err != nil || wcs[0].QPN != other.QPN() || wcs[1].QPN != other.QPN() || wcs[2].WRID != 7 {
		t.Errorf("%+v, %v", wcs[:n], err)
	}
}

// TestChannel: arm, fire, drain without blocking, acknowledge in bulk.
func TestChannel(t *testing.T) {
	r := newRig(t, verbs.RC)
	ch, err := r.dev.CreateCompChannel()
	must(t, err)
	cqs := make([]verbs.CQ, 2)
	qps := make([]verbs.QP, 2)
	for i := range cqs {
		cqs[i], err = r.dev.CreateCQ(verbs.CQInitAttr{Entries: 8, Channel: ch})
		must(t, err)
		qps[i], err = r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cqs[i], RecvCQ: cqs[i], Cap: verbs.QPCap{MaxSendWR: 8}})
		must(t, err)
		r.connect(qps[i])
	}
	readable := func() bool {
		fds := []unix.PollFd{{Fd: int32(ch.FD()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		must(t, err)
		return n == 1
	}
	fire := func(i int, solicited bool) {
		must(t, cqs[i].ReqNotify(solicited))
		post(t, qps[i], sends(1))
	}
	must(t, ch.Drain()) // nothing there
	post(t, qps[0], sends(1))
	if readable() {
		t.Error("fired without being armed")
	}
	for range 3 {
		fire(0, true)
	}
	if r.get("SOLICITED") != 1 {
		t.Error("solicitedOnly did not arrive")
	}
	fire(1, false)
	if r.get("SOLICITED") != 0 || !readable() {
		t.Error("not fired")
	}
	must(t, ch.Drain())
	if readable() {
		t.Error("readable after Drain")
	}
	if r.get("CQ_ACKED") != 4 || r.get("CQ_ACK_CALLS") != 2 {
		t.Errorf("%d events in %d acknowledgements, want 4 in 2", r.get("CQ_ACKED"), r.get("CQ_ACK_CALLS"))
	}
	r.set("ARM_ERRNO", uint64(syscall.EIO))
	if err := cqs[0].ReqNotify(false); !errors.Is(err, syscall.EIO) {
		t.Errorf("arm: %v", err)
	}
	if err := r.cq.ReqNotify(false); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("arm a queue without a channel: %v", err)
	}
	for i := range cqs {
		must(t, qps[i].Destroy())
		must(t, cqs[i].Destroy())
	}
	must(t, ch.Destroy())
}
