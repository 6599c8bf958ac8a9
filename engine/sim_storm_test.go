package engine

import (
	"time"

	"mover/reason"
	"mover/verbs/sim"
)

// storm is something that goes wrong with more than one item.
type storm struct {
	name  string
	begin func(*world)
	long  bool // what it does shows after seconds only: calm has to wait
}

var storms = []storm{
	{name: "lanes", begin: strikeLanes}, {name: "lanes", begin: strikeLanes}, {name: "lanes", begin: strikeLanes},
	{name: "a port flaps", begin: func(w *world) { w.tolerate[sim.StaleQP] = true; w.flap() }},
	{name: "a rail is cut", begin: (*world).cut},
	{name: "partition", begin: func(w *world) { // of the fabric, and perhaps of the control network too
		for _, d := range w.sides[0].ctxs {
			a, b := portAt("a", d.Device().Name), portAt("b", d.Device().Name)
			w.f.CutRail(a, b)
			w.after(w.rng.Int64N(8*s1), "heal", func() { w.f.HealRail(a, b) })
		}
		if w.rng.IntN(2) == 0 {
			w.stallControl(w.rng.Int64N(8 * s1))
		}
	}},
	{name: "the control stream stalls", begin: func(w *world) {
		w.stallControl(w.rng.Int64N([]int64{5 * ms, 100 * ms, s1, 5 * s1}[w.rng.IntN(4)]))
	}},
	{name: "the control stream dies", begin: (*world).loseControl},
	{name: "the peer falls silent", begin: func(w *world) {
		for k, l := range append(w.sides[0].links[:], w.sides[1].links[:]...) {
			l.mute = k%2 == 0 || w.rng.IntN(2) == 0
		}
	}},
	{name: "a slow node", begin: func(w *world) {
		s := w.sides[w.rng.IntN(2)]
		s.slow = []int64{5, 30, 200}[w.rng.IntN(3)]
		w.after(w.rng.Int64N(2*s1), "fast again", func() { s.slow = 0 })
	}},
	{name: "a paused node", begin: func(w *world) {
		s := w.sides[w.rng.IntN(2)]
		s.pausedUntil = w.now() + w.rng.Int64N([]int64{20 * ms, s1, 9 * s1}[w.rng.IntN(3)])
	}},
	{name: "a killed node", begin: func(w *world) { w.sides[w.rng.IntN(2)].kill() }},
	{name: "a device dies", begin: func(w *world) {
		s, name, _ := w.device()
		for _, p := range s.pollers { // whose driver is busy with it before
			if !s.dead && w.rng.IntN(2) == 0 && !p.parked {
				p.at += w.rng.Int64N(10 * ms)
			}
		}
		w.after(w.rng.Int64N([]int64{us, ms}[w.rng.IntN(2)]), "fatal", func() { w.killDevice(s, name) })
	}},
	{name: "a device dies, and nobody tells", begin: func(w *world) {
		if s, name, at := w.device(); !s.dead {
			s.ctxs[at].deaf = true
			w.killDevice(s, name)
		}
	}, long: true},
	{name: "a queue overruns", begin: func(w *world) {
		s := w.sides[w.rng.IntN(2)]
		for _, g := range s.session.groups {
			for _, c := range g.cqs {
				if !s.dead && s.session.phase < phaseClosing {
					w.f.OverrunCQ(c.cq)
					return
				}
			}
		}
	}},
	{name: "a session is closed", begin: func(w *world) {
		if s := w.sides[w.rng.IntN(2)]; !s.dead {
			s.session.Close(reason.New(reason.PeerRefused, "draining"))
		}
	}},
}

// strikeLanes ends queue pairs, or keeps their completions back: the most frequent of
// all storms, since the protocol between two ends is about them.
func strikeLanes(w *world) {
	within := []int64{20 * us, 500 * us, 20 * ms}[w.rng.IntN(3)]
	for range 1 + w.rng.IntN(5) {
		w.after(w.rng.Int64N(within), "lane", func() {
			if !w.isCalm {
				[]func(){w.killQP, w.fatalQP, w.fatalQP, w.killSide, w.hold, w.holdSends, w.holdSends}[w.rng.IntN(7)]()
			}
		})
	}
}

// corruption comes last: what breaks the protocol then is no fault of an end.
var corruption = storm{name: "bytes are damaged", begin: func(w *world) {
	for range 1 + w.rng.IntN(6) {
		w.after(w.rng.Int64N(10*ms), "corrupt", w.corrupt)
	}
}}

func (w *world) killDevice(s *simSide, name string) {
	if !s.dead && !w.isCalm {
		w.f.FatalDevice(s.host, name)
		w.fatal[s.index] = append(w.fatal[s.index], name)
	}
}

func (w *world) stallControl(d int64) {
	links := [][]*simLink{w.sides[0].links[:], w.sides[1].links[:], w.sides[0].links[:1], w.sides[1].links[1:],
		append(w.sides[0].links[:], w.sides[1].links[:]...)}[w.rng.IntN(5)]
	for _, l := range links {
		l.stalledUntil = w.now() + d
	}
}

