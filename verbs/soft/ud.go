//go:build linux

package soft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// grhBytes precede the payload in the receive buffer of a UD QP.
const grhBytes = 40

// takeUD takes a datagram. It is dropped in silence when the Q_Key is another
// or no receive WR is posted; one that is too long for the receive WR is that
// WR's LOC_LEN_ERR, as on RC.
func (q *datagramPair) takeUD(p *packet, payload []byte, from *socketAddress) {
	// The source's number leads to its port, so it can't be somebody else's.
	if p.qkey != q.attr.QKey || portOfQPN(p.srcQPN) != from.port() {
		q.dev.drops.foreign.Add(1)
		return
	}
	if q.rq.taken == q.rq.post {
		q.dev.drops.noReceive.Add(1)
		return
	}
	if !q.rq.open(q.pd) {
		q.receiveFault(verbs.WCLocProtErr)
		return
	}
	if uint64(grhBytes+len(payload)) > q.rq.room() {
		q.receiveFault(verbs.WCLocLenErr)
		return
	}
	q.writeGRH(from, len(payload))
	if !q.scatter(0, q.grh[:]) || !q.scatter(grhBytes, payload) {
		q.receiveFault(verbs.WCLocProtErr)
		return
	}
	wc := verbs.WC{Opcode: verbs.WCRecv, Flags: verbs.WCGRH, ByteLen: grhBytes + p.msgLen, SrcQPN: p.srcQPN}
	if p.op.hasImm() {
		wc.Flags |= verbs.WCWithImm
		wc.Imm = p.imm
	}
	q.completeRecv(&wc)
}

const (
	udpHeaderBytes = 8
	hopLimit       = 64 // what the kernel sends with by default; the received one costs a control message
)

// writeGRH builds the network header as RoCE v2 delivers it: IPv6 as it is,
// IPv4 in the last 20 of the 40 bytes (InfiniBand Architecture Specification,
// annex A17).
func (q *datagramPair) writeGRH(from *socketAddress, payload int) {
	b, be := &q.grh, binary.BigEndian
	n := udpHeaderBytes + packetBytes + payload
	*b = [grhBytes]byte{}
	src := from.gid()
	if !q.dev.addr.Is4() {
		b[0] = 6 << 4
		be.PutUint16(b[4:], uint16(n))
		b[6], b[7] = unix.IPPROTO_UDP, hopLimit
		copy(b[8:], src[:])
		copy(b[24:], q.dev.gid[:])
		return
	}
	ip := b[20:]
	ip[0] = 4<<4 | 5 // five words of header
	be.PutUint16(ip[2:], uint16(20+n))
	ip[6] = 0x40 // don't fragment
	ip[8], ip[9] = hopLimit, unix.IPPROTO_UDP
	copy(ip[12:], src[12:])
	copy(ip[16:], q.dev.gid[12:])
	be.PutUint16(ip[10:], checksum(ip))
}

// checksum is that of an IPv4 header (RFC 791).
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
