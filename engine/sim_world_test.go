package engine

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"mover/reason"
	"mover/verbs"
	"mover/verbs/sim"
)

// A world is two nodes with one session between them, on a simulated fabric
// and in virtual time. Everything that is a goroutine in production (pollers,
// sessions, workers, the control connection, the node around the Receiver) is
// an actor here; the seed decides who acts when. One seed gives one run.
type world struct {
	tb    testing.TB
	seed  uint64
	rng   *rand.Rand
	f     *sim.Fabric
	cfg   worldConfig
	sides [2]*simSide
	acts  []act // not ordered: the earliest is searched for
	seq   uint64
	hash  uint64
	steps int

	items  []*simItem
	calmAt int64   // when the last fault is over
	flaps  []int64 // when a port went down
	// tolerate are kinds of violations that a fault of this run explains.
	tolerate map[sim.ViolationKind]bool
	problems []string
	hostile  bool // violations of the protocol are the point
	liar     *liar
	log      []string
}

// worldConfig is what a world is made of; drawn from the seed.
type worldConfig struct {
	rails           int
	down            []sim.PortID // at the start
	split           bool         // a rail has a poller of its own, as on NUMA nodes
	device          func(*sim.Device)
	lend            func(*gidContext) // what goes wrong with a device's verbs
	aside           bool              // QPs are connected beside the poller
	pollers         [2]int
	lanes           uint16
	depth           uint16
	payload         uint32
	segment         uint32
	rateBits        uint64
	firstGeneration uint64
	rebuildMin      int64
	rebuildMax      int64
	fabric          sim.Options
}

// act is something that happens at a time.
type act struct {
	at, seq int64
	name    string
	run     func()
}

const (
	us = int64(1e3)
	ms = int64(1e6)
	s1 = int64(1e9)
)

// simSide is one node.
type simSide struct {
	w       *world
	index   int
	host    string
	ctxs    []*gidContext
	chans   [][]verbs.CompChannel // by poller
	pollers []*simPoller
	session *Session
	scratch *Scratch
	links   [2]*simLink // outgoing: control stream, item stream
	ended   bool
	why     *reason.Error
	up      bool

	woken     bool // the session's goroutine
	sessionAt int64
	leases    int
}

// gidContext is a device whose GIDs can be taken away and given back, as those
// of a network interface's addresses, and whose verbs can be made to fail.
type gidContext struct {
	verbs.Context
	hide     func(verbs.GID) bool
	createQP func() error // before a QP is made
	modify   func(*verbs.QPAttr) error
	access   []verbs.Access // of what was registered
}

func (c *gidContext) AllocPD() (verbs.PD, error) {
	pd, err := c.Context.AllocPD()
	return &gidPD{pd, c}, err
}

type gidPD struct {
	verbs.PD
	c *gidContext
}

func (p *gidPD) RegMR(mem []byte, access verbs.Access) (verbs.MR, error) {
	p.c.access = append(p.c.access, access)
	return p.PD.RegMR(mem, access)
}

func (p *gidPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	if p.c.createQP != nil {
		if err := p.c.createQP(); err != nil {
			return nil, err
		}
	}
	qp, err := p.PD.CreateQP(a)
	return &gidQP{qp, p.c}, err
}

type gidQP struct {
	verbs.QP
	c *gidContext
}

func (q *gidQP) Modify(a *verbs.QPAttr, mask verbs.AttrMask) error {
	if q.c.modify != nil {
		if err := q.c.modify(a); err != nil {
			return err
		}
	}
	return q.QP.Modify(a, mask)
}

