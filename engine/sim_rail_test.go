package engine

import (
	"errors"
	"strings"
	"testing"

	"mover/reason"
	"mover/verbs"
	"mover/verbs/sim"
)

// twoRails is a world of two rails without other faults than the test's own.
func twoRails(edit func(*worldConfig)) func(*worldConfig) {
	return func(c *worldConfig) {
		c.rails, c.rebuildMin, c.rebuildMax = 2, 10*ms, 500*ms
		if edit != nil {
			edit(c)
		}
	}
}

// lanesUp counts the lanes of a rail, and those of them that are ready.
func (s *simSide) lanesUp(rail uint16) (ready, all int) {
	for _, l := range s.session.lanes {
		if l.rail == rail {
			all++
			if l.ready {
				ready++
			}
		}
	}
	return ready, all
}

// railIs reports whether a rail has all its lanes, or none, on both sides.
func (w *world) railIs(rail uint16, up bool) bool {
	for _, s := range w.sides {
		ready, all := s.lanesUp(rail)
		if s.session.plan == nil || up && ready != all || !up && ready != 0 {
			return false
		}
	}
	return true
}

func (w *world) bothUp() bool { return w.sides[0].up && w.sides[1].up }

// moved sends an item and expects it to arrive.
func (w *world) moved(kind ItemKind, size int64) {
	i := w.addItem(w.sides[w.rng.IntN(2)], kind, size, true, itemFaults{}, 0)
	if w.runUntil("an item", 100*s1, func() bool { return i.done > 0 }) {
		i.expect()
	}
}

func portAt(host string, device string) sim.PortID {
	return sim.PortID{Host: host, Device: device, Port: 1}
}

// TestSimPortDownAtStart: a port that is down when the session begins does not
// keep it from beginning, on whichever side it is, and its rail joins when the
// port comes up.
func TestSimPortDownAtStart(t *testing.T) {
	for _, down := range [][]sim.PortID{{portAt("a", "sim1")}, {portAt("b", "sim1")}, {portAt("a", "sim0"), portAt("b", "sim0")}} {
		seeds(t, 6, func(t *testing.T, seed uint64, replay string) {
			w := newWorld(t, seed, twoRails(func(c *worldConfig) { c.down = down }))
			w.pollEvents()
			if w.runUntil("up", 4*s1, w.bothUp) && w.runUntil("all lanes of the rail that is up", 5*s1, func() bool { return w.railIs(0, true) }) {
				w.moved(Staged, 200_000)
				w.moved(Direct, 200_000)
				if !w.railIs(1, false) || !w.sides[0].session.Rails()[1].Local.Down && !w.sides[0].session.Rails()[1].Remote.Down {
					w.problem("the rail with a port down has lanes")
				}
				w.tolerate[sim.StaleQP] = true // a port flapped before there was any QP
				for _, id := range down {
					w.f.PortUp(id)
				}
				if w.runUntil("the rail joins", 10*s1, w.isUp) {
					w.moved(Staged, 1<<20)
					w.moved(Direct, 1<<20)
				}
				w.close()
			}
			w.verdict(replay)
		})
	}
}

// TestSimNoRailUp: without a rail whose ends are both up the session is refused,
// and the ports that are down are named.
func TestSimNoRailUp(t *testing.T) {
	w := newWorld(t, 1, twoRails(func(c *worldConfig) {
		c.down = []sim.PortID{portAt("a", "sim0"), portAt("b", "sim0"), portAt("a", "sim1"), portAt("b", "sim1")}
	}))
	w.runUntil("refused", s1, w.bothEnded)
	for _, s := range w.sides {
		if s.why == nil || s.why.Code != reason.PeerUnreachable || !strings.Contains(s.why.Detail, "sim0 port 1: the port is down") ||
			!strings.Contains(s.why.Detail, "sim1 port 1") {
			t.Errorf("%s: %v", s.host, s.why)
		}
	}
	w.finish()
	w.verdict("")
}

