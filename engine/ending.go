package engine

import "mover/reason"

// Close ends the session in order: what is in flight fails with why.
func (s *Session) Close(why *reason.Error) { s.deliver(result{kind: resultClose, err: why}) }

// violation ends the session: what a peer sends is never clamped into shape.
func (s *Session) violation(what string) {
	s.cfg.Log("the peer broke the session protocol; closing the session", "violation", what)
	s.end(reason.New(reason.TransportError, "the peer broke the session protocol: %s; update the older of the two nodes, or report it with both nodes' logs", what))
}

// end begins the end: the peer is told, every item fails, every group closes.
func (s *Session) end(why *reason.Error) {
	if s.phase < phaseClosing {
		s.beginEnd(why)
		s.closeGroups()
	}
}

// byeGrace is how long the QPs outlive an orderly Bye, so that the peer hears
// of the end before its lanes fail one by one. It closes the connection at
// once, which ends the wait.
const byeGrace = 200e6

// endInOrder is end for a healthy session.
func (s *Session) endInOrder(why *reason.Error) {
	if s.phase < phaseClosing {
		// Before the Bye: the peer takes its QPs down when it has read that, and
		// this side's lanes fail of it.
		for _, g := range s.groups {
			if g.attached {
				s.command(g.poller, command{kind: commandEndGroup, group: g.group})
			}
		}
		s.beginEnd(why)
		s.closeAt = s.now + byeGrace
	}
}

func (s *Session) beginEnd(why *reason.Error) {
	s.phase, s.why = phaseClosing, why
	if !s.saidBye {
		bye := &Bye{}
		if why != nil {
			bye.Code, bye.Detail = why.Code.Wire(), clip(why.Detail)
		}
		_ = s.cfg.Control.Send(bye) // it is over either way
		s.saidBye = true
	}
	for _, l := range s.lanes {
		s.unready(l)
	}
	for _, i := range s.sending {
		i.stop(s.itemError())
	}
	for _, i := range s.receiving {
		s.endReceiving(i, s.itemError())
	}
}

func (s *Session) closeGroups() {
	s.closeAt = 0
	for _, g := range s.groups {
		if g.attached {
			s.command(g.poller, command{kind: commandCloseGroup, group: g.group})
		} else {
			g.closed = true
		}
	}
	s.tryClosed()
}

// itemError is why the session's items fail.
func (s *Session) itemError() *reason.Error {
	if s.why == nil {
		return reason.New(reason.TransportError, "the session was closed")
	}
	return s.why
}

func (s *Session) handleBye(m *Bye) {
	s.saidBye = true
	code, ok := reason.FromWire(m.Code)
	if !ok {
		code = reason.TransportError
	}
	if m.Detail == "" {
		m.Detail = "the peer closed the session"
	}
	s.end(reason.New(code, "the peer ended the session: %s", clip(m.Detail)))
}

// mayLetGo reports whether an item's memory and source are free to go: always
// in a healthy session, else once every QP is gone.
func (s *Session) mayLetGo() bool { return s.phase < phaseClosing || s.unwired }

// dropUnsettled gives up on what closed groups can't tell of any more.
func (s *Session) dropUnsettled() {
	clear(s.inFlight)
	for _, g := range s.groups {
		clear(g.sent[:])
	}
	for _, i := range s.sending {
		i.outstanding, i.held = 0, nil
		i.stop(s.itemError())
	}
}

// tryClosed ends the end: once every group is closed and every item settled,
// the QPs, the memory and the rest are taken down, in that order.
func (s *Session) tryClosed() {
	for _, g := range s.groups {
		if !g.closed {
			return
		}
	}
	// QPs first, also before the items' memory goes: one that did not drain in
	// time still has WRs that name it.
	s.unwire()
	s.dropUnsettled()
	s.settleReceiving()
	s.settleSending()
	if len(s.sending) > 0 || len(s.receiving) > 0 || len(s.keep) > 0 {
		return
	}
	s.takeDown()
	s.phase = phaseClosed
	s.shutResults()
	if s.cfg.Ended != nil {
		s.cfg.Ended(s.why)
	}
}

func (s *Session) check(what string, err error) {
	if err != nil {
		s.cfg.Log("session: take down", "what", what, "error", err)
	}
}

// unwire destroys the QPs, which are the session's again once their groups are
// closed.
func (s *Session) unwire() {
	for _, l := range s.lanes {
		if l.qp != nil {
			s.check("QP", l.qp.Destroy())
			l.qp = nil
		}
	}
	s.unwired = true
}

func (s *Session) takeDown() {
	for _, g := range s.groups {
		for _, mr := range g.mrs {
			s.check("MR", mr.Dereg())
		}
		for _, c := range g.cqs {
			s.check("CQ", c.cq.Destroy())
		}
	}
	for i := range s.pds {
		s.check("PD", s.pds[i].pd.Dealloc())
	}
	for _, g := range s.groups {
		for _, release := range g.release {
			release()
		}
		g.poller.work.unreserve(g.reserved)
	}
}
