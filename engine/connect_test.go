package engine

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"mover/verbs"
)

// dialling has the node be the dialler, and its first data lane in INIT.
func dialling(t *testing.T, dialler bool) (*fakeNode, *lane) {
	n := quietNode(t)
	n.session.cfg.Dialler = dialler
	l := n.data[0]
	l.state, l.epoch = laneAttached, 1030 // beyond the immediate's bits
	n.g.up--
	return n, l
}

func (n *fakeNode) connect(l *lane) {
	n.Poller.command(command{kind: commandConnectLane, group: n.g, lane: LaneRef{l.index, l.epoch}, attr: [2]*verbs.QPAttr{{}, {}}})
}

// TestProbe: the dialler posts a probe when it is in RTS and tells of the lane
// when that has completed; the acceptor tells at once.
func TestProbe(t *testing.T) {
	n, l := dialling(t, true)
	qp := qpOf(l)
	qp.held, qp.record = true, true
	n.connect(l)
	n.Step(10)
	if len(qp.posted) != 1 || qp.posted[0] != immediate(immProbe, 1030, 0) || len(n.events()) != 0 || l.sends != 1 {
		t.Fatalf("posted %x, %d sends", qp.posted, l.sends)
	}
	n.cq.wcs = append(n.cq.wcs, qp.kept...)
	qp.kept = nil
	n.Step(20)
	if e := n.events(); len(e) != 1 || e[0].kind != eventLaneConnected || l.sends != 0 {
		t.Fatalf("events %+v", e)
	}
	n, l = dialling(t, false)
	qpOf(l).record = true
	n.connect(l)
	n.Step(10)
	if e := n.events(); len(e) != 1 || e[0].kind != eventLaneConnected || len(qpOf(l).posted) != 0 {
		t.Fatalf("acceptor: events %+v, posted %x", e, qpOf(l).posted)
	}
}

// TestProbeFails: without an answer the lane's life is over, at the probe's own
// deadline or with the completion's status, and nobody is told that it is up.
func TestProbeFails(t *testing.T) {
	n, l := dialling(t, true)
	qpOf(l).held = true
	n.connect(l)
	n.Step(10)
	at := n.Deadline()
	if at != 10+n.g.cfg.probeDeadline+1 {
		t.Fatalf("deadline %d", at)
	}
	n.Step(at)
	n.Step(at + 1)
	if e := n.events(); len(e) != 1 || e[0].kind != eventLaneDrained || e[0].cause != verbs.WCRespTimeoutErr {
		t.Fatalf("events %+v", e)
	}
	n, l = dialling(t, true)
	qp := qpOf(l)
	qp.held = true
	n.connect(l)
	n.Step(10)
	qp.kept[0].Status = verbs.WCRetryExcErr
	n.cq.wcs, qp.kept = append(n.cq.wcs, qp.kept...), nil
	n.Step(20)
	n.Step(21)
	if e := n.events(); len(e) != 1 || e[0].kind != eventLaneDrained || e[0].cause != verbs.WCRetryExcErr {
		t.Fatalf("events %+v", e)
	}
}

// TestProbeReceived: a probe only has its receive posted again. One a life, to
// the acceptor, of this life, is all there may be.
func TestProbeReceived(t *testing.T) {
	for _, c := range []struct {
		name    string
		dialler bool
		imm     []uint32
		want    int // violations
	}{
		{"one", false, []uint32{immediate(immProbe, 1030, 0)}, 0},
		{"two", false, []uint32{immediate(immProbe, 1030, 0), immediate(immProbe, 1030, 0)}, 1},
		{"at the dialler", true, []uint32{immediate(immProbe, 1030, 0)}, 1},
		{"of another life", false, []uint32{immediate(immProbe, 1031, 0)}, 1},
		{"of another lane", false, []uint32{immediate(immProbe, 1030, 1)}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, l := dialling(t, c.dialler)
			for _, imm := range c.imm {
				n.arrive(l, imm, 0)
			}
			n.Step(10)
			violations := 0
			for _, e := range n.events() {
				if e.kind == eventViolation {
					violations++
				}
			}
			if violations != c.want || l.recvs != l.recvCap {
				t.Errorf("%d violations, want %d; %d receives", violations, c.want, l.recvs)
			}
		})
	}
}

