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
	dev            *device
	pd             *domain
	qpn            uint32
	cap            verbs.QPCap
	signalAll      bool
	sendCQ, recvCQ *cq

	state     verbs.QPState
	attr      verbs.QPAttr
	setup     *setup
	destroyed bool

	connMu sync.Mutex // guards changes of fd, for BreakConnection
	fd     int        // -1 without a connection
	// readable and writable are what the kernel said last; edge triggered, so
	// they stay true until a call came back short.
	readable, writable bool
	// ending is set when the kernel has announced the end of the stream: a
	// short read then does not mean that nothing follows.
	ending bool
	// broken is set when sending failed: what the peer said before it went is
	// still to be read.
	broken bool
	// linger keeps the connection of a QP in ERR until the peer had time to
	// read the NAK.
	linger       bool
	listed, idle [2]bool // in the active lists of sendCQ and recvCQ
	connectBy    deadline
	answerBy     deadline
	receiveBy    deadline
	lingerBy     deadline
	answered     uint64 // mark of progress at which answerBy was set
	sq           sendQueue
	rq           recvQueue
	out, in      vector
	msg          unix.Msghdr
}

func (p *domain) CreateQP(attr verbs.QPInitAttr) (verbs.QP, error) {
	const op = "create QP"
	if attr.Type != verbs.RC {
		return nil, &verbs.UnsupportedError{Provider: providerName, What: attr.Type.String() + " QPs"}
	}
	scq, ok1 := attr.SendCQ.(*cq)
	rcq, ok2 := attr.RecvCQ.(*cq)
	if !ok1 || !ok2 || scq.dev != p.dev || rcq.dev != p.dev {
		return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: "both CQs must be this device's"}
	}
	c := attr.Cap
	for _, f := range []struct {
		name       string
		have, most int
	}{{"MaxSendWR", c.MaxSendWR, maxQPWR}, {"MaxRecvWR", c.MaxRecvWR, maxQPWR}, {"MaxSendSGE", c.MaxSendSGE, maxSGE},
		{"MaxRecvSGE", c.MaxRecvSGE, maxSGE}, {"MaxInlineBytes", c.MaxInlineBytes, maxInline}} {
		if f.have < 0 || f.have > f.most {
			return nil, &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: fmt.Sprintf("%s %d: allowed are 0..%d", f.name, f.have, f.most)}
		}
	}
	q := &queuePair{dev: p.dev, pd: p, cap: c, signalAll: attr.SignalAll, sendCQ: scq, recvCQ: rcq, fd: -1}
	q.sq.init(c)
	q.rq.init(c)
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(op, p.freed, d.counts.QP, maxQP); err != nil {
		return nil, err
	}
	q.setup = newSetup(d, q.notify)
	q.qpn = d.addQP(q.setup)
	err := scq.join(q)
	if err == nil {
		if err = rcq.join(q); err != nil {
			scq.leave(q)
		}
	}
	if err != nil {
		delete(d.setups, q.qpn)
		q.setup.end()
		return nil, err
	}
	p.qps++
	d.counts.QP++
	q.notify()
	return q, nil
}

func (q *queuePair) PD() verbs.PD       { return q.pd }
func (q *queuePair) Type() verbs.QPType { return verbs.RC }
func (q *queuePair) QPN() uint32        { return q.qpn }
func (q *queuePair) Cap() verbs.QPCap   { return q.cap }

// ConnData is new after every transition to RESET.
func (q *queuePair) ConnData() []byte {
	s := q.dev.setupOf(q.qpn)
	if s == nil {
		return nil
	}
	c := connData{port: q.dev.port, secret: s.secret}
	return c.encode()
}

func (q *queuePair) Query() (verbs.QPAttr, error) {
	a := q.attr
	a.State = q.state
	a.RemoteConnData = nil
	return a, nil
}

