package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"mover/verbs"
)

// Fabric is a set of hosts and the network between them. Everything about it
// belongs to one goroutine.
type Fabric struct {
	opt   Options
	rng   *rand.Rand
	now   int64 // virtual nanoseconds
	queue eventQueue
	seq   uint64 // counts events, posts and polls: an order finer than time

	hosts []*host
	qps   map[uint32]*qp // by QPN; only ever looked up, never ranged over
	used  map[uint32]bool
	cuts  map[[2]*port]bool

	trace      trace
	violations []Violation
	stats      Stats
}

// Stats count what happened since New.
type Stats struct {
	Messages    uint64 // accepted by a responder
	Bytes       uint64 // payload of these
	Completions uint64 // put on CQs
	// RNR counts messages that found no receive posted: a bug of the engine
	// in a healthy run. RC waits, UC and UD drop the message.
	RNR     uint64
	Retries uint64 // transport retries
	// Corrupted counts payloads damaged by a fault.
	Corrupted uint64
	// LostPlacement counts pieces of accepted writes that a QP's end kept out
	// of memory.
	LostPlacement uint64
	// PartialWrites counts failed writes, and lost ones of UC, that left a part
	// behind.
	PartialWrites uint64
	// LostPackets counts packets of UC and UD that reached no responder.
	LostPackets uint64
	// LostMessages counts messages of UC and UD that did not arrive, or not
	// whole: for lost packets, or because the responder dropped them.
	LostMessages uint64
}

// New makes a fabric. It panics when the options contradict themselves.
func New(seed uint64, opt Options) *Fabric {
	opt.setDefaults()
	f := &Fabric{opt: opt, rng: rand.New(rand.NewPCG(seed, 0x6d6f766572)), qps: map[uint32]*qp{},
		used: map[uint32]bool{}, cuts: map[[2]*port]bool{}}
	f.trace.init()
	for i, h := range opt.Hosts {
		for _, other := range f.hosts {
			if other.name == h.Name {
				panic(fmt.Sprintf("sim: two hosts named %q", h.Name))
			}
		}
		f.hosts = append(f.hosts, newHost(f, i, h))
	}
	return f
}

// Provider is the verbs provider of one host. It panics when there is none of
// that name.
func (f *Fabric) Provider(hostName string) verbs.Provider { return f.host(hostName) }

func (f *Fabric) host(name string) *host {
	for _, h := range f.hosts {
		if h.name == name {
			return h
		}
	}
	panic(fmt.Sprintf("sim: no host %q", name))
}

func (f *Fabric) port(id PortID) *port {
	d := f.host(id.Host).device(id.Device)
	if d == nil || id.Port < 1 || int(id.Port) > len(d.ports) {
		panic(fmt.Sprintf("sim: no port %+v", id))
	}
	return d.ports[id.Port-1]
}

// Now is the virtual time since New.
func (f *Fabric) Now() time.Duration { return time.Duration(f.now) }

// NextEvent is when the next event is due; false when there is none.
func (f *Fabric) NextEvent() (time.Duration, bool) {
	if len(f.queue) == 0 {
		return 0, false
	}
	return time.Duration(f.queue[0].at), true
}

// Step moves the clock to the next due event and runs it; among events due at
// one instant the seed chooses. It reports whether there was one.
func (f *Fabric) Step() bool {
	if len(f.queue) == 0 {
		return false
	}
	e := heap.Pop(&f.queue).(*event)
	f.now = e.at
	f.record(e.kind, uint64(e.qpn), 0)
	e.run()
	return true
}

// Advance runs what is due within d and moves the clock by d.
func (f *Fabric) Advance(d time.Duration) {
	end := f.now + int64(d)
	for len(f.queue) > 0 && f.queue[0].at <= end {
		f.Step()
	}
	f.now = end
}

// After schedules an action of the test, such as a fault, d from now.
func (f *Fabric) After(d time.Duration, action func()) {
	f.after(int64(d), "test", 0, action)
}

// Stats returns the counters.
func (f *Fabric) Stats() Stats { return f.stats }

// event is something that happens at an instant.
type event struct {
	at   int64
	tie  uint64 // random: the seed's choice among events of one instant
	seq  uint64
	kind string
	qpn  uint32
	run  func()
}

func (f *Fabric) after(delay int64, kind string, qpn uint32, run func()) {
	heap.Push(&f.queue, &event{at: f.now + max(delay, 0), tie: f.rng.Uint64(), seq: f.tick(), kind: kind, qpn: qpn, run: run})
}

// tick is the next number of the order of calls and events.
func (f *Fabric) tick() uint64 { f.seq++; return f.seq }

// chance is true with probability p; without p it draws nothing, so that
// unused faults leave the run as it is.
func (f *Fabric) chance(p float64) bool { return p > 0 && f.rng.Float64() < p }

// delay draws from 0 to most, with one in 20 up to 20 times as long.
func (f *Fabric) delay(most time.Duration) int64 {
	if f.opt.Calm || most <= 0 {
		return 0
	}
	d := f.rng.Int64N(int64(most) + 1)
	if f.rng.IntN(20) == 0 {
		d *= 20
	}
	return d
}

// eventQueue is a heap by time, then tie.
type eventQueue []*event

func (q eventQueue) Len() int      { return len(q) }
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q eventQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if a.tie != b.tie {
		return a.tie < b.tie
	}
	return a.seq < b.seq
}

// Push is part of heap.Interface.
func (q *eventQueue) Push(x any) { *q = append(*q, x.(*event)) }

// Pop is part of heap.Interface.
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
