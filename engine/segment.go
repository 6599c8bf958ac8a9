package engine

import "mover/verbs"

// segment is one granted segment at its source, from the grant to the ack. The
// first part never changes; then come what its poller owns until it gives the
// segment back, and what the session owns.
type segment struct {
	item   *sendItem
	index  uint32
	offset int64
	memory []byte
	verify bool
	local  []uint32      // lkeys, by rail
	remote []remoteRange // where it goes, by rail

	generation uint32 // the grant's, low bits; counts on when sent again
	op         Op     // its checksum
	summing    bool   // which was submitted
	lane       *lane  // nil while queued
	wrs        int    // chunks
	inFlight   int    // WRs not completed
	acked      bool

	group     uint16
	held      bool    // its pacers have not let it go
	granted   SlotRef // in the generation that the peer knows
	haveSum   bool
	sum       uint32
	haveAck   bool
	ackCRC    uint32
	resumming bool // after a mismatch
	back      bool // its poller is done with it
	// next is the next grant of the same entry, taken once this one is settled.
	next *SegmentGrant
}

// remoteRange is where a segment goes on a rail; known is false where one end's
// device did not take the item's memory.
type remoteRange struct {
	addr  uint64
	rkey  uint32
	known bool
}

// segmentEntry is an entry of the receiver's segment table.
type segmentEntry struct {
	op         Op
	generation uint32
	granted    bool
	summing    bool // op is a worker's
	ref        ItemRef
	memory     []byte
	offset     int64
	verify     bool
}

// grantSegment fills an entry. Its receive is among those every lane keeps
// posted: a lane never has more slots and segments in flight than receives.
func (g *group) grantSegment(c *command) {
	e := &g.table[c.seg.Index]
	e.generation, e.granted = c.seg.Generation, true
	e.ref, e.memory, e.offset, e.verify = c.ref, c.mem, c.off, c.check
}

func (g *group) releaseSegment(seg SlotRef) {
	if e := &g.table[seg.Index]; e.generation == seg.Generation {
		e.granted, e.memory = false, nil
	}
}

// sendSegment queues a granted segment.
func (g *group) sendSegment(s *segment) {
	s.wrs = (len(s.memory) + g.cfg.payloadBytes - 1) / g.cfg.payloadBytes
	g.sending[s.index] = s
	g.queued.push(s.index)
}

// dropStopped gives back queued segments of items that have ended, which is
// all that can be done without a lane.
func (g *group) dropStopped() int {
	n := 0
	for range g.queued.n {
		index := g.queued.pop()
		if s := g.sending[index]; s.item.stopped.Load() {
			g.segmentOver(s)
			n++
			continue
		}
		g.queued.push(index)
	}
	return n
}

// postSegment writes a segment on one lane: chunks as plain writes, the last
// with the immediate, which the transport delivers after them.
func (g *group) postSegment(now int64) bool {
	index := g.queued.peek()
	s := g.sending[index]
	if s.item.stopped.Load() {
		g.queued.pop()
		g.segmentOver(s)
		return true
	}
	l := g.lane(s.wrs, int64(len(s.memory)), s)
	if l == nil {
		return false
	}
	g.queued.pop()
	s.lane, s.acked = l, false
	l.window += s.wrs
	l.rail.inFlight += int64(len(s.memory))
	to, lkey := s.remote[l.rail.index], s.local[l.rail.index]
	from := addressOf(s.memory)
	// When the lane fails in between, the rest is not staged: what is counted in
	// flight is what was.
	for at := 0; at < len(s.memory) && l.state == laneUp; at += g.cfg.payloadBytes {
		s.inFlight++
		n := min(g.cfg.payloadBytes, len(s.memory)-at)
		wr, sge := l.stage()
		wr.WRID, wr.Op = wrID(wrChunk, l, index), verbs.OpWrite
		if at+n == len(s.memory) {
			wr.Op, wr.Imm = verbs.OpWriteWithImm, immediate(immSegment, uint64(s.generation), index)
		}
		wr.RemoteAddr, wr.RKey = to.addr+uint64(at), to.rkey
		sge.Addr, sge.Length, sge.LKey = from+uint64(at), uint32(n), lkey
		if l.stagedSends == chainWRs {
			g.doorbell(l, now)
		}
	}
	add(&g.poller.stats.Segments, 1)
	if s.verify && !s.summing {
		s.summing = true
		s.op = Op{kind: opSource, group: g, session: g.session, index: index, memory: s.memory,
			item: s.item, seg: SlotRef{index, s.generation}, verify: true}
		g.submit(&s.op)
	}
	return true
}

