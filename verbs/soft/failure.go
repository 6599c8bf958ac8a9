//go:build linux

package soft

import "mover/verbs"

// deadline is a point in nanotime, 0 for none. It passes at the second look
// after its time: between the two the QP was driven once more, so an owner
// that did not run for a while is not taken for a peer that did not answer.
type deadline struct {
	at   int64
	seen bool
}

func (d *deadline) passed(now int64) bool {
	if d.at == 0 || now < d.at {
		return false
	}
	if !d.seen {
		d.seen = true
		return false
	}
	return true
}

// toErr flushes both queues and, unless the peer is to learn why, closes the
// connection.
func (q *queuePair) toErr() {
	if q.state == verbs.StateErr {
		return
	}
	q.state = verbs.StateErr // first: a flush may overrun a CQ, which comes back here
	q.setup.end()
	if !q.linger {
		q.closeConn()
	}
	q.connectBy, q.answerBy, q.receiveBy = deadline{}, deadline{}, deadline{}
	q.flush()
}

// fail is an error of this side as requester: the oldest send WR gets the
// cause. Without one the owner hears of it by an event.
func (q *queuePair) fail(cause verbs.WCStatus) {
	if q.sq.acked < q.sq.post {
		q.completeSend(cause)
	} else {
		q.dev.events.put(verbs.AsyncEvent{Type: verbs.EventQPFatal, QPN: q.qpn})
	}
	q.toErr()
}

// lost is the end of the connection.
func (q *queuePair) lost() {
	if q.linger {
		q.closeConn()
		return
	}
	q.fail(verbs.WCRetryExcErr)
}

// violated is a peer that does not follow the protocol.
func (q *queuePair) violated(what error) {
	q.dev.cfg.Logger.Warn("soft: the peer of a QP broke the protocol", "device", q.dev.info.Name, "qpn", q.qpn, "err", what)
	q.fail(verbs.WCBadRespErr)
}

// refuse is an error of this side as responder: the peer gets a NAK for its
// message, and the QP goes to ERR.
func (q *queuePair) refuse(code nakCode, event verbs.EventType) {
	q.sq.nak, q.sq.nakMsn = code, q.rq.msn
	q.linger = true
	q.lingerBy = deadline{at: nanotime() + int64(lingerTime)}
	if event != noEvent {
		q.dev.events.put(verbs.AsyncEvent{Type: event, QPN: q.qpn})
	}
	q.toErr()
	q.wake()
}

// noEvent stands for errors that a completion tells already.
const noEvent = verbs.EventType(255)

// expire looks at the deadlines.
func (q *queuePair) expire(now int64) {
	waiting := q.state == verbs.StateRTS && q.sq.acked < q.sq.post
	switch {
	case !waiting || q.fd >= 0:
		q.connectBy = deadline{}
	case q.connectBy.at == 0:
		q.connectBy.at = now + int64(lossTime(q.attr.Timeout, q.attr.RetryCnt, connectLeast, connectMost))
	case q.connectBy.passed(now):
		q.fail(verbs.WCRetryExcErr)
	}
	mark := q.sq.acked + q.sq.sent
	switch {
	case !waiting || q.fd < 0 || q.starved():
		q.answerBy = deadline{}
	case q.answerBy.at == 0 || mark != q.answered:
		q.answered = mark
		q.answerBy = deadline{at: now + int64(lossTime(q.attr.Timeout, q.attr.RetryCnt, answerLeast, answerMost))}
	case q.answerBy.passed(now):
		q.fail(verbs.WCRetryExcErr)
	}
	if q.receiveBy.passed(now) {
		q.receiveBy = deadline{}
		q.refuse(nakRNR, noEvent)
	}
	if q.lingerBy.passed(now) {
		q.closeConn()
	}
}

// deadline is the earliest of the QP's deadlines, 0 without any.
func (q *queuePair) deadline() int64 {
	next := int64(0)
	for _, d := range [...]int64{q.connectBy.at, q.answerBy.at, q.receiveBy.at, q.lingerBy.at} {
		if d != 0 && (next == 0 || d < next) {
			next = d
		}
	}
	return next
}
