//go:build linux

package soft

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// transport is what a CQ needs of a QP, which differs between RC (queuePair)
// and UC and UD (datagramPair). The owner of the CQs calls.
type transport interface {
	// attend is called when something may have happened outside of the owner's
	// thread.
	attend()
	// drive moves at most about budget bytes and tells how many, and whether
	// there is more to do before the kernel or the owner has news.
	drive(budget int) (moved int, more bool)
	// expire looks at the deadlines; deadline is the earliest, 0 without any.
	expire(now int64)
	deadline() int64
	// toErr flushes both queues.
	toErr()
}

// qpBase is what QPs of every transport have: the queues, and their place at
// the CQs. All fields belong to the owner of the CQs, but those that never
// change.
type qpBase struct {
	t              transport // the QP itself
	dev            *device
	pd             *domain
	typ            verbs.QPType
	qpn            uint32
	cap            verbs.QPCap
	signalAll      bool
	sendCQ, recvCQ *cq
	sends          *sendRing
	recvs          *recvRing
	noOps          *refusals

	state     verbs.QPState
	attr      verbs.QPAttr
	destroyed bool

	fd int // -1 without a socket
	// readable and writable are what the kernel said last; edge triggered, so
	// they stay true until a call came back short.
	readable, writable bool
	// ending is set when the kernel has announced the end of a stream: a short
	// read then does not mean that nothing follows.
	ending       bool
	listed, idle [2]bool // in the active lists of sendCQ and recvCQ
}

func (p *domain) CreateQP(attr verbs.QPInitAttr) (verbs.QP, error) {
	const op = "create QP"
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
	base := qpBase{dev: p.dev, pd: p, typ: attr.Type, cap: c, signalAll: attr.SignalAll, sendCQ: scq, recvCQ: rcq, fd: -1}
	switch attr.Type {
	case verbs.RC:
		return createConnected(base)
	case verbs.UC, verbs.UD:
		return createDatagram(base)
	}
	return nil, &verbs.UnsupportedError{Provider: providerName, What: attr.Type.String() + " QPs"}
}

// enter joins the CQs and is counted; the device's lock is held. An error
// changes nothing.
func (q *qpBase) enter() error {
	if err := q.dev.admit("create QP", q.pd.freed, q.dev.counts.QP, maxQP); err != nil {
		return err
	}
	if err := q.sendCQ.join(q); err != nil {
		return err
	}
	if err := q.recvCQ.join(q); err != nil {
		q.sendCQ.leave(q)
		return err
	}
	q.pd.qps++
	q.dev.counts.QP++
	return nil
}

// leave undoes enter, and gives the QPN back.
func (q *qpBase) leave() {
	q.sendCQ.leave(q)
	q.recvCQ.leave(q)
	q.dev.mu.Lock()
	delete(q.dev.setups, q.qpn)
	q.dev.counts.QP--
	q.pd.qps--
	q.dev.mu.Unlock()
}

func (q *qpBase) PD() verbs.PD       { return q.pd }
func (q *qpBase) Type() verbs.QPType { return q.typ }
func (q *qpBase) QPN() uint32        { return q.qpn }
func (q *qpBase) Cap() verbs.QPCap   { return q.cap }

func (q *qpBase) Query() (verbs.QPAttr, error) {
	a := q.attr
	a.State = q.state
	a.RemoteConnData = nil
	return a, nil
}

// checkModify applies the rules that hold for every transport.
func (q *qpBase) checkModify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if q.destroyed {
		return &verbs.Error{Op: "modify QP", Errno: syscall.EINVAL, Detail: "destroyed"}
	}
	return verbs.CheckTransition(q.typ, q.state, attr, mask)
}

func (q *qpBase) toInit(attr *verbs.QPAttr) error {
	switch {
	case attr.Port != 1:
		return invalid("INIT", fmt.Sprintf("port %d of 1", attr.Port))
	case attr.PKeyIndex != 0:
		return invalid("INIT", fmt.Sprintf("P_Key index %d of a table of 1", attr.PKeyIndex))
	case q.typ != verbs.UD && attr.AccessFlags&^knownAccess != 0:
		return invalid("INIT", fmt.Sprintf("unknown access flags %#x", uint32(attr.AccessFlags&^knownAccess)))
	}
	q.attr.Port, q.attr.PKeyIndex = attr.Port, attr.PKeyIndex
	if q.typ == verbs.UD {
		q.attr.QKey = attr.QKey
	} else {
		q.attr.AccessFlags = attr.AccessFlags
	}
	q.state = verbs.StateInit
	return nil
}

// checkAV says what is wrong with an address vector, nil if it leads to where
// this device may send.
func (d *device) checkAV(op string, av *verbs.AHAttr) error {
	bad := func(detail string) error { return &verbs.Error{Op: op, Errno: syscall.EINVAL, Detail: detail} }
	switch to := av.DGID.Addr(); {
	case !av.IsGlobal || av.DGID.IsZero():
		return bad("the address vector needs is_global and a GID")
	case av.SGIDIndex != 0 || av.Port > 1:
		return bad(fmt.Sprintf("source GID index %d of a table of 1, port %d", av.SGIDIndex, av.Port))
	case to.Is4() != d.addr.Is4():
		return bad(fmt.Sprintf("%v cannot be reached from %v: another address family", to, d.addr))
	}
	return nil
}

func invalid(to, detail string) error {
	return &verbs.Error{Op: "modify QP to " + to, Errno: syscall.EINVAL, Detail: detail}
}

// notify tells the CQs' owner that there is something to attend to. From any
// goroutine.
func (q *qpBase) notify() {
	q.sendCQ.notify()
	if q.recvCQ != q.sendCQ {
		q.recvCQ.notify()
	}
}

// wake puts the QP on the lists of those that may have something to do.
func (q *qpBase) wake() {
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
func (q *qpBase) side(c *cq) int {
	if c == q.sendCQ {
		return 0
	}
	return 1
}

// watch adds the socket to the CQs' epoll sets.
func (q *qpBase) watch() error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(q.qpn)}
	err := unix.EpollCtl(q.sendCQ.epfd, unix.EPOLL_CTL_ADD, q.fd, &ev)
	if err == nil && q.recvCQ != q.sendCQ {
		err = unix.EpollCtl(q.recvCQ.epfd, unix.EPOLL_CTL_ADD, q.fd, &ev)
	}
	if err != nil {
		q.unwatch()
		return fmt.Errorf("soft: epoll_ctl: %w", err)
	}
	q.readable, q.writable = true, true
	q.wake()
	return nil
}

// unwatch removes it. Not being there is no error.
func (q *qpBase) unwatch() {
	unix.EpollCtl(q.sendCQ.epfd, unix.EPOLL_CTL_DEL, q.fd, nil)
	if q.recvCQ != q.sendCQ {
		unix.EpollCtl(q.recvCQ.epfd, unix.EPOLL_CTL_DEL, q.fd, nil)
	}
	q.readable, q.writable = false, false
}
