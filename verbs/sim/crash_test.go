package sim_test

import (
	"errors"
	"testing"

	"mover/verbs"
	"mover/verbs/sim"
)

// TestKillHost: a host that is killed takes its QPs and memory with it, in
// silence; its peer runs into its timer, and nothing arrives any more. The
// device opens again.
func TestKillHost(t *testing.T) {
	forSeeds(t, 20, func(t *testing.T, seed uint64) {
		r := newRig(t, seed, sim.Options{}, 2)
		fillRandomly(r.a.mem, byte(seed))
		for i := range 4 {
			r.post(r.a.qps[0], r.write(r.a, r.b, i*40_000, 40_000))
		}
		for range seed {
			r.f.Step()
		}
		r.f.KillHost("b")
		before := append([]byte(nil), r.b.mem...)
		if r.f.Writable("b", r.b.mem) || len(r.f.QPs("b", "sim0")) != 0 {
			t.Fatal("memory or QPs are left")
		}
		if _, err := r.b.ctx.QueryPort(1); !errors.Is(err, verbs.ErrClosed) {
			t.Fatalf("its context still answers: %v", err)
		}
		for range 4000 {
			r.f.Advance(ms)
			r.poll()
		}
		failed := 0
		for _, wc := range r.a.wcs {
			if wc.Status != verbs.WCSuccess {
				failed++
			}
		}
		if len(r.a.wcs) != 4 || seed == 0 && failed != 4 {
			t.Fatalf("statuses %v", statuses(r.a.wcs))
		}
		if string(before) != string(r.b.mem) {
			t.Fatal("bytes arrived after the kill")
		}
		ctx, err := r.f.Provider("b").OpenDevice("sim0")
		r.must(err)
		if a, err := ctx.QueryPort(1); err != nil || a.State != verbs.PortActive || ctx.Counts() != (verbs.Counts{}) {
			t.Fatalf("the next process: %+v, %v, %+v", a, err, ctx.Counts())
		}
		r.wantNoViolation()
	})
}

// TestRepairDevice: a device that died works again for who opens it anew.
func TestRepairDevice(t *testing.T) {
	f := sim.New(1, sim.Options{})
	f.FatalDevice("a", "sim0")
	ctx, err := f.Provider("a").OpenDevice("sim0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ctx.QueryPort(1); err == nil {
		t.Fatal("a dead device answers")
	}
	if err := ctx.Close(); err != nil {
		t.Fatal(err)
	}
	f.RepairDevice("a", "sim0")
	if ctx, err = f.Provider("a").OpenDevice("sim0"); err != nil {
		t.Fatal(err)
	}
	if _, err := ctx.QueryPort(1); err != nil {
		t.Fatal(err)
	}
}

// TestCompletionsOutliveQP: of a device that is gone, completions may still be
// polled when their QP is destroyed.
func TestCompletionsOutliveQP(t *testing.T) {
	lingered := 0
	forSeeds(t, 20, func(t *testing.T, seed uint64) {
		r := newRig(t, seed, sim.Options{Calm: true}, 1)
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, 100))
		for r.f.Step() {
		}
		r.f.FatalDevice("a", "sim0")
		r.must(r.a.qps[0].Destroy())
		n, err := r.a.cq.Poll(make([]verbs.WC, 8))
		r.must(err)
		lingered += n
	})
	if lingered == 0 || lingered == 20 {
		t.Errorf("%d of 20", lingered)
	}
}
