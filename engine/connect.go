package engine

import (
	"fmt"

	"mover/verbs"
)

// The group's poller owns its CQs and with them the QPs: it alone modifies,
// posts to and destroys them (package verbs, "Who may call what"). Sessions
// only create them.

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
	err := l.qp.Modify(c.attr[0], verbs.InitMask(verbs.RC))
	if err == nil {
		wrs := make([]verbs.RecvWR, l.recvCap)
		for i := range wrs {
			wrs[i].WRID = wrID(wrRecv, l, 0)
		}
		l.recvs, err = l.qp.PostRecv(wrs)
	}
	if err != nil {
		g.emit(event{kind: eventFailed, detail: fmt.Sprintf("lane %d: building its queue pair: %v", l.index, err)})
		return
	}
	g.emit(event{kind: eventLaneBuilt, lane: c.lane})
}

// connect moves a lane's QP towards the peer's: it may receive.
func (g *group) connect(c *command, now int64) {
	l := g.live(c.lane)
	if l == nil || l.state != laneAttached {
		return // it failed before, which the session hears
	}
	err := l.qp.Modify(c.attr[0], verbs.RTRMask(verbs.RC))
	if err == nil {
		err = l.qp.Modify(c.attr[1], verbs.RTSMask(verbs.RC))
	}
	if err != nil {
		g.session.cfg.Log("lane not connected", "lane", l.index, "error", err)
		g.fail(l, verbs.WCLocQPOpErr, 0, now)
		return
	}
	g.emit(event{kind: eventLaneConnected, lane: c.lane})
}

// destroy ends a life of a lane that both sides have settled.
func (g *group) destroy(ref LaneRef) {
	l := g.live(ref)
	if l == nil || l.state != laneDrained {
		return // closing: the session takes it down
	}
	if err := l.qp.Destroy(); err != nil {
		g.emit(event{kind: eventFailed, detail: fmt.Sprintf("lane %d: destroying its queue pair: %v", l.index, err)})
	}
}
