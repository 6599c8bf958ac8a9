package engine

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"mover/reason"
	"mover/verbs/sim"
)

// seeds calls f with as many seeds as the run is meant for: MOVER_SIM_SEEDS
// how many, MOVER_SIM_SEED a single one, to replay it.
func seeds(t *testing.T, few int, f func(t *testing.T, seed uint64, replay string)) {
	first, n := seedRange(t, few)
	for seed := first; seed < first+uint64(n) && !t.Failed(); seed++ {
		f(t, seed, fmt.Sprintf("MOVER_SIM_SEED=%d go test -run '^%s$' ./engine/", seed, t.Name()))
	}
}

func seedRange(t *testing.T, few int) (first uint64, n int) {
	number := func(name string, otherwise uint64) uint64 {
		v := os.Getenv(name)
		if v == "" {
			return otherwise
		}
		k, err := strconv.ParseUint(v, 10, 63)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return k
	}
	if raceEnabled {
		few = (few + 3) / 4 // one goroutine: the detector has little to see, and takes ten times as long
	}
	first, n = 1, int(number("MOVER_SIM_SEEDS", uint64(few)))
	if os.Getenv("MOVER_SIM_SEED") != "" {
		first, n = number("MOVER_SIM_SEED", 0), 1
	}
	return first, n
}

// drawItems adds items in both directions. Some are limited in their rate, and
// share the limits, of which one is felt.
func (w *world) drawItems(n int, most int64, faults func() itemFaults) {
	pacers := []*Pacer{NewPacer(8 << 20), NewPacer(1 << 30), NewPacer(0)}
	for range n {
		kind := Staged
		if w.rng.IntN(2) == 0 {
			kind = Direct
		}
		var f itemFaults
		if faults != nil {
			f = faults()
		}
		i := w.addItem(w.sides[w.rng.IntN(2)], kind, w.drawSize(most), w.rng.IntN(3) > 0, f, w.rng.Int64N(5*ms))
		if k := w.rng.IntN(2 * len(pacers)); k < len(pacers) {
			i.item.Pace = pacers[k:]
		}
	}
}

// TestSimHealthy: without a fault everything arrives, without a fault's
// traces.
func TestSimHealthy(t *testing.T) {
	seeds(t, 25, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, nil)
		w.drawItems(1+w.rng.IntN(8), 1<<20, nil)
		if w.runUntil("items", 100*s1, w.allDone) && w.runUntil("both up", 20*s1, w.isUp) {
			w.runFor(100 * ms)
			w.checkQuiet()
			for _, i := range w.items {
				i.expect()
			}
			w.close()
			if n := w.f.Stats().RNR; n != 0 {
				w.problem("%d messages found no receive", n)
			}
		}
		w.verdict(replay)
	})
}

// TestSimReplays: the same seed gives the same run, to the letter.
func TestSimReplays(t *testing.T) {
	run := func(seed uint64) (uint64, uint64, int) {
		w := newWorld(t, seed, nil)
		w.drawItems(5, 1<<20, w.drawItemFaults)
		w.scheduleFaults(3, 20*ms)
		w.runUntil("items", 200*s1, func() bool { return w.allDone() || w.bothEnded() })
		return w.hash, w.f.TraceHash(), w.steps
	}
	hashes := map[uint64]bool{}
	for seed := range uint64(4) {
		a, fa, na := run(seed)
		b, fb, nb := run(seed)
		if a != b || fa != fb || na != nb {
			t.Errorf("seed %d: hash %x fabric %x after %d steps, then %x %x %d", seed, a, fa, na, b, fb, nb)
		}
		hashes[a] = true
	}
	if len(hashes) != 4 {
		t.Error("different seeds give the same run")
	}
}

// TestSimItemFaults: what goes wrong with one item is that item's alone; the
// session stays up and forgets nothing.
func TestSimItemFaults(t *testing.T) {
	seeds(t, 40, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, nil)
		w.drawItems(2+w.rng.IntN(8), 1<<20, w.drawItemFaults)
		if w.runUntil("items", 100*s1, w.allDone) && w.runUntil("both up", 20*s1, w.isUp) {
			w.runFor(100 * ms)
			w.checkQuiet()
			for _, i := range w.items {
				i.expectFault()
			}
			w.close()
			if n := w.f.Stats().RNR; n != 0 {
				w.problem("%d messages found no receive", n)
			}
		}
		w.verdict(replay)
	})
}