// TestSimCutAtStart: a rail that is silently cut is found by its probes: the
// session begins on the other one, and no data goes into the cut.
func TestSimCutAtStart(t *testing.T) {
	seeds(t, 8, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, twoRails(nil))
		w.f.CutRail(portAt("a", "sim1"), portAt("b", "sim1"))
		if w.runUntil("up", 3*s1, w.bothUp) {
			w.moved(Staged, 500_000)
			w.moved(Direct, 500_000)
			w.runFor(3 * s1)
			for _, s := range w.sides {
				if r := s.session.Rails()[1]; r.SentBytes.Load()+r.RecvBytes.Load() > 0 || r.LanesUp.Load() > 0 {
					w.problem("%s: %d lanes of the rail that is cut came up, and carried %d bytes", s.host, r.LanesUp.Load(), r.SentBytes.Load())
				}
			}
			if !strings.Contains(w.sides[0].session.troubleText(), "rail 1, sim1 port 1 (10.0.0.9) to sim1 port 1 (10.0.1.9): RETRY_EXC_ERR") {
				w.problem("trouble: %q", w.sides[0].session.troubleText())
			}
			w.f.HealRail(portAt("a", "sim1"), portAt("b", "sim1"))
			w.runUntil("the rail joins", 10*s1, w.isUp)
			w.close()
		}
		w.verdict(replay)
	})
}

// TestSimAllCutAtStart: when every probe fails the session ends with a reason
// that names ports, GIDs, what happened and where to look.
func TestSimAllCutAtStart(t *testing.T) {
	w := newWorld(t, 3, twoRails(nil))
	for _, d := range []string{"sim0", "sim1"} {
		w.f.CutRail(portAt("a", d), portAt("b", d))
	}
	w.runUntil("the end", 40*s1, w.bothEnded)
	why := w.sides[0].why
	if why == nil || why.Code != reason.PeerUnreachable {
		t.Fatalf("%v", why)
	}
	for _, want := range []string{"rail 0, sim0 port 1 (10.0.0.1) to sim0 port 1 (10.0.1.1): RETRY_EXC_ERR", "UDP port 4791", "rail 1"} {
		if !strings.Contains(why.Detail, want) {
			t.Errorf("%q lacks %q", why.Detail, want)
		}
	}
	w.finish()
	w.verdict("")
}

// TestSimPeerPortDown: a port that goes down at the peer, of which this side
// hears nothing, gets no data until it is back: the probes keep it out.
func TestSimPeerPortDown(t *testing.T) {
	seeds(t, 6, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, twoRails(nil))
		w.tolerate[sim.StaleQP] = true // nobody reads the events here
		if w.runUntil("up", 5*s1, w.isUp) {
			id := portAt("b", "sim0")
			w.f.PortDown(id)
			w.moved(Staged, 1<<20)
			w.moved(Direct, 1<<20)
			// One more in each direction, so that every lane has had work.
			for range 4 {
				w.moved(Staged, 1<<20)
			}
			rail := w.sides[0].session.Rails()[0]
			w.runUntil("the rail is left", 10*s1, func() bool { return rail.LanesUp.Load() == 0 })
			sent := rail.SentBytes.Load()
			w.runFor(5 * s1)
			w.moved(Staged, 1<<20)
			if got := rail.SentBytes.Load(); got != sent {
				w.problem("%d bytes were sent to a port that is down", got-sent)
			}
			w.f.PortUp(id)
			w.runUntil("the rail is back", 20*s1, w.isUp)
			w.close()
		}
		w.verdict(replay)
	})
}

// TestSimGIDMoves: a port loses its address, with the event that tells of it.
// Its lanes are failed at once and not built without an address; with another
// address they are, on that; lanes of other ports stay.
func TestSimGIDMoves(t *testing.T) {
	seeds(t, 8, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, twoRails(nil))
		if !w.runUntil("up", 5*s1, w.isUp) {
			w.verdict(replay)
			return
		}
		w.drawItems(4, 1<<20, nil)
		loser := w.sides[w.rng.IntN(2)]
		epochs := func(rail uint16) (sum uint32) {
			for _, l := range loser.session.lanes {
				if l.rail == rail {
					sum += l.epoch
				}
			}
			return sum
		}
		hide := func(f func(verbs.GID) bool) {
			loser.ctxs[1].hide = f
			loser.session.PortEvent(loser.ctxs[1], verbs.AsyncEvent{Type: verbs.EventGIDChange, Port: 1})
		}
		other, own := epochs(0), epochs(1)
		hide(func(verbs.GID) bool { return true })
		w.runUntil("the rail is left", 5*s1, func() bool { return w.railIs(1, false) })
		w.runFor(3 * s1)
		if !w.railIs(1, false) || epochs(0) != other {
			w.problem("lanes without a GID came up, or lanes of the other rail (epochs %d, %d) went down", epochs(0), other)
		}
		if !strings.Contains(w.sides[0].session.troubleText(), "no usable GID") {
			w.problem("trouble: %q", w.sides[0].session.troubleText())
		}
		// An IPv6 address comes instead; the peer's port has one of that family
		// as well. Nothing else tells a dialler of it than the event.
		hide(func(g verbs.GID) bool { return g.Addr().Is4() })
		if w.runUntil("the rail is back", 10*s1, w.isUp) {
			for _, s := range w.sides {
				for _, l := range s.session.lanes {
					if v4 := l.here.gid.GID.Addr().Is4(); v4 != (l.rail == 0) {
						w.problem("%s lane %d of rail %d: GID %v", s.host, l.index, l.rail, l.here.gid.GID.Addr())
					}
				}
			}
		}
		if epochs(1) == own {
			w.problem("no lane was rebuilt")
		}
		// A change elsewhere in the table is nothing to the lanes.
		at := epochs(1)
		hide(func(g verbs.GID) bool { return false })
		w.runFor(s1)
		if epochs(1) != at || !w.isUp() {
			w.problem("lanes whose GID stayed were rebuilt")
		}
		w.runUntil("items", 100*s1, w.allDone)
		for _, i := range w.items {
			i.expect()
		}
		w.close()
		w.verdict(replay)
	})
}