func (c *gidContext) QueryGIDTable(port uint8) ([]verbs.GIDEntry, error) {
	table, err := c.Context.QueryGIDTable(port)
	var seen []verbs.GIDEntry
	for _, e := range table {
		if c.hide == nil || !c.hide(e.GID) {
			seen = append(seen, e)
		}
	}
	return seen, err
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

// Wake wakes the session's goroutine.
func (s *simSide) Wake() bool { s.woken = true; return true }

type noPool struct{}

func (noPool) Wake(int) int { return 0 }

// simLink carries one stream in order, with random delays.
type simLink struct {
	w    *world
	to   *simSide
	last int64
	cut  bool // Send fails
	mute bool // messages vanish
}

// Send implements Control for both streams of a side.
func (s *simSide) Send(m Message) error {
	l := s.links[0]
	if ItemStream(m) {
		l = s.links[1]
	}
	w := s.w
	if l.cut {
		return errors.New("the control connection is gone")
	}
	if l.mute {
		return nil
	}
	if w.liar != nil && s.index == 1 {
		w.liar.tell(l, m)
		return nil
	}
	return l.carry(m)
}

func (l *simLink) carry(m Message) error {
	w := l.w
	delay := 2*us + w.rng.Int64N(60*us)
	if w.rng.IntN(40) == 0 {
		delay += w.rng.Int64N(8 * ms)
	}
	l.last = max(l.last+1, w.now()+delay)
	w.at(l.last, "message", func() {
		if !l.cut && !l.mute {
			l.to.session.Handle(m, w.now())
			l.to.woken = true
		}
	})
	return nil
}

func (w *world) now() int64 { return int64(w.f.Now()) }

func (w *world) at(at int64, name string, run func()) {
	w.seq++
	w.acts = append(w.acts, act{at: max(at, w.now()), seq: int64(w.seq), name: name, run: run})
}

func (w *world) after(delay int64, name string, run func()) { w.at(w.now()+delay, name, run) }

func (w *world) problem(format string, args ...any) {
	if len(w.problems) < 20 {
		w.problems = append(w.problems, fmt.Sprintf("%.6fs ", float64(w.now())/1e9)+fmt.Sprintf(format, args...))
	}
}

func (w *world) mix(name string, x int64) {
	for i := range len(name) {
		w.hash = (w.hash ^ uint64(name[i])) * 1099511628211
	}
	w.hash = (w.hash ^ uint64(x)) * 1099511628211
}

// alignedMemory is page-aligned memory; nothing moves it.
func alignedMemory(bytes int64) []byte {
	if bytes == 0 {
		return nil
	}
	const page = 4096
	b := make([]byte, bytes+page)
	skip := (page - int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%page)) % page
	return b[skip : skip+int(bytes) : skip+int(bytes)]
}

// shares are leased again by later worlds: making them anew takes as long as
// everything else.
var shares [][]byte

func takeShare(bytes int64) []byte {
	for i, m := range shares {
		if int64(len(m)) == bytes {
			shares[i] = shares[len(shares)-1]
			shares = shares[:len(shares)-1]
			return m
		}
	}
	return alignedMemory(bytes)
}

// drawWorld draws a configuration.
func drawWorld(rng *rand.Rand) worldConfig {
	pick := func(v ...int) int { return v[rng.IntN(len(v))] }
	c := worldConfig{
		rails:   pick(1, 2, 2, 3),
		pollers: [2]int{pick(1, 1, 2), pick(1, 1, 2)},
		lanes:   uint16(pick(1, 2, 4)),
		depth:   uint16(pick(1, 2, 4, 8, 32)),
		payload: uint32(pick(4096, 4096, 8192, 16384, 65536)),
	}
	c.segment = c.payload * uint32(pick(1, 2, 3, 8, 32))
	c.rateBits = uint64(pick(1e8, 1e9, 1e10, 100e9))
	c.aside = rng.IntN(2) == 0
	c.rebuildMin = int64(pick(10, 10, 300)) * ms
	c.rebuildMax = int64(pick(500, 500, 5000, 12000)) * ms // also longer than settling may take
	if rng.IntN(2) == 0 {
		c.firstGeneration = generationMask - uint64(rng.IntN(4))
	}
	return c
}

// newWorld makes both nodes and starts the session.
func newWorld(tb testing.TB, seed uint64, edit func(*worldConfig)) *world {
	w := &world{tb: tb, seed: seed, rng: rand.New(rand.NewPCG(seed, 77)), hash: 14695981039346656037,
		tolerate: map[sim.ViolationKind]bool{}}
	w.cfg = drawWorld(w.rng)
	if edit != nil {
		edit(&w.cfg)
	}
	for _, name := range []string{"a", "b"} {
		h := sim.Host{Name: name}
		for i := range w.cfg.rails {
			d := sim.Device{Name: fmt.Sprintf("sim%d", i), Ports: []sim.Port{{BitsPerSecond: 20e9}}}
			if w.cfg.device != nil && name == "b" {
				w.cfg.device(&d)
			}
			h.Devices = append(h.Devices, d)
		}
		w.cfg.fabric.Hosts = append(w.cfg.fabric.Hosts, h)
	}
	w.f = sim.New(seed, w.cfg.fabric)
	for _, id := range w.cfg.down {
		w.f.PortDown(id)
	}
	for i, host := range []string{"a", "b"} {
		w.sides[i] = w.newSide(i, host)
	}
	for i, s := range w.sides {
		for k := range s.links {
			s.links[k] = &simLink{w: w, to: w.sides[1-i]}
		}
	}
	for _, s := range w.sides {
		s.woken = true
		s.session.Start(w.now())
	}
	return w
}

