package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"mover/reason"
	"mover/verbs"
)

// The parameters of an RC connection. A timeout of 14 is 67 ms, with 6 retries
// 0.5 to 2 s until RETRY_EXC (hardware may take four times the nominal time).
// 7 retries would be infinite on rxe, rnr_retry 7 everywhere.
const (
	rcTimeout   = 14
	rcRetries   = 6
	rcRNRRetry  = 6
	rcMinRNR    = 12 // 0.64 ms; 0 is 655 ms
	rcHopLimit  = 64
	psnMask     = 1<<24 - 1
	rcRdAtomics = 1 // required bits even for an engine that only writes
)

// sessionLane is a lane as its session sees it.
type sessionLane struct {
	planLane
	index uint16
	group *sessionGroup
	epoch uint32
	qp    verbs.QP
	psn   uint32

	opened bool // QP built, this life is not over
	ready  bool // may send
	// connecting: the peer's end is known (dialler).
	connecting bool
	// The life is over when this end is drained, the peer has answered what
	// became of its writes, and its own question was answered.
	drained, resolved, answered bool
	openBy                      int64 // the peer's end is awaited until
	reopenAt                    int64 // 0: not waiting to be built again
	backoff                     int64
	readyAt                     int64
}

func (l *sessionLane) ref() LaneRef { return LaneRef{Lane: l.index, Epoch: l.epoch} }

// laneDrained reports a lane of ours to the peer.
func (s *Session) laneDrained(e *event) {
	if s.phase >= phaseClosing {
		return
	}
	l := s.lanes[e.lane.Lane]
	s.unready(l)
	s.flushLanes() // the peer hears of the lane before it hears of its end
	l.drained, l.openBy = true, 0
	s.cfg.Log("lane down", "lane", l.index, "rail", l.rail, "credit", l.credit, "cause", e.cause.String(),
		"vendor_err", e.vendor, "unsettled_slots", len(e.list.slots), "unsettled_segments", len(e.list.segments))
	down := &LaneDown{Lane: e.lane, Cause: e.cause.String(), Slots: e.list.slots, Segments: e.list.segments}
	s.send(down)
	s.laneOver(l)
	s.checkUp()
}

func (s *Session) unready(l *sessionLane) {
	if !l.ready {
		return
	}
	l.ready = false
	if l.credit {
		l.group.upCredit--
	} else {
		l.group.upLanes--
		s.Rails()[l.rail].LanesUp.Add(-1)
	}
}

func (s *Session) liveLane(ref LaneRef) (*sessionLane, error) {
	if s.plan == nil || int(ref.Lane) >= len(s.lanes) || !s.lanes[ref.Lane].opened || s.lanes[ref.Lane].epoch != ref.Epoch {
		return nil, fmt.Errorf("lane %d epoch %d is not open", ref.Lane, ref.Epoch)
	}
	return s.lanes[ref.Lane], nil
}

func (s *Session) handleLaneDown(m *LaneDown) error {
	l, err := s.liveLane(m.Lane)
	if err != nil {
		return fmt.Errorf("LaneDown: %w", err)
	}
	if l.answered || len(m.Slots) > MaxBatch || len(m.Segments) > MaxBatch {
		return errors.New("LaneDown twice, or too long")
	}
	s.unready(l)
	l.openBy = 0
	s.command(l.group.poller, command{kind: commandAnswerLane, group: l.group.group, lane: m.Lane,
		list: &laneList{slots: m.Slots, segments: m.Segments}})
	return nil
}

func (s *Session) laneAnswered(e *event) {
	if s.phase >= phaseClosing {
		return
	}
	l := s.lanes[e.lane.Lane]
	l.answered = true
	s.regenerate(l.group, e.list.segments)
	s.send(&LaneDownAnswer{Lane: e.lane, Slots: e.list.slots, Segments: e.list.segments})
	s.laneOver(l)
}

func (s *Session) handleLaneDownAnswer(m *LaneDownAnswer) error {
	l, err := s.liveLane(m.Lane)
	if err != nil {
		return fmt.Errorf("LaneDownAnswer: %w", err)
	}
	if !l.drained || l.resolved || len(m.Slots) > MaxBatch || len(m.Segments) > MaxBatch {
		return errors.New("LaneDownAnswer unasked, twice, or too long")
	}
	l.resolved = true
	s.renameSegments(l.group, m.Segments)
	s.command(l.group.poller, command{kind: commandResolveLane, group: l.group.group, lane: m.Lane,
		list: &laneList{slots: m.Slots, segments: m.Segments}})
	s.laneOver(l)
	return nil
}

