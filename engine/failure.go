package engine

import "mover/verbs"

// live finds the lane that ref names, if that life of it is not over.
func (g *group) live(ref LaneRef) *lane {
	if l := g.lanes[ref.Lane]; l != nil && l.epoch == ref.Epoch {
		return l
	}
	return nil
}

func (g *group) ready(ref LaneRef) {
	l := g.live(ref)
	if l == nil || l.state != laneAttached {
		return // it failed before it was ready
	}
	l.state = laneUp
	if !l.credit {
		g.up++
	}
}

// attrErr moves a QP to ERR; providers only read it.
var attrErr = verbs.QPAttr{State: verbs.StateErr}

// fail takes a lane down: its QP to ERR, which flushes every WR. The first
// status that is not a flush is the cause.
func (g *group) fail(l *lane, cause verbs.WCStatus, vendor uint32, now int64) {
	if l.cause == verbs.WCSuccess || l.cause == verbs.WCFlushErr && cause != verbs.WCFlushErr {
		l.cause, l.vendorErr = cause, vendor
	}
	if l.state != laneAttached && l.state != laneConnecting && l.state != laneUp {
		return
	}
	if l.state == laneUp && !l.credit {
		g.up--
	}
	l.state, l.drainBy = laneDraining, 0
	g.poller.stats.Lanes.Add(-1)
	if !g.ending && !g.closing { // else the session ends, and its lanes with it
		add(&g.poller.stats.LaneErrors, 1)
		l.rail.shown.LaneErrors.Add(1) // several pollers may share a rail
	}
	g.unposted(l.sendWRs[:l.stagedSends])
	l.stagedSends, l.stagedRecvs = 0, 0
	if !l.connection.out { // else the QP is a helper's; connected goes on
		g.flush(l, now)
	}
}

// flush has every WR of a lane complete.
func (g *group) flush(l *lane, now int64) {
	l.drainBy = now + g.cfg.drainTimeout
	why := l.rail.lost // then nothing would tell of a flush
	if why == nil {
		why = l.qp.Modify(&attrErr, verbs.AttrState)
	}
	if why != nil {
		g.abandon(l, why)
	}
	g.checkDrained(l)
}

// abandon drains a lane whose QP takes no commands, or whose CQ completes
// nothing, as when its device is gone. Once the QP is destroyed the adapter reads and
// writes for it no more, so its WRs are over, whatever became of them.
func (g *group) abandon(l *lane, why error) {
	if err := l.qp.Destroy(); err != nil {
		g.emit(event{kind: eventLaneStuck, lane: LaneRef{l.index, l.epoch}, detail: why.Error() + "; " + err.Error()})
		return
	}
	l.gone, l.sends, l.recvs = true, 0, 0
	if l.detail == "" {
		l.detail = why.Error()
	}
	for i := range g.local {
		if s := &g.local[i]; s.lane == l && !s.done {
			g.slotSent(uint32(i))
		}
	}
	for i, s := range g.sending {
		if s == nil || s.lane != l {
			continue
		}
		for range s.inFlight {
			g.chunkSent(uint32(i))
		}
	}
}

// checkDrained ends draining when every WR posted has completed. All WRs are
// signalled, so counting them is exact, and needs no sentinel that a provider
// may refuse to take in ERR.
func (g *group) checkDrained(l *lane) {
	if l.state != laneDraining || l.sends > 0 || l.recvs > 0 || l.connection.out {
		return
	}
	l.state, l.quietSince = laneDrained, 0
	g.emit(event{kind: eventLaneDrained, lane: LaneRef{l.index, l.epoch}, cause: l.cause, vendor: l.vendorErr,
		detail: l.detail, gone: l.gone, list: g.unsettled(l)})
	if l.credit {
		g.creditsLost(l)
	}
	g.answer(l)
}

