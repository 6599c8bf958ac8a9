package sim

import (
	"slices"
	"syscall"

	"mover/verbs"
)

// qp is a queue pair. Its send side is in send.go, then in deliver.go (RC) or
// flight.go (UC, UD); its receive side in accept.go (RC), uc.go, datagram.go
// (UD) and place.go.
type qp struct {
	f         *Fabric
	pd        *pd
	dev       *device
	typ       verbs.QPType
	qpn       uint32
	cap       verbs.QPCap
	signalAll bool
	send      outbox
	recv      outbox

	state verbs.QPState
	attr  verbs.QPAttr
	gone  bool
	// epoch cancels the events of a QP that left its state: they run, see
	// another epoch and do nothing.
	epoch uint64

	port     *port     // from INIT on
	remote   *port     // from RTR on
	sgid     verbs.GID // from RTR on
	flaps    int       // the port's, at RTR
	reported bool      // StaleQP or BadPath was recorded

	// Send side, oldest first.
	sq      []*sendWQE // taking an entry: posted, not given back by Poll
	pending []*sendWQE // not accepted by the responder yet
	unacked []*sendWQE // accepted, without completion
	flying  bool       // the first of pending is on its way
	waiting bool       // for an RNR or retry timer
	retries int
	rnr     int
	killed  bool // by a fault
	corrupt int  // messages still to be damaged
	// No completion of a send before.
	sendsHeldTill int64

	// Send side of UC and UD.
	sqPSN  uint32          // of the next packet
	wire   []*flight       // UC: messages under way, oldest first
	lastTo map[*port]int64 // UD: when the latest datagram arrives there; only looked up

	// Receive side, oldest first.
	rq      []*recvWQE // posted, not used
	rqOut   []*recvWQE // used, completion not polled
	rqTaken int        // entries of the queue: rq and rqOut
	msgs    uint64     // messages accepted
	pieces  []piece    // accepted bytes that are not in memory yet
	seeping bool       // an event to place some of them is scheduled
	rqPSN   uint32     // UC: of the next packet
	in      *incoming  // UC: the message of which more packets are due
}

func (p *pd) CreateQP(attr verbs.QPInitAttr) (verbs.QP, error) {
	const op = "create QP"
	c := p.ctx
	if err := p.usable(op); err != nil {
		return nil, err
	}
	if attr.Type != verbs.RC && attr.Type != verbs.UC && attr.Type != verbs.UD {
		return nil, invalid(op, "unknown transport")
	}
	scq, ok1 := attr.SendCQ.(*cq)
	rcq, ok2 := attr.RecvCQ.(*cq)
	if !ok1 || !ok2 || scq.ctx != c || rcq.ctx != c || scq.gone || rcq.gone {
		return nil, invalid(op, "a CQ is missing, destroyed or of another device")
	}
	limits, want := c.dev.attr(), attr.Cap
	if min(want.MaxSendWR, want.MaxRecvWR, want.MaxSendSGE, want.MaxRecvSGE, want.MaxInlineBytes) < 0 ||
		max(want.MaxSendWR, want.MaxRecvWR) > limits.MaxQPWR || max(want.MaxSendSGE, want.MaxRecvSGE) > limits.MaxSGE ||
		want.MaxInlineBytes > maxInline {
		return nil, invalid(op, "queue sizes beyond the device's limits")
	}
	if len(c.dev.qps) == limits.MaxQP {
		return nil, &verbs.Error{Op: op, Errno: syscall.ENOMEM, Detail: "the device has max_qp QPs"}
	}
	q := &qp{f: c.f, pd: p, dev: c.dev, typ: attr.Type, qpn: c.f.newQPN(), cap: want, signalAll: attr.SignalAll,
		lastTo: map[*port]int64{}}
	q.send.cq, q.recv.cq = scq, rcq
	c.f.qps[q.qpn] = q
	c.dev.qps = append(c.dev.qps, q)
	p.inUse++
	c.counts.QP++
	scq.join(q, want.MaxSendWR)
	rcq.join(q, want.MaxRecvWR)
	return q, nil
}

const maxInline = 512 // bytes

// newQPN draws a number that was never used: a stale peer finds nobody.
func (f *Fabric) newQPN() uint32 {
	for {
		n := f.rng.Uint32N(1<<24-2) + 2 // 0 and 1 are special
		if !f.used[n] {
			f.used[n] = true
			return n
		}
	}
}

// join notes that a queue of wrs WRs completes here.
func (c *cq) join(q *qp, wrs int) {
	c.qps++
	c.promised += wrs
	if c.promised > c.entries {
		c.ctx.f.violate(CQTooSmall, c.ctx.dev, q.qpn, "%d entries for %d WRs", c.entries, c.promised)
	}
}

