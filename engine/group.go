package engine

import (
	"fmt"
	"math"

	"mover/verbs"
)

// segmentTable is how many segments a group's receiver has granted at most.
const segmentTable = 64

// group is a lane group: session x local poller x remote poller, the unit that
// owns lanes, slots, grants and counters. After it is attached only its poller
// touches it, except for the fields marked shared.
type group struct {
	id      uint16
	session *Session // shared, immutable
	poller  *Poller  // shared, immutable
	cfg     groupConfig
	rails   []*groupRail
	lanes   []*lane // by the session's lane index; nil where it is not ours
	data    []*lane // up or not, in lane order
	next    int     // where the search for a data lane goes on
	up      int     // data lanes that are up
	cqs     []verbs.CQ

	// Sending through slots.
	lots       [classes]lot
	sendMemory []byte
	local      []localSlot
	freeLocal  []uint32 // a stack: the slot used last is still in cache
	first      class    // tried first at the next post
	remote     []remoteSlot
	freeRemote []uint32 // a stack, for the receiver's cache

	// Sending segments.
	queued  fifo // indexes of sending, to be posted
	sending [segmentTable]*segment
	// kept is the lane that slots leave alone so that a queued segment, which
	// needs much of a window at once, finds room some time.
	kept *lane

	// Receiving.
	recvMemory []byte
	recv       []recvSlot
	owed       fifo // slots whose credit is to be sent
	table      [segmentTable]segmentEntry

	ops int // with workers, or about to be
	// unsubmitted ops found their queue full. Room is reserved, but a worker
	// that was interrupted in the middle of a Pop holds its place (see
	// ring.MPMC.TryPush) while others go round the whole queue.
	unsubmitted []*Op
	// early are completions that came before the command that explains them.
	early []verbs.WC
	// behind: this round left completions on a CQ. Nothing is overdue that one of
	// them may tell of, as when the thread has not run for a while.
	behind  bool
	backlog []event
	ending  bool // in order: what fails from now on is no error
	closing bool
	closed  bool
	closeBy int64
	gaveUp  bool // closeBy has passed
}

// groupConfig are the numbers that both sides agreed on, and the times.
type groupConfig struct {
	payloadBytes, strideBytes int
	expressBytes              int   // of an arriving write of class express
	localShift, remoteShift   uint8 // a slot's index >> shift is that of its region
	laneDeadline              int64 // a posted WR without completion takes the lane down
	probeDeadline             int64 // the same for a probe
	drainTimeout              int64
}

// groupRail is a rail as one group sees it.
type groupRail struct {
	index    uint16         // in the session
	shown    *Rail          // for others to read
	lkeys    []uint32       // of the send slots, by slot >> localShift
	remote   []remoteRegion // the peer's receive slots, by slot >> remoteShift
	credit   *lane
	cq       verbs.CQ // of its device
	lost     error    // why cq completes nothing more
	inFlight int64    // bytes posted and not credited or acked
	limit    int64    // rate x 5 ms, at least four slots
}

// remoteRegion is a registered piece of the peer's receive slots.
type remoteRegion struct {
	// origin plus slot x stride is a slot's address. It lies before the region
	// by the slots of those before it, and may wrap around for that.
	origin uint64
	rkey   uint32
}

// localSlot is a send slot: free, being read, loaded, or sent and kept until
// the peer's credit, so that it can be sent again if its lane is lost.
type localSlot struct {
	op     Op
	chunk  *chunk
	bytes  uint32 // of the RDMA Write
	remote int32  // slot at the peer, -1 when not posted
	lane   *lane
	// done: the write has completed, the adapter reads the memory no more.
	// Credit and completion come from different QPs, in any order.
	done, credited bool
}

// remoteSlot is a receive slot of the peer's, as granted to this group.
type remoteSlot struct {
	generation uint64
	local      int32 // the send slot in it, -1 when free
}

type recvState uint8

const (
	recvGranted recvState = iota // the peer may write it
	recvStoring                  // a worker has it
)

// String names the state in a violation.
func (s recvState) String() string {
	if s == recvStoring {
		return "written and being stored"
	}
	return "granted"
}

