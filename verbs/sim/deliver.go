package sim

import (
	"time"

	"mover/verbs"
)

// pump sends the first pending message on its way, one at a time: RC delivers
// in order. The other transports are in flight.go.
func (q *qp) pump() {
	if q.typ != verbs.RC {
		q.transmit()
		return
	}
	if q.state != verbs.StateRTS || len(q.pending) == 0 || q.flying || q.waiting || q.dev.fatal {
		return
	}
	f := q.f
	q.flying = true
	q.port.txFree = max(q.port.txFree, f.now) + q.port.wireTime(q.pending[0].length)
	delay := q.port.txFree - f.now
	if len(q.unacked) == 0 { // nothing in front of it in the pipe
		delay += 500 + f.delay(f.opt.MaxLatency)
	} else if !f.opt.Calm {
		delay += f.rng.Int64N(300)
	}
	epoch := q.epoch
	f.after(delay, "arrive", q.qpn, func() {
		if q.epoch == epoch && !q.dev.fatal {
			q.flying = false
			q.arrive()
		}
	})
}

// responder is the QP that answers, or nil when nobody does.
func (q *qp) responder() *qp {
	f := q.f
	if !f.path(q.port, q.remote, q.sgid, q.attr.AV.DGID) {
		return nil
	}
	p := f.qps[q.attr.DestQPN]
	if p == nil || p.typ != verbs.RC || p.port != q.remote || p.remote != q.port || p.attr.DestQPN != q.qpn || !p.receives() {
		return nil
	}
	if p.attr.RQPSN != q.attr.SQPSN || p.attr.PathMTU != q.attr.PathMTU {
		if !q.reported {
			q.reported = true
			f.violate(BadPath, q.dev, q.qpn, "PSN %#x and MTU %v here, %#x and %v at the peer", q.attr.SQPSN,
				q.attr.PathMTU, p.attr.RQPSN, p.attr.PathMTU)
		}
		return nil
	}
	return p
}

func (q *qp) receives() bool {
	return q.state == verbs.StateRTR || q.state == verbs.StateRTS || q.state == verbs.StateSQE
}

// arrive is the first pending message at the responder.
func (q *qp) arrive() {
	f := q.f
	w := q.pending[0]
	if !q.readable(w) {
		q.fail(w, verbs.WCLocProtErr)
		return
	}
	if !q.port.up && q.port.opErr {
		q.fail(q.oldest(), verbs.WCLocQPOpErr)
		return
	}
	p := q.responder()
	if p != nil {
		f.strike(q, p, q.port, q.remote)
		p = q.responder() // it may not have survived
	}
	if q.killed {
		q.retriesExceeded()
		return
	}
	if p == nil {
		q.retryLater()
		return
	}
	switch verdict := p.accept(q, w); {
	case verdict == acceptRNR:
		q.rnrNak(p)
	case verdict != verbs.WCSuccess:
		q.nak(verdict)
	default:
		q.pending = q.pending[1:]
		q.unacked = append(q.unacked, w)
		q.retries, q.rnr = 0, 0
		q.ackLater(w)
		q.pump()
	}
}

// ackLater brings the acknowledgement, which covers everything before w too.
// It only says that the responder's adapter has the message.
func (q *qp) ackLater(w *sendWQE) {
	epoch := q.epoch
	q.f.after(300+q.f.delay(q.f.opt.MaxLatency), "ack", q.qpn, func() {
		if q.epoch != epoch || q.dev.fatal || len(q.unacked) == 0 {
			return
		}
		switch {
		case q.killed:
			q.retriesExceeded()
		case !q.f.reach(q.port, q.remote), q.responder() == nil && q.f.rng.IntN(2) == 0:
			q.retryLater()
		default:
			q.acked(w)
		}
	})
}

// acked completes everything up to w.
func (q *qp) acked(w *sendWQE) {
	for i, x := range q.unacked {
		if x != w {
			continue
		}
		for _, done := range q.unacked[:i+1] {
			q.complete(done, verbs.WCSuccess)
		}
		q.unacked = q.unacked[i+1:]
		return
	}
}

