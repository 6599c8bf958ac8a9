package sim_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"mover/verbs"
	"mover/verbs/sim"
)

var portA, portB = sim.PortID{Host: "a", Device: "sim0", Port: 1}, sim.PortID{Host: "b", Device: "sim0", Port: 1}

func statuses(wcs []verbs.WC) []verbs.WCStatus {
	var list []verbs.WCStatus
	for _, wc := range wcs {
		list = append(list, wc.Status)
	}
	return list
}

// wantCause asserts successes, one of the causes, then flushes, n in all.
func wantCause(t *testing.T, wcs []verbs.WC, n int, causes ...verbs.WCStatus) {
	t.Helper()
	found := false
	for _, wc := range wcs {
		switch {
		case !found && wc.Status == verbs.WCSuccess:
		case found && wc.Status == verbs.WCFlushErr:
		case !found:
			for _, c := range causes {
				found = found || c == wc.Status
			}
			if !found {
				t.Fatalf("statuses %v, want the cause to be one of %v", statuses(wcs), causes)
			}
		default:
			t.Fatalf("statuses %v", statuses(wcs))
		}
	}
	if !found || len(wcs) != n {
		t.Fatalf("statuses %v, want %d with one of %v", statuses(wcs), n, causes)
	}
}

func TestKillQP(t *testing.T) {
	forSeeds(t, 20, func(t *testing.T, seed uint64) {
		r := newRig(t, seed, sim.Options{}, 2)
		for i := range 6 {
			r.post(r.a.qps[0], r.write(r.a, r.b, i*40_000, 40_000))
		}
		for range seed {
			r.f.Step()
		}
		r.f.KillQP(r.a.qps[0].QPN())
		// If everything was acknowledged already, the next one is struck.
		r.until(func() bool {
			qp := r.f.QPs("a", "sim0")[0]
			if qp.State == verbs.StateRTS && qp.Sends == 0 {
				r.post(r.a.qps[0], r.write(r.a, r.b, 0, 8))
			}
			return qp.State == verbs.StateErr && qp.Sends == 0
		})
		wantCause(t, r.a.wcs, int(r.next), verbs.WCRetryExcErr)
		if st := r.f.QPs("b", "sim0")[0].State; st != verbs.StateRTS {
			t.Errorf("the peer's QP is in %v; it cannot know", st)
		}
		r.a.wcs = nil
		r.post(r.a.qps[1], r.write(r.a, r.b, 0, 8))
		r.until(func() bool { return len(r.a.wcs) == 1 && r.a.wcs[0].Status == verbs.WCSuccess })
	})
}

func TestFatalQP(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	r.recv(r.b.qps[0])
	r.f.FatalQP(r.b.qps[0].QPN())
	if ev := r.event(r.b, verbs.EventQPFatal); ev.QPN != r.b.qps[0].QPN() {
		t.Errorf("event %+v", ev)
	}
	r.until(func() bool { return len(r.b.wcs) == 1 && r.b.wcs[0].Status == verbs.WCFlushErr })
}

// TestPortFlap: PORT_ERR, WRs end, PORT_ACTIVE, moved GIDs; the old QP is
// stale and a new one works.
func TestPortFlap(t *testing.T) {
	causes := map[verbs.WCStatus]int{}
	for seed := range uint64(20) {
		r := newRig(t, seed, sim.Options{}, 1)
		before := gidOf(r, r.a.ctx, 1)
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, 40_000), r.write(r.a, r.b, 40_000, 40_000))
		r.f.PortDown(portA)
		if ev := r.event(r.a, verbs.EventPortErr); ev.Port != 1 {
			t.Errorf("event %+v", ev)
		}
		attr, err := r.a.ctx.QueryPort(1)
		r.must(err)
		if attr.State != verbs.PortDown {
			t.Errorf("port %v", attr.State)
		}
		r.until(func() bool { return len(r.a.wcs) == 2 })
		wantCause(t, r.a.wcs, 2, verbs.WCRetryExcErr, verbs.WCLocQPOpErr)
		causes[r.a.wcs[0].Status]++
		r.f.PortUp(portA)
		r.event(r.a, verbs.EventPortActive)
		if after := gidOf(r, r.a.ctx, 1); after.Index == before.Index || after.GID != before.GID {
			t.Errorf("GID entry %+v before the flap, %+v after", before, after)
		}
		old := r.rtr(r.a, r.b, 0)
		old.AV.SGIDIndex = before.Index
		qp, err := r.a.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: r.a.cq, RecvCQ: r.a.cq})
		r.must(err)
		r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.InitMask(verbs.RC)))
		if before.Index < gidOf(r, r.a.ctx, 1).Index-1 { // not even the link-local entry is there
			if err := qp.Modify(old, verbs.RTRMask(verbs.RC)); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("RTR with a GID index of before the flap: %v", err)
			}
		}
		r.a.wcs = nil
		r.connect()
		r.post(r.a.qps[1], r.write(r.a, r.b, 0, 8))
		r.until(func() bool { return len(r.a.wcs) == 1 })
		if r.a.wcs[0].Status != verbs.WCSuccess {
			t.Errorf("after the rebuild: %v", r.a.wcs[0].Status)
		}
		r.wantNoViolation()
	}
	if causes[verbs.WCRetryExcErr] == 0 || causes[verbs.WCLocQPOpErr] == 0 {
		t.Errorf("causes %v, want both kinds", causes)
	}
}

