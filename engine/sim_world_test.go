package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

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

	items []*simItem
	jobs  []*simJob

	// adverse worlds are checked after every act; see TestSimulation.
	adverse     bool
	hangs       bool // workers may have to wait, see simWorker
	coroutines  []*simWorker
	current     *simWorker // which runs
	connections int
	kills       int  // of processes
	stormy      bool // something goes wrong that may end a session
	isCalm      bool
	isOver      bool     // no session is begun any more
	rnrAllowed  uint64   // messages without a receive that were told
	marks       []bool   // of checkSlots
	storms      []string // what went wrong
	counted     []countedAct
	fatal       [2][]string // devices that died, by side
	pacer       *Pacer      // which some items share
	reported    int         // violations of the verbs that are problems already

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
	linkBits        uint64
	maxQPWR         int   // of every device, 0 is many: few slots
	aside           bool  // QPs are connected beside the poller
	asideFor        int64 // which takes so long; 0 is drawn
	pollers         [2]int
	lanes           uint16
	depth           uint16
	payload         uint32
	segment         uint32
	rateBits        uint64
	firstGeneration uint64
	firstEpoch      uint32
	firstItem       uint64
	firstPSN        uint32
	rebuildMin      int64
	rebuildMax      int64
	fabric          sim.Options
	// disk is how long a worker of b takes to store a chunk of more than 1 KiB,
	// one after the other.
	disk int64
}

// act is something that happens at a time.
type act struct {
	at, seq int64
	name    string
	run     func()
}

// countedAct is something that happens after a number of acts.
type countedAct struct {
	steps int
	run   func()
}

const (
	us = int64(1e3)
	ms = int64(1e6)
	s1 = int64(1e9)
)

func (w *world) now() int64 { return int64(w.f.Now()) }

func (w *world) at(at int64, name string, run func()) {
	w.seq++
	w.acts = append(w.acts, act{at: max(at, w.now()), seq: int64(w.seq), name: name, run: run})
}

func (w *world) after(delay int64, name string, run func()) { w.at(w.now()+delay, name, run) }

// An invariant is what holds in every run, whatever goes wrong in it;
// docs/simulation.md tells what each means.
type invariant string

const (
	counted  invariant = "counted"  // slots, windows, WRs, bytes: what is counted is what is there
	agreed   invariant = "agreed"   // the two ends never both own a slot, nor neither
	drained  invariant = "drained"  // nobody uses memory that is somebody else's again
	matching invariant = "matching" // no success without the source's bytes
	ends     invariant = "ends"     // everything ends, once, in time, for a reason that there is
	returned invariant = "returned" // nothing is left behind
	byVerbs  invariant = "verbs"    // the rules of the verbs
	protocol invariant = "protocol" // no end breaks the session protocol
	sound    invariant = "sound"    // the engine does not panic
	expected invariant = "expected" // what the test is about
)

// broken notes that an invariant does not hold.
func (w *world) broken(which invariant, format string, args ...any) {
	if len(w.problems) < 20 {
		w.problems = append(w.problems, fmt.Sprintf("[%s] %.6fs ", which, float64(w.now())/1e9)+fmt.Sprintf(format, args...))
	}
}

// problem notes that a test's own expectation does not hold.
func (w *world) problem(format string, args ...any) { w.broken(expected, format, args...) }

func (w *world) mix(name string, x int64) {
	for i := range len(name) {
		w.hash = (w.hash ^ uint64(name[i])) * 1099511628211
	}
	w.hash = (w.hash ^ uint64(x)) * 1099511628211
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
	c.linkBits = 20e9
	c.rateBits = uint64(pick(1e8, 1e9, 1e10, 100e9))
	c.aside = rng.IntN(2) == 0
	c.rebuildMin = int64(pick(10, 10, 300)) * ms
	c.rebuildMax = int64(pick(500, 500, 5000, 12000)) * ms // also longer than settling may take
	if rng.IntN(2) == 0 {
		c.firstGeneration = generationMask - uint64(rng.IntN(4))
		// The bits of an epoch in a WR id and in a probe, a PSN, and an item's number
		// taken for one of fewer bits.
		c.firstEpoch = uint32(pick(1<<8, 1<<generationBits)) - uint32(rng.IntN(3))
		c.firstPSN = psnMask - 3
		c.firstItem = uint64(pick(1<<32, 1<<62)) - 2
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
			d := sim.Device{Name: fmt.Sprintf("sim%d", i), Ports: []sim.Port{{BitsPerSecond: w.cfg.linkBits}}, MaxQPWR: w.cfg.maxQPWR}
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
		w.sides[i] = &simSide{w: w, index: i, host: host}
		w.sides[i].boot()
	}
	w.connect()
	return w
}

// connect begins a session between the two processes, whose last one is over.
func (w *world) connect() {
	w.connections++
	for _, s := range w.sides {
		s.begin()
	}
	for i, s := range w.sides {
		to := w.sides[1-i]
		for k := range s.links {
			s.links[k] = &simLink{w: w, to: to, session: to.session}
		}
	}
	for _, s := range w.sides {
		s.woken = true
		s.session.Start(w.now())
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
			consider(s.due(p.at), p.step)
		}
		if s.woken && s.sessionAt > w.now() {
			s.sessionAt = w.now() + w.rng.Int64N(5*us)
			s.woken = false
		}
		consider(s.due(s.sessionAt), s.run)
	}
	return at, run
}

// step lets the next actor act; false when nobody ever will.
func (w *world) step() bool {
	for _, c := range w.counted {
		if c.steps == w.steps {
			c.run()
		}
	}
	at, run := w.next()
	if at == math.MaxInt64 {
		return false
	}
	if run == nil { // the fabric's own event, which also sets the clock
		w.f.Step()
		w.wakeNotified()
		w.takeOps()
		w.steps++
		if w.adverse {
			w.checkVerbs()
		}
		return true
	}
	if at > w.now() {
		w.f.Advance(time.Duration(at - w.now()))
		w.wakeNotified()
	}
	run()
	w.takeOps()
	w.steps++
	if w.adverse {
		w.checkVerbs()
	}
	return true
}

// runUntil steps until cond, and complains when that takes longer than the
// virtual time given.
func (w *world) runUntil(what string, within int64, cond func() bool) bool {
	end := w.now() + within
	for !cond() {
		if w.now() > end || w.steps > 5_000_000 {
			w.broken(ends, "%s: not within %d ms (%d steps)", what, within/ms, w.steps)
			return false
		}
		if len(w.problems) > 0 {
			return false
		}
		if !w.step() {
			w.broken(ends, "%s: nobody acts any more", what)
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
