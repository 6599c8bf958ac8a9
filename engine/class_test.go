package engine

import "testing"

// TestSimSmallBesideHuge: a huge item whose destination is slow fills every
// slot at both ends, and yet a small one takes no longer than a few of them.
func TestSimSmallBesideHuge(t *testing.T) {
	const disk = 10 * ms // for each chunk of the huge item
	seeds(t, 12, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, func(c *worldConfig) {
			c.rails, c.pollers, c.lanes, c.depth = 1, [2]int{1, 1}, 2, 32
			c.payload, c.segment, c.rateBits, c.disk = 65536, 65536, 1e9, disk
		})
		if w.runUntil("up", 5*s1, w.isUp) {
			slots := int64(len(w.sides[0].session.groups[0].remote))
			huge := w.addItem(w.sides[0], Staged, 64<<20, true, itemFaults{}, 0)
			w.runUntil("the huge item fills the slots", 20*s1, func() bool { return huge.wrote >= 4<<20 })
			for range 10 {
				small := w.addItem(w.sides[0], Staged, 1+w.rng.Int64N(1000), true, itemFaults{}, 0)
				// An eighth of what is queued before it, which is twice the slots at least.
				w.runUntil("a small item", slots/4*disk, func() bool { return small.done > 0 })
				small.expect()
			}
			if huge.done > 0 {
				w.problem("the huge item ended before the small ones")
			}
			w.runUntil("the huge item", 60*s1, w.allDone)
			huge.expect()
			w.close()
		}
		w.verdict(replay)
	})
}

// TestExpressDoesNotStarveBulk: with any number of small ops waiting, a worker
// takes a bulk one in its turn, and small ones overtake bulk otherwise.
func TestExpressDoesNotStarveBulk(t *testing.T) {
	q := NewWorkQueue(64, noPool{})
	for range 8 {
		q.push(&Op{class: bulk})
	}
	var order [classes]int
	for k := range 40 {
		q.push(&Op{class: express})
		op, ok := q.Pop()
		if !ok {
			t.Fatal("empty")
		}
		if order[op.class]++; k == 0 && op.class == bulk {
			t.Error("bulk came before express")
		}
	}
	if order[bulk] != 8 || q.Len() != 8 {
		t.Errorf("%d bulk ops in 40 pops, %d wait", order[bulk], q.Len())
	}
	for q.Len() > 0 {
		q.Pop()
	}
	if op, ok := q.Pop(); ok {
		t.Errorf("%+v from an empty queue", op)
	}
}
