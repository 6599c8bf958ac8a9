package fabric

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"mover/numa"
	"mover/verbs"
)

// stage has everything that one run needs on one side. It is made anew for
// every run: what one size or count left behind can't reach the next.
type stage struct {
	cfg     *Config
	port    *Port
	layout  layout
	pollers []*poller
	lanes   []*lane // of all pollers, in order

	base           time.Time // of all pollers' clocks
	pd             verbs.PD
	arena          *numa.Arena
	source, target verbs.MR
}

// drainMost bounds the wait for flushed receives.
const drainMost = 5 * time.Second

// newStage makes what is needed for a run that sends, receives, or both.
func newStage(c *Config, port *Port, r run, places []int, talk *talk, sends, receives bool) (_ *stage, err error) {
	s := &stage{cfg: c, port: port, layout: newLayout(c, r.sizeBytes), base: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.fits(r, sends, receives); err != nil {
		return nil, err
	}
	if s.pd, err = port.Context.AllocPD(); err != nil {
		return nil, fmt.Errorf("allocating a PD: %w", err)
	}
	sources, targets, err := s.memory(r, sends, receives)
	if err != nil {
		return nil, err
	}
	for i := range r.pollers {
		p, err := s.newPoller(places[i], talk)
		if err != nil {
			return nil, err
		}
		for q := range c.QPs {
			n := &lane{number: i*c.QPs + q, index: q, port: port, layout: &s.layout}
			s.give(n, sources, targets)
			if err := n.create(s.pd, p.cq, c); err != nil {
				return nil, err
			}
			p.lanes = append(p.lanes, n)
			s.lanes = append(s.lanes, n)
		}
	}
	return s, nil
}

// fits compares the run with what the device can do, where the errors of the
// verbs would not tell.
func (s *stage) fits(r run, sends, receives bool) error {
	attr := &s.port.device
	lanes := r.pollers * s.cfg.QPs
	need := max(s.layout.receives, s.layout.inFlight+1)
	name := s.port.Info.Name
	switch {
	case lanes > attr.MaxQP:
		return fmt.Errorf("%w: %d QPs; %s has %d: lower -q or --pollers", ErrConfig, lanes, name, attr.MaxQP)
	case need > attr.MaxQPWR:
		return fmt.Errorf("%w: %d WRs in a queue; %s has %d: lower -t", ErrConfig, need, name, attr.MaxQPWR)
	case s.cqEntries() > attr.MaxCQE:
		return fmt.Errorf("%w: a CQ of %d entries; %s has %d: lower -q or -t", ErrConfig, s.cqEntries(), name, attr.MaxCQE)
	}
	bytes := uint64(0)
	for _, b := range []struct {
		used bool
		each int
	}{{sends, s.layout.sourceBytes()}, {receives, s.layout.targetBytes()}} {
		if !b.used {
			continue
		}
		if n := uint64(lanes) * uint64(b.each); n > attr.MaxMRSize || n > maxMemory {
			return fmt.Errorf("%w: a buffer of %d MiB; %s takes %d MiB in one MR and a run %d MiB: lower --ring, -q or -s",
				ErrConfig, n>>20, name, attr.MaxMRSize>>20, uint64(maxMemory)>>20)
		}
		bytes += uint64(lanes) * uint64(b.each)
	}
	if s.port.Info.Provider == "ibv" {
		return numa.CheckMemlock(bytes) // what soft registers is not pinned
	}
	return nil
}

// cqEntries: an error completes every WR there is.
func (s *stage) cqEntries() int {
	return s.cfg.QPs * (s.layout.receives + s.layout.inFlight + 1)
}

// memory maps and registers the rings of all lanes: sources for reading only,
// places writable, by the other side only where it writes.
func (s *stage) memory(r run, sends, receives bool) (sources, targets []byte, err error) {
	lanes := int64(r.pollers * s.cfg.QPs)
	relaxed := verbs.Access(0)
	if s.port.relaxed(s.cfg) {
		relaxed = verbs.AccessRelaxedOrdering
	}
	var sourceBytes, targetBytes int64
	if sends {
		sourceBytes = lanes * int64(s.layout.sourceBytes())
	}
	if receives {
		targetBytes = lanes * int64(s.layout.targetBytes())
	}
	const unit = 2 << 20 // what a lease is rounded up to
	up := func(n int64) int64 { return (n + unit - 1) / unit * unit }
	node := s.port.Info.NUMANode
	if t, err := numa.Read("/sys"); err != nil || node < 0 {
		node = -1
	} else {
		node = t.MemoryNode(node)
	}
	s.arena, err = numa.MapArena(numa.ArenaConfig{NodeID: node, Bytes: up(sourceBytes) + up(targetBytes)})
	if err != nil {
		return nil, nil, fmt.Errorf("memory of the benchmark: %w; lower --ring, -q or -s", err)
	}
	mem := s.arena.Bytes()
	if sends {
		sources = mem[:up(sourceBytes):up(sourceBytes)]
		if s.source, err = s.pd.RegMR(sources, relaxed); err != nil {
			return nil, nil, fmt.Errorf("registering %d bytes: %w", len(sources), err)
		}
	}
	if receives {
		targets = mem[up(sourceBytes):][:up(targetBytes):up(targetBytes)]
		access := verbs.AccessLocalWrite | relaxed
		if s.cfg.Op == Write {
			access |= verbs.AccessRemoteWrite
		}
		if s.target, err = s.pd.RegMR(targets, access); err != nil {
			return nil, nil, fmt.Errorf("registering %d bytes: %w", len(targets), err)
		}
	}
	return sources, targets, nil
}

// give gives a lane its parts of the rings.
func (s *stage) give(n *lane, sources, targets []byte) {
	if s.source != nil {
		at, bytes := n.number*s.layout.sourceBytes(), s.layout.sourceBytes()
		n.source = sources[at : at+bytes : at+bytes]
		n.sourceAddr, n.sourceKey = s.source.Addr()+uint64(at), s.source.LKey()
	}
	if s.target != nil {
		at, bytes := n.number*s.layout.targetBytes(), s.layout.targetBytes()
		n.target = targets[at : at+bytes : at+bytes]
		n.targetAddr, n.targetKey, n.targetRKey = s.target.Addr()+uint64(at), s.target.LKey(), s.target.RKey()
	}
}

func (s *stage) newPoller(cpu int, talk *talk) (*poller, error) {
	p := &poller{cpu: cpu, emulated: s.port.emulated(), stall: s.cfg.Stall, talk: talk, wcs: make([]verbs.WC, pollBatch), base: s.base, history: newPeak()}
	s.pollers = append(s.pollers, p)
	idle := s.cfg.Idle
	if idle == IdleAuto {
		idle = IdleSpin
		if s.port.drivenByPolling() {
			idle = IdleAdaptive
		}
	}
	if idle == IdleAdaptive {
		p.spin = spinBefore
	}
	var err error
	if idle != IdleSpin {
		if p.channel, err = s.port.Context.CreateCompChannel(); err != nil {
			return nil, fmt.Errorf("creating a completion channel: %w", err)
		}
		p.fds[0] = unix.PollFd{Fd: int32(p.channel.FD()), Events: unix.POLLIN}
	}
	p.cq, err = s.port.Context.CreateCQ(verbs.CQInitAttr{Entries: s.cqEntries(), Channel: p.channel})
	if err != nil {
		return nil, fmt.Errorf("creating a CQ of %d entries: %w", s.cqEntries(), err)
	}
	return p, nil
}

// setup describes this side's ends.
func (s *stage) setup(index int, seed uint64) *setup {
	m := &setup{Run: index, Seed: seed}
	for _, n := range s.lanes {
		m.Ends = append(m.Ends, n.end())
	}
	return m
}

// connect fills the sources with the run's content and connects all lanes.
func (s *stage) connect(mtu verbs.MTU, index int, seed uint64, remote *setup) error {
	if remote.Run != index || len(remote.Ends) != len(s.lanes) {
		return badFrame("run %d with %d QPs where run %d with %d was due", remote.Run, len(remote.Ends), index, len(s.lanes))
	}
	pat := pattern{seed}
	for i, n := range s.lanes {
		if n.source != nil {
			for slot := range s.layout.sources {
				pat.fill(n.source[slot*s.layout.strideBytes:][:s.layout.sizeBytes], n.number, slot)
			}
		}
		if n.rx != nil {
			n.rx.pat = pat
		}
		if err := n.connect(s.pd, s.cfg, mtu, remote.Ends[i]); err != nil {
			return err
		}
	}
	return nil
}

// onPollers runs f for every poller, each on its own thread, and returns when
// all have ended, with the first error by poller.
func (s *stage) onPollers(f func(*poller) error) error {
	var results []<-chan error
	for _, p := range s.pollers {
		results = append(results, p.onThread(func() error { return f(p) }))
	}
	var first error
	for _, r := range results {
		if err := <-r; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// close drains and frees everything, in the order that the verbs ask for; what
// was never made is passed over. The pollers have ended.
func (s *stage) close() error {
	var errs []error
	free := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("freeing %s: %w", what, err))
		}
	}
	s.drain()
	for _, n := range s.lanes {
		free("a QP", n.qp.Destroy())
		if n.ah != nil {
			free("an address handle", n.ah.Destroy())
		}
	}
	for _, mr := range []verbs.MR{s.source, s.target} {
		if mr != nil {
			free("an MR", mr.Dereg())
		}
	}
	for _, p := range s.pollers {
		if p.cq != nil {
			free("a CQ", p.cq.Destroy())
		}
		if p.channel != nil {
			free("a completion channel", p.channel.Destroy())
		}
	}
	if s.pd != nil {
		free("the PD", s.pd.Dealloc())
	}
	if len(errs) == 0 && s.arena != nil { // else a device may still write there
		free("memory", s.arena.Unmap())
	}
	return errors.Join(errs...)
}

