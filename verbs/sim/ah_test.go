package sim_test

import (
	"errors"
	"syscall"
	"testing"

	"mover/verbs"
	"mover/verbs/sim"
)

// TestAHInFlight: an address handle has to outlive the WRs that use it, until
// their completions were polled.
func TestAHInFlight(t *testing.T) {
	s := seen{}
	for seed := range uint64(30) {
		for _, late := range []bool{false, true} {
			r := udRig(t, seed, sim.Options{}, 1)
			r.recvInto(r.b, r.b.qps[0], 0, 200)
			r.post(r.a.qps[0], r.message(r.a, r.b, 0, 0, 100))
			if late { // the completion is on the CQ, but not polled
				r.f.Advance(100 * ms)
			}
			r.must(r.ahs[0].Destroy())
			r.wantViolation(sim.AHInFlight)
			if n := len(r.f.Violations()); n != 1 {
				t.Errorf("%d violations", n)
			}
			r.settle()
			if len(r.a.wcs) != 1 {
				t.Fatalf("seed %d: completions %+v", seed, r.a.wcs)
			}
			if !late {
				s[r.a.wcs[0].Status.String()]++
			}
		}
	}
	s.want(t, "SUCCESS", "LOC_QP_OP_ERR")
}

// TestAHAfterWR: no violation once a completion that covers the WR was polled,
// or the QP was drained.
func TestAHAfterWR(t *testing.T) {
	r := udRig(t, 1, sim.Options{}, 1)
	quiet, last := r.message(r.a, r.b, 0, 0, 100), r.message(r.a, r.b, 0, 0, 100)
	quiet.Flags = 0
	r.post(r.a.qps[0], quiet, last)
	r.settle()
	r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
	for _, ah := range r.ahs {
		r.must(ah.Destroy())
	}
	r.wantNoViolation()

	r = udRig(t, 1, sim.Options{}, 1)
	quiet, last = r.message(r.a, r.b, 0, 0, 100), r.message(r.a, r.b, 0, 0, 100)
	quiet.Flags = 0
	r.post(r.a.qps[0], last, quiet)
	r.f.Advance(100 * ms)
	r.must(r.a.qps[0].Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
	r.settle()
	for _, ah := range r.ahs {
		r.must(ah.Destroy())
	}
	r.wantNoViolation()
}

// TestAHCounts: handles are counted and keep their PD.
func TestAHCounts(t *testing.T) {
	r := udRig(t, 1, sim.Options{}, 0)
	dev, err := r.a.ctx.QueryDevice()
	r.must(err)
	if dev.MaxAH == 0 {
		t.Error("max_ah is 0")
	}
	pd, err := r.a.ctx.AllocPD()
	r.must(err)
	ah, err := pd.CreateAH(r.ahAttr(r.a, r.b))
	r.must(err)
	if n := r.a.ctx.Counts().AH; n != 1 {
		t.Errorf("%d AHs counted", n)
	}
	if err := pd.Dealloc(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("dealloc a PD with an AH: %v", err)
	}
	r.must(ah.Destroy())
	if n := r.a.ctx.Counts().AH; n != 0 {
		t.Errorf("%d AHs counted", n)
	}
	r.must(pd.Dealloc())
	if _, err := pd.CreateAH(r.ahAttr(r.a, r.b)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an AH in a PD that is gone: %v", err)
	}
}

// TestAHWrong: addresses that lead nowhere.
func TestAHWrong(t *testing.T) {
	r := udRig(t, 1, sim.Options{}, 0)
	for name, c := range map[string]struct {
		change func(*verbs.AHAttr)
		want   error
	}{
		"port":      {func(a *verbs.AHAttr) { a.Port = 2 }, syscall.EINVAL},
		"no GRH":    {func(a *verbs.AHAttr) { a.IsGlobal = false }, syscall.EINVAL},
		"GID index": {func(a *verbs.AHAttr) { a.SGIDIndex = 240 }, syscall.EINVAL},
		"GID":       {func(a *verbs.AHAttr) { a.DGID[15] ^= 0x80 }, syscall.ETIMEDOUT},
	} {
		attr := r.ahAttr(r.a, r.b)
		c.change(&attr)
		if _, err := r.a.pd.CreateAH(attr); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if n := r.a.ctx.Counts().AH; n != 0 {
		t.Errorf("%d AHs counted", n)
	}
}

// TestAHOfAnotherPD: the adapter refuses it, and the QP stops.
func TestAHOfAnotherPD(t *testing.T) {
	r := udRig(t, 1, sim.Options{}, 1)
	pd, err := r.a.ctx.AllocPD()
	r.must(err)
	ah, err := pd.CreateAH(r.ahAttr(r.a, r.b))
	r.must(err)
	wr := r.message(r.a, r.b, 0, 0, 100)
	wr.AH = ah
	r.recvInto(r.b, r.b.qps[0], 0, 200)
	r.post(r.a.qps[0], wr)
	r.settle()
	r.wantAll(r.a.wcs, 1, verbs.WCLocQPOpErr)
	r.wantAll(r.b.wcs, 0, verbs.WCSuccess)
	r.stopped(r.a.qps[0])
}

// TestAHStale: a handle of before a port flap has the index of a GID that may
// have moved. The QP itself names no path and may stay.
func TestAHStale(t *testing.T) {
	r := udRig(t, 1, sim.Options{}, 1)
	old := r.message(r.a, r.b, 0, 0, 100)
	r.f.PortDown(portA)
	r.f.PortUp(portA)
	r.post(r.a.qps[0], r.message(r.a, r.b, 0, 0, 100))
	r.wantNoViolation()
	r.post(r.a.qps[0], old)
	r.wantViolation(sim.StaleQP)
}