func (q *queuePair) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if q.destroyed {
		return &verbs.Error{Op: "modify QP", Errno: syscall.EINVAL, Detail: "destroyed"}
	}
	if err := verbs.CheckTransition(verbs.RC, q.state, attr, mask); err != nil {
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

func (q *queuePair) toInit(attr *verbs.QPAttr) error {
	switch {
	case attr.Port != 1:
		return invalid("INIT", fmt.Sprintf("port %d of 1", attr.Port))
	case attr.PKeyIndex != 0:
		return invalid("INIT", fmt.Sprintf("P_Key index %d of a table of 1", attr.PKeyIndex))
	case attr.AccessFlags&^knownAccess != 0:
		return invalid("INIT", fmt.Sprintf("unknown access flags %#x", uint32(attr.AccessFlags&^knownAccess)))
	}
	q.attr.Port, q.attr.PKeyIndex, q.attr.AccessFlags = attr.Port, attr.PKeyIndex, attr.AccessFlags
	q.state = verbs.StateInit
	return nil
}

func (q *queuePair) toRTR(attr *verbs.QPAttr) error {
	var cd connData
	if err := cd.decode(attr.RemoteConnData); err != nil {
		return invalid("RTR", err.Error())
	}
	local := endpoint{gid: q.dev.gid, port: q.dev.port, qpn: q.qpn}
	peer := endpoint{gid: attr.AV.DGID, port: cd.port, qpn: attr.DestQPN}
	switch to := peer.gid.Addr(); {
	case !attr.AV.IsGlobal || peer.gid.IsZero():
		return invalid("RTR", "the address vector needs is_global and a GID")
	case attr.AV.SGIDIndex != 0 || attr.AV.Port > 1:
		return invalid("RTR", fmt.Sprintf("source GID index %d of a table of 1, port %d", attr.AV.SGIDIndex, attr.AV.Port))
	case attr.MaxDestRdAtomic > maxRdAtomic:
		return invalid("RTR", fmt.Sprintf("max_dest_rd_atomic %d: allowed are 0..%d", attr.MaxDestRdAtomic, maxRdAtomic))
	case to.Is4() != q.dev.addr.Is4():
		return invalid("RTR", fmt.Sprintf("%v cannot be reached from %v: another address family", to, q.dev.addr))
	case local.compare(peer) == 0:
		return invalid("RTR", "a QP cannot be connected to itself")
	}
	q.attr.AV, q.attr.PathMTU, q.attr.DestQPN, q.attr.RQPSN = attr.AV, attr.PathMTU, attr.DestQPN, attr.RQPSN
	q.attr.MaxDestRdAtomic, q.attr.MinRNRTimer = attr.MaxDestRdAtomic, attr.MinRNRTimer
	q.state = verbs.StateRTR
	q.setup.start(local, peer, cd.secret)
	return nil
}

func invalid(to, detail string) error {
	return &verbs.Error{Op: "modify QP to " + to, Errno: syscall.EINVAL, Detail: detail}
}

// reset forgets everything, without completions (ibv_modify_qp(3)).
func (q *queuePair) reset() {
	q.closeConn()
	q.setup.end()
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
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
	q.sendCQ.leave(q)
	q.recvCQ.leave(q)
	q.dev.mu.Lock()
	delete(q.dev.setups, q.qpn)
	q.dev.counts.QP--
	q.pd.qps--
	q.dev.mu.Unlock()
	return nil
}

// notify tells the CQs' owner that there is something to attend to. From any
// goroutine.
func (q *queuePair) notify() {
	q.sendCQ.notify()
	if q.recvCQ != q.sendCQ {
		q.recvCQ.notify()
	}
}

// wake puts the QP on the lists of those that may have something to do.
func (q *queuePair) wake() {
	q.idle = [2]bool{}
	if !q.listed[0] {
		q.listed[0] = true
		q.sendCQ.active = append(q.sendCQ.active, q)
	}
	if q.recvCQ != q.sendCQ && !q.listed[1] {
		q.listed[1] = true
		q.recvCQ.active = append(q.recvCQ.active, q)
	}
}

// side is which of the two flags of listed and idle is c's.
func (q *queuePair) side(c *cq) int {
	if c == q.sendCQ {
		return 0
	}
	return 1
}

// connect takes over a connection that set-up has finished.
func (q *queuePair) connect() {
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
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(q.qpn)}
	err := unix.EpollCtl(q.sendCQ.epfd, unix.EPOLL_CTL_ADD, fd, &ev)
	if err == nil && q.recvCQ != q.sendCQ {
		err = unix.EpollCtl(q.recvCQ.epfd, unix.EPOLL_CTL_ADD, fd, &ev)
	}
	if err != nil {
		q.dev.cfg.Logger.Error("soft: cannot watch a connection", "qpn", q.qpn, "err", err)
		q.fail(verbs.WCRetryExcErr)
		return
	}
	q.readable, q.writable, q.broken, q.ending = true, true, false, false
	q.connectBy = deadline{}
	q.sq.announce = true
	q.wake()
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

// drive moves at most about budget bytes and tells how many, and whether there
// is more to do before the kernel or the owner has news.
func (q *queuePair) drive(budget int) (moved int, more bool) {
	if q.readable {
		moved = q.receive(budget)
	}
	if q.writable && q.hasOutput() {
		moved += q.transmit(budget)
	}
	return moved, q.readable || q.writable && q.hasOutput()
}

// BreakConnection cuts the connection of a soft QP as a lost network would,
// in both directions and at once. It is for fault tests; any goroutine may
// call it. The error is not nil when qp is not a soft QP or not connected.
func BreakConnection(qp verbs.QP) error {
	q, ok := qp.(*queuePair)
	if !ok {
		return errors.New("soft: not a soft QP")
	}
	q.connMu.Lock()
	defer q.connMu.Unlock()
	if q.fd < 0 {
		return errors.New("soft: the QP is not connected")
	}
	return unix.Shutdown(q.fd, unix.SHUT_RDWR)
}