// TestSimDeviceGone: a device dies, told by an event or found out, while items
// move. Its rail is given up; the session, and every item, goes on over the
// other one, also items that come later and can't be registered on it.
func TestSimDeviceGone(t *testing.T) {
	for _, told := range []bool{true, false} {
		seeds(t, 16, func(t *testing.T, seed uint64, replay string) {
			w := newWorld(t, seed, twoRails(func(c *worldConfig) { c.split = seed%3 == 0 }))
			if told {
				w.pollEvents()
			}
			if !w.runUntil("up", 5*s1, w.isUp) {
				w.verdict(replay)
				return
			}
			kind := func() ItemKind {
				if w.rng.IntN(2) == 0 && !w.cfg.split {
					return Direct
				}
				return Staged // a segment stays with its group, whose lanes may all be gone
			}
			for range 4 {
				w.addItem(w.sides[w.rng.IntN(2)], kind(), w.drawSize(1<<20), true, itemFaults{}, w.rng.Int64N(2*ms))
			}
			s, at := w.sides[w.rng.IntN(2)], w.rng.IntN(2)
			w.after(w.rng.Int64N(6*ms), "fatal", func() { w.f.FatalDevice(s.host, s.ctxs[at].Device().Name) })
			w.runFor(7 * ms)
			w.runUntil("items", 100*s1, w.allDone)
			gone := func() bool { ready, _ := s.lanesUp(uint16(at)); return ready == 0 }
			for range 20 { // so that an idle lane has work, and is found out
				if !gone() && len(w.problems) == 0 {
					w.moved(Staged, 1<<20)
				}
			}
			if told {
				w.runUntil("the rail is given up", 20*s1, gone)
			}
			if gone() {
				for range 3 {
					w.moved(Staged, w.drawSize(1<<20))
					w.moved(kind(), w.drawSize(1<<20))
				}
			}
			for _, i := range w.items {
				i.expect()
			}
			if w.sides[0].ended || w.sides[1].ended {
				w.problem("the session ended: %v, %v", w.sides[0].why, w.sides[1].why)
			}
			w.close()
			w.verdict(replay)
		})
	}
}

// TestSimDeviceGoneUnheard: a device dies of which nobody has told yet when an
// item's memory is to be registered on it. Its destination grants over the
// other device alone, though lanes of this one still seem up; its source ends
// the attempt at once, and the next one arrives. The session stays.
func TestSimDeviceGoneUnheard(t *testing.T) {
	for at, host := range []string{"a", "b"} {
		seeds(t, 8, func(t *testing.T, seed uint64, replay string) {
			w := newWorld(t, seed, twoRails(func(c *worldConfig) { c.pollers, c.split, c.payload, c.segment = [2]int{2, 2}, true, 16384, 65536 }))
			if w.runUntil("up", 5*s1, w.isUp) {
				w.f.FatalDevice(host, "sim1")
				i := w.addItem(w.sides[0], Direct, 1<<20, true, itemFaults{}, 0)
				w.runUntil("an item", 20*s1, func() bool { return i.done > 0 }) // StallAfter is more
				if at == 1 {
					i.expect()
				} else {
					i.expect("", reason.TransportError)
				}
				w.runUntil("the rail is given up", 20*s1, func() bool { return w.railIs(1, false) })
				w.moved(Direct, 1<<20)
				if w.sides[0].ended || w.sides[1].ended {
					w.problem("the session ended: %v, %v", w.sides[0].why, w.sides[1].why)
				}
				w.close()
			}
			w.verdict(replay)
		})
	}
}

