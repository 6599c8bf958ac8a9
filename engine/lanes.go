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

// openLanes builds this side's ends, receives posted; once they are, they are
// offered: the dialler's part.
func (s *Session) openLanes(lanes []*sessionLane) {
	for _, l := range lanes {
		if err := s.buildLane(l); err != nil {
			s.end(asReason(fmt.Errorf("lane %d: %w", l.index, err), reason.TransportError))
			return
		}
	}
}

// buildLane creates a lane's QP. Its poller, who owns the CQ and so the QP,
// moves it to INIT and posts the receives, so that nothing the peer sends
// later can find none; see laneBuilt.
func (s *Session) buildLane(l *sessionLane) error {
	port := s.railPort(l.rail)
	d, err := s.device(port)
	if err != nil {
		return err
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
		return err
	}
	l.qp, l.opened = qp, true
	l.ready, l.drained, l.resolved, l.answered = false, false, false, false
	l.reopenAt, l.openBy = 0, s.now+s.cfg.SetupTimeout
	l.psn = s.cfg.Random() & psnMask
	access := verbs.AccessRemoteWrite | verbs.AccessLocalWrite
	if l.credit {
		access = verbs.AccessLocalWrite // credits carry no bytes
	}
	s.command(l.group.poller, command{kind: commandBuildLane, group: l.group.group, lane: l.ref(), qp: qp,
		attr: [2]*verbs.QPAttr{{State: verbs.StateInit, Port: port.Offer.Port, AccessFlags: access}}})
	return nil
}

// laneBuilt tells that a lane's receives are posted.
func (s *Session) laneBuilt(e *event) {
	if s.phase >= phaseClosing {
		return
	}
	if s.cfg.Dialler { // the acceptor's ends are told when they are connected
		s.built = append(s.built, s.laneEndOf(s.lanes[e.lane.Lane]))
	}
}

func (s *Session) laneEndOf(l *sessionLane) LaneEnd {
	o := &s.railPort(l.rail).Offer
	return LaneEnd{Lane: l.index, Epoch: l.epoch, QPN: l.qp.QPN(), PSN: l.psn, GID: o.GID, LID: o.LID, MTU: o.MTU,
		ConnData: l.qp.ConnData()}
}

// flushLanes sends what the pollers have done to lanes since the last call.
func (s *Session) flushLanes() {
	for len(s.built) > 0 {
		n := min(len(s.built), MaxBatch)
		ends := s.built[:n:n]
		s.built = s.built[n:]
		if s.cfg.Dialler {
			s.send(&LaneOpen{Lanes: ends})
		} else {
			s.send(&LaneOpened{Lanes: ends})
		}
	}
	for len(s.readied) > 0 {
		n := min(len(s.readied), MaxBatch)
		refs := s.readied[:n:n]
		s.readied = s.readied[n:]
		s.send(&LaneReady{Lanes: refs})
	}
	s.built, s.readied = nil, nil
}

// connectLane has the lane's poller move the QP to RTR and RTS towards the
// peer's end; see laneConnected. What can't be connected fails like any lane,
// and is built again after a while.
func (s *Session) connectLane(l *sessionLane, peer *LaneEnd) {
	port := s.railPort(l.rail)
	sgid, err := sourceGID(port)
	if err != nil {
		s.cfg.Log("lane not connected", "lane", l.index, "rail", l.rail, "error", err)
		s.command(l.group.poller, command{kind: commandFailLane, group: l.group.group, lane: l.ref()})
		return
	}
	rtr := &verbs.QPAttr{
		State: verbs.StateRTR, PathMTU: min(peer.MTU, port.Offer.MTU), DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestRdAtomic: rcRdAtomics, MinRNRTimer: rcMinRNR,
		AV: verbs.AHAttr{Port: port.Offer.Port, DLID: peer.LID,
			IsGlobal: port.Offer.LinkLayer != verbs.LinkInfiniBand,
			DGID:     peer.GID, SGIDIndex: sgid, HopLimit: rcHopLimit},
		RemoteConnData: peer.ConnData,
	}
	rts := &verbs.QPAttr{State: verbs.StateRTS, SQPSN: l.psn, Timeout: rcTimeout, RetryCnt: rcRetries,
		RNRRetry: rcRNRRetry, MaxRdAtomic: rcRdAtomics}
	s.command(l.group.poller, command{kind: commandConnectLane, group: l.group.group, lane: l.ref(),
		attr: [2]*verbs.QPAttr{rtr, rts}})
}

// sourceGID finds the port's GID in its table anew for every QP: indexes move
// after a port flap (verbs man pages; GID_CHANGE).
func sourceGID(port *LocalPort) (int, error) {
	o := &port.Offer
	if o.LinkLayer == verbs.LinkInfiniBand {
		return port.SGIDIndex, nil
	}
	table, err := port.Context.QueryGIDTable(o.Port)
	if err != nil {
		return 0, err
	}
	for i := range table {
		if table[i].GID == o.GID && table[i].Type == o.GIDType {
			return table[i].Index, nil
		}
	}
	return 0, fmt.Errorf("port %d of %s has lost its GID %v", o.Port, o.Device, o.GID.Addr())
}

// laneConnected tells that a lane is in RTS here.
func (s *Session) laneConnected(e *event) {
	l := s.lanes[e.lane.Lane]
	if s.phase >= phaseClosing || l.epoch != e.lane.Epoch {
		return
	}
	if !s.cfg.Dialler {
		s.built = append(s.built, s.laneEndOf(l))
		return
	}
	l.openBy = 0
	s.makeReady(l)
	s.readied = append(s.readied, l.ref())
	s.checkUp()
}

func (s *Session) makeReady(l *sessionLane) {
	l.ready, l.readyAt = true, s.now
	if l.credit {
		l.group.upCredit++
	} else {
		l.group.upLanes++
		s.Rails()[l.rail].LanesUp.Add(1)
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
	for i := range m.Lanes {
		peer := &m.Lanes[i]
		l, err := s.laneEnd(peer)
		if err != nil {
			return err
		}
		if l.opened || peer.Epoch != l.epoch {
			return fmt.Errorf("LaneOpen of lane %d epoch %d, which is at %d", l.index, peer.Epoch, l.epoch)
		}
		if err := s.buildLane(l); err != nil {
			s.end(asReason(fmt.Errorf("lane %d: %w", l.index, err), reason.TransportError))
			return nil
		}
		s.connectLane(l, peer)
	}
	return nil
}

func (s *Session) handleLaneOpened(m *LaneOpened) error {
	if !s.cfg.Dialler {
		return errors.New("LaneOpened from the dialling side")
	}
	for i := range m.Lanes {
		peer := &m.Lanes[i]
		l, err := s.laneEnd(peer)
		if err != nil {
			return err
		}
		if !l.opened || l.connecting || l.answered || peer.Epoch != l.epoch {
			return fmt.Errorf("LaneOpened of lane %d, which is not awaited", l.index)
		}
		l.connecting = true
		s.connectLane(l, peer) // in vain when it has failed meanwhile
	}
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
		if !l.opened || l.ready || ref.Epoch != l.epoch || l.openBy == 0 && !l.drained {
			return fmt.Errorf("LaneReady of lane %d epoch %d", ref.Lane, ref.Epoch)
		}
		if l.drained {
			continue // it failed before it was ready
		}
		l.openBy = 0
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
	s.offerQueued()
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