// recvSlot is a receive slot of this side.
type recvSlot struct {
	op         Op
	generation uint64
	state      recvState
	owed       bool // its credit is queued
	// answered: the peer was told of the current generation by the answer for a
	// lost lane. No credit may say it again: it could meet the write that the
	// answer is about, and pass for its receipt.
	answered bool
	rail     *groupRail
	// creditedOn is the lane of the last credit. Its completion proves nothing
	// (the peer may lose what its adapter took), so the credit counts as lost
	// with the lane until the peer writes the slot.
	creditedOn *lane
}

func (g *group) slotMemory(memory []byte, index uint32) []byte {
	at := int(index) * g.cfg.strideBytes
	return memory[at : at+g.cfg.strideBytes : at+g.cfg.strideBytes]
}

// emit tells the session; when its queue is full, later.
func (g *group) emit(e event) {
	e.group = g.id
	if len(g.backlog) > 0 || !g.session.event(e) {
		g.backlog = append(g.backlog, e)
	}
}

// obey carries out one command.
func (g *group) obey(c *command, now int64) {
	switch c.kind {
	case commandBuildLane:
		g.build(c, now)
	case commandConnectLane:
		g.connect(c, now)
	case commandDestroyLane:
		g.destroy(c.lane)
	case commandReadyLane:
		g.ready(c.lane)
	case commandFailLane:
		if l := g.live(c.lane); l != nil {
			g.fail(l, verbs.WCFlushErr, 0, now)
		}
	case commandAnswerLane:
		g.ask(c.lane, c.list, now)
	case commandResolveLane:
		g.resolve(c.lane, c.list)
	case commandGrantSegment:
		g.grantSegment(c)
	case commandReleaseSegment:
		g.releaseSegment(c.seg)
	case commandSendSegment:
		g.sendSegment(c.send)
	case commandAckedSegment:
		g.segmentAcked(c.seg)
	case commandEndGroup:
		g.ending = true
	case commandCloseGroup:
		g.close(now)
	}
}

// poll drains the CQs and posts the receives that were consumed.
func (g *group) poll(now int64) int {
	n := len(g.early)
	g.behind = false
	for len(g.early) > 0 {
		if g.tooEarly(&g.early[0]) {
			g.behind = true
			return n
		}
		g.complete(&g.early[0], now)
		g.early = g.early[1:]
	}
	for at := 0; at < len(g.cqs); at++ {
		wcs := g.poller.wcs[:]
		k, err := g.cqs[at].Poll(wcs)
		g.behind = g.behind || k == len(wcs)
		for i := range wcs[:k] {
			if len(g.early) > 0 || g.tooEarly(&wcs[i]) {
				g.early = append(g.early, wcs[i]) // their order stays
				continue
			}
			g.complete(&wcs[i], now)
		}
		if err != nil {
			g.loseCQ(at, err, now)
			at--
		}
		n += k
	}
	if n > 0 {
		g.postReceives(now)
	}
	return n
}

// complete takes one completion: first what queue entry it frees, then its
// status, then what it means.
func (g *group) complete(wc *verbs.WC, now int64) {
	kind, epoch, laneIndex, index := splitWRID(wc.WRID)
	l := g.lanes[laneIndex]
	if l.gone || epoch != uint8(l.epoch) {
		return // of a QP that is destroyed; its WRs were settled then
	}
	if kind == wrRecv {
		l.recvs--
	} else {
		l.sends--
		l.quietSince = 0
		if l.sends > 0 {
			l.quietSince = now
		}
		g.sendOver(kind, index)
	}
	switch {
	case wc.Status != verbs.WCSuccess:
		g.fail(l, wc.Status, wc.VendorErr, now)
	case kind == wrRecv:
		g.received(l, wc, now)
	case kind == wrProbe:
		g.proved(l)
	}
	g.checkDrained(l)
}

// received dispatches an immediate from the peer.
func (g *group) received(l *lane, wc *verbs.WC, now int64) {
	g.stageReceive(l, now)
	if wc.Flags&verbs.WCWithImm == 0 {
		g.violation("a message of %d bytes without an immediate on lane %d", wc.ByteLen, l.index)
		return
	}
	kind, generation, index := splitImmediate(wc.Imm)
	switch {
	case kind == immSlot && !l.credit:
		g.slotReceived(l, index, generation, wc.ByteLen)
	case kind == immSegment && !l.credit:
		g.segmentReceived(l, index, generation, wc.ByteLen)
	case kind == immCredit && l.credit:
		g.credited(index, generation)
	case wc.Imm == probeImmediate(l) && !l.probed && !g.session.cfg.Dialler:
		l.probed = true
	default:
		g.violation("an immediate of kind %d, index %d, generation %d on lane %d (for credits: %v), which takes none of that kind now",
			kind, index, generation, l.index, l.credit)
	}
}

