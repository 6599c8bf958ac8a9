package engine

import (
	"fmt"
	"math"
	"strings"

	"mover/reason"
	"mover/verbs"
)

// simSide is one node: a process on a host, with one session at a time.
type simSide struct {
	w       *world
	index   int
	host    string
	ctxs    []*gidContext
	chans   [][]verbs.CompChannel // by poller
	pollers []*simPoller
	session *Session
	scratch []*Scratch  // of workers that do nothing
	links   [2]*simLink // outgoing: control stream, item stream
	ended   bool
	why     *reason.Error
	up      bool

	woken     bool // the session's goroutine
	sessionAt int64
	leases    int
	working   []*simWorker

	// What goes wrong with the process as a whole.
	life        int   // counts restarts: what a killed process had begun never goes on
	dead        bool  // killed and not restarted
	pausedUntil int64 // as by SIGSTOP, or a machine that swaps
	slow        int64 // times as long as usual; 0 is 1

	diskFreeAt int64 // see worldConfig.disk
}

// lease is memory of an arena that a session has taken.
func (s *simSide) lease(_ uint16, bytes int64) ([]byte, func(), error) {
	w, life := s.w, s.life
	s.leases++
	released := false
	memory := takeShare(bytes)
	return memory, func() {
		if s.life != life {
			return
		}
		if released {
			w.broken(returned, "%s: a lease was released twice", s.host)
		}
		if what := s.user(memory); what != "" {
			w.broken(drained, "%s: leased memory was given back in use: %s", s.host, what)
		}
		shares = append(shares, memory)
		released = true
		s.leases--
	}, nil
}

// user names who may still touch memory; "" for nobody.
func (s *simSide) user(memory []byte) string {
	if s.w.f.Writable(s.host, memory) {
		return "the peer may write to it"
	}
	for _, k := range s.working {
		if overlaps(k.memory, memory) {
			return fmt.Sprintf("a worker has it for an op of kind %d", k.op.kind)
		}
	}
	return ""
}

// boot begins a process: devices opened, pollers made.
func (s *simSide) boot() {
	w := s.w
	s.ctxs, s.pollers, s.working, s.leases, s.dead = nil, nil, nil, 0, false
	s.chans = make([][]verbs.CompChannel, w.cfg.pollers[s.index])
	devices, err := w.f.Provider(s.host).Devices()
	if err != nil {
		w.tb.Fatal(err)
	}
	for _, d := range devices {
		ctx, err := w.f.Provider(s.host).OpenDevice(d.Name)
		if err != nil {
			w.tb.Fatal(err)
		}
		own := &gidContext{Context: ctx}
		s.ctxs = append(s.ctxs, own)
		if w.cfg.lend != nil {
			w.cfg.lend(own)
		}
		for p := range s.chans {
			ch, err := ctx.CreateCompChannel()
			if err != nil {
				w.tb.Fatal(err)
			}
			s.chans[p] = append(s.chans[p], ch)
		}
	}
	for i := range s.chans {
		p := &simPoller{side: s}
		p.Poller = NewPoller(PollerConfig{Index: i, Work: NewWorkQueue(4096, noPool{}), Waker: p, SumsItself: w.rng.IntN(2) == 0, LoadAhead: w.rng.IntN(5)})
		s.pollers = append(s.pollers, p)
	}
}

