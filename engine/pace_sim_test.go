package engine

import (
	"testing"

	"mover/reason"
)

// paced adds an item under pacers.
func (w *world) paced(from *simSide, kind ItemKind, size int64, pace ...*Pacer) *simItem {
	i := w.addItem(from, kind, size, true, itemFaults{}, 0)
	i.item.Pace = pace
	return i
}

// pacing is a world whose fabric is far faster than the limits.
func pacing(t *testing.T, seed uint64) *world {
	return newWorld(t, seed, func(c *worldConfig) {
		c.payload, c.segment, c.depth = 4096, 16384, 8
		c.rateBits = 100e9
	})
}

// sentBy is how many bytes of the items are acked or in flight.
func sentBy(items ...*simItem) (n int64) {
	for _, i := range items {
		n += i.item.Acked()
	}
	return n
}

func (w *world) end(replay string, items ...*simItem) {
	w.runFor(100 * ms)
	w.checkQuiet()
	for _, i := range items {
		i.expect()
	}
	w.close()
	w.verdict(replay)
}

// TestSimPace: a limited item of either kind takes the time it must, and one
// beside it without a limit takes none of that.
func TestSimPace(t *testing.T) {
	for _, kind := range []ItemKind{Staged, Direct} {
		seeds(t, 4, func(t *testing.T, seed uint64, replay string) {
			w := pacing(t, seed)
			if !w.runUntil("up", 20*s1, w.isUp) {
				w.verdict(replay)
				return
			}
			p := NewPacer(1 << 20)
			start := w.now()
			slow := w.paced(w.sides[0], kind, 4<<20, p)
			free := w.paced(w.sides[0], kind, 2<<20)
			w.runUntil("the free item", s1, func() bool { return free.done > 0 })
			for slow.done == 0 && len(w.problems) == 0 {
				w.runFor(50 * ms)
				if most := (w.now()-start)<<20/s1 + 1<<20/10 + 2*16384; sentBy(slow) > most {
					w.problem("%d bytes after %d ms, at most %d", sentBy(slow), (w.now()-start)/ms, most)
				}
			}
			if d := w.now() - start; d < 3700*ms || d > 4800*ms {
				w.problem("4 MiB at 1 MiB/s took %d ms", d/ms)
			}
			w.end(replay, slow, free)
		})
	}
}

// TestSimPaceShared: the items of two sessions and both kinds share a node's
// limit, and one of them has less by a limit of its own.
func TestSimPaceShared(t *testing.T) {
	seeds(t, 4, func(t *testing.T, seed uint64, replay string) {
		w := pacing(t, seed)
		if !w.runUntil("up", 20*s1, w.isUp) {
			w.verdict(replay)
			return
		}
		node, own := NewPacer(4<<20), NewPacer(512<<10)
		start := w.now()
		less := w.paced(w.sides[0], Staged, 1<<20, own, node)
		items := []*simItem{less}
		for _, side := range w.sides { // two sessions, as far as a pacer can tell
			items = append(items, w.paced(side, Staged, 6<<20, node), w.paced(side, Direct, 6<<20, nil, node))
		}
		w.runFor(2 * s1)
		burst := int64(4<<20)/10 + 5*16384
		if n := sentBy(items...); n > 8<<20+burst || n < 8<<20-1<<20 {
			w.problem("%d bytes in 2 s at 4 MiB/s", n)
		}
		if n := sentBy(less); n > 1<<20+512<<10/10+4096 || n < 800<<10 {
			w.problem("%d bytes in 2 s at 512 KiB/s", n)
		}
		for _, i := range items[1:] {
			if n := sentBy(i); n < 1<<20 || n > 5<<19 { // 1.75 MiB are a share
				w.problem("item %d has %d bytes in 2 s", i.index, n)
			}
		}
		w.runUntil("items", 20*s1, w.allDone)
		if d := w.now() - start; d < 25<<20*s1/(4<<20)-200*ms {
			w.problem("25 MiB at 4 MiB/s took %d ms", d/ms)
		}
		w.end(replay, items...)
	})
}

