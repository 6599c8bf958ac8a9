package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"mover/engine"
	"mover/node/config"
	"mover/node/device"
	"mover/numa"
	"mover/reason"
	"mover/ring"
	"mover/verbs"
)

// workQueue bounds the ops of all sessions together; each reserves its own.
const workQueue = 1 << 15

// Path is a node's data path. Its methods may be called from any goroutine.
type Path struct {
	cfg   *config.Config
	log   *slog.Logger
	clock clock

	selection *device.Selection
	topology  *numa.Topology
	placement numa.Placement
	devices   []*openDevice
	arenas    map[int]*numa.Arena // by NUMA node
	threads   []*thread
	pollers   []*engine.Poller
	crews     map[int]*workers // by NUMA node
	events    *eventReaders
	links     linkSet
}

// openDevice is a device in use.
type openDevice struct {
	info     verbs.DeviceInfo
	ctx      verbs.Context
	node     int // NUMA node
	channels map[uint16]verbs.CompChannel
	relaxed  bool // memory is registered with relaxed ordering
}

// Prepare selects the devices and refuses what would fail later, and say less:
// no device, memory that must not be locked, huge pages that are insisted on
// and missing. It makes and maps nothing. Errors say which setting to change.
func Prepare(cfg *config.Config, log *slog.Logger) (*device.Selection, error) {
	selection, err := device.Select(cfg, log)
	if err != nil {
		return nil, err
	}
	topology, err := numa.Read("/sys")
	if err != nil {
		return nil, err
	}
	return selection, selection.CheckMemory(cfg, topology)
}

