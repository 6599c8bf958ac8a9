package engine

import "mover/verbs"

// load pulls chunks into free send slots: a worker reads each one.
func (g *group) load() int {
	return g.loadLot(&g.lots[express]) + g.loadLot(&g.lots[bulk])
}

func (g *group) loadLot(lot *lot) int {
	n := 0
	for len(g.freeLocal) > 0 && lot.local < lot.maxLocal && !g.closing && lot.loading+lot.loaded.n < g.poller.loadAhead {
		c, ok := lot.pull.Pop()
		if !ok {
			break
		}
		n++
		if c.item.stopped.Load() || g.up == 0 {
			g.emit(event{kind: eventChunkBack, chunk: c})
			continue
		}
		index := g.freeLocal[len(g.freeLocal)-1]
		g.freeLocal = g.freeLocal[:len(g.freeLocal)-1]
		s := &g.local[index]
		s.chunk, s.done, s.credited, s.remote = c, false, false, -1
		s.op = Op{kind: opLoad, group: g, session: g.session, index: index,
			memory: g.slotMemory(g.sendMemory, index), chunk: c}
		s.op.class = c.class
		lot.local++
		lot.loading++
		g.submit(&s.op)
	}
	return n
}

// slotLoaded queues a slot that a worker has read.
func (g *group) slotLoaded(op *Op) {
	s := &g.local[op.index]
	lot := &g.lots[s.chunk.class]
	lot.loading--
	if s.chunk.failed != nil || g.closing {
		g.giveChunkBack(op.index)
		return
	}
	s.bytes = op.bytes
	lot.loaded.push(op.index)
}

// giveChunkBack frees a send slot whose chunk was not sent.
func (g *group) giveChunkBack(index uint32) {
	s := &g.local[index]
	g.emit(event{kind: eventChunkBack, chunk: s.chunk})
	g.lots[s.chunk.class].local--
	s.chunk, s.lane = nil, nil
	g.freeLocal = append(g.freeLocal, index)
}

// post writes loaded slots and granted segments to the peer, alternating, as
// long as grants, lanes and rails have room, and rings the doorbells.
func (g *group) post(now int64) int {
	if g.up == 0 {
		return g.giveLoadedBack() + g.dropStopped()
	}
	n := 0
	if g.queued.n == 0 {
		g.kept = nil
	}
	for more := true; more; {
		more = false
		if g.postLot(g.first, now) || g.postLot(1-g.first, now) {
			n, more = n+1, true
		}
		if g.queued.n > 0 {
			if g.postSegment(now) {
				n, more, g.kept = n+1, true, nil
			} else {
				g.keep()
			}
		}
	}
	if n > 0 {
		for _, l := range g.data {
			g.doorbell(l, now)
		}
	} else if g.lots[bulk].loaded.n+g.lots[express].loaded.n > 0 && !g.hearsCredits() {
		return g.giveLoadedBack() // no credit can come that would make room
	}
	return n
}

// giveLoadedBack returns chunks that this group has no lane for; another group
// of the session may.
func (g *group) giveLoadedBack() int {
	n := 0
	for c := range g.lots {
		for loaded := &g.lots[c].loaded; loaded.n > 0; n++ {
			g.giveChunkBack(loaded.pop())
		}
	}
	return n
}

// lane finds a data lane with room for a message of WRs work requests and the
// given bytes, a slot's or a segment's, taking turns: a lane or rail that is
// slow stays full and so is given less.
func (g *group) lane(wrs int, bytes int64, seg *segment) *lane {
	for range g.data {
		l := g.data[g.next]
		if g.next++; g.next == len(g.data) {
			g.next = 0
		}
		if l.state != laneUp || l.window+wrs > l.depth || l.room() < wrs {
			continue
		}
		if seg == nil && g.kept != nil && (l == g.kept || l.rail == g.kept.rail && g.kept.window == 0) {
			continue // with an empty window it is the rail that has no room
		}
		if seg != nil && !seg.remote[l.rail.index].known {
			continue
		}
		if r := l.rail; r.inFlight > 0 && r.inFlight+bytes > r.limit {
			continue
		}
		return l
	}
	return nil
}

// keep chooses the lane for the first queued segment: the one that will be
// empty first.
func (g *group) keep() {
	if g.kept != nil && g.kept.state == laneUp {
		return
	}
	g.kept = nil
	seg := g.sending[g.queued.peek()]
	for _, l := range g.data {
		if l.state == laneUp && seg.remote[l.rail.index].known && (g.kept == nil || l.window < g.kept.window) {
			g.kept = l
		}
	}
}

// postLot posts a slot of a class, after which the other one's turn comes.
func (g *group) postLot(c class, now int64) bool {
	lot := &g.lots[c]
	if lot.loaded.n == 0 || len(g.freeRemote) == 0 || lot.remote == lot.maxRemote || !g.postSlot(lot, now) {
		return false
	}
	g.first = 1 - c
	return true
}