// chunkSent counts a completion of a segment's WR.
func (g *group) chunkSent(index uint32) {
	s := g.sending[index]
	if s == nil {
		return // over: its session has given up on it
	}
	s.inFlight--
	if s.acked && s.inFlight == 0 {
		g.segmentOver(s)
	}
}

// segmentAcked frees the window; the segment is over once its own completions
// were seen too.
func (g *group) segmentAcked(seg SlotRef) {
	s := g.sending[seg.Index]
	if s == nil || s.generation != seg.Generation || s.lane == nil || s.acked {
		g.violation("an ack for segment %d in generation %d, which is not in flight", seg.Index, seg.Generation)
		return
	}
	s.acked = true
	s.lane.window -= s.wrs
	s.lane.rail.inFlight -= int64(len(s.memory))
	if s.inFlight == 0 {
		g.segmentOver(s)
	}
}

func (g *group) segmentOver(s *segment) {
	g.sending[s.index] = nil
	g.emit(event{kind: eventSegmentBack, seg: SlotRef{s.index, s.generation}})
}

// tooEarly reports the arrival of a segment whose grant is still among the
// commands: the grant was queued before the peer heard of it, but the peer may
// be faster than this round. Another session's unfinished push can keep the
// command out of sight for longer than that.
func (g *group) tooEarly(wc *verbs.WC) bool {
	if kind, _, _, _ := splitWRID(wc.WRID); kind != wrRecv || wc.Status != verbs.WCSuccess || g.poller.commands.Len() == 0 {
		return false
	}
	kind, generation, index := splitImmediate(wc.Imm)
	return kind == immSegment && index < segmentTable &&
		(!g.table[index].granted || g.table[index].generation != generation)
}

// segmentReceived hands an arrived segment to a worker. byte_len is of the
// last chunk alone; the checksum covers the rest.
func (g *group) segmentReceived(l *lane, index, generation, bytes uint32) {
	if index >= segmentTable {
		g.violation("a write to segment %d of %d on lane %d", index, segmentTable, l.index)
		return
	}
	e := &g.table[index]
	switch last := len(e.memory) % g.cfg.payloadBytes; {
	case !e.granted || e.generation != generation:
		g.violation("a write on lane %d to segment %d in generation %d, which was not granted: it is granted: %v, in generation %d, being summed: %v",
			l.index, index, generation, e.granted, e.generation, e.summing)
		return
	case last == 0 && int(bytes) != g.cfg.payloadBytes, last != 0 && int(bytes) != last:
		g.violation("segment %d of %d bytes ends with a chunk of %d on lane %d", index, len(e.memory), bytes, l.index)
		return
	}
	if e.summing {
		g.poller.takeBack() // the grant came after the sum: it is on its way
	}
	if e.summing {
		g.violation("a write on lane %d to segment %d in generation %d while the checksum of the one before is still computed", l.index, index, generation)
		return
	}
	e.granted, e.summing = false, true
	add(&g.poller.stats.RecvBytes, len(e.memory))
	l.rail.shown.RecvBytes.Add(uint64(len(e.memory)))
	e.op = Op{kind: opSum, group: g, session: g.session, index: index, memory: e.memory,
		bytes: uint32(len(e.memory)), offset: e.offset, ref: e.ref, verify: e.verify,
		seg: SlotRef{index, generation}}
	g.submit(&e.op)
}