// Open opens the selected devices and maps memory. Errors say what is missing
// on this host and which setting to change.
func Open(cfg *config.Config, log *slog.Logger, selection *device.Selection) (_ *Path, err error) {
	p := &Path{selection: selection, cfg: cfg, log: log, clock: clock{time.Now()}, arenas: map[int]*numa.Arena{}, crews: map[int]*workers{}}
	defer func() {
		if err != nil {
			p.release()
		}
	}()
	if p.topology, err = numa.Read("/sys"); err != nil {
		return nil, err
	}
	// Each could be opened a moment ago, when it was selected: one that fails now
	// has just gone, and the others do without it.
	var failed []error
	for _, info := range p.selection.Used() {
		if err := p.openDevice(info); err != nil {
			failed = append(failed, fmt.Errorf("device %s: %w", info.Name, err))
			log.Warn("a device is not used", "device", info.Name, "why", err)
		}
	}
	if len(p.devices) == 0 {
		return nil, errors.Join(failed...)
	}
	if err := p.place(); err != nil {
		return nil, err
	}
	for node := range p.nodes() {
		if err := p.mapArena(node); err != nil {
			return nil, err
		}
	}
	if err := p.makePollers(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Path) openDevice(info verbs.DeviceInfo) error {
	ctx, err := p.selection.Provider.OpenDevice(info.Name)
	if err != nil {
		return err
	}
	node := device.NodeOf(p.topology, info)
	attr, err := ctx.QueryDevice()
	if err != nil {
		return errors.Join(err, ctx.Close())
	}
	d := &openDevice{info: info, ctx: ctx, node: node, channels: map[uint16]verbs.CompChannel{}}
	p.devices = append(p.devices, d)
	var why string
	d.relaxed, why = device.RelaxedOrdering(p.cfg.Devices.RelaxedOrdering, info, attr)
	p.log.Info("device opened", "device", info.Name, "node", node, "relaxed_ordering", d.relaxed, "why", why)
	return nil
}

// nodes are the NUMA nodes that have a device.
func (p *Path) nodes() map[int]bool {
	nodes := map[int]bool{}
	for _, d := range p.devices {
		nodes[d.node] = true
	}
	return nodes
}

func (p *Path) place() error {
	allowed, err := numa.AllowedCPUs()
	if err != nil {
		return err
	}
	var nodes []int
	for _, n := range p.topology.Nodes {
		if p.nodes()[n.ID] {
			nodes = append(nodes, n.ID)
		}
	}
	p.placement, err = numa.Plan(p.topology, allowed, nodes, p.cfg.Pollers.PerNode, p.cfg.Pollers.CPUs)
	if err != nil {
		return err
	}
	if p.spins() {
		return numa.CheckSpin(min(allowed.Len(), runtime.GOMAXPROCS(0)), len(p.placement.Pollers))
	}
	return nil
}

// spins reports whether pollers never park: by default only for hardware, and
// only where CPUs are left for the rest.
func (p *Path) spins() bool {
	switch p.cfg.Pollers.Idle {
	case "spin":
		return true
	case "adaptive":
		return false
	}
	return p.selection.Provider.Name() == "ibv" && p.placement.Exclusive
}

func (p *Path) mapArena(node int) error {
	// It may take half a minute where the host has no free huge pages at hand.
	p.log.Info("mapping an arena", "numa_node", node, "bytes", int64(p.cfg.Memory.Arena))
	a, err := numa.MapArena(numa.ArenaConfig{NodeID: p.topology.MemoryNode(node), Bytes: int64(p.cfg.Memory.Arena), HugePages: p.cfg.Memory.HugePages})
	if err != nil {
		return fmt.Errorf("memory.arena of %v on NUMA node %d: %w", p.cfg.Memory.Arena, node, err)
	}
	p.arenas[node] = a
	r := a.Report()
	why, fix := whyAndFix(r.Steps)
	r.Steps = nil
	args := []any{"node", node, "memory", r.String()}
	if why != "" {
		args = append(args, "why", why)
	}
	if fix != "" {
		args = append(args, "fix", fix)
	}
	p.log.Info("arena mapped", args...)
	return nil
}

// whyAndFix parts what was tried and failed from what a person can do about
// it: package numa ends a step with that, after the last semicolon.
func whyAndFix(steps []string) (why, fix string) {
	var whys, fixes []string
	for _, step := range steps {
		if i := strings.LastIndex(step, "; "); i >= 0 {
			fixes = append(fixes, step[i+2:])
			step = step[:i]
		}
		whys = append(whys, step)
	}
	return strings.Join(whys, "; "), strings.Join(fixes, "; or ")
}

// makePollers makes a machine and a thread for every place.
func (p *Path) makePollers() error {
	if err := p.makeCrews(); err != nil {
		return err
	}
	for i, place := range p.placement.Pollers {
		var channels []verbs.CompChannel
		for _, d := range p.devices {
			if d.node != place.Node {
				continue
			}
			ch, err := d.ctx.CreateCompChannel()
			if err != nil {
				return fmt.Errorf("device %s: %w", d.info.Name, err)
			}
			d.channels[uint16(i)] = ch
			channels = append(channels, ch)
		}
		parker, err := ring.NewParker()
		if err != nil {
			return err
		}
		m := engine.NewPoller(engine.PollerConfig{Index: i, SumsItself: p.Software(),
			LoadAhead: 2*p.workersPerNode(len(p.nodes())) + 4, Work: p.crews[place.Node].queue, Waker: parker, Channels: channels})
		p.pollers = append(p.pollers, m)
		p.threads = append(p.threads, newThread(i, m, parker, p.clock, place, p.spins(), p.cfg.Pollers.Spin))
	}
	return nil
}

// makeCrews makes the workers of every NUMA node with a poller: each reads and
// writes the memory of its own node.
func (p *Path) makeCrews() error {
	nodes := p.nodes()
	for node := range nodes {
		var cpus numa.CPUSet // empty does not bind
		for _, w := range p.placement.Workers {
			if p.placement.Exclusive && w.Node == node {
				cpus = w.CPUs
			}
		}
		seats, err := ring.NewPool(p.workersPerNode(len(nodes)))
		if err != nil {
			return err
		}
		p.crews[node] = newWorkers(engine.NewWorkQueue(workQueue, seats), seats, cpus)
	}
	return nil
}

// workersPerNode leaves room for pollers and the control plane, and has at
// least two, so that one hung file does not stop the rest.
func (p *Path) workersPerNode(nodes int) int {
	if p.cfg.Workers > 0 {
		return max(p.cfg.Workers/nodes, 1)
	}
	return min(max(2, (runtime.NumCPU()-len(p.placement.Pollers)-1)/nodes), 32)
}

// Start begins to poll.
func (p *Path) Start() error {
	if p.placement.Exclusive {
		if err := numa.SetProcessMask(p.placement.ProcessMask); err != nil {
			p.log.Warn("CPUs of pollers are not kept free of other threads", "error", err)
		}
	} else {
		p.log.Warn("pollers share their CPUs", "why", p.placement.Reason)
	}
	for _, w := range p.crews {
		w.start()
	}
	for _, t := range p.threads {
		if err := t.start(); err != nil {
			return err
		}
	}
	p.events = startEventReaders(p)
	for i, t := range p.threads {
		p.log.Info("poller started", "poller", i, "node", t.place.Node, "cpu", t.cpu(), "spin", t.spin)
	}
	return nil
}

// lease takes memory of a poller's arena.
func (p *Path) lease(poller uint16, bytes int64) ([]byte, func(), error) {
	node := p.placement.Pollers[poller].Node
	l, err := p.arenas[node].Lease(bytes, "session share")
	if err != nil {
		return nil, nil, &reason.Error{Code: reason.PeerRefused, Err: err,
			Detail: fmt.Sprintf("%v; raise memory.arena (%v) or lower memory.session_share", err, p.cfg.Memory.Arena)}
	}
	return l.Bytes(), l.Release, nil
}

// Lease takes memory of the first arena for other uses than sessions, such as
// the memory that the benchmark moves.
func (p *Path) Lease(bytes int64, what string) (*numa.Lease, error) {
	return p.arenas[p.placement.Pollers[0].Node].Lease(bytes, what)
}

// Selection is which devices are used, and why.
func (p *Path) Selection() *device.Selection { return p.selection }

// Software reports that no RDMA hardware moves the bytes.
func (p *Path) Software() bool {
	for _, d := range p.devices {
		if !d.info.Software {
			return false
		}
	}
	return true
}

// ArenaBytes is the size of all arenas.
func (p *Path) ArenaBytes() int64 {
	n := int64(0)
	for _, a := range p.arenas {
		n += int64(len(a.Bytes()))
	}
	return n
}

// Close ends every session, waits for them as long as ctx allows, and takes
// the rest down.
func (p *Path) Close(ctx context.Context) error {
	err := p.links.close(ctx)
	if p.events != nil {
		p.events.stop()
	}
	for _, t := range p.threads {
		t.stop()
	}
	for _, w := range p.crews {
		w.stop(ctx)
	}
	if err != nil {
		return err // memory and devices are still in use: leave them to exit
	}
	return p.release()
}

func (p *Path) release() error {
	var errs []error
	for _, d := range p.devices {
		for _, ch := range d.channels {
			errs = append(errs, ch.Destroy())
		}
		errs = append(errs, d.ctx.Close())
	}
	for _, t := range p.threads {
		errs = append(errs, t.parker.Close())
	}
	for _, w := range p.crews {
		errs = append(errs, w.seats.Close())
	}
	for _, a := range p.arenas {
		errs = append(errs, a.Unmap())
	}
	return errors.Join(errs...)
}

// setupTimeout bounds the set-up of a session and of a lane.
const setupTimeout = 10 * time.Second