func (g *group) postSlot(lot *lot, now int64) bool {
	index := lot.loaded.peek()
	s := &g.local[index]
	if s.chunk.item.stopped.Load() {
		g.giveChunkBack(lot.loaded.pop())
		return true
	}
	l := g.lane(1, int64(s.bytes), nil)
	if l == nil {
		return false
	}
	lot.loaded.pop()
	lot.remote++
	at := len(g.freeRemote) - 1
	remote := g.freeRemote[at]
	g.freeRemote = g.freeRemote[:at]
	r := &g.remote[remote]
	r.local = int32(index)
	s.remote, s.lane = int32(remote), l
	s.chunk.posted.Store(true)
	l.window++
	l.rail.inFlight += int64(s.bytes)

	offset := uint64(remote) * uint64(g.cfg.strideBytes)
	wr, sge := l.stage()
	wr.WRID = wrID(wrSlot, l, index)
	wr.Op = verbs.OpWriteWithImm
	wr.Imm = immediate(immSlot, r.generation, remote)
	to := &l.rail.remote[remote>>g.cfg.remoteShift]
	wr.RemoteAddr, wr.RKey = to.origin+offset, to.rkey
	sge.Addr, sge.Length, sge.LKey = addressOf(g.slotMemory(g.sendMemory, index)), s.bytes, l.rail.lkeys[index>>g.cfg.localShift]
	add(&g.poller.stats.Slots, 1)
	if l.stagedSends == chainWRs {
		g.doorbell(l, now)
	}
	return true
}

// doorbell posts a lane's chain. What a failing post did not take has never
// been read by the adapter; the lane is lost all the same.
func (g *group) doorbell(l *lane, now int64) {
	n := l.stagedSends
	if n == 0 {
		return
	}
	l.stagedSends = 0
	if l.state != laneUp {
		// It failed while the chain was being built: nothing of it is posted,
		// for the lane may count as drained already.
		g.unposted(l.sendWRs[:n])
		return
	}
	posted, err := l.qp.PostSend(l.sendWRs[:n])
	if posted > 0 && l.sends == 0 {
		l.quietSince = now
	}
	l.sends += posted
	st := &g.poller.stats
	add(&st.Doorbells, 1)
	add(&st.Posts, posted)
	bytes := 0
	for i := range l.sendWRs[:posted] {
		if len(l.sendWRs[i].SGL) > 0 {
			bytes += int(l.sges[i].Length)
		}
	}
	add(&st.SentBytes, bytes)
	l.rail.shown.SentBytes.Add(uint64(bytes)) // several pollers may share a rail
	if err == nil {
		return
	}
	g.unposted(l.sendWRs[posted:n])
	g.fail(l, verbs.WCLocQPOpErr, 0, now)
}

// unposted settles WRs that the queue did not take as if they had been flushed.
func (g *group) unposted(wrs []verbs.SendWR) {
	for i := range wrs {
		kind, _, _, index := splitWRID(wrs[i].WRID)
		g.sendOver(kind, index)
	}
}

// sendOver settles a send WR whose memory the adapter reads no more, however
// it ended.
func (g *group) sendOver(kind wrKind, index uint32) {
	switch kind {
	case wrSlot:
		g.slotSent(index)
	case wrChunk:
		g.chunkSent(index)
	case wrCredit: // repeated when the lane is drained
	case wrProbe: // see proved
	}
}

// slotSent marks a slot's memory as no longer read by the adapter.
func (g *group) slotSent(index uint32) {
	s := &g.local[index]
	s.done = true
	g.freeIfOver(index)
}

// credited takes a credit: the peer has the slot's records, and will take the
// next generation. A repeat, after a credit lane was lost, is ignored.
func (g *group) credited(index, generation uint32) {
	if int(index) >= len(g.remote) {
		g.violation("a credit for slot %d of %d", index, len(g.remote))
		return
	}
	r := &g.remote[index]
	if r.local < 0 || !sameGeneration(generation, r.generation+1) {
		// A repeat may come late, behind the next credits on other lanes; what
		// never was granted lies ahead.
		if behind := (uint32(r.generation) - generation) & generationMask; behind > generationMask/2 {
			g.violation("a credit for slot %d in generation %d, where %d is next (in use: %v)", index, generation, (r.generation+1)&generationMask, r.local >= 0)
		}
		return
	}
	local := uint32(r.local)
	s := &g.local[local]
	s.lane.window--
	g.freeRemoteSlot(index)
	s.credited = true
	g.freeIfOver(local)
}

// freeRemoteSlot ends a use of a granted slot: the next has the next
// generation.
func (g *group) freeRemoteSlot(index uint32) {
	r := &g.remote[index]
	s := &g.local[r.local]
	s.lane.rail.inFlight -= int64(s.bytes)
	g.lots[s.chunk.class].remote--
	r.generation++
	r.local = -1
	g.freeRemote = append(g.freeRemote, index)
}

func (g *group) freeIfOver(index uint32) {
	s := &g.local[index]
	if s.done && s.credited {
		g.lots[s.chunk.class].local--
		s.chunk, s.lane, s.remote = nil, nil, -1
		g.freeLocal = append(g.freeLocal, index)
	}
}
