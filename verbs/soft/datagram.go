//go:build linux

package soft

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// datagramPair is a UC or a UD QP: one UDP socket, from the start on. It never
// waits for its peer and has no deadlines. All fields belong to the owner of
// its CQs but conn, which dev.mu guards.
type datagramPair struct {
	qpBase
	conn  connData // UC
	mtu   int      // payload of a full packet
	stage *packetStage
	sq    sendRing
	rq    recvRing
	out   outgoing
	uc    ucReceiver
	grh   [grhBytes]byte
}

func createDatagram(base qpBase) (verbs.QP, error) {
	q := &datagramPair{qpBase: base, mtu: maxPayload}
	q.t, q.sends, q.recvs, q.noOps = q, &q.sq, &q.rq, &refusedOnUC
	if q.typ == verbs.UD {
		q.noOps = &refusedOnUD
	}
	q.sq.init(q.cap)
	q.rq.init(q.cap)
	q.stage = q.recvCQ.packetStage()
	d := q.dev
	fd, port, err := d.openDatagramSocket()
	if err != nil {
		return nil, fmt.Errorf("create %v QP: %w", q.typ, err)
	}
	q.fd = fd
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.typ == verbs.UD {
		q.qpn, err = d.addQPOfPort(port)
	} else {
		q.qpn = d.addQP(nil) // it has no connection to set up
		q.conn = connData{kind: connDatagram, port: port, secret: newSecret()}
	}
	if err == nil {
		if err = q.enter(); err != nil {
			delete(d.setups, q.qpn)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	q.notify()
	return q, nil
}

// addQPOfPort gives a UD QP a number that leads to its port. The caller holds
// d.mu.
func (d *device) addQPOfPort(port uint16) (uint32, error) {
	start := uint32(newSecret()[0])
	for i := range uint32(256) {
		n := (start+i)&0xff<<16 | uint32(port)
		if _, used := d.setups[n]; n > 1 && !used {
			d.setups[n] = nil
			return n, nil
		}
	}
	return 0, &verbs.Error{Op: "create QP", Errno: syscall.ENOMEM, Detail: fmt.Sprintf("all QPNs of UDP port %d are taken", port)}
}

// ConnData is new after every transition to RESET; nil on UD.
func (q *datagramPair) ConnData() []byte {
	if q.typ == verbs.UD {
		return nil
	}
	q.dev.mu.Lock()
	defer q.dev.mu.Unlock()
	return q.conn.encode()
}

func (q *datagramPair) Modify(attr *verbs.QPAttr, mask verbs.AttrMask) error {
	if err := q.checkModify(attr, mask); err != nil {
		return err
	}
	switch attr.State {
	case verbs.StateReset:
		return q.reset()
	case verbs.StateErr:
		q.toErr()
	case verbs.StateInit:
		return q.toInit(attr)
	case verbs.StateRTR:
		return q.toRTR(attr)
	case verbs.StateRTS:
		q.attr.SQPSN = attr.SQPSN
		q.out.psn = attr.SQPSN
		q.state = verbs.StateRTS
	}
	return nil
}

// toRTR starts to receive. What came earlier has waited in the socket's
// buffer: the network was slow.
func (q *datagramPair) toRTR(attr *verbs.QPAttr) error {
	if q.typ == verbs.UC {
		if err := q.connect(attr); err != nil {
			return err
		}
	}
	if err := q.watch(); err != nil {
		return err
	}
	if q.typ == verbs.UC {
		q.attr.AV, q.attr.PathMTU, q.attr.DestQPN, q.attr.RQPSN = attr.AV, attr.PathMTU, attr.DestQPN, attr.RQPSN
		q.mtu = attr.PathMTU.Bytes()
		q.uc.reset(attr.RQPSN)
	}
	q.state = verbs.StateRTR
	return nil
}

// connect ties a UC QP to its peer.
func (q *datagramPair) connect(attr *verbs.QPAttr) error {
	const op = "modify QP to RTR"
	var cd connData
	if err := cd.decode(attr.RemoteConnData, connDatagram); err != nil {
		return invalid("RTR", err.Error())
	}
	if err := q.dev.checkAV(op, &attr.AV); err != nil {
		return err
	}
	to := attr.AV.DGID.Addr()
	if err := q.dev.checkCleartext(op, to); err != nil {
		return err
	}
	local := endpoint{gid: q.dev.gid, port: q.conn.port, qpn: q.qpn}
	peer := endpoint{gid: attr.AV.DGID, port: cd.port, qpn: attr.DestQPN}
	if local.compare(peer) == 0 {
		return invalid("RTR", "a QP cannot be connected to itself")
	}
	if err := connectDatagram(q.fd, netip.AddrPortFrom(to, cd.port)); err != nil {
		return fmt.Errorf("%s: connect to %v: %w", op, to, err)
	}
	q.uc.token = token(&q.conn.secret, peer, local)
	q.out.token = token(&cd.secret, local, peer)
	return nil
}

// token is what the packets from one UC QP to another carry: only who has the
// receiver's secret can know it. It crosses the network in clear text, as the
// payload does.
func token(secret *[secretBytes]byte, from, to endpoint) [tokenBytes]byte {
	m := hmac.New(sha256.New, secret[:])
	m.Write([]byte("mover soft UC 1"))
	for _, e := range []endpoint{from, to} {
		m.Write(e.gid[:])
		m.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, e.port), e.qpn))
	}
	return [tokenBytes]byte(m.Sum(nil))
}

