package engine

import (
	"errors"
	"fmt"

	"mover/reason"
	"mover/ring"
	"mover/verbs"
)

// devicePD is the session's own PD on a device.
type devicePD struct {
	ctx  verbs.Context
	pd   verbs.PD
	attr verbs.DeviceAttr
	// relaxed is LocalPort.RelaxedOrdering.
	relaxed bool
}

// access is what memory is registered for on the device.
func (d *devicePD) access(a verbs.Access) verbs.Access {
	if d.relaxed {
		a |= verbs.AccessRelaxedOrdering
	}
	return a
}

// sessionGroup is a lane group as its session sees it: what it built, and has
// to take down.
type sessionGroup struct {
	*group
	poller   *Poller
	push     [classes]*ring.Tx[*chunk]
	cqs      []deviceCQ
	regions  []Region // this side's receive slots, by rail
	mrs      []verbs.MR
	release  []func()
	reserved int // ops of the poller's work queue
	slots    int
	attached bool
	closed   bool
	upLanes  int // data lanes ready
	upCredit int

	sent     [segmentTable]*segment // out, by entry of the peer's table
	freeSegs []SlotRef              // entries of the segment table, with their next generation
}

// inFlightBytes is a rail's limit of bytes in flight.
func inFlightBytes(rateBits uint64) int64 {
	return int64(min(rateBits/8/1000*inFlightMillis, 1<<40))
}

// inFlightMillis times a rail's rate is its limit of bytes in flight: what
// covers a stop of the poller for garbage collection.
const inFlightMillis = 5

// minSlots is the least a lane group gets per direction.
const minSlots = 8

// maxGroupSlots bounds them: a credit lane's queues hold two WRs a slot, and
// devices have at most 16384 a queue. It covers 5 ms of 100 Gbit/s with slots
// of 16 KiB.
const maxGroupSlots = 4096

func (s *Session) handleOpen(peer *Open) error {
	if s.plan != nil {
		return errors.New("a second Open")
	}
	if err := checkOpen(peer); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	own := s.cfg.Open
	pair := [2]*Open{&own, peer}
	if s.side == 1 {
		pair = [2]*Open{peer, &own}
	}
	p, err := newPlan(pair[0], pair[1])
	if errors.Is(err, errNoRail) {
		s.end(reason.New(reason.PeerUnreachable, "%s", noRail(own.Ports, peer.Ports)))
		return nil
	}
	if err != nil {
		s.end(reason.New(reason.PeerRefused, "%v", err))
		return nil
	}
	s.plan = p
	s.showRails(peer)
	s.logRails()
	if err := s.build(); err != nil {
		s.end(asReason(err, reason.TransportError))
		return nil
	}
	for _, g := range s.groups {
		m := &GroupOpen{Group: g.id, Slots: uint32(g.slots), StrideBytes: uint32(g.cfg.strideBytes), Regions: g.regions}
		if g.cfg.localShift != wholeShare {
			m.RegionSlots = 1 << g.cfg.localShift
		}
		s.send(m)
	}
	return nil
}

// build makes PDs, groups and lanes without QPs.
func (s *Session) build() error {
	p := s.plan
	for _, r := range p.rails {
		if _, err := s.device(&s.cfg.Ports[r.port[s.side]]); err != nil {
			return err
		}
	}
	for i, pg := range p.groups {
		if int(pg.poller[s.side]) >= len(s.cfg.Pollers) {
			return fmt.Errorf("poller %d does not exist", pg.poller[s.side])
		}
		if err := s.buildGroup(uint16(i), pg); err != nil {
			return fmt.Errorf("lane group %d: %w", i, err)
		}
	}
	for i, pl := range p.lanes {
		s.lanes = append(s.lanes, &sessionLane{index: uint16(i), epoch: s.cfg.firstEpoch, planLane: pl, group: s.groups[pl.group],
			peerGID: s.remoteOffer(pl.rail).GID})
	}
	return nil
}

// device finds or makes the session's PD on a port's device.
func (s *Session) device(port *LocalPort) (int, error) {
	for i := range s.pds {
		if s.pds[i].ctx == port.Context {
			return i, nil
		}
	}
	attr, err := port.Context.QueryDevice()
	if err != nil {
		return 0, err
	}
	pd, err := port.Context.AllocPD()
	if err != nil {
		return 0, err
	}
	s.pds = append(s.pds, devicePD{ctx: port.Context, pd: pd, attr: attr, relaxed: port.RelaxedOrdering})
	return len(s.pds) - 1, nil
}

func (s *Session) railPort(rail uint16) *LocalPort {
	return &s.cfg.Ports[s.plan.rails[rail].port[s.side]]
}