// ports are what the node offers at the moment. A device that does not answer
// is offered as down.
func (s *simSide) ports() (ports []LocalPort, offers []PortOffer) {
	w := s.w
	var pollers []uint16
	for i := range s.pollers {
		pollers = append(pollers, uint16(i))
	}
	for d, ctx := range s.ctxs {
		offer := PortOffer{Provider: "sim", Device: ctx.Device().Name, Port: 1, RateBits: w.cfg.rateBits, Pollers: pollers}
		if w.cfg.split {
			offer.Pollers = pollers[d%len(pollers):][:1]
		}
		channels := map[uint16]verbs.CompChannel{}
		for p := range s.chans {
			channels[uint16(p)] = s.chans[p][d]
		}
		attr, err := ctx.QueryPort(1)
		var gid verbs.GIDEntry
		if err == nil {
			var table []verbs.GIDEntry
			if table, err = ctx.QueryGIDTable(1); err == nil {
				gid, err = verbs.ChooseGID(table, verbs.GIDWish{})
			}
		}
		offer.GID, offer.GIDType, offer.LinkLayer, offer.MTU = gid.GID, gid.Type, attr.LinkLayer, attr.ActiveMTU
		if offer.Down = err != nil || attr.State != verbs.PortActive; offer.Down {
			offer.GID, offer.GIDType = verbs.GID{}, verbs.GIDUnknown
			offer.LinkLayer, offer.MTU = verbs.LinkEthernet, verbs.MTU4096
		}
		ports = append(ports, LocalPort{Offer: offer, Context: ctx, Channels: channels, RelaxedOrdering: s.index == 0})
		offers = append(offers, offer)
	}
	return ports, offers
}

// begin makes a session; connect starts it.
func (s *simSide) begin() {
	w := s.w
	ports, offers := s.ports()
	var engines []*Poller
	for _, p := range s.pollers {
		engines = append(engines, p.Poller)
	}
	var aside func(*Op)
	if w.cfg.aside {
		aside = func(op *Op) {
			delay := w.rng.Int64N(2 * ms)
			if w.rng.IntN(20) == 0 {
				delay = w.rng.Int64N(1200 * ms) // a neighbour that does not answer
			}
			if w.cfg.asideFor > 0 {
				delay = w.cfg.asideFor
			}
			s.after(delay, "aside", func() { op.Execute(nil) })
		}
	}
	random := w.rng.Uint32
	if w.cfg.firstPSN != 0 {
		random = func() uint32 { return w.cfg.firstPSN + w.rng.Uint32N(8) }
	}
	s.up, s.ended, s.why, s.sessionAt = false, false, nil, math.MaxInt64
	life := s.life
	s.session = NewSession(SessionConfig{
		Dialler: s.index == 0, Ports: ports, Pollers: engines, ShareBytes: 4 << 20, Lease: s.lease,
		Open:    Open{PayloadBytes: w.cfg.payload, LanesPerRail: w.cfg.lanes, LaneDepth: w.cfg.depth, SegmentBytes: w.cfg.segment, Ports: offers},
		Control: s, Receiver: s, Waker: s, Random: random, Log: s.logf, Info: s.logf, Aside: aside,
		Up: func() { s.up = true },
		Ended: func(why *reason.Error) {
			if s.life != life {
				return
			}
			if s.ended {
				w.broken(ends, "%s: ended twice", s.host)
			}
			s.ended, s.why = true, why
			s.logf("session ended", "why", why)
		},
		AckTimeout: 14, PingEvery: 500 * ms, DeadAfter: 3 * s1, SetupTimeout: 30 * s1, DrainTimeout: 2 * s1, LaneDeadline: 6 * s1,
		StallAfter: 30 * s1, RebuildMin: w.cfg.rebuildMin, RebuildMax: w.cfg.rebuildMax,
		firstGeneration: w.cfg.firstGeneration, firstEpoch: w.cfg.firstEpoch, firstItem: w.cfg.firstItem,
	})
}

func (s *simSide) logf(text string, args ...any) {
	line := fmt.Sprintf("%.6fs %s: %s %v", float64(s.w.now())/1e9, s.host, text, args)
	if s.w.log = append(s.w.log, line); len(s.w.log) > 200 {
		s.w.log = s.w.log[1:]
	}
	if strings.Contains(text, "broke the session protocol") && !s.w.hostile {
		s.w.broken(protocol, "%s logged: %s %v", s.host, text, args)
	}
	if strings.Contains(text, "take down") || strings.Contains(text, "deregistering") {
		s.w.broken(returned, "%s logged: %s %v", s.host, text, args)
	}
}

