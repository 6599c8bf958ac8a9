package sim_test

import (
	"fmt"
	"testing"
	"time"

	"mover/verbs"
	"mover/verbs/conformance"
	"mover/verbs/sim"
)

// open makes a fabric and the pair of devices of a conformance case on it.
func open(tb conformance.TB, seed uint64, opt sim.Options) (*sim.Fabric, *conformance.Pair) {
	f := sim.New(seed, opt)
	other := "b"
	if seed%4 == 3 { // one device, opened twice
		other = "a"
	}
	a, err := f.Provider("a").OpenDevice("sim0")
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	b, err := f.Provider(other).OpenDevice("sim0")
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	return f, &conformance.Pair{A: a, B: b,
		Progress: func(cond func() bool) bool { return progress(f, cond) },
		Settle: func(poll func()) {
			for range 200 {
				f.Advance(100 * time.Microsecond)
				poll()
			}
		},
		Notified: f.Notified,
		Lose:     f.LosePackets,
	}
}

// progress lets up to 10 virtual seconds pass.
func progress(f *sim.Fabric, cond func() bool) bool {
	for end := f.Now() + 10*time.Second; f.Now() < end; {
		if cond() {
			return true
		}
		if !f.Step() {
			f.Advance(time.Millisecond)
		}
	}
	return cond()
}

func TestConformance(t *testing.T) {
	const seeds = 12
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			opt := sim.Options{Calm: seed == 1}
			if seed%5 == 2 { // slower, shorter packets
				ports := []sim.Port{{BitsPerSecond: 10e9, MTU: verbs.MTU1024}}
				devices := []sim.Device{{Name: "sim0", Ports: ports}}
				opt.Hosts = []sim.Host{{Name: "a", Devices: devices}, {Name: "b", Devices: devices}}
			}
			conformance.Run(t, conformance.Harness{
				Lacks:      conformance.Read | conformance.Atomic,
				NoProperty: seed > 0,
				Open: func(tb conformance.TB) *conformance.Pair {
					_, pair := open(tb, seed, opt)
					return pair
				},
			})
		})
	}
}
