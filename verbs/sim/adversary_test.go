package sim_test

import (
	"bytes"
	"testing"

	"mover/verbs"
	"mover/verbs/sim"
)

// seen collects which of the permitted surprises occurred over many seeds.
type seen map[string]int

func (s seen) want(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if s[n] == 0 {
			t.Errorf("no seed showed: %s", n)
		}
	}
}

// TestSurprises: over 40 seeds, the fabric does everything that an engine must
// be ready for, and is never visibly late.
func TestSurprises(t *testing.T) {
	s := seen{}
	for seed := range uint64(40) {
		r := newRig(t, seed, sim.Options{}, 2)
		fillRandomly(r.a.mem, byte(seed))
		r.recv(r.b.qps[0])
		r.recv(r.b.qps[1])
		const n = 20_000
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, n), r.write(r.a, r.b, n, n), r.writeImm(r.a, r.b, 2*n, n))
		r.post(r.a.qps[1], r.writeImm(r.a, r.b, 3*n, n))
		visible := false
		r.until(func() bool {
			part := func(i int) []byte { return r.b.mem[i*n : (i+1)*n] }
			same := func(i int) bool { return bytes.Equal(part(i), r.a.mem[i*n:(i+1)*n]) }
			whole, empty := same(0), bytes.Count(part(0), []byte{0}) == n
			if !whole && !empty {
				s["a write is half there"]++
				if part(0)[0] == 0 && part(0)[n-1] != 0 {
					s["the end of a write before its start"]++
				}
			}
			if empty && part(1)[0] != 0 {
				s["the second write before the first"]++
			}
			for i, wc := range r.a.wcs {
				if wc.WRID == 1 && !whole {
					s["sender's completion before the bytes"]++
				}
				if wc.WRID == 4 && i < 3 {
					s["the later QP first, at the sender"]++
				}
			}
			for i, wc := range r.b.wcs {
				if wc.QPN == r.b.qps[0].QPN() {
					visible = true
					if !whole || !same(1) || !same(2) {
						t.Fatalf("seed %d: bytes missing at the immediate", seed)
					}
				} else if !same(3) {
					t.Fatalf("seed %d: bytes missing at the immediate", seed)
				} else if i == 0 && !visible {
					s["the later QP first, at the receiver"]++
				}
			}
			return len(r.a.wcs) == 4 && len(r.b.wcs) == 2
		})
		r.wantNoViolation()
	}
	s.want(t, "a write is half there", "the end of a write before its start", "the second write before the first",
		"sender's completion before the bytes", "the later QP first, at the sender",
		"the later QP first, at the receiver")
}

// TestSurprisesAtTheEnd: a QP ended by its user loses what nobody was told of
// yet, though the sender may have been told that it arrived.
func TestSurprisesAtTheEnd(t *testing.T) {
	s := seen{}
	for seed := range uint64(80) {
		r := newRig(t, seed, sim.Options{}, 1)
		fillRandomly(r.a.mem, byte(seed))
		r.recv(r.b.qps[0])
		r.recv(r.b.qps[0])
		const n = 50_000
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, n), r.writeImm(r.a, r.b, n, n), r.write(r.a, r.b, 2*n, n))
		for range 2 + seed%12 {
			r.f.Step()
		}
		r.must(r.b.qps[0].Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		r.until(func() bool { return len(r.a.wcs) == 3 && len(r.b.wcs) == 2 })
		missing := !bytes.Equal(r.b.mem[:n], r.a.mem[:n])
		imm := r.b.wcs[0].Status == verbs.WCSuccess
		switch {
		case imm && missing:
			t.Fatalf("seed %d: bytes missing at the immediate", seed)
		case imm && r.a.wcs[1].Status != verbs.WCSuccess:
			s["received, and an error at the sender"]++
		case !imm && r.a.wcs[1].Status == verbs.WCSuccess:
			s["not received, and success at the sender"]++
		}
		if !imm && missing && r.a.wcs[0].Status == verbs.WCSuccess {
			s["acknowledged bytes lost"]++
		}
		if r.f.Stats().PartialWrites > 0 || missing && bytes.Count(r.b.mem[:n], []byte{0}) < n {
			s["a part left behind"]++
		}
		for _, wc := range r.a.wcs {
			if wc.Status != verbs.WCSuccess && wc.Opcode != verbs.WCRDMAWrite {
				s["garbage in an error completion"]++
			}
		}
	}
	s.want(t, "received, and an error at the sender", "not received, and success at the sender",
		"acknowledged bytes lost", "a part left behind", "garbage in an error completion")
}

// TestCalm: bytes and completions come at once, in order.
func TestCalm(t *testing.T) {
	r := newRig(t, 1, sim.Options{Calm: true}, 1)
	fillRandomly(r.a.mem, 1)
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 5000))
	r.until(func() bool { return len(r.a.wcs) == 1 })
	if !bytes.Equal(r.b.mem[:5000], r.a.mem[:5000]) {
		t.Error("bytes missing at the sender's completion")
	}
	if _, more := r.f.NextEvent(); more {
		t.Error("an event is left over")
	}
}
