package sim

import (
	"slices"

	"mover/verbs"
)

// cq is a completion queue.
type cq struct {
	ctx      *context
	entries  int
	channel  *channel
	ready    []cqe
	qps      int // send and receive queues that complete here
	promised int // WRs these may have outstanding
	dead     bool
	gone     bool

	armed, solicitedOnly bool
	notified             bool
}

// cqe is a completion on its way to, or in, a CQ.
type cqe struct {
	wc        verbs.WC
	q         *qp
	send      *sendWQE // the WQE that a send completion gives back
	recv      *recvWQE
	msg       uint64 // receives: everything up to this message becomes visible
	success   bool
	solicited bool
}

func (c *context) CreateCQ(attr verbs.CQInitAttr) (verbs.CQ, error) {
	if err := c.usable("create CQ"); err != nil {
		return nil, err
	}
	if attr.Entries < 1 || attr.Entries > c.dev.attr().MaxCQE || attr.Vector != 0 {
		return nil, invalid("create CQ", "entries or vector out of range")
	}
	q := &cq{ctx: c, entries: attr.Entries}
	if attr.Channel != nil {
		ch, ok := attr.Channel.(*channel)
		if !ok || ch.ctx != c || ch.gone {
			return nil, invalid("create CQ", "the channel belongs elsewhere")
		}
		q.channel = ch
		ch.cqs = append(ch.cqs, q)
	}
	c.counts.CQ++
	return q, nil
}

// Poll takes completions. It checks, for every send WQE given back, that its
// source is what it was when posted.
func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	if c.gone {
		return 0, invalid("poll CQ", "it is destroyed")
	}
	if c.dead {
		return 0, verbs.ErrCQOverrun
	}
	n := min(len(wcs), len(c.ready))
	for i := range n {
		e := &c.ready[i]
		wcs[i] = e.wc
		switch {
		case e.q.gone: // its queues are no more
		case e.send != nil:
			e.q.giveBack(e.send)
		default:
			e.q.rqTaken--
			e.q.rqOut = slices.DeleteFunc(e.q.rqOut, func(w *recvWQE) bool { return w == e.recv })
		}
		c.ctx.f.record("polled", uint64(e.wc.QPN), e.wc.WRID<<8|uint64(e.wc.Status))
	}
	c.ready = c.ready[:copy(c.ready, c.ready[n:])]
	return n, nil
}

// push puts a completion on the queue, or finds it full: then it is dead.
func (c *cq) push(e cqe) {
	f := c.ctx.f
	if c.dead || c.gone {
		return
	}
	if len(c.ready) == c.entries {
		c.overrun()
		return
	}
	f.stats.Completions++
	f.record("cqe", uint64(e.wc.QPN), e.wc.WRID<<8|uint64(e.wc.Status))
	c.ready = append(c.ready, e)
	if c.armed && (!c.solicitedOnly || e.solicited || !e.success) {
		c.armed, c.notified = false, true
	}
}

// overrun kills the queue: hardware stops writing to it for good.
func (c *cq) overrun() {
	if c.dead {
		return
	}
	c.dead = true
	c.ready = nil
	c.ctx.f.record("overrun", 0, 0)
	c.ctx.notify(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c})
	if c.armed {
		c.armed, c.notified = false, true
	}
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	if c.gone {
		return invalid("arm CQ", "it is destroyed")
	}
	// A request for all completions is not weakened by a later one for
	// solicited ones (ibv_req_notify_cq(3)).
	c.solicitedOnly = solicitedOnly && (!c.armed || c.solicitedOnly)
	c.armed = true
	return nil
}

func (c *cq) Entries() int { return c.entries }

func (c *cq) Destroy() error {
	if c.gone {
		return invalid("destroy CQ", "it is destroyed")
	}
	if c.qps > 0 {
		return busy("destroy CQ", "QPs complete on it")
	}
	c.gone = true
	if c.channel != nil {
		c.channel.cqs = slices.DeleteFunc(c.channel.cqs, func(o *cq) bool { return o == c })
	}
	c.ctx.counts.CQ--
	return nil
}

// forget drops the completions of a QP that is gone or reset.
func (c *cq) forget(q *qp) {
	c.ready = slices.DeleteFunc(c.ready, func(e cqe) bool { return e.q == q })
}

// channel is a completion channel without a descriptor: ask Notified.
type channel struct {
	ctx  *context
	cqs  []*cq
	gone bool
}

// FD is -1: a simulated poller parks until Notified or a time.
func (*channel) FD() int { return -1 }

func (ch *channel) Drain() error {
	if ch.gone {
		return invalid("drain channel", "it is destroyed")
	}
	for _, c := range ch.cqs {
		c.notified = false
	}
	return nil
}

func (ch *channel) Destroy() error {
	if ch.gone {
		return invalid("destroy channel", "it is destroyed")
	}
	if len(ch.cqs) > 0 {
		return busy("destroy channel", "CQs use it")
	}
	ch.gone = true
	ch.ctx.counts.CompChannel--
	return nil
}

// Notified reports whether the CQ's channel has fired for it since the last
// Drain. It panics when the CQ is not the simulation's.
func (f *Fabric) Notified(c verbs.CQ) bool { return c.(*cq).notified }
