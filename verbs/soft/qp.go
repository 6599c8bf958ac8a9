//go:build linux

package soft

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// queuePair is an RC QP. All fields but those marked belong to the owner of
// its CQs.
type queuePair struct {
	qpBase
	setup  *setup
	connMu sync.Mutex // guards changes of fd, for BreakConnection
	// broken is set when sending failed: what the peer said before it went is
	// still to be read.
	broken bool
	// linger keeps the connection of a QP in ERR until the peer had time to
	// read the NAK.
	linger    bool
	connectBy deadline
	answerBy  deadline
	receiveBy deadline
	lingerBy  deadline
	answered  uint64 // mark of progress at which answerBy was set
	sq        sendQueue
	rq        recvQueue
	out, in   vector
	msg       unix.Msghdr
}

func createConnected(base qpBase) (verbs.QP, error) {
	q := &queuePair{qpBase: base}
	q.t, q.sends, q.recvs, q.noOps = q, &q.sq.sendRing, &q.rq.recvRing, &refusedOnRC
	q.sends.init(q.cap)
	q.recvs.init(q.cap)
	d := q.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	q.setup = newSetup(d, q.notify)
	q.qpn = d.addQP(q.setup)
	if err := q.enter(); err != nil {
		delete(d.setups, q.qpn)
		q.setup.end()
		return nil, err
	}
	q.notify()
	return q, nil
}

// ConnData is new after every transition to RESET.
func (q *queuePair) ConnData() []byte {
	s := q.dev.setupOf(q.qpn)
	if s == nil {
		return nil
	}
	c := connData{kind: connStream, port: q.dev.port, secret: s.secret}
	return c.encode()
}

func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if err := q.checkModify(attr, mask); err != nil {
		return err
	}
	switch attr.State {
	case verbs.StateReset:
		q.reset()
	case verbs.StateErr:
		q.toErr()
	case verbs.StateInit:
		return q.toInit(attr)
	case verbs.StateRTR:
		return q.toRTR(attr)
	case verbs.StateRTS:
		q.attr.SQPSN, q.attr.Timeout, q.attr.RetryCnt = attr.SQPSN, attr.Timeout, attr.RetryCnt
		q.attr.RNRRetry, q.attr.MaxRdAtomic = attr.RNRRetry, attr.MaxRdAtomic
		q.state = verbs.StateRTS
	}
	return nil
}

func (q *queuePair) toRTR(attr *verbs.QPAttr) error {
	var cd connData
	if err := cd.decode(attr.RemoteConnData, connStream); err != nil {
		return invalid("RTR", err.Error())
	}
	local := endpoint{gid: q.dev.gid, port: q.dev.port, qpn: q.qpn}
	peer := endpoint{gid: attr.AV.DGID, port: cd.port, qpn: attr.DestQPN}
	if err := q.dev.checkAV("modify QP to RTR", &attr.AV); err != nil {
		return err
	}
	switch {
	case attr.MaxDestRdAtomic > maxRdAtomic:
		return invalid("RTR", fmt.Sprintf("max_dest_rd_atomic %d: allowed are 0..%d", attr.MaxDestRdAtomic, maxRdAtomic))
	case local.compare(peer) == 0:
		return invalid("RTR", "a QP cannot be connected to itself")
	}
	q.attr.AV, q.attr.PathMTU, q.attr.DestQPN, q.attr.RQPSN = attr.AV, attr.PathMTU, attr.DestQPN, attr.RQPSN
	q.attr.MaxDestRdAtomic, q.attr.MinRNRTimer = attr.MaxDestRdAtomic, attr.MinRNRTimer
	q.state = verbs.StateRTR
	q.setup.start(local, peer, cd.secret)
	return nil
}

// PostRecv posts receives; the peer learns of them with the next frame.
func (q *queuePair) PostRecv(wrs []verbs.RecvWR) (int, error) {
	n, err := q.qpBase.PostRecv(wrs)
	if n > 0 {
		q.receiveBy = deadline{}
	}
	return n, err
}

// reset forgets everything, without completions (ibv_modify_qp(3)).
func (q *queuePair) reset() {
	q.closeConn()
	q.setup.end()
	q.sendCQ.purge(&q.qpBase)
	q.recvCQ.purge(&q.qpBase)
	q.sq.reset()
	q.rq.reset()
	q.state = verbs.StateReset
	q.attr = verbs.QPAttr{}
	q.connectBy, q.answerBy, q.receiveBy = deadline{}, deadline{}, deadline{}
	q.setup = newSetup(q.dev, q.notify)
	q.dev.mu.Lock()
	q.dev.setups[q.qpn] = q.setup
	q.dev.mu.Unlock()
}

func (q *queuePair) Destroy() error {
	if q.destroyed {
		return &verbs.Error{Op: "destroy QP", Errno: syscall.EINVAL, Detail: "already destroyed"}
	}
	q.destroyed = true
	q.closeConn()
	q.setup.end()
	q.state = verbs.StateErr
	q.leave()
	return nil
}

// attend takes over a connection that set-up has finished.
func (q *queuePair) attend() {
	if q.state != verbs.StateRTR && q.state != verbs.StateRTS || q.fd >= 0 {
		return
	}
	fd := q.setup.take()
	if fd < 0 {
		return
	}
	q.connMu.Lock()
	q.fd = fd
	q.connMu.Unlock()
	if err := q.watch(); err != nil {
		q.dev.cfg.Logger.Error("soft: cannot watch a connection", "qpn", q.qpn, "err", err)
		q.fail(verbs.WCRetryExcErr)
		return
	}
	q.broken, q.ending = false, false
	q.connectBy = deadline{}
	q.sq.announce = true
}

// closeConn ends the connection; no byte moves after it.
func (q *queuePair) closeConn() {
	if q.fd < 0 {
		return
	}
	q.connMu.Lock()
	defer q.connMu.Unlock()
	closeDescriptor(q.fd) // leaves the epoll sets: there is no duplicate
	q.fd = -1
	q.readable, q.writable, q.linger = false, false, false
	q.lingerBy = deadline{}
}

func closeDescriptor(fd int) { unix.Close(fd) }

func (q *queuePair) drive(budget int) (moved int, more bool) {
	if q.readable {
		moved = q.receive(budget)
	}
	if q.writable && q.hasOutput() {
		moved += q.transmit(budget)
	}
	return moved, q.readable || q.writable && q.hasOutput()
}

// BreakConnection cuts the connection of a soft RC QP as a lost network would,
// in both directions and at once. It is for fault tests; any goroutine may
// call it. The error is not nil when qp is not a soft RC QP or not connected.
func BreakConnection(qp verbs.QP) error {
	q, ok := qp.(*queuePair)
	if !ok {
		return errors.New("soft: not a soft RC QP")
	}
	q.connMu.Lock()
	defer q.connMu.Unlock()
	if q.fd < 0 {
		return errors.New("soft: the QP is not connected")
	}
	return unix.Shutdown(q.fd, unix.SHUT_RDWR)
}