// TestAccessErrorEndsItsSession: a device tells every session of an access
// error; it ends the one whose QP it is, also when the lane is drained already.
func TestAccessErrorEndsItsSession(t *testing.T) {
	w := newWorld(t, 7, twoRails(nil))
	if !w.runUntil("up", 5*s1, w.isUp) {
		w.verdict("")
		return
	}
	s := w.sides[1].session
	l := s.lanes[0]
	tell := func(ctx verbs.Context, qpn uint32) {
		s.PortEvent(ctx, verbs.AsyncEvent{Type: verbs.EventQPAccessErr, QPN: qpn})
		s.Run(w.now())
	}
	own := s.railPort(l.rail).Context
	tell(own, 0xabcdef) // another session's
	if s.phase != phaseUp {
		t.Errorf("the error of another QP ended the session: %v", s.why)
	}
	l.drained = true
	tell(own, l.qp.QPN())
	if s.phase != phaseClosing || s.why == nil || !strings.Contains(s.why.Detail, "an access error on lane 0") {
		t.Errorf("phase %d, %v", s.phase, s.why)
	}
	w.runUntil("the end", 10*s1, w.bothEnded)
	w.finish()
}

// TestLaneDownTwice: what a peer says twice of one life of a lane is refused
// before it can be taken for a word on the next.
func TestLaneDownTwice(t *testing.T) {
	w := newWorld(t, 8, twoRails(nil))
	if w.runUntil("up", 5*s1, w.isUp) {
		s := w.sides[1].session
		down := &LaneDown{Lane: s.lanes[0].ref(), Cause: "a lie"}
		s.Handle(down, w.now())
		if s.phase != phaseUp {
			t.Fatalf("%v", s.why)
		}
		s.Handle(down, w.now())
		if s.phase != phaseClosing || s.why == nil || !strings.Contains(s.why.Detail, "LaneDown twice") {
			t.Errorf("phase %d, %v", s.phase, s.why)
		}
		w.runUntil("the end", 10*s1, w.bothEnded)
	}
	w.finish()
}

// TestSimRailCutLong: where a rail has a poller of its own, so that a lane group
// loses every lane with it, the session goes on over the other rails for as
// long as it takes, and uses the rail again once it is mended.
func TestSimRailCutLong(t *testing.T) {
	seeds(t, 6, func(t *testing.T, seed uint64, replay string) {
		w := newWorld(t, seed, twoRails(func(c *worldConfig) { c.pollers, c.split, c.payload, c.segment = [2]int{2, 2}, true, 16384, 65536 }))
		if w.runUntil("up", 5*s1, w.isUp) {
			if n := len(w.sides[0].session.groups); n != 2 {
				w.problem("%d groups", n)
			}
			for range 4 {
				w.addItem(w.sides[w.rng.IntN(2)], Staged, 1<<20, true, itemFaults{}, 0)
			}
			a, b := portAt("a", "sim1"), portAt("b", "sim1")
			w.runFor(w.rng.Int64N(ms))
			w.f.CutRail(a, b)
			w.runUntil("items", 100*s1, w.allDone)
			w.runFor(25 * s1) // more than half of StallAfter
			w.moved(Staged, 1<<20)
			if w.sides[0].ended {
				w.problem("ended: %v", w.sides[0].why)
			}
			w.f.HealRail(a, b)
			if w.runUntil("both rails are up", 10*s1, w.isUp) {
				before := w.sides[0].session.Rails()[1].SentBytes.Load()
				i := w.addItem(w.sides[0], Staged, 2<<20, true, itemFaults{}, 0)
				w.runUntil("an item", 100*s1, func() bool { return i.done > 0 })
				if w.sides[0].session.Rails()[1].SentBytes.Load() == before {
					w.problem("the mended rail carries nothing")
				}
			}
			for _, i := range w.items {
				i.expect()
			}
			w.close()
		}
		w.verdict(replay)
	})
}