// TestConnectAside: while a helper has a QP the poller leaves it alone, goes on
// with its other lanes, and a failure waits.
func TestConnectAside(t *testing.T) {
	for _, fails := range []bool{false, true} {
		n, l := dialling(t, false)
		var out []*Op
		n.session.cfg.Aside = func(op *Op) { out = append(out, op) }
		n.connect(l)
		n.Step(10)
		if len(out) != 1 || l.state != laneConnecting || n.g.ops != 1 {
			t.Fatalf("%d ops out, state %d", len(out), l.state)
		}
		n.storeSlot(t, n.data[1], 3, 0, 20)
		if fails {
			n.g.fail(l, verbs.WCRetryExcErr, 0, 30)
			n.Step(30)
			if len(n.events()) != 0 || len(n.cq.wcs) != 0 || l.drainBy != 0 {
				t.Fatal("the QP was touched while a helper has it")
			}
			n.g.close(40)
			n.Step(50 + n.g.cfg.drainTimeout)
			if len(n.groups) != 1 {
				t.Fatal("the group was closed while a helper has a QP")
			}
		}
		out[0].Execute(nil)
		for at := 60 + n.g.cfg.drainTimeout; at < 70+n.g.cfg.drainTimeout; at++ {
			n.Step(at)
		}
		kinds := map[eventKind]int{}
		for _, e := range n.events() {
			kinds[e.kind]++
		}
		if fails != (kinds[eventLaneConnected] == 0) || fails != (kinds[eventGroupClosed] == 1) || fails != (l.state >= laneDraining) {
			t.Errorf("fails %v: events %v, state %d", fails, kinds, l.state)
		}
	}
}

// TestConnectFails: a transition that fails, as with ETIMEDOUT when nobody has
// the peer's address, fails the lane and is told.
func TestConnectFails(t *testing.T) {
	n, l := dialling(t, true)
	qpOf(l).modify = errors.New("nobody has that address")
	n.connect(l)
	n.Step(10)
	n.Step(11)
	e := n.events()
	if len(e) != 1 || e[0].kind != eventLaneDrained || e[0].cause != verbs.WCLocQPOpErr || e[0].detail != "connecting its queue pair: nobody has that address" {
		t.Errorf("events %+v", e)
	}
}

// TestAbandon: a QP that does not even go to ERR is destroyed, which settles its
// WRs; what its CQ says later is ignored, also in the lane's next life.
func TestAbandon(t *testing.T) {
	n := newSteady(t) // with a segment to be sent
	l := n.data[0]
	for _, other := range n.data[1:] {
		other.state = laneDrained // so that it all goes one way
	}
	n.g.up = 1
	qp := qpOf(l)
	qp.held, qp.credits, qp.toErr = true, false, errors.New("the device is gone")
	for range 3 {
		n.push.Push(n.chunks[n.next])
		n.next++
	}
	n.Step(10)
	for op, ok := n.work.Pop(); ok; op, ok = n.work.Pop() {
		op.Execute(n.scratch)
	}
	n.Step(20)
	n.Step(21)
	if l.sends != 7 || n.seg.inFlight != 4 { // 3 slots and 4 chunks
		t.Fatalf("%d sends, %d chunks", l.sends, n.seg.inFlight)
	}
	late := append([]verbs.WC(nil), qp.kept...)
	n.g.fail(l, verbs.WCFlushErr, 0, 30)
	var drained *event
	for _, e := range n.events() {
		if e.kind == eventLaneDrained {
			drained = &e
		}
	}
	if drained == nil || !drained.gone || len(drained.list.slots) != 3 || len(drained.list.segments) != 1 || qp.destroyed != 1 {
		t.Fatalf("event %+v, destroyed %d times", drained, qp.destroyed)
	}
	if l.sends != 0 || l.recvs != 0 || n.seg.inFlight != 0 {
		t.Errorf("%d sends, %d receives, %d chunks in flight", l.sends, l.recvs, n.seg.inFlight)
	}
	n.g.destroy(LaneRef{l.index, l.epoch})
	if qp.destroyed != 1 {
		t.Error("destroyed twice")
	}
	n.cq.wcs = append(n.cq.wcs, late...)
	n.Step(40)
	next := n.rebuild(l)
	n.cq.wcs = append(n.cq.wcs, late...)
	n.Step(50)
	if next.sends != 0 || next.state != laneUp || n.seg.inFlight != 0 {
		t.Errorf("a late completion counted: %d sends, state %d, %d chunks", next.sends, next.state, n.seg.inFlight)
	}
}

// TestArmFails: a CQ that can't be armed takes its lanes down, once, and the
// thread may park without it.
func TestArmFails(t *testing.T) {
	n := quietNode(t)
	n.g.rails[0].cq = n.cq
	n.cq.arm = errors.New("the device is gone")
	if err := n.Arm(); err == nil {
		t.Error("armed")
	}
	n.Step(1)
	n.Step(2)
	if e := n.events(); len(e) != 3 || e[0].kind != eventLaneDrained || e[0].cause != verbs.WCGeneralErr || e[0].detail != "the device is gone" {
		t.Errorf("events %+v", e)
	}
	if err := n.Arm(); err != nil {
		t.Errorf("with no lane left: %v", err)
	}
}

