package engine

import (
	"fmt"
	"slices"

	"mover/verbs"
)

// plan is what both sides derive alike from the two Opens: rails, lanes and
// groups. Index 0 of a pair is the dialler's side.
type plan struct {
	rails  []planRail
	lanes  []planLane
	groups []planGroup

	payloadBytes, segmentBytes int
	depth                      int
}

// planRail is a matched pair of ports.
type planRail struct {
	port [2]int // index in that side's Open.Ports
	mtu  verbs.MTU
	down bool // at an end; its lanes are no part of the set-up
}

// planLane is one QP pair to be.
type planLane struct {
	rail, group uint16
	credit      bool
}

// planGroup is a pair of pollers.
type planGroup struct{ poller [2]uint16 }

// checkOpen validates an Open; what it refuses is a violation when it came
// from the peer, a bug or a bad setting when it is ours.
func checkOpen(o *Open) error {
	const maxPayload = 16 << 20
	switch {
	case len(o.Ports) == 0:
		return fmt.Errorf("no ports")
	case len(o.Ports) > MaxPorts:
		return fmt.Errorf("%d ports, at most %d: choose some with devices.names", len(o.Ports), MaxPorts)
	case o.PayloadBytes < 4096 || o.PayloadBytes > maxPayload || o.PayloadBytes%4096 != 0:
		return fmt.Errorf("slot payload of %d bytes: a multiple of 4096 up to %d", o.PayloadBytes, maxPayload)
	case o.LanesPerRail < 1 || o.LanesPerRail > MaxLanesPerRail:
		return fmt.Errorf("%d lanes per rail: 1..%d", o.LanesPerRail, MaxLanesPerRail)
	case o.LaneDepth < 1 || o.LaneDepth > MaxLaneDepth:
		return fmt.Errorf("lane depth %d: 1..%d", o.LaneDepth, MaxLaneDepth)
	case o.SegmentBytes < o.PayloadBytes || o.SegmentBytes > 1<<30:
		return fmt.Errorf("segment of %d bytes: from the slot payload to 1 GiB", o.SegmentBytes)
	}
	for i := range o.Ports {
		p := &o.Ports[i]
		if len(p.Pollers) == 0 || len(p.Pollers) > MaxLanesPerRail || !p.MTU.Valid() || p.RateBits == 0 {
			return fmt.Errorf("port %d: pollers, MTU or rate missing", i)
		}
		for _, q := range p.Pollers {
			if q >= MaxGroups {
				return fmt.Errorf("port %d: poller %d", i, q)
			}
		}
	}
	return nil
}

// newPlan matches ports to rails and lays out lanes and groups. It depends on
// nothing but its arguments. errNoRail: see noRail for the text.
func newPlan(dialler, acceptor *Open) (*plan, error) {
	p := &plan{
		payloadBytes: int(min(dialler.PayloadBytes, acceptor.PayloadBytes)),
		depth:        int(min(dialler.LaneDepth, acceptor.LaneDepth)),
	}
	// A segment's chunks are posted together and count in one lane's window;
	// whole chunks, so that a segment boundary is a chunk boundary.
	segment := min(int(dialler.SegmentBytes), int(acceptor.SegmentBytes), p.depth*p.payloadBytes)
	p.rails = matchRails(dialler.Ports, acceptor.Ports)
	if !slices.ContainsFunc(p.rails, func(r planRail) bool { return !r.down }) {
		return nil, errNoRail
	}
	// At least four segments fit a rail's bytes in flight, or it would wait for
	// an ack between them.
	for _, r := range p.rails {
		rate := min(dialler.Ports[r.port[0]].RateBits, acceptor.Ports[r.port[1]].RateBits)
		segment = min(segment, int(inFlightBytes(rate)/4))
	}
	p.segmentBytes = max(segment/p.payloadBytes, 1) * p.payloadBytes
	p.layLanes(dialler, acceptor)
	if len(p.groups) > MaxGroups {
		return nil, fmt.Errorf("%d lane groups, at most %d: lower pollers.per_node", len(p.groups), MaxGroups)
	}
	return p, nil
}

// layLanes gives every rail its data lanes, lane i to poller i mod n on each
// side, and each group a credit lane on every rail it has lanes on.
func (p *plan) layLanes(dialler, acceptor *Open) {
	perRail := int(min(dialler.LanesPerRail, acceptor.LanesPerRail))
	for r := range p.rails {
		ports := [2]*PortOffer{&dialler.Ports[p.rails[r].port[0]], &acceptor.Ports[p.rails[r].port[1]]}
		var here []uint16 // groups on this rail, in order
		for i := range perRail {
			g := p.group(planGroup{poller: [2]uint16{
				ports[0].Pollers[i%len(ports[0].Pollers)], ports[1].Pollers[i%len(ports[1].Pollers)]}})
			p.lanes = append(p.lanes, planLane{rail: uint16(r), group: g})
			known := false
			for _, h := range here {
				known = known || h == g
			}
			if !known {
				here = append(here, g)
			}
		}
		for _, g := range here {
			p.lanes = append(p.lanes, planLane{rail: uint16(r), group: g, credit: true})
		}
	}
}

func (p *plan) group(want planGroup) uint16 {
	for i, g := range p.groups {
		if g == want {
			return uint16(i)
		}
	}
	p.groups = append(p.groups, want)
	return uint16(len(p.groups) - 1)
}
