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
	// The life is over when this end is drained, the peer has answered what
	// became of its writes, and its own question was answered.
	drained, resolved, answered bool
	openBy                      int64 // the peer's end is awaited until
	reopenAt                    int64 // 0: not waiting to be built again
	backoff                     int64
	readyAt                     int64
}

func (l *sessionLane) ref() LaneRef { return LaneRef{Lane: l.index, Epoch: l.epoch} }

// openLanes builds this side's ends, receives posted, and offers them: the
// dialler's part.
func (s *Session) openLanes(lanes []*sessionLane) {
	m := &LaneOpen{}
	for _, l := range lanes {
		end, err := s.buildLane(l)
		if err != nil {
			s.end(asReason(fmt.Errorf("lane %d: %w", l.index, err), reason.TransportError))
			return
		}
		l.openBy = s.now + s.cfg.SetupTimeout
		m.Lanes = append(m.Lanes, end)
	}
	s.send(m)
}

// buildLane creates a lane's QP, in INIT with its receives posted, so that
// nothing the peer sends later can find none.
func (s *Session) buildLane(l *sessionLane) (LaneEnd, error) {
	port := s.railPort(l.rail)
	d, err := s.device(port)
	if err != nil {
		return LaneEnd{}, err
	}
	var cq verbs.CQ
	for _, c := range l.group.cqs {
		if c.device == d {
			cq = c.cq
		}
	}
	send, recv := s.queueSizes(l)
	qp, err := s.pds[d].pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: send, MaxRecvWR: recv, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return LaneEnd{}, err
	}
	l.qp, l.opened = qp, true
	l.ready, l.drained, l.resolved, l.answered, l.reopenAt = false, false, false, false, 0
	access := verbs.AccessRemoteWrite | verbs.AccessLocalWrite
	if l.credit {
		access = verbs.AccessLocalWrite // credits carry no bytes
	}
	if err := qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: port.Offer.Port, AccessFlags: access}, verbs.InitMask(verbs.RC)); err != nil {
		return LaneEnd{}, err
	}
	wrs := make([]verbs.RecvWR, recv)
	for i := range wrs {
		wrs[i].WRID = wrID(wrRecv, &lane{index: l.index, epoch: l.epoch}, 0)
	}
	if n, err := qp.PostRecv(wrs); err != nil {
		return LaneEnd{}, fmt.Errorf("posting %d receives, %d taken: %w", recv, n, err)
	}
	l.psn = s.cfg.Random() & psnMask
	o := &port.Offer
	return LaneEnd{Lane: l.index, Epoch: l.epoch, QPN: qp.QPN(), PSN: l.psn, GID: o.GID, LID: o.LID, MTU: o.MTU,
		ConnData: qp.ConnData()}, nil
}

// connectLane moves the QP to RTR and RTS towards the peer's end, and hands it
// to its poller.
func (s *Session) connectLane(l *sessionLane, peer *LaneEnd) error {
	port := s.railPort(l.rail)
	rtr := verbs.QPAttr{
		State: verbs.StateRTR, PathMTU: min(peer.MTU, port.Offer.MTU), DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestRdAtomic: rcRdAtomics, MinRNRTimer: rcMinRNR,
		AV: verbs.AHAttr{Port: port.Offer.Port, DLID: peer.LID,
			IsGlobal: port.Offer.LinkLayer != verbs.LinkInfiniBand,
			DGID:     peer.GID, SGIDIndex: port.SGIDIndex, HopLimit: rcHopLimit},
		RemoteConnData: peer.ConnData,
	}
	if err := l.qp.Modify(&rtr, verbs.RTRMask(verbs.RC)); err != nil {
		return err
	}
	rts := verbs.QPAttr{State: verbs.StateRTS, SQPSN: l.psn, Timeout: rcTimeout, RetryCnt: rcRetries,
		RNRRetry: rcRNRRetry, MaxRdAtomic: rcRdAtomics}
	if err := l.qp.Modify(&rts, verbs.RTSMask(verbs.RC)); err != nil {
		return err
	}
	l.openBy = 0
	s.command(l.group.poller, command{kind: commandAttachLane, group: l.group.group, lane: l.ref(), qp: l.qp})
	return nil
}

func (s *Session) makeReady(l *sessionLane) {
	l.ready, l.readyAt = true, s.now
	if l.credit {
		l.group.upCredit++
	} else {
		l.group.upLanes++
	}
	s.command(l.group.poller, command{kind: commandReadyLane, group: l.group.group, lane: l.ref()})
}