func TestCutRail(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	r.f.CutRail(portA, portB)
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 100))
	r.f.Advance(1100 * time.Microsecond) // one transport timer
	r.f.HealRail(portB, portA)
	r.until(func() bool { return len(r.a.wcs) == 1 })
	if r.a.wcs[0].Status != verbs.WCSuccess || r.f.Stats().Retries == 0 {
		t.Errorf("a cut within the retries: %v, %+v", r.a.wcs[0].Status, r.f.Stats())
	}
	r.f.CutRail(portA, portB)
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 100), r.write(r.a, r.b, 100, 100))
	r.until(func() bool { return len(r.a.wcs) == 3 })
	wantCause(t, r.a.wcs[1:], 2, verbs.WCRetryExcErr)
	if _, err := r.a.ctx.GetAsyncEvent(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("a cut rail was announced: %v", err)
	}
}

func TestCorrupt(t *testing.T) {
	forSeeds(t, 10, func(t *testing.T, seed uint64) {
		r := newRig(t, seed, sim.Options{}, 1)
		fillRandomly(r.a.mem, 1)
		r.recv(r.b.qps[0])
		r.f.CorruptNext(r.a.qps[0].QPN(), 1)
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, 3000), r.writeImm(r.a, r.b, 3000, 3000))
		r.until(func() bool { return len(r.b.wcs) == 1 && len(r.a.wcs) == 2 })
		wrong := 0
		for i := range 6000 {
			if r.a.mem[i] != r.b.mem[i] {
				wrong++
			}
		}
		if wrong != 1 || r.f.Stats().Corrupted != 1 {
			t.Errorf("%d bytes are wrong, %d messages corrupted", wrong, r.f.Stats().Corrupted)
		}
	})
}

func TestHoldCompletions(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	r.f.HoldCompletions("a", "sim0", 300*ms)
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 100))
	r.f.Advance(299 * ms)
	if r.poll(); len(r.a.wcs) != 0 {
		t.Fatal("a completion was not held")
	}
	r.until(func() bool { return len(r.a.wcs) == 1 })
}

func TestOverrunCQ(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 100))
	r.f.OverrunCQ(r.a.cq)
	if ev := r.event(r.a, verbs.EventCQErr); ev.CQ != r.a.cq {
		t.Errorf("event %+v", ev)
	}
	if !errors.Is(r.a.err, verbs.ErrCQOverrun) {
		t.Errorf("poll: %v", r.a.err)
	}
}

// TestFatalDevice: the event, then silence; everything can be destroyed.
func TestFatalDevice(t *testing.T) {
	forSeeds(t, 10, func(t *testing.T, seed uint64) {
		r := newRig(t, seed, sim.Options{}, 1)
		r.recv(r.b.qps[0])
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, 100))
		for range seed {
			r.f.Step()
		}
		r.poll()
		r.f.FatalDevice("a", "sim0")
		r.event(r.a, verbs.EventDeviceFatal)
		r.a.wcs = nil
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, 100))
		err := r.a.qps[0].Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState)
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("modify on a dead device: %v", err)
		}
		r.f.Advance(10 * time.Second)
		if r.poll(); len(r.a.wcs) != 0 {
			t.Errorf("a dead device completed %+v", r.a.wcs)
		}
		r.must(r.a.qps[0].Destroy())
		r.must(r.a.mr.Dereg())
		r.must(r.a.cq.Destroy())
		r.must(r.a.pd.Dealloc())
		r.must(r.a.ctx.Close())
		r.wantNoViolation()
	})
}

// TestWrongGID: a GID that nobody has is ETIMEDOUT at RTR; a source of the
// wrong family finds no way.
func TestWrongGID(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 0)
	for _, wrong := range []string{"destination", "source"} {
		e := r.newEnd("a")
		qp, err := e.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: e.cq, RecvCQ: e.cq,
			Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
		r.must(err)
		r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.InitMask(verbs.RC)))
		attr := &verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU1024, DestQPN: 77,
			AV: verbs.AHAttr{IsGlobal: true, DGID: gidOf(r, r.b.ctx, 1).GID, SGIDIndex: gidOf(r, r.a.ctx, 1).Index}}
		if wrong == "destination" {
			attr.AV.DGID[15] ^= 0x80
			if err := qp.Modify(attr, verbs.RTRMask(verbs.RC)); !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("RTR to a GID that nobody has: %v", err)
			}
			continue
		}
		attr.AV.SGIDIndex-- // the link-local entry
		r.must(qp.Modify(attr, verbs.RTRMask(verbs.RC)))
		r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateRTS, Timeout: 1, RetryCnt: 1}, verbs.RTSMask(verbs.RC)))
		r.post(qp, r.write(e, r.b, 0, 8))
		var wcs [1]verbs.WC
		r.until(func() bool { n, _ := e.cq.Poll(wcs[:]); return n == 1 })
		if wcs[0].Status != verbs.WCRetryExcErr {
			t.Errorf("a link-local source: %v", wcs[0].Status)
		}
	}
}

// TestHoldSends: the messages arrive, and their sender hears of it when the time
// is over.
func TestHoldSends(t *testing.T) {
	forSeeds(t, 10, func(t *testing.T, seed uint64) {
		r := newRig(t, seed, sim.Options{}, 2)
		fillRandomly(r.a.mem, byte(seed))
		r.recv(r.b.qps[0])
		r.f.HoldSends(r.a.qps[0].QPN(), 50*ms)
		r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 100))
		r.post(r.a.qps[1], r.write(r.a, r.b, 1000, 100))
		r.until(func() bool { return len(r.b.wcs) == 1 && len(r.a.wcs) == 1 })
		if r.a.wcs[0].WRID != 2 || r.f.Now() >= 50*ms {
			t.Fatalf("at %v: %+v", r.f.Now(), r.a.wcs)
		}
		r.until(func() bool { return len(r.a.wcs) == 2 })
		if r.f.Now() < 50*ms {
			t.Fatalf("heard at %v", r.f.Now())
		}
	})
}
