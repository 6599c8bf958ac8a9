package engine

import "sync/atomic"

// Rail is a rail of a session with its counters, to be read at any time.
type Rail struct {
	Local, Remote PortOffer
	Lanes         int           // data lanes
	LanesUp       atomic.Int64  // of those
	LaneErrors    atomic.Uint64 // lanes that failed, also those for credits; not those of a session that ends
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

// remoteOffer is the peer's port of a rail, as it was offered.
func (s *Session) remoteOffer(rail uint16) *PortOffer { return &s.Rails()[rail].Remote }

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
	s.troubles = make([]string, len(rails))
}

// logRails tells once how each rail is going to be used. lost_after_ms is the
// nominal time until a message without an answer fails its lane; hardware may
// take four times as long.
func (s *Session) logRails() {
	lostAfter := (int64(4096) << s.cfg.AckTimeout) * (rcRetries + 1)
	for i, r := range s.Rails() {
		log, args := s.cfg.Info, []any{"rail", i, "local", endName(&r.Local), "lid", r.Local.LID, "remote", endName(&r.Remote),
			"remote_lid", r.Remote.LID, "mtu", min(r.Local.MTU, r.Remote.MTU).Bytes(), "lost_after_ms", lostAfter / 1e6}
		for _, f := range matchFindings(&r.Local, &r.Remote, min(r.Local.MTU, r.Remote.MTU)) {
			log, args = s.cfg.Log, append(args, "found", f.Found, "fix", f.Fix)
		}
		log("rail", args...)
	}
}
