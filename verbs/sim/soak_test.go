package sim_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"mover/verbs"
	"mover/verbs/sim"
)

// soak runs random posts in both directions over four QPs under random faults,
// then ends every QP, and checks the accounts. It returns the trace's hash.
func soak(t *testing.T, typ verbs.QPType, seed uint64, faults sim.Faults) (uint64, sim.Stats) {
	r := newRigOf(t, typ, seed, sim.Options{Faults: faults}, 4)
	rng := rand.New(rand.NewPCG(seed, 99))
	fillRandomly(r.a.mem, 1)
	fillRandomly(r.b.mem, 2)
	ends := [2]*end{r.a, r.b}
	if typ == verbs.UD {
		r.handle(r.a, r.b)
		r.handle(r.b, r.a)
	}
	posted := map[*end]int{}
	for range 400 {
		from := rng.IntN(2)
		me, peer := ends[from], ends[1-from]
		i := rng.IntN(len(me.qps))
		qp := me.qps[i]
		switch rng.IntN(5) {
		case 0, 1:
			accepted, _ := qp.PostSend([]verbs.SendWR{r.soakSend(rng, me, peer, i)})
			posted[me] += accepted
		case 2:
			wr := verbs.RecvWR{WRID: recvID}
			if typ != verbs.RC { // whose messages here are writes
				n := rng.Uint32N(9000)
				wr.SGL = []verbs.SGE{{Addr: me.mr.Addr() + rng.Uint64N(rigBytes/2-uint64(n)), Length: n, LKey: me.mr.LKey()}}
			}
			accepted, _ := qp.PostRecv([]verbs.RecvWR{wr})
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
			received := wc.Opcode == verbs.WCRecvRDMAWithIm || wc.Opcode == verbs.WCRecv && typ != verbs.RC
			if wc.Status == verbs.WCSuccess && (wc.WRID == recvID) != received {
				t.Errorf("seed %d: completion %+v", seed, wc)
			}
		}
	}
	r.checkUnreliable(seed, faults)
	return r.f.TraceHash(), r.f.Stats()
}

// soakSend makes a random message for QP number i of the peer. Sources and
// targets are in different halves of the memory.
func (r *rig) soakSend(rng *rand.Rand, me, peer *end, i int) verbs.SendWR {
	n := rng.IntN(30_000)
	if r.typ == verbs.UD {
		wr := r.send(me, rigBytes/2, n/7) // some are too long
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = r.ahs[0], peer.qps[i].QPN(), rigQKey
		if me == r.b {
			wr.AH = r.ahs[1]
		}
		return wr
	}
	wr := r.write(me, peer, rng.IntN(rigBytes/2-n), n)
	wr.SGL[0].Addr += rigBytes / 2
	if rng.IntN(2) == 0 {
		wr.Op = verbs.OpWriteWithImm
	}
	if r.typ == verbs.UC && rng.IntN(3) == 0 {
		wr.Op = verbs.OpSend
	}
	return wr
}

// checkUnreliable: nothing of a drained QP uses its address handles, and where
// no QP is struck, every message sent arrived or is known to be lost.
func (r *rig) checkUnreliable(seed uint64, faults sim.Faults) {
	for _, ah := range r.ahs {
		r.must(ah.Destroy())
	}
	for _, v := range r.f.Violations() {
		if v.Kind == sim.AHInFlight {
			r.t.Errorf("seed %d: %v", seed, v)
		}
	}
	if r.typ == verbs.RC || faults != (sim.Faults{LosePacket: faults.LosePacket, ReorderUD: faults.ReorderUD}) {
		return
	}
	sent := 0
	for _, wc := range slices.Concat(r.a.wcs, r.b.wcs) {
		if wc.WRID != recvID && wc.Status == verbs.WCSuccess {
			sent++
		}
	}
	if st := r.f.Stats(); st.Messages+st.LostMessages != uint64(sent) {
		r.t.Errorf("seed %d: %d messages were sent: %+v", seed, sent, st)
	}
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
		first, stats := soak(t, verbs.RC, seed, faults)
		if second, _ := soak(t, verbs.RC, seed, faults); first != second {
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

// TestReplayUnreliable is the same for UC and UD, with packets lost.
func TestReplayUnreliable(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.UC, verbs.UD} {
		hashes := map[uint64]uint64{}
		var sum sim.Stats
		for seed := range uint64(30) {
			faults := harsh
			if seed%3 == 0 {
				faults = sim.Faults{}
			}
			faults.LosePacket = []float64{0, .02, .2}[seed%5%3]
			faults.ReorderUD = .2 * float64(seed%2)
			first, stats := soak(t, typ, seed, faults)
			if second, _ := soak(t, typ, seed, faults); first != second {
				t.Errorf("%v, seed %d: trace %#x, then %#x", typ, seed, first, second)
			}
			if other, ok := hashes[first]; ok {
				t.Errorf("%v, seeds %d and %d have one trace", typ, seed, other)
			}
			hashes[first] = seed
			sum.Corrupted += stats.Corrupted
			sum.LostPackets += stats.LostPackets
			sum.RNR += stats.RNR
			sum.PartialWrites += stats.PartialWrites
			sum.Messages += stats.Messages
		}
		if sum.Corrupted == 0 || sum.LostPackets == 0 || sum.RNR == 0 || sum.Messages == 0 ||
			(sum.PartialWrites > 0) != (typ == verbs.UC) {
			t.Errorf("%v: something did not happen: %+v", typ, sum)
		}
	}
}

// TestRCLosesNothing: the faults of UC and UD draw nothing in a run of RC, so
// that recorded seeds keep their runs.
func TestRCLosesNothing(t *testing.T) {
	faults := harsh
	faults.LosePacket, faults.ReorderUD = .5, .5
	for seed := range uint64(3) {
		with, _ := soak(t, verbs.RC, seed, faults)
		if without, _ := soak(t, verbs.RC, seed, harsh); with != without {
			t.Errorf("seed %d: trace %#x with losses, %#x without", seed, with, without)
		}
	}
}