// after is world.after for what the process does itself: not while it is
// paused, later when it is slow, never once it is killed.
func (s *simSide) after(delay int64, name string, run func()) {
	w, life := s.w, s.life
	var act func()
	act = func() {
		switch {
		case s.life != life:
		case w.now() < s.pausedUntil:
			w.at(s.pausedUntil+w.rng.Int64N(us), name, act)
		default:
			run()
		}
	}
	w.after(delay+min(delay*max(s.slow-1, 0), 2*s1), name, act)
}

// due is when an actor of the process that would act at a time does so.
func (s *simSide) due(at int64) int64 {
	if s.dead || at == math.MaxInt64 {
		return math.MaxInt64
	}
	return max(at, s.pausedUntil)
}

// Wake wakes the session's goroutine.
func (s *simSide) Wake() bool { s.woken = true; return true }

// run drives the session's goroutine.
func (s *simSide) run() {
	w := s.w
	s.woken = false
	next := s.session.Run(w.now())
	w.mix("run", int64(s.index))
	s.sessionAt = next
	if next <= w.now() {
		s.sessionAt = w.now() + us
	}
	if w.adverse {
		s.checkSession()
	}
}

// simPoller is a poller's thread: it steps while there is work, then arms,
// steps once more, and parks.
type simPoller struct {
	*Poller
	side   *simSide
	at     int64 // when it steps next
	parked bool
	armed  bool
}

func (p *simPoller) Wake() bool {
	if p.parked {
		p.parked = false
		p.at = p.side.w.now() + p.side.w.rng.Int64N(3*us)
	}
	return true
}

type noPool struct{}

func (noPool) Wake(int) int { return 0 }

func (p *simPoller) step() {
	w := p.side.w
	n := p.Step(w.now())
	w.mix("step", int64(n))
	switch {
	case w.adverse && n > 0:
		p.checkStep()
	case w.steps%16 == 0:
		p.check()
	}
	p.at = w.now() + (100+w.rng.Int64N(2*us))*max(p.side.slow, 1)
	if w.rng.IntN(500) == 0 {
		p.at += w.rng.Int64N(2 * ms) // garbage collection, a busy neighbour
	}
	if n > 0 {
		p.armed = false
		return
	}
	if !p.armed {
		p.armed = true
		if err := p.Arm(); err != nil && !w.adverse {
			w.broken(byVerbs, "arm: %v", err)
		}
		return // once more before it parks
	}
	p.armed, p.parked = false, true
	p.at = p.Deadline()
	if p.at <= w.now() {
		p.at = w.now() + us
	}
}

// wakeNotified wakes parked pollers whose completion channels fired.
func (w *world) wakeNotified() {
	for _, s := range w.sides {
		if s.dead {
			continue
		}
		for i, p := range s.pollers {
			if !p.parked {
				continue
			}
			for _, g := range p.groups {
				for _, cq := range g.cqs {
					if w.f.Notified(cq) {
						p.Wake()
					}
				}
			}
			if !p.parked {
				for _, ch := range s.chans[i] {
					if err := ch.Drain(); err != nil {
						w.broken(byVerbs, "drain: %v", err)
					}
				}
			}
		}
	}
}

// workers is how long an op waits for the disk of node b, if that is slow.
func (w *world) workers(s *simSide, op *Op) int64 {
	if w.cfg.disk == 0 || op.kind != opStore || s.index == 0 || op.bytes <= 1024 {
		return 0
	}
	s.diskFreeAt = max(s.diskFreeAt, w.now()) + w.cfg.disk
	return s.diskFreeAt - w.now()
}

// takeOps gives queued ops to workers, each of which takes its time.
func (w *world) takeOps() {
	for _, s := range w.sides {
		if s.dead {
			continue
		}
		for _, p := range s.pollers {
			for {
				op, ok := p.work.Pop()
				if !ok {
					break
				}
				delay := w.rng.Int64N(40*us) + w.workers(s, op)
				if w.rng.IntN(60) == 0 {
					delay += w.rng.Int64N(10 * ms)
				}
				s.give(op, delay)
			}
		}
	}
}