// unsettled lists what went out on the lane and has no credit or ack.
func (g *group) unsettled(l *lane) *laneList {
	list := &laneList{}
	for i := range g.remote {
		if r := &g.remote[i]; r.local >= 0 && g.local[r.local].lane == l {
			list.slots = append(list.slots, slotRef(uint32(i), r.generation))
		}
	}
	for _, s := range g.sending {
		if s != nil && s.lane == l && !s.acked {
			list.segments = append(list.segments, SlotRef{s.index, s.generation})
		}
	}
	return list
}

// ask takes the peer's list of a lane: it is answered when this end is drained
// too, for only then is it known what arrived.
func (g *group) ask(ref LaneRef, list *laneList, now int64) {
	l := g.live(ref)
	if l == nil {
		g.violation("a question about lane %d in its life %d, which does not exist", ref.Lane, ref.Epoch)
		return
	}
	l.answer = list
	g.fail(l, verbs.WCFlushErr, 0, now)
	g.answer(l)
}

func (g *group) answer(l *lane) {
	if l.answer == nil || l.state != laneDrained {
		return
	}
	missing := &laneList{}
	for _, ref := range l.answer.slots {
		if int(ref.Index) >= len(g.recv) {
			g.violation("a question about slot %d of %d", ref.Index, len(g.recv))
			return
		}
		s := &g.recv[ref.Index]
		if s.state == recvGranted && sameGeneration(ref.Generation, s.generation) {
			// Never written as far as anyone will know: free in the next
			// generation, which the answer tells. The peer knows the one before,
			// or it could not have written.
			s.generation++
			s.answered = true
			missing.slots = append(missing.slots, ref)
		}
	}
	for _, ref := range l.answer.segments {
		if ref.Index >= segmentTable {
			g.violation("a question about segment %d of %d", ref.Index, segmentTable)
			return
		}
		e := &g.table[ref.Index]
		if e.granted && e.generation == ref.Generation {
			e.generation = (e.generation + 1) & generationMask
			missing.segments = append(missing.segments, ref)
		}
	}
	l.answer = nil
	g.emit(event{kind: eventLaneAnswer, lane: LaneRef{l.index, l.epoch}, list: missing})
}

// resolve takes the peer's answer: what it lists never arrived and is sent
// again, slots from their send slots into fresh receive slots, segments whole.
// The rest of the lane's writes will be credited or acked.
func (g *group) resolve(ref LaneRef, missing *laneList) {
	l := g.live(ref)
	if l == nil || l.state != laneDrained {
		g.violation("an answer about lane %d in its life %d, which is not down", ref.Lane, ref.Epoch)
		return
	}
	for _, m := range missing.slots {
		if int(m.Index) >= len(g.remote) || g.remote[m.Index].local < 0 {
			g.violation("an answer about slot %d in generation %d, which is not in flight", m.Index, m.Generation)
			return
		}
		local := uint32(g.remote[m.Index].local)
		s := &g.local[local]
		if s.lane != l || !sameGeneration(m.Generation, g.remote[m.Index].generation) {
			g.violation("an answer about lane %d and slot %d in generation %d, which was not sent there: it is in generation %d", l.index, m.Index, m.Generation, g.remote[m.Index].generation&generationMask)
			return
		}
		g.freeRemoteSlot(m.Index)
		s.lane, s.remote, s.done = nil, -1, false
		g.lots[s.chunk.class].loaded.push(local)
		add(&g.poller.stats.Resent, 1)
	}
	for _, m := range missing.segments {
		if m.Index >= segmentTable || g.sending[m.Index] == nil || g.sending[m.Index].lane != l ||
			g.sending[m.Index].generation != m.Generation || g.sending[m.Index].acked {
			g.violation("an answer about segment %d in generation %d, which is not in flight on lane %d", m.Index, m.Generation, l.index)
			return
		}
		s := g.sending[m.Index]
		l.rail.inFlight -= int64(len(s.memory))
		s.lane = nil
		s.generation = (s.generation + 1) & generationMask
		g.queued.push(m.Index)
		add(&g.poller.stats.Resent, 1)
	}
}