// retryLater waits for the transport timer (4.096 us << timeout, of which
// hardware may take up to four), and gives up after retry_cnt repetitions.
func (q *qp) retryLater() {
	if q.waiting {
		return
	}
	q.waiting = true
	if q.attr.Timeout == 0 {
		return // an infinite timer: hangs until somebody ends the QP
	}
	q.retries++
	wait := int64(4096) << q.attr.Timeout
	if !q.f.opt.Calm {
		wait += q.f.rng.Int64N(3*wait + 1)
	}
	epoch := q.epoch
	q.f.after(wait, "retry", q.qpn, func() {
		if q.epoch != epoch || q.dev.fatal {
			return
		}
		q.waiting = false
		if len(q.unacked)+len(q.pending) == 0 { // a late acknowledgement came first
			q.retries = 0
			return
		}
		q.f.stats.Retries++
		answers := q.responder() != nil && !q.killed
		switch {
		case !answers && q.retries > int(q.attr.RetryCnt):
			q.retriesExceeded()
		case !answers && !q.port.up && q.port.opErr:
			q.fail(q.oldest(), verbs.WCLocQPOpErr)
		case !answers:
			q.retryLater()
		default: // what the responder has is acknowledged again, the rest sent again
			q.retries = 0
			if n := len(q.unacked); n > 0 {
				q.acked(q.unacked[n-1])
			}
			q.pump()
		}
	})
}

// oldest is the first WR without an answer.
func (q *qp) oldest() *sendWQE {
	if len(q.unacked) > 0 {
		return q.unacked[0]
	}
	return q.pending[0]
}

// retriesExceeded charges the oldest WR without acknowledgement; it may well
// have been accepted.
func (q *qp) retriesExceeded() {
	w := q.oldest()
	if len(q.unacked) > 0 {
		q.unacked = q.unacked[1:]
	} else {
		q.leavePart(w)
		q.pending = q.pending[1:]
	}
	q.complete(w, verbs.WCRetryExcErr)
	for _, x := range q.unacked {
		q.complete(x, verbs.WCFlushErr)
	}
	q.unacked = nil
	q.enterErr(false)
}

// nak is the responder's refusal of the first pending message.
func (q *qp) nak(status verbs.WCStatus) {
	epoch := q.epoch
	q.flying = true
	q.f.after(300+q.f.delay(q.f.opt.MaxLatency), "nak", q.qpn, func() {
		if q.epoch != epoch || q.dev.fatal {
			return
		}
		q.flying = false
		if q.f.reach(q.port, q.remote) {
			q.fail(q.pending[0], status)
		} else {
			q.retryLater()
		}
	})
}

// fail ends the QP with the first pending WR as the cause: an answer to it, or
// an error of its own, says that those before it arrived.
func (q *qp) fail(w *sendWQE, status verbs.WCStatus) {
	for _, x := range q.unacked {
		if x != w {
			q.complete(x, verbs.WCSuccess)
			continue
		}
		// Only a port that went down charges a WR that was sent already.
		q.complete(x, status)
		status = verbs.WCFlushErr
	}
	q.unacked = nil
	if len(q.pending) > 0 && q.pending[0] == w {
		q.pending = q.pending[1:]
		q.complete(w, status)
	}
	if q.typ != verbs.RC && q.f.rng.IntN(2) == 0 {
		q.enterSQE()
		return
	}
	q.enterErr(false)
}

// rnrNak waits for the responder's RNR timer and sends the message again.
func (q *qp) rnrNak(p *qp) {
	q.f.stats.RNR++
	q.rnr++
	if q.attr.RNRRetry != 7 && q.rnr > int(q.attr.RNRRetry) {
		q.leavePart(q.pending[0])
		q.nak(verbs.WCRNRRetryExcErr)
		return
	}
	if q.rnr == 1 {
		q.leavePart(q.pending[0]) // only a write's last packet needs the receive
	}
	q.waiting = true
	epoch := q.epoch
	q.f.after(int64(rnrTimer[p.attr.MinRNRTimer]), "rnr", q.qpn, func() {
		if q.epoch == epoch && !q.dev.fatal {
			q.waiting = false
			q.pump()
		}
	})
}

// rnrTimer is the encoding of the minimum RNR NAK timer (InfiniBand
// Architecture, volume 1, table 45).
var rnrTimer = [32]time.Duration{
	655360 * time.Microsecond, 10 * time.Microsecond, 20 * time.Microsecond, 30 * time.Microsecond,
	40 * time.Microsecond, 60 * time.Microsecond, 80 * time.Microsecond, 120 * time.Microsecond,
	160 * time.Microsecond, 240 * time.Microsecond, 320 * time.Microsecond, 480 * time.Microsecond,
	640 * time.Microsecond, 960 * time.Microsecond, 1280 * time.Microsecond, 1920 * time.Microsecond,
	2560 * time.Microsecond, 3840 * time.Microsecond, 5120 * time.Microsecond, 7680 * time.Microsecond,
	10240 * time.Microsecond, 15360 * time.Microsecond, 20480 * time.Microsecond, 30720 * time.Microsecond,
	40960 * time.Microsecond, 61440 * time.Microsecond, 81920 * time.Microsecond, 122880 * time.Microsecond,
	163840 * time.Microsecond, 245760 * time.Microsecond, 327680 * time.Microsecond, 491520 * time.Microsecond,
}
