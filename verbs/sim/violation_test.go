package sim_test

import (
	"testing"

	"mover/verbs"
	"mover/verbs/sim"
)

func TestSourceChanged(t *testing.T) {
	for _, late := range []bool{false, true} {
		r := newRig(t, 3, sim.Options{}, 1)
		wr := r.write(r.a, r.b, 0, 1000)
		wr.Flags = 0
		r.post(r.a.qps[0], wr, r.write(r.a, r.b, 5000, 10))
		if late { // after the completion is on the CQ, before it is polled
			r.f.Advance(100 * ms)
		}
		r.a.mem[500]++
		r.until(func() bool { return len(r.a.wcs) == 1 })
		r.wantViolation(sim.SourceChanged)
		if n := len(r.f.Violations()); n != 1 {
			t.Errorf("%d violations for one change", n)
		}
	}
	r := newRig(t, 3, sim.Options{}, 1)
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 1000))
	r.until(func() bool { return len(r.a.wcs) == 1 })
	r.a.mem[500]++
	r.f.Advance(100 * ms)
	r.wantNoViolation()
}

func TestDeregInFlight(t *testing.T) {
	forSeeds(t, 10, func(t *testing.T, seed uint64) {
		r := newRig(t, seed, sim.Options{}, 1)
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, 1000))
		r.must(r.a.mr.Dereg())
		r.wantViolation(sim.DeregInFlight)
	})
	r := newRig(t, 1, sim.Options{}, 1)
	_, err := r.b.qps[0].PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{{Addr: r.b.mr.Addr(), Length: 8, LKey: r.b.mr.LKey()}}}})
	r.must(err)
	r.must(r.b.mr.Dereg())
	r.wantViolation(sim.DeregInFlight)
}

// TestDeregBeforePlacement: the sender's completion does not mean that the
// receiver may deregister; a drain there does.
func TestDeregBeforePlacement(t *testing.T) {
	caught := 0
	for seed := range uint64(40) {
		for _, drain := range []bool{false, true} {
			r := newRig(t, seed, sim.Options{}, 1)
			r.recv(r.b.qps[0])
			r.post(r.a.qps[0], r.write(r.a, r.b, 0, 100_000))
			r.until(func() bool { return len(r.a.wcs) == 1 })
			if drain {
				r.must(r.b.qps[0].Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
				r.until(func() bool { return len(r.b.wcs) == 1 })
			}
			r.must(r.b.mr.Dereg())
			switch n := len(r.f.Violations()); {
			case drain && n > 0:
				t.Errorf("seed %d: after the drain: %v", seed, r.f.Violations())
			case n > 0:
				r.wantViolation(sim.DeregInFlight)
				caught++
			}
		}
	}
	if caught == 0 {
		t.Error("no seed had bytes on their way after the sender's completion")
	}
}

func TestWriteRevoked(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	wr := r.write(r.a, r.b, 0, 8)
	r.must(r.b.mr.Dereg())
	r.post(r.a.qps[0], wr)
	r.until(func() bool { return len(r.a.wcs) == 1 })
	if r.a.wcs[0].Status != verbs.WCRemAccessErr {
		t.Errorf("status %v", r.a.wcs[0].Status)
	}
	r.wantViolation(sim.WriteRevoked)
}

// TestOverlappingWrites: on one QP, a rewrite is in order once the first
// completion was polled; on another QP it never is by that alone.
func TestOverlappingWrites(t *testing.T) {
	caught := map[string]int{}
	for seed := range uint64(40) {
		for _, c := range []struct {
			name   string
			second int
			wait   bool
		}{{"not polled", 0, false}, {"polled", 0, true}, {"other QP", 1, true}} {
			r := newRig(t, seed, sim.Options{}, 2)
			fillRandomly(r.a.mem, 1)
			r.post(r.a.qps[0], r.write(r.a, r.b, 0, 5000))
			if c.wait {
				r.until(func() bool { return len(r.a.wcs) == 1 })
			}
			second := r.write(r.a, r.b, 8000, 5000)
			second.RemoteAddr = r.b.mr.Addr() + 1000
			r.post(r.a.qps[c.second], second)
			r.until(func() bool { return len(r.a.wcs) == 2 })
			r.f.Advance(100 * ms)
			if len(r.f.Violations()) > 0 {
				r.wantViolation(sim.OverlappingWrites)
				caught[c.name]++
			} else if c.wait && c.second == 0 && r.b.mem[1000] != r.a.mem[8000] {
				t.Errorf("seed %d: a rewrite in order was undone by the first write", seed)
			}
		}
	}
	if caught["not polled"] == 0 || caught["other QP"] == 0 || caught["polled"] != 0 {
		t.Errorf("caught %v", caught)
	}
}

func TestDestroyedBusy(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 2)
	r.recv(r.a.qps[0])
	r.must(r.a.qps[0].Destroy())
	r.wantViolation(sim.DestroyedBusy)

	r = newRig(t, 1, sim.Options{}, 1)
	r.recv(r.a.qps[0])
	quiet := r.write(r.a, r.b, 0, 8)
	quiet.Flags = 0
	r.post(r.a.qps[0], quiet)
	r.f.Advance(100 * ms)
	r.must(r.a.qps[0].Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	r.until(func() bool { return len(r.a.wcs) == 1 })
	r.must(r.a.qps[0].Destroy())
	r.wantNoViolation()
}

func TestQueueViolations(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	r.wantNoViolation()
	for range 65 {
		r.a.qps[0].PostSend([]verbs.SendWR{r.write(r.a, r.b, 0, 8)})
	}
	r.wantViolation(sim.QueueOverflow)

	r = newRig(t, 1, sim.Options{}, 1)
	cq, err := r.a.ctx.CreateCQ(verbs.CQInitAttr{Entries: 7})
	r.must(err)
	qp, err := r.a.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4}})
	r.must(err)
	r.wantViolation(sim.CQTooSmall)
	r.must(qp.Destroy())
}

func TestStaleQP(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	r.f.PortDown(portA)
	r.f.PortUp(portA)
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 8))
	r.wantViolation(sim.StaleQP)
}

// TestBadPath: PSNs that do not match deliver nothing.
func TestBadPath(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	for _, e := range []*end{r.a, r.b} {
		r.must(e.qps[0].Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
		r.must(e.qps[0].Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite},
			verbs.InitMask(verbs.RC)))
	}
	r.must(r.a.qps[0].Modify(r.rtr(r.a, r.b, 0), verbs.RTRMask(verbs.RC)))
	r.must(r.b.qps[0].Modify(r.rtr(r.b, r.a, 0), verbs.RTRMask(verbs.RC)))
	r.must(r.a.qps[0].Modify(&verbs.QPAttr{State: verbs.StateRTS, SQPSN: 6, Timeout: 1, RetryCnt: 1},
		verbs.RTSMask(verbs.RC)))
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 8))
	r.until(func() bool { return len(r.a.wcs) == 1 })
	wantCause(t, r.a.wcs, 1, verbs.WCRetryExcErr)
	r.wantViolation(sim.BadPath)
}