// TestSimBuildFails: QPs that can't be made, or not be moved to INIT, now and
// then, on either side: that life of the lane fails and the next is tried
// later. The session stays.
func TestSimBuildFails(t *testing.T) {
	for _, verb := range []string{"create", "init", "rtr"} {
		seeds(t, 12, func(t *testing.T, seed uint64, replay string) {
			left, n := 12, 0
			w := newWorld(t, seed, twoRails(func(c *worldConfig) {
				fail := func() error {
					if n++; left > 0 && n%3 == 0 {
						left--
						return &verbs.Error{Op: "the test's", Errno: 12}
					}
					return nil
				}
				c.lend = func(x *gidContext) {
					switch verb {
					case "create":
						x.createQP = fail
					default:
						x.modify = func(a *verbs.QPAttr) error {
							if a.State == verbs.StateInit && verb == "init" || a.State == verbs.StateRTR && verb == "rtr" {
								return fail()
							}
							return nil
						}
					}
				}
			}))
			w.drawItems(4, 1<<20, nil)
			if w.runUntil("up", 20*s1, w.isUp) && w.runUntil("items", 100*s1, w.allDone) {
				w.scheduleFaults(3, 30*ms) // so that lanes are rebuilt
				w.runFor(40 * ms)
				w.runUntil("up again", 60*s1, w.settled)
				for _, i := range w.items {
					i.expect()
				}
				w.close()
			}
			if n == 0 {
				w.problem("nothing failed")
			}
			w.verdict(replay)
		})
	}
}

// TestSimBuildNever: a set-up in which everything fails ends with the error.
func TestSimBuildNever(t *testing.T) {
	w := newWorld(t, 5, twoRails(func(c *worldConfig) {
		c.lend = func(x *gidContext) { x.createQP = func() error { return errors.New("no more queue pairs") } }
	}))
	w.runUntil("the end", 60*s1, w.bothEnded)
	if why := w.sides[0].why; why == nil || why.Code != reason.PeerUnreachable || !strings.Contains(why.Detail, "sim0 port 1 here: no more queue pairs") {
		t.Errorf("%v", why)
	}
	w.finish()
	w.verdict("")
}

// TestSimQueueLimits: slots are as many as a device's queues can credit, and a
// lane deeper than its queues is refused with the setting.
func TestSimQueueLimits(t *testing.T) {
	w := newWorld(t, 1, twoRails(func(c *worldConfig) {
		c.payload, c.depth = 4096, 32
		c.pollers = [2]int{1, 1}
		c.device = func(d *sim.Device) { d.MaxQPWR = 101 }
	}))
	w.runUntil("refused", 5*s1, w.bothEnded) // a's slots are more than b's credit lane receives
	if why := w.sides[1].why; why == nil || why.Code != reason.PeerRefused || !strings.Contains(why.Detail, "at most 101 work requests") ||
		!strings.Contains(why.Detail, "session_share") {
		t.Errorf("%v", why)
	}
	if n := len(w.sides[1].session.groups[0].recv); n != 50 {
		t.Errorf("%d slots", n)
	}
	w.finish()
	w.verdict("")
	w = newWorld(t, 1, twoRails(func(c *worldConfig) {
		c.depth = 32
		c.device = func(d *sim.Device) { d.MaxQPWR = 20 }
	}))
	w.runUntil("refused", 5*s1, w.bothEnded)
	if why := w.sides[1].why; why == nil || why.Code != reason.PeerRefused || !strings.Contains(why.Detail, "lower session.lane_depth") {
		t.Errorf("%v", why)
	}
	w.finish()
	w.verdict("")
}

// TestSimMTU: the smaller MTU of a rail's ends is used, and told with both.
func TestSimMTU(t *testing.T) {
	w := newWorld(t, 2, twoRails(func(c *worldConfig) {
		c.device = func(d *sim.Device) { d.Ports[0].MTU = verbs.MTU1024 }
	}))
	if w.runUntil("up", 5*s1, w.isUp) {
		w.moved(Staged, 100_000)
		w.close()
	}
	w.verdict("")
	log := strings.Join(w.log, "\n")
	for _, want := range []string{"a: rail [rail 0 local sim0 port 1 (10.0.0.1) lid 0 remote sim0 port 1 (10.0.1.1) remote_lid 0 mtu 1024 lost_after_ms 469",
		"its MTU is 4096, that of sim0 port 1 there 1024; 1024 is used", "b: rail [rail 1"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
}

// TestSimRelaxedOrdering: shares and items are registered as the port says.
func TestSimRelaxedOrdering(t *testing.T) {
	w := newWorld(t, 4, twoRails(nil))
	if w.runUntil("up", 5*s1, w.isUp) {
		w.moved(Direct, 100_000)
		w.moved(Direct, 100_000)
		w.close()
	}
	w.verdict("")
	for _, s := range w.sides {
		for _, c := range s.ctxs {
			if len(c.access) < 4 {
				t.Errorf("%s: %d registrations", s.host, len(c.access))
			}
			for _, a := range c.access {
				if a&verbs.AccessRelaxedOrdering != 0 != (s.index == 0) {
					t.Errorf("%s: access %#x", s.host, a)
				}
			}
		}
	}
}
