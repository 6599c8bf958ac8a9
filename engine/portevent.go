package engine

import (
	"fmt"
	"slices"

	"mover/verbs"
)

// PortEvent tells of an asynchronous event of a device that the session uses.
// Any goroutine may call it.
func (s *Session) PortEvent(ctx verbs.Context, e verbs.AsyncEvent) {
	s.deliver(result{kind: resultPortEvent, ctx: ctx, event: e})
}

// portEvent takes the lanes down that an event is about, at once, since
// completions might not come; and builds those that waited for it.
// EventClientRereg and EventSMChange are of subscriptions, which there are none
// of here; SQ_DRAINED, COMM_EST and the like say nothing that is not known.
func (s *Session) portEvent(ctx verbs.Context, e verbs.AsyncEvent) {
	if s.plan == nil || s.phase >= phaseClosing {
		return
	}
	for _, l := range s.lanes {
		port := s.railPort(l.rail)
		switch {
		case port.Context != ctx:
		case e.Type == verbs.EventQPAccessErr && s.had(l, e.QPN):
			// Somebody used a key that was not granted: never a fault of a healthy
			// peer, and a guess at another key must not follow. Only the session
			// whose QP it is ends: a device tells of all of them.
			s.violation(fmt.Sprintf("an access error on lane %d", l.index))
			return
		case l.opened && !l.drained:
			if why := l.hit(port, e); why != "" {
				s.failLane(l, why)
			}
		case !l.opened && l.reopenAt != 0 && e.Port == port.Offer.Port && mayMend(e.Type):
			l.reopenAt = s.now
		}
	}
}

// had reports whether a QP was the lane's when something befell it. Events come
// by a way of their own: a peer that answers fast has the lane built again by
// then. Numbers of QPs are given out again, so that it is not asked for long.
func (s *Session) had(l *sessionLane, qpn uint32) bool {
	return l.qp != nil && l.qp.QPN() == qpn || l.formerAt != 0 && l.formerQPN == qpn && s.now-l.formerAt < s.cfg.DrainTimeout
}

// hit says why a lane that is open fails with an event; "" when it does not.
func (l *sessionLane) hit(port *LocalPort, e verbs.AsyncEvent) string {
	at := e.Port == port.Offer.Port
	hit := false
	switch e.Type {
	case verbs.EventQPFatal, verbs.EventQPReqErr:
		hit = l.qp.QPN() == e.QPN
	case verbs.EventPortErr:
		hit = at
	case verbs.EventDeviceFatal:
		hit = true
	case verbs.EventCQErr:
		hit = slices.ContainsFunc(l.group.cqs, func(c deviceCQ) bool { return c.cq == e.CQ })
	case verbs.EventGIDChange, verbs.EventLIDChange, verbs.EventPKeyChange:
		// Any address may have moved, not only this lane's.
		if at {
			if err := l.here.holds(port); err != nil {
				return err.Error()
			}
		}
	}
	if !hit {
		return ""
	}
	return portName(&port.Offer) + " here: " + e.Type.String()
}

// mayMend tells the events after which a lane that could not be built may be.
func mayMend(t verbs.EventType) bool {
	switch t {
	case verbs.EventPortActive, verbs.EventGIDChange, verbs.EventLIDChange, verbs.EventPKeyChange:
		return true
	}
	return false
}