func (c *cq) leave(wrs int) {
	c.qps--
	c.promised -= wrs
}

func (q *qp) PD() verbs.PD       { return q.pd }
func (q *qp) Type() verbs.QPType { return q.typ }
func (q *qp) QPN() uint32        { return q.qpn }
func (q *qp) Cap() verbs.QPCap   { return q.cap }
func (q *qp) ConnData() []byte   { return nil }

func (q *qp) usable(op string) error {
	if q.gone {
		return invalid(op, "the QP is destroyed")
	}
	return nil
}

func (q *qp) Query() (verbs.QPAttr, error) {
	if err := q.usable("query QP"); err != nil {
		return verbs.QPAttr{}, err
	}
	a := q.attr
	a.State = q.state
	return a, nil
}

func (q *qp) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	const op = "modify QP"
	if err := q.usable(op); err != nil {
		return err
	}
	if err := q.pd.ctx.usable(op); err != nil {
		return err
	}
	if err := verbs.CheckTransition(q.typ, q.state, attr, mask); err != nil {
		return err
	}
	q.f.record("modify", uint64(q.qpn), uint64(attr.State))
	switch attr.State {
	case verbs.StateInit:
		return q.toInit(attr)
	case verbs.StateRTR:
		return q.toRTR(attr)
	case verbs.StateRTS:
		q.toRTS(attr)
	case verbs.StateErr:
		q.enterErr(true)
	case verbs.StateReset:
		q.reset()
		q.forget()
	}
	return nil
}

func (q *qp) toInit(attr *verbs.QPAttr) error {
	p, err := q.pd.ctx.port("modify QP RESET to INIT", attr.Port)
	if err != nil {
		return err
	}
	q.port = p
	q.attr.Port, q.attr.PKeyIndex = attr.Port, attr.PKeyIndex
	if q.typ == verbs.UD {
		q.attr.QKey = attr.QKey
	} else {
		q.attr.AccessFlags = attr.AccessFlags
	}
	q.state = verbs.StateInit
	return nil
}

func (q *qp) toRTR(attr *verbs.QPAttr) error {
	const op = "modify QP INIT to RTR"
	if q.typ == verbs.UD { // it has no peer: each WR names one
		q.flaps = q.port.flaps
		q.state = verbs.StateRTR
		return nil
	}
	if attr.PathMTU > q.port.cfg.MTU {
		return invalid(op, "path MTU above the port's active MTU")
	}
	remote, sgid, err := q.port.resolve(op, &attr.AV)
	if err != nil {
		return err
	}
	q.remote, q.sgid, q.flaps = remote, sgid, q.port.flaps
	q.attr.AV, q.attr.PathMTU, q.attr.DestQPN, q.attr.RQPSN = attr.AV, attr.PathMTU, attr.DestQPN, attr.RQPSN
	if q.typ == verbs.RC {
		q.attr.MaxDestRdAtomic, q.attr.MinRNRTimer = attr.MaxDestRdAtomic, attr.MinRNRTimer
	}
	q.rqPSN = attr.RQPSN
	q.state = verbs.StateRTR
	return nil
}

func (q *qp) toRTS(attr *verbs.QPAttr) {
	q.attr.SQPSN, q.sqPSN = attr.SQPSN, attr.SQPSN
	if q.typ == verbs.RC {
		q.attr.Timeout, q.attr.RetryCnt = attr.Timeout, attr.RetryCnt
		q.attr.RNRRetry, q.attr.MaxRdAtomic = attr.RNRRetry, attr.MaxRdAtomic
	}
	q.state = verbs.StateRTS
}

// reset forgets everything posted, without completions. What is on the wire
// stays there.
func (q *qp) reset() {
	q.epoch++
	q.state, q.attr = verbs.StateReset, verbs.QPAttr{}
	q.port, q.remote, q.sgid = nil, nil, verbs.GID{}
	q.sq, q.pending, q.unacked = nil, nil, nil
	q.rq, q.rqOut, q.rqTaken = nil, nil, 0
	q.flying, q.waiting, q.killed, q.reported = false, false, false, false
	q.retries, q.rnr, q.corrupt, q.sendsHeldTill = 0, 0, 0, 0
	q.pieces, q.in = nil, nil
	q.send.list, q.recv.list = nil, nil
}

// forget takes the QP's completions off its CQs.
func (q *qp) forget() {
	q.send.cq.forget(q)
	q.recv.cq.forget(q)
}