// TestSimLanes: lanes are lost at random moments, several at once, on either
// side, by completion errors, events, port flaps and cuts. Everything arrives
// all the same, and no slot, credit or segment is lost.
func TestSimLanes(t *testing.T) {
	seeds(t, 40, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, nil)
		w.drawItems(2+w.rng.IntN(8), 1<<20, nil)
		w.scheduleFaults(1+w.rng.IntN(6), 30*ms)
		if w.runUntil("items", 300*s1, w.allDone) && w.runUntil("lanes rebuilt, all settled", 60*s1, w.settled) {
			w.runFor(50 * ms)
			w.checkQuiet()
			for _, i := range w.items {
				i.expect()
			}
			w.close()
		}
		w.verdict(replay)
	})
}

// TestSimEnds: the session dies at a random moment, in every way there is.
// Items fail with a reason that is tried again, and nothing is left behind.
func TestSimEnds(t *testing.T) {
	seeds(t, 80, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, nil)
		w.drawItems(1+w.rng.IntN(8), 1<<20, w.drawItemFaults)
		if w.rng.IntN(2) == 0 {
			w.scheduleFaults(w.rng.IntN(4), 20*ms)
		}
		w.scheduleEnd(w.rng.Int64N(25 * ms))
		if w.runUntil("the end", 300*s1, func() bool { return w.sides[0].ended || w.sides[1].ended }) {
			w.finish()
			for _, i := range w.items {
				if e := i.result.Err; e != nil && !e.Code.Retryable() && !i.faults.any() {
					w.problem("item %d: %v, which is not tried again", i.index, e)
				}
			}
		}
		w.verdict(replay)
	})
}

// TestSimCorruption: a payload damaged on the wire is noticed, whatever the
// kind of item, and fails that item alone.
func TestSimCorruption(t *testing.T) {
	hits := 0
	seeds(t, 30, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, nil)
		w.hostile = true // a damaged trailer passes for a violation of the protocol
		for range 1 + w.rng.IntN(5) {
			kind := []ItemKind{Staged, Direct}[w.rng.IntN(2)]
			w.addItem(w.sides[w.rng.IntN(2)], kind, w.drawSize(1<<20), true, itemFaults{}, w.rng.Int64N(5*ms))
		}
		for range 1 + w.rng.IntN(8) {
			w.after(w.rng.Int64N(8*ms), "corrupt", w.corrupt)
		}
		if w.runUntil("items", 100*s1, func() bool { return w.allDone() || w.bothEnded() }) {
			for _, i := range w.items {
				// A damaged trailer ends the session.
				i.expect("", reason.ChecksumMismatch, reason.TransportError)
				if i.result.Err != nil {
					hits++
				}
			}
			w.close()
		}
		w.verdict(replay)
	})
	if hits == 0 && !raceEnabled && os.Getenv("MOVER_SIM_SEED") == "" {
		t.Error("no corruption was ever noticed")
	}
}

// TestSimSourceMemoryChanges: memory that changes while it is sent is told
// from damage on the way.
func TestSimSourceMemoryChanges(t *testing.T) {
	changed := 0
	seeds(t, 40, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, nil)
		w.tolerate[sim.SourceChanged] = true // it is what the test does
		i := w.addItem(w.sides[0], Direct, 1+w.rng.Int64N(1<<20), true, itemFaults{modifyAt: 1 + w.rng.Int64N(3*ms)}, 0)
		other := w.addItem(w.sides[0], Direct, w.drawSize(1<<20), true, itemFaults{}, 0)
		if w.runUntil("items", 100*s1, w.allDone) && w.runUntil("both up", 20*s1, w.isUp) {
			w.runFor(100 * ms)
			w.checkQuiet()
			// Changed before it was read, the bytes are what they are. Changed
			// after the checksum was compared, they arrived as they were.
			i.expect("", reason.SourceChanged, reason.ChecksumMismatch)
			if e := i.result.Err; e != nil && e.Code == reason.SourceChanged {
				changed++
			}
			other.expect()
			w.close()
		}
		w.verdict(replay)
	})
	if changed == 0 && !raceEnabled && os.Getenv("MOVER_SIM_SEED") == "" { // with a quarter of the seeds it may be so
		t.Error("no change was ever noticed")
	}
}
