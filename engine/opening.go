package engine

import (
	"errors"
	"fmt"

	"mover/reason"
	"mover/verbs"
)

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
