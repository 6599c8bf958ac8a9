package engine

import (
	"time"

	"mover/reason"
	"mover/verbs/sim"
)

// drawItemFaults draws what goes wrong with an item by itself; half the time
// nothing.
func (w *world) drawItemFaults() itemFaults {
	var f itemFaults
	if w.rng.IntN(3) == 0 {
		f.openDelay = w.rng.Int64N(20 * ms)
	}
	if w.rng.IntN(3) == 0 {
		f.pubWait = w.rng.Int64N(20 * ms)
	}
	switch w.rng.IntN(18) {
	case 0:
		f.readErr = 1 + w.rng.IntN(8)
	case 1:
		f.writeErr = 1 + w.rng.IntN(8)
	case 2:
		f.changed = true
	case 3:
		f.refused = true
	case 4:
		f.publishErr = true
	case 5:
		f.already = true
	case 6, 7, 8:
		f.cancelAt = 1 + w.rng.Int64N(10*ms)
	}
	return f
}

// expectFault checks that an item ended as its fault says.
func (i *simItem) expectFault() {
	f := i.faults
	switch {
	case f.cancelAt > 0:
		i.expect("", reason.Canceled)
	case !i.wasHit():
		i.expect()
	case f.refused, f.writeErr > 0 && i.item.Kind == Staged:
		i.expect(reason.NoSpace, reason.IOError)
	case f.readErr > 0, f.publishErr:
		i.expect(reason.IOError)
	case f.changed:
		i.expect(reason.SourceChanged)
	}
}

// scheduleFaults draws n faults of lanes, rails and ports within the time.
func (w *world) scheduleFaults(n int, within int64) {
	w.pollEvents()
	for range n {
		f := []func(){w.killQP, w.killQP, w.fatalQP, w.killSide, w.hold, w.flap, w.cut}[w.rng.IntN(7)]
		w.calmAt = w.now() + within + 6*s1
		w.after(w.rng.Int64N(within), "fault", func() {
			for range 1 + w.rng.IntN(3)/2 {
				f()
			}
		})
	}
}

func (w *world) device() (s *simSide, name string, at int) {
	s = w.sides[w.rng.IntN(2)]
	at = w.rng.IntN(w.cfg.rails)
	return s, s.ctxs[at].Device().Name, at
}

func (w *world) qps(s *simSide, name string) []sim.QPInfo { return w.f.QPs(s.host, name) }

func (w *world) anyQP() (uint32, bool) {
	s, name, _ := w.device()
	qps := w.qps(s, name)
	if len(qps) == 0 {
		return 0, false
	}
	return qps[w.rng.IntN(len(qps))].QPN, true
}

func (w *world) killQP() {
	if q, ok := w.anyQP(); ok {
		w.f.KillQP(q)
	}
}

func (w *world) fatalQP() {
	if q, ok := w.anyQP(); ok {
		w.f.FatalQP(q)
	}
}

// killSide ends every QP of a device, data and credit, at once.
func (w *world) killSide() {
	s, name, _ := w.device()
	for _, q := range w.qps(s, name) {
		w.f.FatalQP(q.QPN)
	}
}

func (w *world) hold() {
	s, name, _ := w.device()
	w.f.HoldCompletions(s.host, name, time.Duration(w.rng.Int64N(400*ms)))
}

func (w *world) holdSends() {
	if q, ok := w.anyQP(); ok {
		w.f.HoldSends(q, time.Duration(w.rng.Int64N(100*ms)))
	}
}

func (w *world) flap() {
	s, name, _ := w.device()
	id := sim.PortID{Host: s.host, Device: name, Port: 1}
	w.f.PortDown(id)
	w.flaps = append(w.flaps, w.now())
	w.after(w.rng.Int64N(3*s1), "port up", func() { w.f.PortUp(id) })
}

func (w *world) cut() {
	_, name, _ := w.device()
	a, b := sim.PortID{Host: "a", Device: name, Port: 1}, sim.PortID{Host: "b", Device: name, Port: 1}
	w.f.CutRail(a, b)
	w.after(w.rng.Int64N(5*s1), "heal", func() { w.f.HealRail(a, b) })
}

func (w *world) corrupt() {
	if q, ok := w.anyQP(); ok {
		w.f.CorruptNext(q, 1)
	}
}

// pollEvents reads the devices' asynchronous events as a node's goroutine
// does, now and then.
func (w *world) pollEvents() {
	for _, s := range w.sides {
		w.pollEventsOf(s)
	}
}

func (w *world) pollEventsOf(s *simSide) {
	for _, ctx := range s.ctxs {
		var poll func()
		poll = func() {
			for {
				e, err := ctx.GetAsyncEvent(0)
				if err != nil {
					break
				}
				s.session.PortEvent(ctx, e)
			}
			if !s.ended {
				s.after(w.rng.Int64N(5*ms), "events", poll)
			}
		}
		poll()
	}
}

// scheduleEnd draws how the session dies.
func (w *world) scheduleEnd(at int64) {
	s, name, device := w.device()
	kinds := []func(){
		func() { s.session.Close(nil) },
		func() { s.session.Close(reason.New(reason.PeerRefused, "draining")) },
		func() { // both close at once
			w.sides[0].session.Close(nil)
			w.sides[1].session.Close(nil)
		},
		w.loseControl,
		w.loseControl,
		func() { // the peer's process is gone: no message, and its QPs are dead
			for _, l := range append(w.sides[0].links[:], w.sides[1].links[:]...) {
				l.mute = true
			}
		},
		func() { // one direction only
			for _, l := range s.links {
				l.mute = true
			}
		},
		func() {
			w.pollEvents()
			w.f.FatalDevice(s.host, name)
		},
		func() { w.f.FatalDevice(s.host, name) }, // and nobody reads the event
		func() {
			for _, g := range s.session.groups {
				for _, c := range g.cqs {
					if c.device < len(s.session.pds) && s.session.pds[c.device].ctx == s.ctxs[device] {
						w.f.OverrunCQ(c.cq)
						return
					}
				}
			}
			s.session.Close(nil) // there is none yet
		},
	}
	end := kinds[w.rng.IntN(len(kinds))]
	w.after(at, "end", end)
	w.after(at+30*s1, "end after all", func() { // a device that nobody used, or that others stand in for
		for _, s := range w.sides {
			if !s.ended {
				s.session.Close(nil)
			}
		}
	})
}

// loseControl cuts the control connection; the sides notice at their own time.
func (w *world) loseControl() {
	for _, s := range w.sides {
		for _, l := range s.links {
			l.cut = true
		}
		if s.dead {
			continue
		}
		session := s.session
		s.after(w.rng.Int64N(20*ms), "lost", func() {
			if s.session == session {
				session.Lost(reason.New(reason.PeerUnreachable, "the control connection broke"), w.now())
				s.woken = true
			}
		})
	}
}