func (w *world) newSide(index int, host string) *simSide {
	s := &simSide{w: w, index: index, host: host, scratch: new(Scratch), sessionAt: math.MaxInt64}
	devices, err := w.f.Provider(host).Devices()
	if err != nil {
		w.tb.Fatal(err)
	}
	var pollers []uint16
	for i := range w.cfg.pollers[index] {
		pollers = append(pollers, uint16(i))
	}
	s.chans = make([][]verbs.CompChannel, len(pollers))
	var ports []LocalPort
	open := Open{PayloadBytes: w.cfg.payload, LanesPerRail: w.cfg.lanes, LaneDepth: w.cfg.depth, SegmentBytes: w.cfg.segment}
	for _, d := range devices {
		ctx, err := w.f.Provider(host).OpenDevice(d.Name)
		if err != nil {
			w.tb.Fatal(err)
		}
		own := &gidContext{Context: ctx}
		s.ctxs = append(s.ctxs, own)
		if w.cfg.lend != nil {
			w.cfg.lend(own)
		}
		channels := map[uint16]verbs.CompChannel{}
		for _, p := range pollers {
			ch, err := ctx.CreateCompChannel()
			if err != nil {
				w.tb.Fatal(err)
			}
			s.chans[p] = append(s.chans[p], ch)
			channels[p] = ch
		}
		offer := PortOffer{Provider: "sim", Device: d.Name, Port: 1, RateBits: w.cfg.rateBits, Pollers: pollers}
		if w.cfg.split {
			offer.Pollers = pollers[len(ports)%len(pollers):][:1]
		}
		attr, err := ctx.QueryPort(1)
		if err != nil {
			w.tb.Fatal(err)
		}
		table, err := ctx.QueryGIDTable(1)
		if err != nil {
			w.tb.Fatal(err)
		}
		gid, err := verbs.ChooseGID(table, verbs.GIDWish{})
		offer.GID, offer.GIDType, offer.LinkLayer, offer.MTU = gid.GID, gid.Type, attr.LinkLayer, attr.ActiveMTU
		if offer.Down = err != nil || attr.State != verbs.PortActive; offer.Down {
			offer.GID, offer.GIDType = verbs.GID{}, verbs.GIDUnknown
		}
		ports = append(ports, LocalPort{Offer: offer, Context: own, Channels: channels, RelaxedOrdering: index == 0})
		open.Ports = append(open.Ports, offer)
	}
	var engines []*Poller
	for i := range pollers {
		p := &simPoller{side: s}
		p.Poller = NewPoller(PollerConfig{Index: i, Work: NewWorkQueue(4096, noPool{}), Waker: p, SumsItself: w.rng.IntN(2) == 0, LoadAhead: w.rng.IntN(5)})
		s.pollers = append(s.pollers, p)
		engines = append(engines, p.Poller)
	}
	var aside func(*Op)
	if w.cfg.aside {
		aside = func(op *Op) {
			delay := w.rng.Int64N(2 * ms)
			if w.rng.IntN(20) == 0 {
				delay = w.rng.Int64N(1200 * ms) // a neighbour that does not answer
			}
			w.after(delay, "aside", func() { op.Execute(nil) })
		}
	}
	s.session = NewSession(SessionConfig{
		Dialler: index == 0, Open: open, Ports: ports, Pollers: engines, ShareBytes: 4 << 20,
		Lease: func(_ uint16, bytes int64) ([]byte, func(), error) {
			s.leases++
			released := false
			memory := takeShare(bytes)
			return memory, func() {
				shares = append(shares, memory)
				if released {
					w.problem("%s: a lease was released twice", host)
				}
				released = true
				s.leases--
			}, nil
		},
		Control: s, Receiver: s, Waker: s, Random: w.rng.Uint32, Log: s.logf, Info: s.logf, Aside: aside,
		Up: func() { s.up = true },
		Ended: func(why *reason.Error) {
			if s.ended {
				w.problem("%s: ended twice", host)
			}
			s.ended, s.why = true, why
		},
		AckTimeout: 14, PingEvery: 500 * ms, DeadAfter: 3 * s1, SetupTimeout: 30 * s1, DrainTimeout: 2 * s1, LaneDeadline: 6 * s1,
		StallAfter: 30 * s1, RebuildMin: w.cfg.rebuildMin, RebuildMax: w.cfg.rebuildMax, firstGeneration: w.cfg.firstGeneration,
	})
	return s
}

