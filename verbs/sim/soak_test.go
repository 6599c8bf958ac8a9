package sim_test

import (
	"math/rand/v2"
	"testing"

	"mover/verbs"
	"mover/verbs/sim"
)

// soak runs random posts in both directions over four QPs under random faults,
// then ends every QP, and checks the accounts. It returns the trace's hash.
func soak(t *testing.T, seed uint64, faults sim.Faults) (uint64, sim.Stats) {
	r := newRig(t, seed, sim.Options{Faults: faults}, 4)
	rng := rand.New(rand.NewPCG(seed, 99))
	fillRandomly(r.a.mem, 1)
	fillRandomly(r.b.mem, 2)
	ends := [2]*end{r.a, r.b}
	posted := map[*end]int{}
	for range 400 {
		from := rng.IntN(2)
		me, peer := ends[from], ends[1-from]
		qp := me.qps[rng.IntN(len(me.qps))]
		switch rng.IntN(5) {
		case 0, 1:
			n := rng.IntN(30_000)
			wr := r.write(me, peer, rng.IntN(rigBytes/2-n), n)
			wr.SGL[0].Addr += rigBytes / 2 // sources and targets in different halves
			if rng.IntN(2) == 0 {
				wr.Op = verbs.OpWriteWithImm
			}
			accepted, _ := qp.PostSend([]verbs.SendWR{wr})
			posted[me] += accepted
		case 2:
			accepted, _ := qp.PostRecv([]verbs.RecvWR{{WRID: recvID}})
			posted[me] += accepted
		case 3:
			for range rng.IntN(20) {
				r.f.Step()
			}
		case 4:
			r.poll()
		}
	}
	// A KillQP of a QP in any state must not panic; a test's own action runs.
	ran := false
	r.f.After(ms, func() { ran = true; r.f.KillQP(r.a.qps[0].QPN()) })
	r.f.Advance(2 * ms)
	if !ran {
		t.Error("After did not run")
	}
	for _, e := range ends {
		for _, qp := range e.qps {
			_ = qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState) // EIO when the device is dead
		}
	}
	for range 400 { // past the longest outage
		r.f.Advance(ms)
		r.poll()
	}
	for i, e := range ends {
		host := []string{"a", "b"}[i]
		_, err := e.ctx.QueryDevice()
		if err == nil && e.err == nil && len(e.wcs) != posted[e] {
			t.Errorf("seed %d: host %s: %d completions of %d WRs", seed, host, len(e.wcs), posted[e])
		}
		if len(e.wcs) > posted[e] {
			t.Errorf("seed %d: host %s: more completions than WRs", seed, host)
		}
		for _, wc := range e.wcs {
			if wc.Status == verbs.WCSuccess && (wc.WRID == recvID) != (wc.Opcode == verbs.WCRecvRDMAWithIm) {
				t.Errorf("seed %d: completion %+v", seed, wc)
			}
		}
	}
	return r.f.TraceHash(), r.f.Stats()
}

var harsh = sim.Faults{KillQP: .004, Corrupt: .01, Hold: .01, PortFlap: .004, CutRail: .004, OverrunCQ: .001,
	DeviceFatal: .0005}

// TestReplay: one seed, one run; different seeds, different runs. Under every
// fault each WR completes once, unless its queue or device died.
func TestReplay(t *testing.T) {
	hashes := map[uint64]uint64{}
	var corrupted, retries, rnr uint64
	for seed := range uint64(40) {
		faults := harsh
		if seed%4 == 0 {
			faults = sim.Faults{}
		}
		first, stats := soak(t, seed, faults)
		if second, _ := soak(t, seed, faults); first != second {
			t.Errorf("seed %d: trace %#x, then %#x", seed, first, second)
		}
		if other, ok := hashes[first]; ok {
			t.Errorf("seeds %d and %d have one trace", seed, other)
		}
		hashes[first] = seed
		corrupted += stats.Corrupted
		retries += stats.Retries
		rnr += stats.RNR
	}
	if corrupted == 0 || retries == 0 || rnr == 0 {
		t.Errorf("the faults did not happen: %d corrupted, %d retries, %d RNR", corrupted, retries, rnr)
	}
}
