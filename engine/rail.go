package engine

import "sync/atomic"

// Rail is a rail of a session with its counters, to be read at any time.
type Rail struct {
	Local, Remote PortOffer
	Lanes         int          // data lanes
	LanesUp       atomic.Int64 // of those
	SentBytes     atomic.Uint64
	RecvBytes     atomic.Uint64
}

// Rails are the session's rails, empty before both sides have said what they
// have. Any goroutine may call it.
func (s *Session) Rails() []*Rail {
	if r := s.rails.Load(); r != nil {
		return *r
	}
	return nil
}

// showRails makes the rails of the plan visible.
func (s *Session) showRails(peer *Open) {
	rails := make([]*Rail, len(s.plan.rails))
	for i, r := range s.plan.rails {
		rails[i] = &Rail{Local: s.cfg.Open.Ports[r.port[s.side]], Remote: peer.Ports[r.port[1-s.side]]}
	}
	for _, l := range s.plan.lanes {
		if !l.credit {
			rails[l.rail].Lanes++
		}
	}
	s.rails.Store(&rails)
}