// kill ends the process; it is begun again later. The peer may hear that the
// control connection is closed, or not, as when the whole host is gone.
func (s *simSide) kill() {
	w := s.w
	if s.dead {
		return
	}
	s.dead, s.woken = true, false
	s.life++
	w.kills++
	s.pausedUntil = 0
	w.f.KillHost(s.host)
	w.stopWorkers(func(o *simSide) bool { return o == s })
	for _, i := range w.items {
		if i.from == s && i.done == 0 && i.sentAt > 0 {
			i.lost = true
		}
		if i.from != s && i.opened && !i.ended {
			i.gone = true
		}
	}
	other := w.sides[1-s.index]
	for _, l := range append(s.links[:], other.links[:]...) {
		l.mute = true
	}
	if session := other.session; !other.dead && w.rng.IntN(2) == 0 {
		for _, l := range other.links {
			l.cut = true
		}
		other.after(w.rng.Int64N(20*ms), "reset", func() {
			if other.session == session {
				session.Lost(reason.New(reason.PeerUnreachable, "the control connection was reset"), w.now())
				other.woken = true
			}
		})
	}
	w.after(w.rng.Int64N(5*s1), "restart", s.restart)
}

// restart begins the process again. Its jobs are back; an attempt that was under
// way begins anew.
func (s *simSide) restart() {
	w := s.w
	if !s.dead {
		return
	}
	for _, name := range w.fatal[s.index] {
		w.f.RepairDevice(s.host, name)
	}
	w.fatal[s.index] = nil
	s.life++
	s.boot()
	s.noSession()
	for _, j := range w.jobs {
		if n := len(j.attempts); n > 0 && j.attempts[n-1].lost && !j.waiting {
			j.waiting = true
			w.after(w.rng.Int64N(20*ms), "again", j.attempt)
		}
	}
}

// noSession stands for the one before connect.
func (s *simSide) noSession() {
	s.session = NewSession(SessionConfig{Waker: s})
	s.session.phase, s.session.over = phaseClosed, true
	s.ended = true
}

// reconnect begins a session now and then when there is none.
func (w *world) reconnect() {
	a, b := w.sides[0], w.sides[1]
	if w.isOver {
		return
	}
	if !a.dead && !b.dead && a.ended && b.ended {
		for _, s := range w.sides {
			s.checkOver()
		}
		w.connect()
	}
	w.after(20*ms+w.rng.Int64N(300*ms), "reconnect", w.reconnect)
}

// calm ends every fault. From now on everything that may be tried again has to
// arrive.
func (w *world) calm() {
	w.isCalm = true
	w.f.SetFaults(sim.Faults{})
	for _, s := range w.sides {
		s.slow = 0
		if len(w.fatal[s.index]) > 0 {
			s.kill()
		}
		s.restart()
		s.pausedUntil = min(s.pausedUntil, w.now()+ms)
		for _, l := range s.links {
			l.stalledUntil = min(l.stalledUntil, w.now())
		}
		for _, ctx := range s.ctxs {
			w.f.PortUp(portAt(s.host, ctx.Device().Name))
			w.f.HealRail(portAt("a", ctx.Device().Name), portAt("b", ctx.Device().Name))
		}
	}
}

// drawStorms schedules what goes wrong in the run, and when it is over.
func (w *world) drawStorms() {
	n, long := w.rng.IntN(6), false
	for range n {
		s := storms[w.rng.IntN(len(storms))]
		long = long || s.long
		w.blow(s)
	}
	if w.hostile {
		w.blow(corruption)
	}
	w.stormy = n > 0 || w.hostile || w.cfg.fabric.Faults != (sim.Faults{})
	at := 40*ms + w.rng.Int64N(200*ms)
	if w.rng.IntN(4) == 0 {
		at += w.rng.Int64N(12 * s1)
	}
	if long {
		at += 10 * s1
	}
	w.after(at, "calm", w.calm)
}

// blow has a storm begin at a time, or after a number of acts: those come thick
// while bytes move, which is little of the time.
func (w *world) blow(s storm) {
	begin := func() {
		if !w.isCalm {
			w.storms = append(w.storms, s.name+" at "+time.Duration(w.now()).String())
			w.mix(s.name, w.now())
			s.begin(w)
		}
	}
	if w.rng.IntN(3) == 0 {
		w.after(w.rng.Int64N(25*ms), s.name, begin)
		return
	}
	w.counted = append(w.counted, countedAct{w.rng.IntN([]int{600, 1500}[w.rng.IntN(2)]), begin})
}

// drawFaults gives the fabric faults of its own, of some kinds.
func (w *worldConfig) drawFaults(pick func(...float64) float64) {
	w.fabric.Faults = sim.Faults{KillQP: pick(0, 0, .001, .004), Hold: pick(0, 0, .002), CutRail: pick(0, 0, 0, .002)}
}