// laneOver ends a life of a lane when both directions are settled. The dialler
// builds it again after a back-off that grows while lanes die young.
func (s *Session) laneOver(l *sessionLane) {
	if !l.drained || !l.resolved || !l.answered {
		return
	}
	s.command(l.group.poller, command{kind: commandDestroyLane, group: l.group.group, lane: l.ref()})
	if l.backoff = min(max(2*l.backoff, s.cfg.RebuildMin), s.cfg.RebuildMax); s.now-l.readyAt > 4*s.cfg.RebuildMax {
		l.backoff = s.cfg.RebuildMin
	}
	l.qp, l.opened, l.connecting = nil, false, false
	l.epoch++
	l.reopenAt = 0 // while it was open, the deadline of settleBy
	if s.cfg.Dialler {
		l.reopenAt = s.now + l.backoff
	}
}

// tickLanes builds lanes again, and ends a session that has had none, or
// nothing to return credits on, for too long.
func (s *Session) tickLanes() int64 {
	next := int64(math.MaxInt64)
	for _, l := range s.lanes {
		switch {
		case l.openBy != 0 && s.now > l.openBy:
			s.end(reason.New(reason.PeerUnreachable, "the peer did not open lane %d within %d ms", l.index, s.cfg.SetupTimeout/1e6))
			return s.now
		case l.openBy != 0:
			next = min(next, l.openBy+1)
		case l.drained && l.opened:
			next = min(next, s.settleBy(l))
		case l.reopenAt != 0 && s.now >= l.reopenAt:
			if s.mayReopen(l) {
				s.openLanes([]*sessionLane{l})
				next = min(next, l.openBy+1)
			} else {
				next = min(next, l.reopenAt)
			}
		case l.reopenAt != 0:
			next = min(next, l.reopenAt)
		}
		if s.phase >= phaseClosing {
			return s.now
		}
	}
	return min(next, s.tickGroups())
}

// mayReopen puts off building a lane whose port is down: a QP built now would
// carry work into a dead end.
func (s *Session) mayReopen(l *sessionLane) bool {
	port := s.railPort(l.rail)
	attr, err := port.Context.QueryPort(port.Offer.Port)
	if err == nil && attr.State == verbs.PortActive {
		return true
	}
	l.backoff = min(max(2*l.backoff, s.cfg.RebuildMin), s.cfg.RebuildMax)
	l.reopenAt = s.now + l.backoff
	return false
}

// settleBy bounds how long the two sides may take to agree on what a failed
// lane's writes came to.
func (s *Session) settleBy(l *sessionLane) int64 {
	if l.reopenAt == 0 {
		l.reopenAt = s.now + 2*s.cfg.DrainTimeout // while opened: the deadline
	}
	if s.now >= l.reopenAt {
		s.end(reason.New(reason.TransportError, "the peer did not answer for failed lane %d within %d ms", l.index, 2*s.cfg.DrainTimeout/1e6))
	}
	return l.reopenAt
}

func (s *Session) tickGroups() int64 {
	if s.phase != phaseUp {
		return math.MaxInt64
	}
	dark := slices.ContainsFunc(s.groups, func(g *sessionGroup) bool { return g.upCredit == 0 }) ||
		!slices.ContainsFunc(s.groups, func(g *sessionGroup) bool { return g.upLanes > 0 })
	if !dark {
		s.noLaneSince = 0
		return math.MaxInt64
	}
	if s.noLaneSince == 0 {
		s.noLaneSince = s.now
	}
	if limit := s.noLaneSince + s.cfg.StallAfter/2; s.now < limit {
		return limit
	}
	s.end(reason.New(reason.TransportError, "no lane to the peer could be rebuilt for %d ms", s.cfg.StallAfter/2/1e6))
	return s.now
}

// portEvent takes a port's lanes down at once: completions might not come.
func (s *Session) portEvent(ctx verbs.Context, e verbs.AsyncEvent) {
	if s.plan == nil || s.phase >= phaseClosing {
		return
	}
	for _, l := range s.lanes {
		port := s.railPort(l.rail)
		if port.Context != ctx || !l.opened || l.drained {
			continue
		}
		hit := false
		switch e.Type {
		case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
			hit = l.qp.QPN() == e.QPN
		case verbs.EventPortErr:
			hit = e.Port == port.Offer.Port
		case verbs.EventDeviceFatal:
			hit = true
		case verbs.EventCQErr:
			hit = slices.ContainsFunc(l.group.cqs, func(c deviceCQ) bool { return c.cq == e.CQ })
		}
		if hit {
			s.command(l.group.poller, command{kind: commandFailLane, group: l.group.group, lane: l.ref()})
		}
	}
	if e.Type == verbs.EventQPAccessErr {
		// Somebody used a key that was not granted: never a fault of a healthy
		// peer, and a guess at another key must not follow.
		s.violation("an access error on a queue pair")
	}
}
