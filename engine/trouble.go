package engine

import (
	"fmt"

	"mover/verbs"
)

// trouble remembers why a rail's lane is not up, for the reason of a session
// that ends without one.
func (s *Session) trouble(l *sessionLane, what string) {
	if s.troubles[l.rail] != what {
		s.troubles[l.rail] = what
		s.cfg.Log("lane not up", "lane", l.index, "rail", l.rail, "why", what)
	}
}

// troubleText names the rails that have trouble, their ports, and why.
func (s *Session) troubleText() string {
	text := ""
	for r, what := range s.troubles {
		if what != "" {
			text += fmt.Sprintf("; rail %d, %s to %s: %s", r, endName(&s.railPort(uint16(r)).Offer), endName(s.remoteOffer(uint16(r))), what)
		}
	}
	return text
}

func endName(p *PortOffer) string {
	if p.GID.IsZero() {
		return portName(p)
	}
	return fmt.Sprintf("%s (%v)", portName(p), p.GID.Addr())
}

// failure is what the first error of a lane means to a person.
func (s *Session) failure(l *sessionLane, cause verbs.WCStatus, detail string) string {
	text := cause.String()
	if detail != "" {
		text += ": " + detail
	}
	if hint := lookAt(cause, s.remoteOffer(l.rail)); hint != "" {
		text += "; " + hint
	}
	return text
}

// lookAt says where to look for the cause of a completion status.
func lookAt(cause verbs.WCStatus, remote *PortOffer) string {
	switch cause {
	case verbs.WCRetryExcErr, verbs.WCRespTimeoutErr:
		switch remote.GIDType {
		case verbs.GIDInfiniBand:
			return "no answer: look at the subnet manager, the partition (P_Key) of both ports, and whether the peer still runs"
		case verbs.GIDSoft:
			return "no answer: look at the route, a firewall that stops TCP between the soft.addresses, and whether the peer still runs"
		}
		return "no answer: look at the address and route of both ports, a firewall that stops UDP port 4791, and the MTU on the way"
	case verbs.WCRNRRetryExcErr:
		return "the peer posts no receives: it is stuck"
	case verbs.WCLocQPOpErr:
		return "look at the port's state and address (`rdma link`, `ip neigh`)"
	case verbs.WCRemAccessErr, verbs.WCRemInvReqErr:
		return "the peer refused it: a fault of one of the two nodes"
	}
	return ""
}