// violation ends the session. The text names what arrived and what this side
// knew, so that a line of the log is enough: an adapter that delivers twice
// looks otherwise than a peer that lies. It is built on failure only.
func (g *group) violation(format string, args ...any) {
	g.emit(event{kind: eventViolation, detail: fmt.Sprintf(format, args...)})
}

// finished takes an op back from a worker.
func (g *group) finished(op *Op) {
	g.ops--
	switch op.kind {
	case opLoad:
		g.slotLoaded(op)
	case opStore:
		g.slotStored(op)
	case opSum:
		g.table[op.index].summing = false
	case opConnect:
		g.connected(g.lanes[op.index], g.poller.now)
	}
}

// submit hands an op to the workers; room for it was reserved.
func (g *group) submit(op *Op) {
	g.ops++
	if g.poller.sums && (op.kind == opSum || op.kind == opSource) {
		g.poller.own = append(g.poller.own, op)
		return
	}
	if len(g.unsubmitted) > 0 || !g.poller.work.push(op) {
		g.unsubmitted = append(g.unsubmitted, op)
	}
}

func (g *group) resubmit() int {
	n := len(g.unsubmitted)
	for len(g.unsubmitted) > 0 && g.poller.work.push(g.unsubmitted[0]) {
		g.unsubmitted = g.unsubmitted[1:]
	}
	return n
}

// overdue handles deadlines and the end.
func (g *group) overdue(now int64) int {
	n := 0
	for len(g.backlog) > 0 && g.session.event(g.backlog[0]) {
		g.backlog = g.backlog[1:]
		n++
	}
	busy := 0
	for _, l := range g.lanes {
		if l == nil {
			continue
		}
		switch l.state {
		case laneAttached, laneUp:
			if l.quietSince != 0 && now-l.quietSince > g.patience(l) && !g.behind {
				g.fail(l, verbs.WCRespTimeoutErr, 0, now)
				n++
			}
		case laneDraining:
			busy++
			switch {
			case l.drainBy == 0 || g.behind: // a helper has the QP, it was told, or they are on the CQ
			case now >= l.drainBy:
				l.drainBy = 0
				g.emit(event{kind: eventLaneStuck, lane: LaneRef{l.index, l.epoch}})
				n++
			default: // a helper may have given the QP back long after close
				g.closeBy = max(g.closeBy, l.drainBy)
			}
		}
	}
	if g.closing && !g.closed {
		g.gaveUp = now >= g.closeBy && !g.behind
		g.closed = g.ops == 0 && (busy == 0 || g.gaveUp)
	}
	return n
}

func (g *group) deadline() int64 {
	at := int64(math.MaxInt64)
	if len(g.backlog) > 0 || len(g.unsubmitted) > 0 || len(g.early) > 0 || g.closed {
		return 0 // something waits for a queue that nobody announces room in
	}
	if g.closing && !g.gaveUp { // then it waits for workers, who wake the poller
		at = g.closeBy
	}
	for _, l := range g.lanes {
		switch {
		case l == nil:
		case l.state == laneDraining && l.drainBy != 0:
			at = min(at, l.drainBy)
		case l.quietSince != 0 && (l.state == laneUp || l.state == laneAttached):
			at = min(at, l.quietSince+g.patience(l)+1)
		}
	}
	return at
}

// patience is how long a lane with WRs out may go without any completion: the
// time since the last one counts, not the age of a WR, which a slow link makes
// old.
func (g *group) patience(l *lane) int64 {
	if l.state == laneAttached {
		return g.cfg.probeDeadline
	}
	return g.cfg.laneDeadline
}

// close fails every lane; the group is closed once all are drained and every
// op is back.
func (g *group) close(now int64) {
	if g.closing {
		return
	}
	g.closing, g.closeBy = true, now+g.cfg.drainTimeout
	for _, l := range g.lanes {
		if l != nil {
			g.fail(l, verbs.WCFlushErr, 0, now)
		}
	}
}