// laneEnd validates one end from the peer.
func (s *Session) laneEnd(e *LaneEnd) (*sessionLane, error) {
	switch {
	case s.plan == nil || int(e.Lane) >= len(s.lanes):
		return nil, fmt.Errorf("lane %d does not exist", e.Lane)
	case !s.lanes[e.Lane].group.attached:
		return nil, fmt.Errorf("lane %d before its group", e.Lane)
	case e.QPN > psnMask || e.PSN > psnMask:
		return nil, fmt.Errorf("lane %d: QPN or PSN beyond 24 bits", e.Lane)
	case !e.MTU.Valid():
		return nil, fmt.Errorf("lane %d: MTU %d", e.Lane, e.MTU)
	case len(e.ConnData) > verbs.MaxConnData:
		return nil, fmt.Errorf("lane %d: %d bytes of connection data", e.Lane, len(e.ConnData))
	}
	return s.lanes[e.Lane], nil
}

func (s *Session) handleLaneOpen(m *LaneOpen) error {
	if s.cfg.Dialler {
		return errors.New("LaneOpen from the accepting side")
	}
	answer := &LaneOpened{}
	for i := range m.Lanes {
		peer := &m.Lanes[i]
		l, err := s.laneEnd(peer)
		if err != nil {
			return err
		}
		if l.opened || peer.Epoch != l.epoch {
			return fmt.Errorf("LaneOpen of lane %d epoch %d, which is at %d", l.index, peer.Epoch, l.epoch)
		}
		end, err := s.buildLane(l)
		if err == nil {
			err = s.connectLane(l, peer)
		}
		if err != nil {
			s.end(asReason(fmt.Errorf("lane %d: %w", l.index, err), reason.TransportError))
			return nil
		}
		answer.Lanes = append(answer.Lanes, end)
	}
	s.send(answer)
	return nil
}

func (s *Session) handleLaneOpened(m *LaneOpened) error {
	if !s.cfg.Dialler {
		return errors.New("LaneOpened from the dialling side")
	}
	ready := &LaneReady{}
	for i := range m.Lanes {
		peer := &m.Lanes[i]
		l, err := s.laneEnd(peer)
		if err != nil {
			return err
		}
		if !l.opened || l.openBy == 0 || peer.Epoch != l.epoch {
			return fmt.Errorf("LaneOpened of lane %d, which is not awaited", l.index)
		}
		if err := s.connectLane(l, peer); err != nil {
			s.end(asReason(fmt.Errorf("lane %d: %w", l.index, err), reason.TransportError))
			return nil
		}
		s.makeReady(l)
		ready.Lanes = append(ready.Lanes, l.ref())
	}
	s.send(ready)
	s.checkUp()
	return nil
}

func (s *Session) handleLaneReady(m *LaneReady) error {
	if s.cfg.Dialler {
		return errors.New("LaneReady from the accepting side")
	}
	for _, ref := range m.Lanes {
		if s.plan == nil || int(ref.Lane) >= len(s.lanes) {
			return fmt.Errorf("LaneReady of lane %d", ref.Lane)
		}
		l := s.lanes[ref.Lane]
		if !l.opened || l.ready || ref.Epoch != l.epoch {
			return fmt.Errorf("LaneReady of lane %d epoch %d", ref.Lane, ref.Epoch)
		}
		if l.drained {
			continue // it failed before it was ready
		}
		s.makeReady(l)
	}
	s.checkUp()
	return nil
}

// checkUp ends the opening once every lane was opened; lanes that failed since
// are the business of failure handling.
func (s *Session) checkUp() {
	if s.phase != phaseOpening {
		return
	}
	for _, l := range s.lanes {
		if !l.opened && l.epoch == 0 || l.openBy != 0 {
			return
		}
	}
	s.phase = phaseUp
	if s.cfg.Up != nil {
		s.cfg.Up()
	}
}

// laneDrained reports a lane of ours to the peer.
func (s *Session) laneDrained(e *event) {
	if s.phase >= phaseClosing {
		return
	}
	l := s.lanes[e.lane.Lane]
	s.unready(l)
	l.drained = true
	s.cfg.Log("lane down", "lane", l.index, "rail", l.rail, "credit", l.credit, "cause", e.cause.String(),
		"vendor_err", e.vendor, "unsettled_slots", len(e.list.slots), "unsettled_segments", len(e.list.segments))
	down := &LaneDown{Lane: e.lane, Cause: e.cause.String(), Slots: e.list.slots, Segments: e.list.segments}
	s.send(down)
	s.laneOver(l)
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
	if err := l.qp.Destroy(); err != nil {
		s.end(asReason(fmt.Errorf("lane %d: destroying its QP: %w", l.index, err), reason.TransportError))
		return
	}
	if l.backoff = min(max(2*l.backoff, s.cfg.RebuildMin), s.cfg.RebuildMax); s.now-l.readyAt > 4*s.cfg.RebuildMax {
		l.backoff = s.cfg.RebuildMin
	}
	l.qp, l.opened = nil, false
	l.epoch++
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
			s.openLanes([]*sessionLane{l})
			next = min(next, l.openBy+1)
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
		if port.Context != ctx || !l.opened || l.openBy != 0 || l.drained {
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