// TestCQGone: the CQ of a device that is gone answers with an error for good.
// Its QPs are destroyed, one that was draining too, and the session goes on
// without it; an overrun CQ ends the session.
func TestCQGone(t *testing.T) {
	for _, why := range []error{&verbs.Error{Op: "poll CQ", Errno: syscall.EIO}, fmt.Errorf("poll CQ: %w", verbs.ErrCQOverrun)} {
		n := quietNode(t)
		n.g.rails[0].cq = n.cq
		draining := n.data[1]
		n.g.fail(draining, verbs.WCRetryExcErr, 0, 1)
		n.cq.wcs = nil // its flushes never come
		n.cq.err = why
		n.Step(2)
		n.cq.err = errors.New("polled again")
		n.Step(3)
		drained, failed := 0, 0
		for _, e := range n.events() {
			switch {
			case e.kind == eventLaneDrained && e.gone:
				drained++
			case e.kind == eventFailed && strings.Contains(e.detail, "overrun"):
				failed++
			case e.kind == eventGroupClosed && n.g.closing:
			default:
				t.Errorf("%v: event %+v", why, e)
			}
		}
		overrun := errors.Is(why, verbs.ErrCQOverrun)
		if drained != 3 || (failed == 1) != overrun || n.g.closing != overrun {
			t.Errorf("%v: %d lanes drained, %d failures, closing %v", why, drained, failed, n.g.closing)
		}
		for _, l := range append(n.data, n.credit) {
			if qpOf(l).destroyed != 1 {
				t.Errorf("%v: the QP of lane %d was destroyed %d times", why, l.index, qpOf(l).destroyed)
			}
		}
		if overrun {
			continue
		}
		// A next life of a lane on it ends at once.
		next := &fakeQP{n: n, lane: draining.index}
		n.g.obey(&command{kind: commandBuildLane, lane: LaneRef{draining.index, 1}, qp: next, attr: [2]*verbs.QPAttr{{State: verbs.StateInit}}}, 4)
		if e := n.events(); len(e) != 1 || e[0].kind != eventLaneDrained || !e[0].gone || next.destroyed != 1 {
			t.Errorf("events %+v, destroyed %d times", e, next.destroyed)
		}
	}
}

// TestSlowIsNotSilent: on a slow link a WR may be older than the lane's
// deadline; only a lane without any completion for so long is silent.
func TestSlowIsNotSilent(t *testing.T) {
	n := newSteady(t)
	n.g.queued, n.g.sending[0] = newFIFO(segmentTable), nil
	for _, l := range n.data[1:] {
		l.state = laneDrained
	}
	n.g.up = 1
	l := n.data[0]
	qpOf(l).held, qpOf(l).credits = true, false
	for i := range 4 {
		n.push.Push(n.chunks[i])
	}
	n.Step(10)
	for op, ok := n.work.Pop(); ok; op, ok = n.work.Pop() {
		op.Execute(n.scratch)
	}
	n.Step(20)
	for i := range int64(4) {
		if l.sends == 0 {
			t.Fatal("nothing was posted")
		}
		n.cq.wcs, qpOf(l).kept = append(n.cq.wcs, qpOf(l).kept[0]), qpOf(l).kept[1:]
		n.Step(20 + (i+1)*(n.g.cfg.laneDeadline-1))
	}
	if l.state != laneUp || n.stats.LaneErrors.Load() != 0 {
		t.Errorf("a slow lane failed, state %d", l.state)
	}
}

// TestStrandedGroup: with its windows full and no credit lane, a group gives
// back what it has read, for others to send.
func TestStrandedGroup(t *testing.T) {
	n := newSteady(t)
	n.g.queued, n.g.sending[0] = newFIFO(segmentTable), nil
	for _, l := range n.data {
		l.window = l.depth
	}
	n.push.Push(n.chunks[0])
	n.Step(10)
	op, _ := n.work.Pop()
	op.Execute(n.scratch)
	n.Step(20)
	if n.g.lots[bulk].loaded.n != 1 || len(n.events()) != 0 {
		t.Fatalf("%d slots loaded", n.g.lots[bulk].loaded.n)
	}
	n.g.fail(n.credit, verbs.WCRetryExcErr, 0, 30)
	n.Step(30)
	back := 0
	for _, e := range n.events() {
		if e.kind == eventChunkBack {
			back++
		}
	}
	if back != 1 || n.g.lots[bulk].loaded.n != 0 {
		t.Errorf("%d chunks came back, %d are loaded", back, n.g.lots[bulk].loaded.n)
	}
}
