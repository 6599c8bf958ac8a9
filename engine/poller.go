package engine

import (
	"math"
	"sync/atomic"

	"mover/ring"
	"mover/verbs"
)

// pollWCs is how many completions one Poll drains.
const pollWCs = 64

// commandQueue bounds the commands that wait for a poller; a session whose
// command does not fit keeps it until its next run.
const commandQueue = 4096

// Poller drives the lane groups of one thread: it alone touches their CQs and
// QPs. The thread that owns it calls Step, Arm and Deadline; the rest is safe
// from any goroutine.
type Poller struct {
	index     int
	commands  *ring.MPMC[command]
	returned  *ring.MPMC[*Op] // from workers
	work      *WorkQueue
	loadAhead int
	sums      bool // SumsItself
	waker     Waker
	channels  []verbs.CompChannel

	own    []*Op    // checksums to compute here
	groups []*group // in order of attachment
	wcs    [pollWCs]verbs.WC
	now    int64 // of the step under way
	stats  PollerStats
}

// PollerConfig is what a Poller needs.
type PollerConfig struct {
	Index int // its place in PortOffer.Pollers
	Work  *WorkQueue
	// SumsItself has the poller compute segments' checksums on its own thread.
	// On software verbs it has just copied the bytes, so they are in its cache,
	// and waking a worker on the few CPUs there are costs more than the sum; on
	// hardware it would keep the poller from its completions.
	SumsItself bool
	// LoadAhead is how many slots of a group are read, or being read, before
	// they can be posted: enough to keep every worker busy, and no more, so that
	// a slot is posted while its bytes are still in cache. 0 does not bound it.
	LoadAhead int
	// Waker wakes the poller's own thread.
	Waker Waker
	// Channels are the completion channels of the devices it drives, for Arm
	// and the thread's wait.
	Channels []verbs.CompChannel
}

// NewPoller makes a poller without groups.
func NewPoller(cfg PollerConfig) *Poller {
	if cfg.LoadAhead == 0 {
		cfg.LoadAhead = math.MaxInt
	}
	return &Poller{
		index:     cfg.Index,
		commands:  ring.NewMPMC[command](commandQueue),
		returned:  ring.NewMPMC[*Op](cfg.Work.cap()), // every op fits at once
		work:      cfg.Work,
		loadAhead: cfg.LoadAhead,
		sums:      cfg.SumsItself,
		waker:     cfg.Waker,
		channels:  cfg.Channels,
	}
}

// Stats are the poller's counters.
func (p *Poller) Stats() *PollerStats { return &p.stats }

// Step does one bounded round of work and returns how much it did; 0 means
// idle. It never blocks and, in a healthy session, never allocates.
//
// The order is: learn (commands, completions, finished work), then act (loads,
// posts, credits), then what is overdue. Credits go last so that they cover
// what this round's completions freed.
func (p *Poller) Step(now int64) int {
	p.now = now
	n := p.obey(now)
	for _, g := range p.groups {
		n += g.poll(now)
	}
	n += p.collect()
	for _, g := range p.groups {
		n += g.resubmit()
		n += g.load()
		n += g.post(now)
		n += g.postCredits(now)
		n += g.overdue(now)
	}
	p.dropClosed()
	p.stats.step(n)
	return n
}

// Arm asks every CQ to announce its next completion. After it, the thread
// calls Step until idle once more before it waits. With an error there is work
// to be done instead: a CQ that can't be armed is that of a device that is
// gone, and its lanes have failed.
func (p *Poller) Arm() error {
	var lost error
	for _, g := range p.groups {
		for _, cq := range g.cqs {
			if err := cq.ReqNotify(false); err != nil && g.lose(cq, err, p.now) {
				lost = err
			}
		}
	}
	return lost
}

// Channels are the completion channels to wait on while parked.
func (p *Poller) Channels() []verbs.CompChannel { return p.channels }

// Deadline is the latest time at which Step must run again, in the same clock
// as its now; math.MaxInt64 with nothing pending.
func (p *Poller) Deadline() int64 {
	at := int64(math.MaxInt64)
	for _, g := range p.groups {
		at = min(at, g.deadline())
	}
	return at
}

// command hands c to the poller; false when its queue is full.
func (p *Poller) command(c command) bool {
	if !p.commands.TryPush(c) {
		return false
	}
	p.waker.Wake()
	return true
}

// giveBack returns an op from a worker. The queue has room for every op that
// can exist.
func (p *Poller) giveBack(op *Op) {
	if !p.returned.TryPush(op) {
		panic("engine: more ops returned than were reserved")
	}
	p.waker.Wake()
}

// obey carries out the commands queued at its start, at most.
func (p *Poller) obey(now int64) int {
	n := p.commands.Len()
	for i := range n {
		c, ok := p.commands.TryPop()
		if !ok {
			return i
		}
		if c.kind == commandAttachGroup {
			p.groups = append(p.groups, c.group)
			continue
		}
		c.group.obey(&c, now)
	}
	return n
}

// ownSumBytes of a checksum are computed a step. Between steps the sockets of
// software verbs are driven: the kernel's buffers must neither run dry nor fill
// up meanwhile, or sender and receiver would wait for each other's sums.
const ownSumBytes = 128 << 10

// collect takes back the ops that workers have finished, and goes on with the
// first of the checksums that are the poller's own.
func (p *Poller) collect() int {
	n := 0
	if len(p.own) > 0 {
		n++
		if op := p.own[0]; op.sum(ownSumBytes) {
			p.own = p.own[:copy(p.own, p.own[1:])]
			op.summed()
		}
	}
	return n + p.takeBack()
}

func (p *Poller) takeBack() int {
	n := p.returned.Len()
	for i := range n {
		op, ok := p.returned.TryPop()
		if !ok {
			return i
		}
		op.group.finished(op)
	}
	return n
}

func (p *Poller) dropClosed() {
	for i := 0; i < len(p.groups); {
		// The last event goes out before the group is forgotten, behind those
		// that wait: nobody would send it later.
		if g := p.groups[i]; g.closed && len(g.backlog) == 0 &&
			g.session.event(event{kind: eventGroupClosed, group: g.id}) {
			p.groups = append(p.groups[:i], p.groups[i+1:]...)
			continue
		}
		i++
	}
}

// PollerStats are counters with one writer, the poller's thread, and any
// number of readers.
type PollerStats struct {
	Steps      atomic.Uint64
	EmptySteps atomic.Uint64
	Posts      atomic.Uint64 // send WRs
	Doorbells  atomic.Uint64 // chains of send WRs
	Slots      atomic.Uint64 // slots written
	Segments   atomic.Uint64 // segments written
	SentBytes  atomic.Uint64 // payload and trailers posted
	RecvBytes  atomic.Uint64 // received with an immediate, or in segments
	Credits    atomic.Uint64
	Lanes      atomic.Int64 // being polled
	LaneErrors atomic.Uint64
	Resent     atomic.Uint64 // slots and segments sent again after a lane was lost
}

// add has a single writer, so a load and a store do; an atomic add would lock
// the bus on every step.
func add(c *atomic.Uint64, n int) { c.Store(c.Load() + uint64(n)) }

func (s *PollerStats) step(n int) {
	add(&s.Steps, 1)
	if n == 0 {
		add(&s.EmptySteps, 1)
	}
}
