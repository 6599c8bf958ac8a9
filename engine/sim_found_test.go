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
