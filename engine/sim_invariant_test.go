package engine

import (
	"mover/verbs"
)

// This file has what is looked at after every act of an adverse world: only the
// actor can have broken it, so only its part is recounted.

// checkVerbs takes what the fabric has seen.
func (w *world) checkVerbs() {
	for _, v := range w.f.Violations()[w.reported:] {
		w.reported++
		if !w.tolerate[v.Kind] {
			w.broken(byVerbs, "%v", v)
		}
	}
	if n := w.f.Stats().RNR; n > 0 && w.rnrAllowed == 0 {
		w.broken(byVerbs, "a message found no receive posted")
		w.rnrAllowed = n
	}
	for _, s := range w.sides {
		if s.dead {
			continue
		}
		for _, ctx := range s.ctxs {
			for {
				e, err := ctx.GetAsyncEvent(0)
				if err != nil {
					break
				}
				if ctx.deaf {
					continue
				}
				s.after(w.rng.Int64N([]int64{20 * us, 5 * ms}[w.rng.IntN(2)]), "event "+e.Type.String(), func() { s.session.PortEvent(ctx, e) })
			}
		}
	}
}

// checkStep recounts what a poller owns after a step that did something.
func (p *simPoller) checkStep() {
	s := p.side
	for _, g := range p.groups {
		if g.closing || g.closed {
			continue
		}
		g.checkCounts(s.w)
		g.checkSlots(s.w)
		s.checkQueues(g)
		if peer := s.peerGroup(g); peer != nil {
			checkAgreed(s.w, g, peer)
			checkAgreed(s.w, peer, g)
		}
	}
	for _, k := range s.working {
		k.check()
	}
}

// peerGroup is the other end of a group while both ends are alive.
func (s *simSide) peerGroup(g *group) *group {
	other := s.w.sides[1-s.index]
	if other.dead || other.session.phase >= phaseClosing || s.session.phase >= phaseClosing || int(g.id) >= len(other.session.groups) {
		return nil
	}
	if peer := other.session.groups[g.id].group; g.session == s.session && len(peer.remote) > 0 && len(g.remote) > 0 && !peer.closing {
		return peer
	}
	return nil
}

// checkSlots: every send slot is free, or with a worker, or loaded, or sent; just
// one of them.
func (g *group) checkSlots(w *world) {
	if len(w.marks) < len(g.local) {
		w.marks = make([]bool, len(g.local))
	}
	marks := w.marks[:len(g.local)]
	clear(marks)
	mark := func(i uint32, what string) {
		if marks[i] {
			w.broken(counted, "group %d: send slot %d is %s, and in another place too", g.id, i, what)
		}
		marks[i] = true
	}
	for _, i := range g.freeLocal {
		mark(i, "free")
		if g.local[i].chunk != nil || g.local[i].lane != nil {
			w.broken(counted, "group %d: free send slot %d has a chunk or a lane", g.id, i)
		}
	}
	loading := 0
	for c := range g.lots {
		loaded := &g.lots[c].loaded
		for range loaded.n {
			i := loaded.pop()
			mark(i, "loaded")
			loaded.push(i)
		}
		loading -= g.lots[c].loading
	}
	for i := range g.local {
		switch s := &g.local[i]; {
		case marks[i]:
		case s.chunk == nil:
			w.broken(counted, "group %d: send slot %d is nowhere", g.id, i)
		case s.lane == nil:
			loading++
		}
	}
	if loading != 0 {
		w.broken(counted, "group %d: %d send slots more are being read than is counted", g.id, loading)
	}
}

// checkQueues compares what the engine thinks is posted with what is.
func (s *simSide) checkQueues(g *group) {
	for _, l := range g.lanes {
		if l != nil && (l.sends < 0 || l.recvs < 0) {
			s.w.broken(counted, "lane %d: %d sends, %d receives", l.index, l.sends, l.recvs)
		}
		if l == nil || l.gone || l.rail.lost != nil || l.state == laneAbsent || l.state == laneDrained {
			continue
		}
		q, ok := s.w.f.QP(l.qp.QPN())
		if !ok {
			s.w.broken(drained, "lane %d: its QP was destroyed while it is used", l.index)
			continue
		}
		if q.Sends != l.sends || q.Receives != l.recvs {
			s.w.broken(counted, "lane %d: %d sends, %d receives outstanding, the engine counts %d, %d", l.index, q.Sends, q.Receives, l.sends, l.recvs)
		}
	}
}

// checkAgreed: the two ends of a slot differ by the one generation at most that
// a credit or an answer on its way makes; a slot that is free here is granted
// there in the same.
func checkAgreed(w *world, from, to *group) {
	for i := range from.remote {
		r, there := &from.remote[i], &to.recv[i]
		ahead := there.generation - r.generation
		switch {
		case r.local < 0 && (ahead != 0 || there.state != recvGranted):
			w.broken(agreed, "group %d slot %d: free to write in generation %d here; %v in %d there", from.id, i, r.generation, there.state, there.generation)
		case ahead > 1, ahead == 1 && there.state != recvGranted:
			w.broken(agreed, "group %d slot %d: in use in generation %d here; %v in %d there", from.id, i, r.generation, there.state, there.generation)
		}
	}
}

