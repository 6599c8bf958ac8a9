package engine

import "testing"

// This file keeps what TestSimulation has found, as worlds of their own: a seed
// means another run after the next change.

// TestSimCloseWhileConnecting: a session is closed while a helper has a QP for
// longer than draining may take. The QP comes back, is flushed, and has time to
// drain of its own before it is destroyed.
func TestSimCloseWhileConnecting(t *testing.T) {
	seeds(t, 6, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, twoRails(func(c *worldConfig) { c.aside, c.asideFor = true, 5*s1 }))
		w.runFor(20 * ms)
		w.close()
		w.verdict(replay)
	})
}

// TestSimPausedWhileDraining: a process stands still for longer than draining may
// take, with more flushed work requests than one poll takes. They are there when
// it goes on, and are polled before it gives anything up.
func TestSimPausedWhileDraining(t *testing.T) {
	seeds(t, 6, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, twoRails(func(c *worldConfig) { c.payload, c.depth = 4096, 32 }))
		if w.runUntil("up", 5*s1, w.isUp) {
			s := w.sides[w.rng.IntN(2)]
			s.session.Close(nil)
			w.runUntil("closing", s1, func() bool { return s.session.groups[0].closing })
			s.pausedUntil = w.now() + 3*s1
			w.finish()
		}
		w.verdict(replay)
	})
}