func (s *simSide) logf(text string, args ...any) {
	line := fmt.Sprintf("%.6fs %s: %s %v", float64(s.w.now())/1e9, s.host, text, args)
	if s.w.log = append(s.w.log, line); len(s.w.log) > 200 {
		s.w.log = s.w.log[1:]
	}
	if strings.Contains(text, "broke the session protocol") && !s.w.hostile || strings.Contains(text, "take down") ||
		strings.Contains(text, "deregistering") {
		s.w.problem("%s logged: %s %v", s.host, text, args)
	}
}

// next finds who acts next: the earliest, and among equals as the seed says;
// nil is the fabric.
func (w *world) next() (at int64, run func()) {
	at = math.MaxInt64
	ties := 0
	consider := func(t int64, f func()) {
		if t == math.MaxInt64 || t > at {
			return
		}
		if t < at {
			at, run, ties = t, f, 1
		} else if ties++; w.rng.IntN(ties) == 0 {
			run = f
		}
	}
	if t, ok := w.f.NextEvent(); ok {
		consider(int64(t), nil)
	}
	for i := range w.acts {
		a := &w.acts[i]
		consider(a.at, func() {
			taken := *a
			w.acts[i] = w.acts[len(w.acts)-1]
			w.acts = w.acts[:len(w.acts)-1]
			w.mix(taken.name, taken.at)
			taken.run()
		})
	}
	for _, s := range w.sides {
		for _, p := range s.pollers {
			consider(p.at, p.step)
		}
		if s.woken && s.sessionAt > w.now() {
			s.sessionAt = w.now() + w.rng.Int64N(5*us)
			s.woken = false
		}
		consider(s.sessionAt, s.run)
	}
	return at, run
}

// step lets the next actor act; false when nobody ever will.
func (w *world) step() bool {
	at, run := w.next()
	if at == math.MaxInt64 {
		return false
	}
	if run == nil { // the fabric's own event, which also sets the clock
		w.f.Step()
		w.wakeNotified()
		w.takeOps()
		w.steps++
		return true
	}
	if at > w.now() {
		w.f.Advance(time.Duration(at - w.now()))
		w.wakeNotified()
	}
	run()
	w.takeOps()
	w.steps++
	return true
}

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
}

func (p *simPoller) step() {
	w := p.side.w
	n := p.Step(w.now())
	w.mix("step", int64(n))
	if w.steps%16 == 0 {
		p.check()
	}
	p.at = w.now() + 100 + w.rng.Int64N(2*us)
	if w.rng.IntN(500) == 0 {
		p.at += w.rng.Int64N(2 * ms) // garbage collection, a busy neighbour
	}
	if n > 0 {
		p.armed = false
		return
	}
	if !p.armed {
		p.armed = true
		if err := p.Arm(); err != nil {
			w.problem("arm: %v", err)
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
						w.problem("drain: %v", err)
					}
				}
			}
		}
	}
}

// takeOps gives queued ops to workers, each of which takes its time.
func (w *world) takeOps() {
	for _, s := range w.sides {
		for _, p := range s.pollers {
			for {
				op, ok := p.work.Pop()
				if !ok {
					break
				}
				delay := w.rng.Int64N(40 * us)
				if w.rng.IntN(60) == 0 {
					delay += w.rng.Int64N(10 * ms)
				}
				w.after(delay, "op", func() { op.Execute(s.scratch) })
			}
		}
	}
}

// runUntil steps until cond, and complains when that takes longer than the
// virtual time given.
func (w *world) runUntil(what string, within int64, cond func() bool) bool {
	end := w.now() + within
	for !cond() {
		if w.now() > end || w.steps > 5_000_000 {
			w.problem("%s: not within %d ms (%d steps)", what, within/ms, w.steps)
			return false
		}
		if len(w.problems) > 0 {
			return false
		}
		if !w.step() {
			w.problem("%s: nobody acts any more", what)
			return false
		}
	}
	return true
}

// runFor lets virtual time pass.
func (w *world) runFor(d int64) {
	end := w.now() + d
	w.at(end, "mark", func() {})
	for w.now() < end && len(w.problems) == 0 && w.step() {
	}
}
