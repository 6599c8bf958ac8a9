package engine

import (
	"errors"
	"fmt"

	"mover/reason"
	"mover/verbs"
)

// openGrace is how long the opening waits for the other lanes once data can
// flow: a probe into a rail that is silently cut takes seconds to fail.
const openGrace = 500e6

// openLane builds this side's end, receives posted; once it is, it is offered:
// the dialler's part. What can't be built now is tried again later.
func (s *Session) openLane(l *sessionLane) {
	port := s.railPort(l.rail)
	// First the family that the peer's end had last, or after it refused that
	// the other one, for its address may have moved; then any.
	like := l.peerGID
	if l.declined {
		like, l.declined = otherFamily(l.here.gid.GID), false
	}
	here, err := port.endpoint(like)
	if err != nil {
		here, err = port.endpoint(verbs.GID{})
	}
	if err == nil {
		err = s.buildLane(l, here)
	}
	if err != nil {
		s.trouble(l, err.Error())
		s.backOff(l)
		s.tried(l)
	}
}

// buildLane creates a lane's QP. Its poller, who owns the CQ and so the QP,
// moves it to INIT and posts the receives, so that nothing the peer sends
// later can find none; see laneBuilt.
func (s *Session) buildLane(l *sessionLane, here endpoint) error {
	port := s.railPort(l.rail)
	d, err := s.device(port)
	if err != nil {
		return err
	}
	cq := l.group.cqOn(d)
	send, recv := s.queueSizes(l)
	qp, err := s.pds[d].pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: send, MaxRecvWR: recv, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return fmt.Errorf("%s here: %w", portName(&port.Offer), err)
	}
	l.here, l.qp, l.laneLife = here, qp, laneLife{opened: true}
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
	if l := s.lanes[e.lane.Lane]; s.cfg.Dialler { // the acceptor's ends are told when they are connected
		l.told = true
		s.built = append(s.built, laneEndOf(l))
	}
}

func laneEndOf(l *sessionLane) LaneEnd {
	return LaneEnd{Lane: l.index, Epoch: l.epoch, QPN: l.qp.QPN(), PSN: l.psn, GID: l.here.gid.GID, LID: l.here.lid,
		MTU: l.here.mtu, ConnData: l.qp.ConnData()}
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
	l.peerGID = peer.GID
	err := l.here.holds(port)
	var av verbs.AHAttr
	if err == nil {
		av, err = l.here.addressVector(port.Offer.Port, peer, s.remoteOffer(l.rail).GRHRequired)
	}
	if err != nil {
		s.failLane(l, err.Error())
		return
	}
	rtr := &verbs.QPAttr{State: verbs.StateRTR, PathMTU: min(peer.MTU, l.here.mtu), DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestRdAtomic: rcRdAtomics, MinRNRTimer: rcMinRNR, AV: av, RemoteConnData: peer.ConnData}
	rts := &verbs.QPAttr{State: verbs.StateRTS, SQPSN: l.psn, Timeout: s.cfg.AckTimeout, RetryCnt: rcRetries,
		RNRRetry: rcRNRRetry, MaxRdAtomic: rcRdAtomics}
	s.command(l.group.poller, command{kind: commandConnectLane, group: l.group.group, lane: l.ref(),
		attr: [2]*verbs.QPAttr{rtr, rts}})
}

// laneConnected tells that a lane is in RTS here and, at the dialler, that its
// probe has arrived there.
func (s *Session) laneConnected(e *event) {
	l := s.lanes[e.lane.Lane]
	if s.phase >= phaseClosing || l.epoch != e.lane.Epoch {
		return
	}
	l.connected = true
	if !s.cfg.Dialler {
		s.built = append(s.built, laneEndOf(l))
		return
	}
	l.openBy = 0
	s.makeReady(l)
	s.readied = append(s.readied, l.ref())
	s.checkUp()
}

func (s *Session) makeReady(l *sessionLane) {
	l.ready, l.lived, l.readyAt = true, true, s.now
	l.wasTried = true
	s.troubles[l.rail] = ""
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
		// The dialler may have had lives that it never told of.
		if l.opened || peer.Epoch < l.epoch {
			return fmt.Errorf("LaneOpen of lane %d epoch %d, which is at %d", l.index, peer.Epoch, l.epoch)
		}
		l.epoch = peer.Epoch
		here, err := s.railPort(l.rail).endpoint(peer.GID)
		if err == nil {
			if err := here.checkPeer(peer); err != nil {
				return err
			}
			err = s.buildLane(l, here)
		}
		if err != nil {
			s.refuseLane(l, err)
			continue
		}
		l.told = true
		s.connectLane(l, peer)
	}
	return nil
}

// refuseLane ends a life of a lane that the dialler has begun and this side
// can't join: as if it had failed and drained at once. The dialler tries again.
func (s *Session) refuseLane(l *sessionLane, why error) {
	l.qp, l.laneLife = nil, laneLife{opened: true, told: true, refused: true, drained: true}
	l.reopenAt, l.openBy = 0, 0
	s.trouble(l, why.Error())
	s.flushLanes()
	s.send(&LaneDown{Lane: l.ref(), Cause: clip(why.Error())})
	s.tried(l)
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
		if !l.told || l.connecting || l.asked || peer.Epoch != l.epoch {
			return fmt.Errorf("LaneOpened of lane %d, which is not awaited", l.index)
		}
		if err := l.here.checkPeer(peer); err != nil {
			return err
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
		if !l.opened || l.ready || ref.Epoch != l.epoch || !l.connected || l.openBy == 0 && !l.drained {
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

// tried notes that a lane's first life has come to something, or to nothing.
func (s *Session) tried(l *sessionLane) {
	l.wasTried = true
	s.checkUp()
}

// checkUp ends the opening once data can flow and every lane of a rail that
// was up has been tried, or openGrace has passed; what failed, or was down, is
// the business of failure handling.
func (s *Session) checkUp() {
	if s.phase != phaseOpening {
		return
	}
	if !s.usable() { // or not any more
		s.usableSince = 0
		return
	}
	if s.usableSince == 0 {
		s.usableSince = s.now
	}
	if s.now-s.usableSince < openGrace {
		for _, l := range s.lanes {
			if !l.wasTried && !s.plan.rails[l.rail].down {
				return
			}
		}
	}
	s.phase = phaseUp
	s.offerQueued()
	if s.cfg.Up != nil {
		s.cfg.Up()
	}
}

// usable reports whether data can flow: a group has a lane for it, and one for
// the credits.
func (s *Session) usable() bool {
	for _, g := range s.groups {
		if g.usable() {
			return true
		}
	}
	return false
}

func (g *sessionGroup) usable() bool { return g.upLanes > 0 && g.upCredit > 0 }

// tickOpening gives up on an opening.
func (s *Session) tickOpening() int64 {
	switch s.checkUp(); {
	case s.phase != phaseOpening:
		return s.now
	case s.usableSince != 0:
		return s.usableSince + openGrace
	}
	if s.now-s.startedAt <= s.cfg.SetupTimeout {
		return s.startedAt + s.cfg.SetupTimeout + 1
	}
	s.end(reason.New(reason.PeerUnreachable, "the session was not set up within %d ms%s", s.cfg.SetupTimeout/1e6, s.troubleText()))
	return s.now
}