// drain moves the QPs to ERR and waits for what is flushed. Receives are
// counted; sends can't be, for those that were neither signalled nor failed
// never complete, and so the queue has to stay empty for a while where some may
// be out. A device that does not flush in time is not waited for: destroying
// the QP ends its use of the memory.
func (s *stage) drain() {
	for _, n := range s.lanes {
		_ = n.toErr() // in RESET there is nothing to flush
	}
	for _, p := range s.pollers {
		if p.cq == nil {
			continue
		}
		deadline := time.Now().Add(drainMost)
		quietSince := time.Now()
		for time.Now().Before(deadline) {
			n, err := p.cq.Poll(p.wcs)
			if err != nil {
				break
			}
			for _, wc := range p.wcs[:n] {
				p.countFlushed(&wc)
			}
			if n > 0 {
				quietSince = time.Now()
				continue
			}
			if p.drained() && (p.sentAll() || time.Since(quietSince) > 20*time.Millisecond) {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// countFlushed takes a completion while draining, success or not.
func (p *poller) countFlushed(wc *verbs.WC) {
	index := int(wc.WRID >> 32 & (1<<31 - 1))
	if wc.WRID&recvBit != 0 && index < len(p.lanes) && p.lanes[index].rx != nil {
		p.lanes[index].rx.unposted++
	}
}

func (p *poller) drained() bool {
	for _, n := range p.lanes {
		if n.rx != nil && n.rx.outstanding() > 0 {
			return false
		}
	}
	return true
}

func (p *poller) sentAll() bool {
	for _, n := range p.lanes {
		if n.tx != nil && n.tx.posted != n.tx.completed {
			return false
		}
	}
	return true
}