// enterErr ends the QP: every WR outstanding gets its completion. When the
// end is unordered (the user's or a fault's, not the answer to a message) it
// races with what was on its way: acknowledgements and receive completions
// may be lost, and with them accepted bytes.
func (q *qp) enterErr(unordered bool) {
	if q.state == verbs.StateErr {
		return
	}
	connected := q.state != verbs.StateReset && q.state != verbs.StateInit
	q.state = verbs.StateErr
	q.epoch++
	q.flying, q.waiting = false, false
	q.f.record("err", uint64(q.qpn), 0)

	acked := 0
	if unordered && len(q.unacked) > 0 && !q.f.opt.Calm {
		acked = q.f.rng.IntN(len(q.unacked) + 1)
	}
	for _, w := range q.unacked[:acked] {
		q.complete(w, verbs.WCSuccess)
	}
	if unordered && connected && len(q.pending) > 0 {
		if q.typ == verbs.RC {
			q.leavePart(q.pending[0])
		} else {
			q.escape(q.pending[0])
		}
	}
	for _, w := range slices.Concat(q.unacked[acked:], q.pending) {
		q.complete(w, verbs.WCFlushErr)
	}
	q.unacked, q.pending = nil, nil

	if unordered && !q.f.opt.Calm && q.f.rng.IntN(2) == 0 {
		q.loseReceives()
	}
	q.dropPieces()
	q.in = nil
	for _, r := range q.rq {
		q.completeRecv(r, verbs.WCFlushErr)
	}
	q.rq = nil
	if len(q.recv.list) == 0 {
		q.place(len(q.pieces)) // no completion will come to wait for
	}
}

// enterSQE stops the send queue of UC and UD alone: the receive queue works on
// until the user ends it too. The specification has it so (InfiniBand
// Architecture, volume 1, 10.3.1); other adapters go to ERR (drivers/infiniband/
// sw/rxe/rxe_req.c), and a user has to be ready for both.
func (q *qp) enterSQE() {
	q.state = verbs.StateSQE
	q.epoch++
	q.flying = false
	q.f.record("sqe", uint64(q.qpn), 0)
	for _, w := range q.pending {
		q.complete(w, verbs.WCFlushErr)
	}
	q.pending = nil
}

func (q *qp) Destroy() error {
	if err := q.usable("destroy QP"); err != nil {
		return err
	}
	idle := q.state == verbs.StateReset || q.state == verbs.StateInit
	n := q.rqTaken
	for _, w := range q.sq {
		if !w.silent {
			n++
		}
	}
	if n > 0 && !idle && !q.dev.fatal && !q.send.cq.dead && !q.recv.cq.dead {
		q.f.violate(DestroyedBusy, q.dev, q.qpn, "%d WRs are outstanding; drain first", n)
	}
	q.reset()
	// What is on its CQ already goes too. A device that is gone has nobody to see
	// to that for sure.
	if !q.dev.fatal || q.f.rng.IntN(2) == 0 {
		q.forget()
	}
	q.gone = true
	delete(q.f.qps, q.qpn)
	q.dev.qps = slices.DeleteFunc(q.dev.qps, func(o *qp) bool { return o == q })
	q.send.cq.leave(q.cap.MaxSendWR)
	q.recv.cq.leave(q.cap.MaxRecvWR)
	q.pd.inUse--
	q.pd.ctx.counts.QP--
	q.f.record("destroy", uint64(q.qpn), 0)
	return nil
}

// deregistering records what still uses the region.
func (q *qp) deregistering(m *mr) {
	uses := func(sgl []verbs.SGE) bool {
		return slices.ContainsFunc(sgl, func(s verbs.SGE) bool { return s.Length > 0 && s.LKey == m.lkey })
	}
	if m.pd == q.pd {
		for _, w := range q.sq {
			if uses(w.wr.SGL) && !(w.silent && q.state == verbs.StateErr) {
				q.f.violate(DeregInFlight, q.dev, q.qpn, "send WR %d uses it", w.wr.WRID)
				break
			}
		}
		for _, r := range slices.Concat(q.rq, q.rqOut) {
			if uses(r.wr.SGL) {
				q.f.violate(DeregInFlight, q.dev, q.qpn, "receive WR %d uses it", r.wr.WRID)
				break
			}
		}
	}
	n := len(q.pieces)
	q.pieces = slices.DeleteFunc(q.pieces, func(p piece) bool { return p.mr == m })
	if n > len(q.pieces) {
		q.f.violate(DeregInFlight, q.dev, q.qpn, "%d pieces of writes are on their way to it", n-len(q.pieces))
	}
}
