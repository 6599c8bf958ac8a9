package engine

import "mover/verbs"

// stageReceive replaces a receive that was consumed: before the credit that
// would let the peer use it.
func (g *group) stageReceive(l *lane, now int64) {
	if l.state != laneAttached && l.state != laneUp {
		return
	}
	l.recvWRs[l.stagedRecvs] = verbs.RecvWR{WRID: wrID(wrRecv, l, 0)}
	if l.stagedRecvs++; l.stagedRecvs == chainWRs {
		g.postStagedReceives(l, now)
	}
}

func (g *group) postReceives(now int64) {
	for _, l := range g.lanes {
		if l != nil && l.stagedRecvs > 0 {
			g.postStagedReceives(l, now)
		}
	}
}

func (g *group) postStagedReceives(l *lane, now int64) {
	n := l.stagedRecvs
	l.stagedRecvs = 0
	if l.state != laneAttached && l.state != laneUp {
		return // it failed in between
	}
	posted, err := l.qp.PostRecv(l.recvWRs[:n])
	l.recvs += posted
	if err != nil {
		g.fail(l, verbs.WCLocQPOpErr, 0, now)
	}
}

// slotReceived hands a written slot to a worker.
func (g *group) slotReceived(l *lane, index, generation, bytes uint32) {
	if int(index) >= len(g.recv) {
		g.violation("a write to slot %d of %d on lane %d", index, len(g.recv), l.index)
		return
	}
	s := &g.recv[index]
	if s.state != recvGranted || !sameGeneration(generation, s.generation) {
		g.violation("a write of %d bytes on lane %d to slot %d in generation %d, which was not granted: the slot is %v, in generation %d (answered as missing: %v, credit queued: %v)",
			bytes, l.index, index, generation, s.state, s.generation&generationMask, s.answered, s.owed)
		return
	}
	if int(bytes) > g.cfg.strideBytes {
		g.violation("a write of %d bytes to slot %d of %d bytes on lane %d", bytes, index, g.cfg.strideBytes, l.index)
		return
	}
	s.state, s.rail = recvStoring, l.rail
	add(&g.poller.stats.RecvBytes, int(bytes))
	l.rail.shown.RecvBytes.Add(uint64(bytes))
	s.op = Op{kind: opStore, group: g, session: g.session, index: index,
		memory: g.slotMemory(g.recvMemory, index), bytes: bytes}
	if int(bytes) <= g.cfg.expressBytes {
		s.op.class = express
	}
	g.submit(&s.op)
}

// slotStored grants the slot again, in the next generation.
func (g *group) slotStored(op *Op) {
	s := &g.recv[op.index]
	if op.refused {
		return // the session ends
	}
	s.generation++
	s.state, s.answered, s.creditedOn = recvGranted, false, nil
	g.owe(op.index)
}

// owe queues a slot's credit.
func (g *group) owe(index uint32) {
	if s := &g.recv[index]; !s.owed {
		s.owed = true
		g.owed.push(index)
	}
}

// creditsLost queues the credits again that went out on a lane which is down
// and may not have arrived: unless the peer has written the slot since. It
// ignores those that did arrive.
func (g *group) creditsLost(l *lane) {
	for i := range g.recv {
		if s := &g.recv[i]; s.creditedOn == l && s.state == recvGranted && !s.answered {
			g.owe(uint32(i))
		}
	}
}

// postCredits sends the credits owed, each on its slot's own rail if that
// rail's credit lane is up, else on any.
func (g *group) postCredits(now int64) int {
	n := 0
	for g.owed.n > 0 {
		index := g.owed.peek()
		s := &g.recv[index]
		if s.answered {
			g.owed.pop()
			s.owed = false
			continue
		}
		l := g.creditLane(s.rail)
		if l == nil {
			break
		}
		g.owed.pop()
		s.owed, s.creditedOn = false, l
		wr, _ := l.stage()
		wr.WRID = wrID(wrCredit, l, index)
		wr.Op = verbs.OpSendWithImm
		wr.Imm = immediate(immCredit, s.generation, index)
		wr.SGL = nil
		n++
		if l.stagedSends == chainWRs {
			g.doorbell(l, now)
		}
	}
	if n > 0 {
		add(&g.poller.stats.Credits, n)
		for _, r := range g.rails {
			if r.credit != nil {
				g.doorbell(r.credit, now)
			}
		}
	}
	return n
}

func (g *group) creditLane(preferred *groupRail) *lane {
	if preferred != nil && creditReady(preferred.credit) {
		return preferred.credit
	}
	for _, r := range g.rails {
		if creditReady(r.credit) {
			return r.credit
		}
	}
	return nil
}

// hearsCredits reports whether a credit lane is up.
func (g *group) hearsCredits() bool {
	for _, r := range g.rails {
		if r.credit != nil && r.credit.state == laneUp {
			return true
		}
	}
	return false
}

func creditReady(l *lane) bool {
	return l != nil && l.state == laneUp && l.room() > 0
}