// buildGroup leases and registers a group's two shares.
func (s *Session) buildGroup(id uint16, pg planGroup) error {
	poller := s.cfg.Pollers[pg.poller[s.side]]
	sharers := int64(0)
	for _, other := range s.plan.groups {
		if other.poller[s.side] == pg.poller[s.side] {
			sharers++
		}
	}
	stride := s.plan.payloadBytes + MaxTrailerBytes
	share := s.cfg.ShareBytes / sharers / (2 << 20) * (2 << 20)
	slots := min(int(share)/stride, maxGroupSlots)
	for d := range s.pds {
		if most := s.pds[d].attr.MaxQPWR; most > 0 { // a credit lane's send queue holds two WRs a slot
			slots = min(slots, (most-1)/2)
		}
	}
	if slots < minSlots {
		return reason.New(reason.PeerRefused, "a share of %d bytes holds %d slots of %d, a lane group needs %d: raise memory.session_share or lower session.slot_payload",
			share, slots, stride, minSlots)
	}
	shift, err := s.shareShift(id, slots, stride)
	if err != nil {
		return err
	}
	g := &sessionGroup{poller: poller, slots: slots}
	s.groups = append(s.groups, g) // from here on its end is the session's end
	ops := 2*slots + 2*segmentTable + maxAux + len(s.plan.lanes)
	if !poller.work.reserve(ops) {
		return reason.New(reason.PeerRefused, "the queue of %d ops for workers is taken by other sessions", poller.work.cap())
	}
	g.reserved = ops
	g.group = &group{
		id: id, session: s, poller: poller,
		cfg: groupConfig{payloadBytes: s.plan.payloadBytes, strideBytes: stride, localShift: shift,
			expressBytes: expressBytes(s.plan.payloadBytes) + MaxTrailerBytes,
			laneDeadline: s.cfg.LaneDeadline, drainTimeout: s.cfg.DrainTimeout,
			// So that a lane fails here before the peer gives up on it.
			probeDeadline: min(s.cfg.LaneDeadline, s.cfg.SetupTimeout/2)},
		local: make([]localSlot, slots), recv: make([]recvSlot, slots),
		freeLocal: make([]uint32, 0, slots),
		queued:    newFIFO(segmentTable), owed: newFIFO(slots),
		lanes: make([]*lane, len(s.plan.lanes)),
	}
	for c := range classes {
		g.lots[c], g.push[c] = newLot(c, slots)
	}
	for i := range g.local {
		g.local[i].remote = -1
		g.freeLocal = append(g.freeLocal, uint32(slots-1-i))
	}
	for i := range segmentTable {
		g.freeSegs = append(g.freeSegs, slotRef(uint32(segmentTable-1-i), s.cfg.firstGeneration))
	}
	for i := range g.recv {
		g.recv[i].generation = s.cfg.firstGeneration
	}
	for _, m := range []struct {
		memory *[]byte
		access verbs.Access
	}{{&g.sendMemory, 0}, {&g.recvMemory, verbs.AccessLocalWrite | verbs.AccessRemoteWrite}} {
		memory, release, err := s.cfg.Lease(pg.poller[s.side], share)
		if err != nil {
			return err
		}
		g.release = append(g.release, release)
		*m.memory = memory
		if err := s.registerShare(g, memory, m.access); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) groupHasRail(group, rail uint16) bool {
	for _, l := range s.plan.lanes {
		if l.group == group && l.rail == rail {
			return true
		}
	}
	return false
}

func (s *Session) handleGroupOpen(m *GroupOpen) error {
	if s.plan == nil || int(m.Group) >= len(s.groups) {
		return errors.New("GroupOpen for a group that does not exist")
	}
	g := s.groups[m.Group]
	switch {
	case g.attached:
		return errors.New("a second GroupOpen")
	case m.Slots < 1 || m.Slots > maxGroupSlots:
		return fmt.Errorf("GroupOpen with %d slots", m.Slots)
	case int(m.StrideBytes) != g.cfg.strideBytes:
		return fmt.Errorf("GroupOpen with slots of %d bytes, agreed were %d", m.StrideBytes, g.cfg.strideBytes)
	}
	if err := g.remoteShare(m); err != nil {
		return err
	}
	for c := range classes {
		g.lots[c].maxRemote = c.maxSlots(int(m.Slots))
	}
	g.remote = make([]remoteSlot, m.Slots)
	g.freeRemote = make([]uint32, 0, m.Slots)
	for i := range g.remote {
		g.remote[i] = remoteSlot{generation: s.cfg.firstGeneration, local: -1}
		g.freeRemote = append(g.freeRemote, uint32(len(g.remote)-1-i))
	}
	err := s.checkQueues(g)
	if err == nil {
		err = s.buildCQs(g)
	}
	if err != nil {
		s.end(asReason(fmt.Errorf("lane group %d: %w", g.id, err), reason.TransportError))
		return nil
	}
	for _, r := range g.rails {
		d, err := s.device(s.railPort(r.index))
		if err != nil {
			return err
		}
		r.cq = g.cqOn(d)
	}
	for _, l := range s.lanes {
		if l.group != g {
			continue
		}
		el := &lane{index: l.index, credit: l.credit, depth: s.plan.depth}
		el.sendCap, el.recvCap = s.queueSizes(l)
		for _, r := range g.rails {
			if r.index == l.rail {
				el.rail = r
			}
		}
		g.lanes[l.index] = el
		if l.credit {
			el.rail.credit = el
		} else {
			g.data = append(g.data, el)
		}
	}
	g.attached = true
	s.command(g.poller, command{kind: commandAttachGroup, group: g.group})
	for _, other := range s.groups {
		if !other.attached {
			return nil
		}
	}
	if s.cfg.Dialler {
		s.openAll()
	}
	return nil
}

// openAll begins the first life of every lane; those of rails that are down
// are tried when they may be up.
func (s *Session) openAll() {
	for _, l := range s.lanes {
		if s.plan.rails[l.rail].down {
			s.backOff(l)
		} else {
			s.openLane(l)
		}
	}
}

func ceilPowerOfTwo(n int) int {
	p := 2
	for p < n {
		p *= 2
	}
	return p
}