// check: a slot that a worker stores from is nobody else's to write.
func (k *simWorker) check() {
	g := k.op.group
	if g == nil || g.closing {
		return
	}
	switch i := k.op.index; {
	case k.op.kind == opStore && g.recv[i].state != recvStoring:
		k.side.w.broken(drained, "group %d: receive slot %d is granted while a worker stores it", g.id, i)
	case k.op.kind == opSum && !g.table[i].summing:
		k.side.w.broken(drained, "group %d: segment %d is granted while its checksum is computed", g.id, i)
	}
}

// itemLimit is how long an attempt may take in these worlds, whatever happens:
// twice the time that it may stand still, and the time that a drain, a dead peer
// or a set-up may take.
const itemLimit = 150 * s1

// checkSession recounts what a session owns.
func (s *simSide) checkSession() {
	w, se := s.w, s.session
	if se.phase >= phaseClosing {
		return
	}
	outstanding, segments := 0, 0
	for _, i := range se.sending {
		outstanding += i.outstanding
		if w.now()-i.progressAt > itemLimit {
			w.broken(ends, "%s: item %d has made no progress for %d s", s.host, i.ref.Item, itemLimit/s1)
		}
	}
	for _, g := range se.groups {
		for _, seg := range g.sent {
			if seg != nil {
				segments++
			}
		}
	}
	if outstanding != len(se.inFlight)+segments {
		w.broken(counted, "%s: items have %d chunks and segments out, %d and %d are", s.host, outstanding, len(se.inFlight), segments)
	}
	s.checkGrants()
	for _, p := range s.pollers {
		for _, g := range p.groups {
			for _, l := range g.lanes {
				if l == nil || l.quietSince == 0 || l.state != laneUp && l.state != laneAttached {
					continue
				}
				// Its poller may be late by what slows it down, and no more.
				if quiet := w.now() - max(l.quietSince, s.pausedUntil); quiet > se.cfg.LaneDeadline+100*ms {
					w.broken(ends, "%s: lane %d is up, and has waited for a completion for %d ms", s.host, l.index, quiet/ms)
				}
			}
		}
	}
}

// checkGrants: an entry of a segment table is free or granted once.
func (s *simSide) checkGrants() {
	var uses [64][segmentTable]uint8
	se := s.session
	for _, g := range se.groups {
		for _, f := range g.freeSegs {
			uses[g.id%64][f.Index]++
		}
	}
	for _, i := range se.receiving {
		for _, h := range i.granted {
			uses[h.group%64][h.seg.Index]++
		}
	}
	for _, g := range se.groups {
		for i, n := range uses[g.id%64] {
			if n != 1 {
				s.w.broken(counted, "%s group %d: entry %d of the segment table is free or granted %d times", s.host, g.id, i, n)
			}
		}
	}
}

// checkOver: a session that is over has left nothing behind.
func (s *simSide) checkOver() {
	w := s.w
	if s.leases != 0 || len(s.working) != 0 {
		w.broken(returned, "%s: %d leases not released, %d ops with workers", s.host, s.leases, len(s.working))
	}
	for i, p := range s.pollers {
		if n := p.work.reserved.Load(); n != 0 || len(p.groups) != 0 || p.work.Len() != 0 {
			w.broken(returned, "%s poller %d: %d ops reserved, %d groups, %d ops queued", s.host, i, n, len(p.groups), p.work.Len())
		}
		if n := p.stats.Lanes.Load(); n != 0 {
			w.broken(returned, "%s poller %d: counts %d lanes", s.host, i, n)
		}
	}
	if se := s.session; len(se.inFlight)+len(se.sending)+len(se.receiving)+len(se.inbox.items) != 0 {
		w.broken(returned, "%s: the session still holds items", s.host)
	}
	for _, r := range s.session.Rails() {
		if n := r.LanesUp.Load(); n != 0 {
			w.broken(returned, "%s: rail counts %d lanes up", s.host, n)
		}
	}
	for _, ctx := range s.ctxs {
		if c := ctx.Counts(); c != (verbs.Counts{CompChannel: len(s.chans)}) {
			w.broken(returned, "%s: left open: %+v", s.host, c)
		}
	}
	for _, i := range w.items {
		if i.from == s && i.done == 0 && i.sentAt > 0 && !i.lost {
			w.broken(ends, "item %d: its session is over, and it is not done", i.index)
		}
		if i.from != s && i.opened && i.dest != nil && !i.ended && !i.gone {
			w.broken(ends, "item %d: neither published nor discarded", i.index)
		}
	}
}
