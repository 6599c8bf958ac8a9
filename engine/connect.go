package engine

import (
	"errors"
	"fmt"
	"slices"

	"mover/verbs"
)

// The group's poller owns its CQs and with them the QPs: it alone modifies,
// posts to and destroys them (package verbs, "Who may call what"), except that
// it lends a QP to a helper for the way from INIT to RTS where that may block
// (SessionConfig.Aside). Sessions only create them.

// connection is a lane's way from INIT to RTS.
type connection struct {
	op       Op
	out      bool // a helper has the QP
	qp       verbs.QP
	rtr, rts *verbs.QPAttr
	err      error
}

func (c *connection) run() {
	if c.err = c.qp.Modify(c.rtr, verbs.RTRMask(verbs.RC)); c.err == nil {
		c.err = c.qp.Modify(c.rts, verbs.RTSMask(verbs.RC))
	}
}

// build begins a life of a lane: its QP in INIT, receives posted, polled. The
// lane's former life, if any, is over on both sides.
func (g *group) build(c *command, now int64) {
	old := g.lanes[c.lane.Lane]
	l := &lane{index: c.lane.Lane, epoch: c.lane.Epoch, rail: old.rail, credit: old.credit, state: laneAttached,
		qp: c.qp, sendCap: old.sendCap, recvCap: old.recvCap, depth: old.depth}
	g.lanes[l.index] = l
	g.poller.stats.Lanes.Add(1)
	if l.credit {
		l.rail.credit = l
	} else {
		for i := range g.data {
			if g.data[i].index == l.index {
				g.data[i] = l
			}
		}
	}
	if g.closing {
		g.fail(l, verbs.WCFlushErr, 0, g.closeBy-g.cfg.drainTimeout)
		return
	}
	err := l.rail.lost
	if err == nil {
		err = l.qp.Modify(c.attr[0], verbs.InitMask(verbs.RC))
	}
	if err == nil {
		wrs := make([]verbs.RecvWR, l.recvCap)
		for i := range wrs {
			wrs[i].WRID = wrID(wrRecv, l, 0)
		}
		l.recvs, err = l.qp.PostRecv(wrs)
	}
	if err != nil {
		g.failWith(l, fmt.Errorf("building its queue pair: %w", err), now)
		return
	}
	g.emit(event{kind: eventLaneBuilt, lane: c.lane})
}

// failWith fails a lane for a verb that failed.
func (g *group) failWith(l *lane, err error, now int64) {
	l.detail = err.Error()
	g.fail(l, verbs.WCLocQPOpErr, 0, now)
}

// connect moves a lane's QP towards the peer's: it may receive. On RoCE the
// kernel resolves the peer's address in the transition to RTR, for up to a
// second when nobody answers (rdma_resolve_ip in ib_resolve_unicast_gid_dmac),
// which is a helper's to wait for: the lanes of other rails go on.
func (g *group) connect(c *command, now int64) {
	l := g.live(c.lane)
	if l == nil || l.state != laneAttached {
		return // it failed before, which the session hears
	}
	l.connection = connection{qp: l.qp, rtr: c.attr[0], rts: c.attr[1]}
	aside := g.session.cfg.Aside
	if aside == nil {
		l.connection.run()
		g.connected(l, now)
		return
	}
	l.state, l.connection.out = laneConnecting, true
	l.connection.op = Op{kind: opConnect, group: g, session: g.session, index: uint32(l.index), connect: &l.connection}
	g.ops++
	aside(&l.connection.op)
}

// connected has the QP back from connect.
func (g *group) connected(l *lane, now int64) {
	l.connection.out = false
	if l.state == laneConnecting {
		l.state = laneAttached
	}
	switch {
	case l.state != laneAttached: // it failed meanwhile
		g.flush(l, now)
	case l.connection.err != nil:
		g.failWith(l, fmt.Errorf("connecting its queue pair: %w", l.connection.err), now)
	case g.session.cfg.Dialler:
		g.probe(l, now)
	default:
		g.emit(event{kind: eventLaneConnected, lane: LaneRef{l.index, l.epoch}})
	}
}

// probe sends the first message of a lane, which proves that both directions
// work before any data depends on it: the peer's adapter has acknowledged it.
func (g *group) probe(l *lane, now int64) {
	wr := [1]verbs.SendWR{{WRID: wrID(wrProbe, l, 0), Op: verbs.OpSendWithImm, Flags: verbs.SendSignaled, Imm: probeImmediate(l)}}
	n, err := l.qp.PostSend(wr[:])
	if l.sends += n; n > 0 {
		l.quietSince = now
	}
	if err != nil {
		g.failWith(l, fmt.Errorf("posting its probe: %w", err), now)
	}
}

func probeImmediate(l *lane) uint32 {
	return immediate(immProbe, uint64(l.epoch), uint32(l.index))
}

// proved takes the completion of a probe.
func (g *group) proved(l *lane) {
	if l.state == laneAttached {
		g.emit(event{kind: eventLaneConnected, lane: LaneRef{l.index, l.epoch}})
	}
}

// loseCQ gives up a CQ that completes nothing more (verbs.CQ.Poll): its QPs are
// not drained but destroyed. A device that is gone takes its own lanes with it;
// an overrun is this program's fault, and leaves a device that works: the
// session ends, and the next has another CQ.
func (g *group) loseCQ(at int, why error, now int64) {
	cq := g.cqs[at]
	g.cqs = slices.Delete(g.cqs, at, at+1)
	for _, r := range g.rails {
		if r.cq == cq {
			r.lost = why
		}
	}
	if errors.Is(why, verbs.ErrCQOverrun) && !g.closing {
		g.emit(event{kind: eventFailed, detail: "completion queue: " + why.Error()})
		g.close(now)
	}
	g.lose(cq, why, now)
	for _, l := range g.lanes {
		if l != nil && l.rail.cq == cq && l.state == laneDraining && !l.connection.out {
			g.flush(l, now)
		}
	}
}

// lose fails the lanes of a CQ that is not to be used any more, and reports
// whether there were any.
func (g *group) lose(cq verbs.CQ, why error, now int64) (any bool) {
	for _, l := range g.lanes {
		if l == nil || l.rail.cq != cq || l.state == laneAbsent || l.state == laneDraining || l.state == laneDrained {
			continue
		}
		any = true
		l.detail = why.Error()
		g.fail(l, verbs.WCGeneralErr, 0, now)
	}
	return any
}

// destroy ends a life of a lane that both sides have settled.
func (g *group) destroy(ref LaneRef) {
	l := g.live(ref)
	if l == nil || l.state != laneDrained || l.gone {
		return // closing: the session takes it down
	}
	if err := l.qp.Destroy(); err != nil {
		g.emit(event{kind: eventFailed, detail: fmt.Sprintf("lane %d: destroying its queue pair: %v", l.index, err)})
	}
}
