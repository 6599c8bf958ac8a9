package engine

import (
	"errors"
	"fmt"
	"math"

	"mover/reason"
	"mover/verbs"
)

// The parameters of an RC connection, besides SessionConfig.AckTimeout. 7
// retries would be infinite on rxe, rnr_retry 7 everywhere.
const (
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
	// here is the port's address in this life; peerGID what was last known of
	// the other end's.
	here     endpoint
	peerGID  verbs.GID
	declined bool // the peer would not take the last life up (dialler)

	laneLife
	wasTried bool  // the first life came to something, or to nothing
	openBy   int64 // the peer's end is awaited until
	reopenAt int64 // 0: not waiting to be built again
	backoff  int64
	readyAt  int64
	// The QP of the life before this, and when that was over.
	formerQPN uint32
	formerAt  int64
}

// laneLife is what one life of a lane has come to.
type laneLife struct {
	opened     bool // a QP is built, or the peer's refused; this life is not over
	told       bool // the peer knows of it
	refused    bool // by this side: it has no QP, and can't have carried anything
	connecting bool // the peer's end is known (dialler)
	connected  bool // in RTS here
	ready      bool // may send
	lived      bool // was ready
	asked      bool // the peer's LaneDown has come
	// The life is over when this end is drained, the peer has answered what
	// became of its writes, and its own question was answered.
	drained, resolved, answered bool
}

func (l *sessionLane) ref() LaneRef { return LaneRef{Lane: l.index, Epoch: l.epoch} }

// laneDrained reports a lane of ours to the peer.
func (s *Session) laneDrained(e *event) {
	l := s.lanes[e.lane.Lane]
	if e.gone {
		l.qp = nil
	}
	if s.phase >= phaseClosing {
		return
	}
	wasUp := l.lived
	s.unready(l)
	s.flushLanes() // the peer hears of the lane before it hears of its end
	l.drained, l.openBy = true, 0
	if wasUp { // what never was up is tried again and again: its trouble is told once
		s.cfg.Log("lane down", "lane", l.index, "rail", l.rail, "credit", l.credit, "cause", e.cause.String(), "detail", e.detail,
			"vendor_err", e.vendor, "unsettled_slots", len(e.list.slots), "unsettled_segments", len(e.list.segments))
	}
	if e.cause != verbs.WCFlushErr {
		s.trouble(l, s.failure(l, e.cause, e.detail))
	}
	if l.told {
		s.send(&LaneDown{Lane: e.lane, Cause: clip(s.causeText(e)), Slots: e.list.slots, Segments: e.list.segments})
	} else { // of a life that the peer has not heard of there is nothing to ask
		l.resolved, l.answered = true, true
	}
	s.laneOver(l)
	s.tried(l)
	s.spread(l, e, wasUp)
}

