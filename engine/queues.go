package engine

import (
	"mover/reason"
	"mover/verbs"
)

type deviceCQ struct {
	device int // index in pds
	cq     verbs.CQ
}

func (g *sessionGroup) cqOn(device int) verbs.CQ {
	for _, c := range g.cqs {
		if c.device == device {
			return c.cq
		}
	}
	return nil
}

// queueSizes are the send and receive queues of a lane. A data lane has at
// most depth writes outstanding and as many at the peer; a credit lane carries
// a credit for every slot, and once more while a completion lags behind. Both
// receive a probe as well, whose receive may be posted again only after what
// follows it has come.
func (s *Session) queueSizes(l *sessionLane) (send, recv int) {
	if l.credit {
		return 2*l.group.slots + 1, 2*len(l.group.remote) + 1
	}
	return s.plan.depth + 2, s.plan.depth + 1
}

// checkQueues compares what the lanes of a group need with what their devices
// have, so that the message names the setting and not an EINVAL.
func (s *Session) checkQueues(g *sessionGroup) error {
	qps := make([]int, len(s.pds))
	for _, l := range s.lanes {
		d, err := s.device(s.railPort(l.rail))
		if err != nil {
			return err
		}
		attr, name := &s.pds[d].attr, s.pds[d].ctx.Device().Name
		if qps[d]++; attr.MaxQP > 0 && qps[d] > attr.MaxQP {
			return reason.New(reason.PeerRefused, "device %s has at most %d queue pairs, the session needs more: lower session.lanes_per_rail",
				name, attr.MaxQP)
		}
		if l.group != g || attr.MaxQPWR == 0 {
			continue
		}
		switch send, recv := s.queueSizes(l); {
		case max(send, recv) <= attr.MaxQPWR:
		case l.credit:
			return reason.New(reason.PeerRefused, "device %s has queues of at most %d work requests, the credits of %d slots need %d: lower memory.session_share, or raise session.slot_payload, on both nodes",
				name, attr.MaxQPWR, max(g.slots, len(g.remote)), max(send, recv))
		default:
			return reason.New(reason.PeerRefused, "device %s has queues of at most %d work requests, a lane needs %d: lower session.lane_depth",
				name, attr.MaxQPWR, max(send, recv))
		}
	}
	return nil
}

// buildCQs makes a CQ per device, with room for every WR of its lanes: an error
// flushes them all at once.
func (s *Session) buildCQs(g *sessionGroup) error {
	entries := make([]int, len(s.pds))
	for _, l := range s.lanes {
		if l.group != g {
			continue
		}
		d, err := s.device(s.railPort(l.rail))
		if err != nil {
			return err
		}
		send, recv := s.queueSizes(l)
		// A lane's next life may begin while completions of the last are still
		// queued: twice.
		entries[d] += 2 * (send + recv)
	}
	for d, n := range entries {
		if n == 0 {
			continue
		}
		if n > s.pds[d].attr.MaxCQE {
			return reason.New(reason.PeerRefused, "a completion queue of %d entries, device %s has at most %d: lower session.lanes_per_rail or session.lane_depth",
				n, s.pds[d].ctx.Device().Name, s.pds[d].attr.MaxCQE)
		}
		var channel verbs.CompChannel
		for i := range s.cfg.Ports {
			if s.cfg.Ports[i].Context == s.pds[d].ctx {
				channel = s.cfg.Ports[i].Channels[uint16(g.poller.index)]
			}
		}
		cq, err := s.pds[d].ctx.CreateCQ(verbs.CQInitAttr{Entries: n, Channel: channel})
		if err != nil {
			return err
		}
		g.cqs = append(g.cqs, deviceCQ{device: d, cq: cq})
		g.group.cqs = append(g.group.cqs, cq)
	}
	return nil
}
