package engine

import (
	"testing"

	"mover/ring"
	"mover/verbs"
)

// fakeNode is a poller with one lane group on verbs that cost nothing: posts
// complete at once, and the peer credits every slot and acks every segment.
// For what the simulation is too slow, or too fair, for.
type fakeNode struct {
	*Poller
	session *Session
	g       *group
	cq      *fakeCQ
	data    []*lane
	credit  *lane
	push    *ring.Tx[*chunk] // of class bulk
	source  []byte
}

type fakeCQ struct {
	verbs.CQ
	wcs []verbs.WC
	arm error
	err error // of Poll, when nothing is left
}

func (c *fakeCQ) ReqNotify(bool) error { return c.arm }

func (c *fakeCQ) Poll(wcs []verbs.WC) (int, error) {
	n := copy(wcs, c.wcs)
	if n == 0 && c.err != nil {
		return 0, c.err
	}
	c.wcs = c.wcs[:copy(c.wcs, c.wcs[n:])]
	return n, nil
}

type fakeQP struct {
	verbs.QP
	n       *fakeNode
	lane    uint16
	held    bool // completions are kept
	kept    []verbs.WC
	posted  []uint32 // immediates, when recording
	record  bool
	credits bool  // the peer credits what is written
	modify  error // of every transition but that to ERR
	toErr   error // of that

	destroyed int
}

func (q *fakeQP) PostRecv(wrs []verbs.RecvWR) (int, error) { return len(wrs), nil }

func (q *fakeQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		wr := &wrs[i]
		wc := verbs.WC{WRID: wr.WRID, Opcode: verbs.WCRDMAWrite}
		if q.held {
			q.kept = append(q.kept, wc)
		} else {
			q.n.cq.wcs = append(q.n.cq.wcs, wc)
		}
		if q.record {
			q.posted = append(q.posted, wr.Imm)
		}
		if kind, generation, index := splitImmediate(wr.Imm); wr.Op == verbs.OpWriteWithImm && kind == immSlot && q.credits {
			q.n.arrive(q.n.credit, immediate(immCredit, uint64(generation)+1, index), 0)
		}
	}
	return len(wrs), nil
}

// Modify flushes every receive, and the sends that are kept, when the state is
// ERR.
func (q *fakeQP) Modify(attr *verbs.QPAttr, _ verbs.AttrMask) error {
	if attr.State != verbs.StateErr {
		return q.modify
	}
	if q.toErr != nil {
		return q.toErr
	}
	l := q.n.g.lanes[q.lane]
	for _, wc := range q.kept {
		wc.Status = verbs.WCFlushErr
		q.n.cq.wcs = append(q.n.cq.wcs, wc)
	}
	q.kept = nil
	for range l.recvs {
		q.n.cq.wcs = append(q.n.cq.wcs, verbs.WC{WRID: wrID(wrRecv, l, 0), Status: verbs.WCFlushErr})
	}
	return nil
}

func (q *fakeQP) Destroy() error { q.destroyed++; return nil }

// arrive is a message from the peer on a lane.
func (n *fakeNode) arrive(l *lane, imm, bytes uint32) {
	n.cq.wcs = append(n.cq.wcs, verbs.WC{WRID: wrID(wrRecv, l, 0), Opcode: verbs.WCRecvRDMAWithIm, Flags: verbs.WCWithImm,
		Imm: imm, ByteLen: bytes})
}

type fakeWaker struct{}

func (fakeWaker) Wake() bool { return false }

type nullSource struct{}

func (nullSource) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nullSource) Verify(uint32) error                   { return nil }

// newFakeNode makes a node with data lanes and one credit lane, all up.
func newFakeNode(tb testing.TB, slots, payload, lanes, depth int) *fakeNode {
	tb.Helper()
	n := &fakeNode{cq: &fakeCQ{wcs: make([]verbs.WC, 0, 4096)}}
	n.Poller = NewPoller(PollerConfig{Work: NewWorkQueue(1024, noPool{}), Waker: fakeWaker{}})
	n.session = NewSession(SessionConfig{Waker: fakeWaker{}, Log: func(string, ...any) {}})
	stride := payload + MaxTrailerBytes
	rail := &groupRail{shown: &Rail{}, limit: 1 << 40, lkeys: make([]uint32, 1), remote: make([]remoteRegion, 1)}
	g := &group{session: n.session, poller: n.Poller, cqs: []verbs.CQ{n.cq}, rails: []*groupRail{rail},
		cfg: groupConfig{payloadBytes: payload, strideBytes: stride, localShift: wholeShare, remoteShift: wholeShare,
			laneDeadline: 6 * s1, probeDeadline: 2 * s1, drainTimeout: 2 * s1},
		local: make([]localSlot, slots), remote: make([]remoteSlot, slots), recv: make([]recvSlot, slots),
		queued: newFIFO(segmentTable), owed: newFIFO(slots), lanes: make([]*lane, lanes+1),
		sendMemory: alignedMemory(int64(slots * stride)), recvMemory: alignedMemory(int64(slots * stride))}
	n.g = g
	g.lots[express], _ = newLot(express, slots)
	g.lots[bulk], n.push = newLot(bulk, slots)
	g.lots[bulk].maxLocal, g.lots[bulk].maxRemote = slots, slots // there is no other
	for i := range slots {
		g.local[i].remote, g.remote[i].local = -1, -1
		g.freeLocal, g.freeRemote = append(g.freeLocal, uint32(i)), append(g.freeRemote, uint32(i))
	}
	for i := range lanes + 1 {
		l := &lane{index: uint16(i), rail: rail, depth: depth, sendCap: depth + 2, recvCap: depth + 1, recvs: depth + 1, state: laneUp}
		l.qp = &fakeQP{n: n, lane: l.index, credits: true}
		if i == lanes {
			l.credit, l.sendCap, rail.credit, n.credit = true, 2*slots+1, l, l
		} else {
			g.data, n.data = append(g.data, l), append(n.data, l)
			g.up++
		}
		g.lanes[i] = l
	}
	n.groups = append(n.groups, g)
	n.source = alignedMemory(int64(4 * payload))
	return n
}

func qpOf(l *lane) *fakeQP { return l.qp.(*fakeQP) }

// events drains what the session was told.
func (n *fakeNode) events() (all []event) {
	for {
		e, ok := n.session.events.TryPop()
		if !ok {
			return all
		}
		all = append(all, e)
	}
}