// spread takes down what a failure proves to be down as well: with a device
// every lane on it, with a path that does not answer the other lanes of the
// rail. Lanes that have nothing to send would not notice, and keep slots whose
// credit can't come.
func (s *Session) spread(l *sessionLane, e *event, wasUp bool) {
	if e.gone {
		s.portEvent(s.railPort(l.rail).Context, verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
		return
	}
	if !wasUp || e.cause != verbs.WCRetryExcErr && e.cause != verbs.WCRespTimeoutErr {
		return
	}
	for _, other := range s.lanes {
		if other.rail == l.rail && other.ready {
			s.failLane(other, s.troubles[l.rail])
		}
	}
}

func (s *Session) causeText(e *event) string {
	if e.detail == "" {
		return e.cause.String()
	}
	return e.cause.String() + ": " + e.detail
}

// failLane takes a lane down for what only the session knows.
func (s *Session) failLane(l *sessionLane, why string) {
	s.trouble(l, why)
	s.command(l.group.poller, command{kind: commandFailLane, group: l.group.group, lane: l.ref()})
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
	if l.asked || len(m.Slots) > MaxBatch || len(m.Segments) > MaxBatch {
		return errors.New("LaneDown twice, or too long")
	}
	l.asked = true
	s.unready(l)
	l.openBy = 0
	l.declined = l.told && !l.connecting // it sent no end of its own
	if m.Cause != verbs.WCFlushErr.String() {
		s.trouble(l, "the peer: "+clip(m.Cause))
	}
	if l.refused {
		if len(m.Slots)+len(m.Segments) > 0 {
			return errors.New("LaneDown of a lane that was refused, with writes on it")
		}
		l.answered = true
		s.send(&LaneDownAnswer{Lane: m.Lane})
		s.laneOver(l)
		return nil
	}
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
	if l.refused {
		if len(m.Slots)+len(m.Segments) > 0 {
			return errors.New("LaneDownAnswer of a lane that was refused, with writes on it")
		}
		s.laneOver(l)
		return nil
	}
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
	if l.qp != nil {
		l.formerQPN, l.formerAt = l.qp.QPN(), s.now
		s.command(l.group.poller, command{kind: commandDestroyLane, group: l.group.group, lane: l.ref()})
	}
	if l.lived && s.now-l.readyAt > 4*s.cfg.RebuildMax {
		l.backoff = 0
	}
	l.qp, l.laneLife = nil, laneLife{}
	l.epoch++
	l.reopenAt = 0 // while it was open, the deadline of settleBy
	if s.cfg.Dialler {
		s.backOff(l)
	}
}

// backOff puts off the next life of a lane.
func (s *Session) backOff(l *sessionLane) {
	l.backoff = min(max(2*l.backoff, s.cfg.RebuildMin), s.cfg.RebuildMax)
	l.reopenAt = s.now + l.backoff
}

// tickLanes builds lanes again, and ends a session that has had none, or
// nothing to return credits on, for too long.
func (s *Session) tickLanes() int64 {
	next := int64(math.MaxInt64)
	for _, l := range s.lanes {
		switch {
		case l.openBy != 0 && s.now > l.openBy:
			l.openBy = s.now + s.cfg.SetupTimeout
			s.failLane(l, fmt.Sprintf("the peer did not open it within %d ms", s.cfg.SetupTimeout/1e6))
			next = min(next, l.openBy+1)
		case l.openBy != 0:
			next = min(next, l.openBy+1)
		case l.drained && l.opened:
			next = min(next, s.settleBy(l))
		case l.reopenAt != 0 && s.now >= l.reopenAt:
			s.openLane(l)
			next = min(next, max(l.reopenAt, l.openBy+1))
		case l.reopenAt != 0:
			next = min(next, l.reopenAt)
		}
		if s.phase >= phaseClosing {
			return s.now
		}
	}
	return min(next, s.tickGroups())
}

// settleBy bounds how long the two sides may take to agree on what a failed
// lane's writes came to.
func (s *Session) settleBy(l *sessionLane) int64 {
	if l.reopenAt == 0 {
		l.reopenAt = s.now + 2*s.cfg.DrainTimeout // while opened: the deadline
	}
	if s.now >= l.reopenAt {
		s.end(reason.New(reason.TransportError, "the peer did not answer for failed lane %d within %d ms; look at its log", l.index, 2*s.cfg.DrainTimeout/1e6))
	}
	return l.reopenAt
}

// tickGroups ends a session in which no data can flow for too long. A group
// whose rails are all down, or that has none to credit on, only waits: the
// others go on.
func (s *Session) tickGroups() int64 {
	if s.phase != phaseUp {
		return math.MaxInt64
	}
	if s.usable() {
		s.noLaneSince = 0
		return math.MaxInt64
	}
	if s.noLaneSince == 0 {
		s.noLaneSince = s.now
	}
	if limit := s.noLaneSince + s.cfg.StallAfter/2; s.now < limit {
		return limit
	}
	s.end(reason.New(reason.TransportError, "no lane to the peer could be rebuilt for %d ms%s; see `mover doctor` on both nodes", s.cfg.StallAfter/2/1e6, s.troubleText()))
	return s.now
}