// TestSimPaceLive: a limit comes, changes and goes while items are under way.
func TestSimPaceLive(t *testing.T) {
	for _, kind := range []ItemKind{Staged, Direct} {
		seeds(t, 3, func(t *testing.T, seed uint64, replay string) {
			w := pacing(t, seed)
			if !w.runUntil("up", 20*s1, w.isUp) {
				w.verdict(replay)
				return
			}
			p := NewPacer(1 << 10)
			i := w.paced(w.sides[0], kind, 8<<20, p)
			w.runFor(10 * s1)
			if n := sentBy(i); n > 10<<10+2*16384 {
				w.problem("%d bytes in 10 s at 1 KiB/s", n)
			}
			p.SetRate(1 << 20)
			w.runFor(s1)
			n := sentBy(i)
			if n < 800<<10 || n > 1300<<10 {
				w.problem("%d bytes, 1 s after the limit became 1 MiB/s", n)
			}
			p.SetRate(0)
			w.runUntil("the rest without a limit", s1, func() bool { return i.done > 0 })
			j := w.paced(w.sides[0], kind, 1<<20, p)
			w.runUntil("another", s1, func() bool { return j.done > 0 })
			p.SetRate(100 << 10)
			k := w.paced(w.sides[0], kind, 100<<10, p)
			w.runUntil("a limit again", 3*s1, func() bool { return k.done > 0 })
			w.end(replay, i, j, k)
		})
	}
}

// TestSimPaceIsNoStall: an item whose next chunk is far away, by its own limit,
// is not stalled; a cancel ends it at once, and what it was granted goes back.
func TestSimPaceIsNoStall(t *testing.T) {
	for _, kind := range []ItemKind{Staged, Direct} {
		seeds(t, 2, func(t *testing.T, seed uint64, replay string) {
			w := newWorld(t, seed, func(c *worldConfig) { c.payload, c.segment, c.depth = 65536, 65536, 8 })
			if !w.runUntil("up", 20*s1, w.isUp) {
				w.verdict(replay)
				return
			}
			p := NewPacer(1 << 10) // 64 s a chunk, and StallAfter is 30 s
			i := w.paced(w.sides[0], kind, 4*65536, p)
			w.runUntil("two chunks", 100*s1, func() bool { return sentBy(i) == 2*65536 })
			w.runFor(40 * s1)
			if i.done > 0 {
				w.problem("it ended: %v", i.result.Err)
			}
			w.sides[0].session.Cancel(&i.item, reason.New(reason.Canceled, "the test canceled it"))
			w.runUntil("the end", 100*ms, func() bool { return i.done > 0 })
			if i.result.Err == nil || i.result.Err.Code != reason.Canceled {
				w.problem("%v", i.result.Err)
			}
			j := w.paced(w.sides[0], kind, 65536, NewPacer(1<<20))
			w.runUntil("the next", s1, func() bool { return j.done > 0 })
			w.end(replay, j)
		})
	}
}

// TestSimStallBehindPacer: what is out and is not acked is a stall, however
// slow the item is meant to be.
func TestSimStallBehindPacer(t *testing.T) {
	seeds(t, 2, func(t *testing.T, seed uint64, replay string) {
		w := pacing(t, seed)
		if !w.runUntil("up", 20*s1, w.isUp) {
			w.verdict(replay)
			return
		}
		i := w.paced(w.sides[0], Staged, 1<<20, NewPacer(1<<10))
		w.runUntil("the first chunk", s1, func() bool { return sentBy(i) > 0 })
		w.sides[1].links[1].mute = true // the acks
		w.runUntil("the stall", 120*s1, func() bool { return i.done > 0 || w.sides[0].ended })
		if i.done == 0 || i.result.Err == nil || i.result.Err.Code != reason.Stalled {
			w.problem("%d, %v", i.done, i.result.Err)
		}
		w.verdict(replay)
	})
}

// TestSimSlowHoldsFewGrants: items that send slowly keep what they were
// granted, and leave others their share of the table.
func TestSimSlowHoldsFewGrants(t *testing.T) {
	seeds(t, 3, func(t *testing.T, seed uint64, replay string) {
		w := pacing(t, seed)
		if !w.runUntil("up", 20*s1, w.isUp) {
			w.verdict(replay)
			return
		}
		p := NewPacer(1 << 10)
		var slow []*simItem
		for range 3 {
			slow = append(slow, w.paced(w.sides[0], Direct, 8<<20, p))
		}
		w.runFor(s1)
		fast := w.paced(w.sides[0], Direct, 8<<20)
		w.runUntil("the fast item", 30*s1, func() bool { return fast.done > 0 })
		for _, i := range slow {
			w.sides[0].session.Cancel(&i.item, reason.New(reason.Canceled, "the test canceled it"))
		}
		w.runUntil("the ends", s1, w.allDone)
		w.end(replay, fast)
	})
}