// reset forgets everything, without completions (ibv_modify_qp(3)). A UC QP
// gets a new socket and a new secret, so nothing of the old connection comes
// in later; a UD QP keeps its socket, whose port is part of its number, and
// drops what waits there. On an error nothing has changed.
func (q *datagramPair) reset() error {
	if q.typ == verbs.UC {
		fd, port, err := q.dev.openDatagramSocket()
		if err != nil {
			return fmt.Errorf("modify QP to RESET: %w", err)
		}
		q.closeSocket()
		q.fd = fd
		q.dev.mu.Lock()
		q.conn = connData{kind: connDatagram, port: port, secret: newSecret()}
		q.dev.mu.Unlock()
	} else {
		q.unwatch()
		q.discard()
	}
	q.sendCQ.purge(&q.qpBase)
	q.recvCQ.purge(&q.qpBase)
	q.sq.reset()
	q.rq.reset()
	q.out.reset()
	q.uc.reset(0)
	q.state = verbs.StateReset
	q.attr = verbs.QPAttr{}
	return nil
}

// discard empties the socket, as far as a sender that does not stop allows.
func (q *datagramPair) discard() {
	const most = 2 * datagramBuffer / packetWork / batchPackets // what the buffer holds
	for range most {
		if n, errno := q.stage.receive(q.fd); n == 0 || errno == unix.EAGAIN {
			return
		}
	}
}

// toErr flushes both queues. Nothing is sent or placed after it.
func (q *datagramPair) toErr() {
	if q.state == verbs.StateErr {
		return
	}
	q.state = verbs.StateErr // first: a flush may overrun a CQ, which comes back here
	if q.typ == verbs.UC {
		q.closeSocket() // the only way on is RESET, which opens another
	} else {
		q.unwatch()
	}
	q.flush()
}

// fail is an error of this side: the oldest send WR gets the cause. The
// specification stops only the send queue of an unreliable service (SQE);
// this, as Soft-RoCE, stops the QP.
func (q *datagramPair) fail(cause verbs.WCStatus) {
	q.completeSend(cause)
	q.toErr()
}

func (q *datagramPair) closeSocket() {
	if q.fd < 0 {
		return
	}
	closeDescriptor(q.fd) // leaves the epoll sets: there is no duplicate
	q.fd = -1
	q.readable, q.writable = false, false
}

func (q *datagramPair) Destroy() error {
	if q.destroyed {
		return &verbs.Error{Op: "destroy QP", Errno: syscall.EINVAL, Detail: "already destroyed"}
	}
	q.destroyed = true
	q.closeSocket()
	q.state = verbs.StateErr
	q.leave()
	return nil
}

func (q *datagramPair) attend()         {}
func (q *datagramPair) expire(int64)    {}
func (q *datagramPair) deadline() int64 { return 0 }

func (q *datagramPair) drive(budget int) (moved int, more bool) {
	if q.readable {
		moved = q.receive(budget)
	}
	if q.writable && q.hasOutput() {
		moved += q.transmit()
	}
	return moved, q.readable || q.writable && q.hasOutput()
}

// receives reports whether the state takes packets.
func (q *datagramPair) receives() bool {
	return q.state == verbs.StateRTR || q.state == verbs.StateRTS
}

// packetWork is what a packet counts at least against a Poll's budget.
const packetWork = 512

// receive takes packets until budget or EAGAIN. Errors are those of the
// network that a connected socket is told of (udp(7)): they concern packets
// sent earlier, which are lost, and reading one clears it.
func (q *datagramPair) receive(budget int) (moved int) {
	for moved < budget && q.readable && q.receives() {
		n, errno := q.stage.receive(q.fd)
		switch {
		case errno == unix.EAGAIN:
			q.readable = false
			return moved
		case errno != 0:
			moved += packetWork
			continue
		}
		for i := 0; i < n && q.receives(); i++ {
			b := q.stage.packet(i)
			moved += max(len(b), packetWork)
			q.take(b, &q.stage.from[i])
		}
	}
	return moved
}

// take checks a packet and gives it to the receiver of its service.
func (q *datagramPair) take(b []byte, from *socketAddress) {
	var p packet
	if p.decode(b) != nil {
		q.dev.drops.malformed.Add(1)
		return
	}
	if p.service != q.typ || p.dstQPN != q.qpn {
		q.dev.drops.foreign.Add(1)
		return
	}
	if q.typ == verbs.UC {
		q.takeUC(&p, b[packetBytes:])
	} else {
		q.takeUD(&p, b[packetBytes:], from)
	}
}

// scatter places b at an offset of the oldest receive WR, which is open and
// large enough; false when its memory was deregistered.
func (q *datagramPair) scatter(at uint64, b []byte) bool {
	for len(b) > 0 {
		m, dst := q.rq.target(at, uint64(len(b)))
		if m == nil || !m.enter() {
			return false
		}
		n := copy(dst, b)
		m.leave()
		b, at = b[n:], at+uint64(n)
	}
	return true
}

// receiveFault is an error of the oldest receive WR, which carries it.
func (q *datagramPair) receiveFault(status verbs.WCStatus) {
	q.completeRecv(&verbs.WC{Status: status})
	q.toErr()
}

// packetStage is the place where the QPs of the queue receive packets. From
// any goroutine; what it is used for is the owner's.
func (q *cq) packetStage() *packetStage {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stage == nil {
		q.stage = newPacketStage()
	}
	return q.stage
}
