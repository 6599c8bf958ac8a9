package sim

import (
	"encoding/binary"

	"mover/verbs"
)

// grhBytes precede the payload of a datagram in the receive buffer.
const grhBytes = 40

// flyAlone brings a datagram to its port: in the order of the sender's others
// for that port unless a fault reorders them, and in none with those of other
// QPs or for other ports.
func (q *qp) flyAlone(fl *flight) {
	f := q.f
	at := f.now + minLatency + f.delay(f.opt.MaxLatency)
	if f.chance(f.opt.Faults.ReorderUD) {
		at += f.delay(4 * f.opt.MaxLatency)
	} else {
		at = max(at, q.lastTo[fl.to]+1)
		q.lastTo[fl.to] = at
	}
	f.after(at-f.now, "arrive", q.qpn, func() {
		f.deliverDatagram(fl)
		f.landed(fl)
	})
}

func (f *Fabric) deliverDatagram(fl *flight) {
	p := f.meet(fl)
	if p == nil || f.losesNext(fl) {
		f.lose(fl, 1)
		return
	}
	p.takeDatagram(fl)
}

// takeDatagram is the responder's part. What it cannot take it drops, in
// silence (drivers/infiniband/sw/rxe/rxe_recv.c, check_keys, and rxe_resp.c,
// RESPST_ERR_RNR).
func (p *qp) takeDatagram(fl *flight) {
	if fl.qkey != p.attr.QKey || len(fl.data) > p.port.cfg.MTU.Bytes() {
		return
	}
	if len(p.rq) == 0 {
		p.f.stats.RNR++
		return
	}
	n := uint32(grhBytes + len(fl.data))
	target, status := p.spread(n)
	switch status {
	case verbs.WCSuccess:
	case verbs.WCLocLenErr:
		p.tooLong()
		return
	default:
		p.spoil(status)
		return
	}
	p.msgs++
	p.keep(fl.w, nil, target, append(p.f.grh(fl), fl.data...))
	fl.whole, fl.left = true, true
	p.consume(fl.w, n, fl.src)
}

// BTH, DETH and ICRC of a datagram, and the UDP header, in bytes.
const (
	udpBytes       = 8
	transportBytes = 12 + 8 + 4
	immBytes       = 4
	rocePort       = 17 // protocol number of UDP, which carries RoCE v2
)

// grh is what a receiver of RoCE v2 finds in front of a datagram: the IPv6
// header, or the IPv4 header in the last 20 bytes and anything before it (RoCE
// v2, annex A17.4.5.2).
func (f *Fabric) grh(fl *flight) []byte {
	h := make([]byte, grhBytes, grhBytes+len(fl.data))
	a := &fl.w.ah.attr
	n := udpBytes + transportBytes + (len(fl.data)+3)&^3
	if fl.w.hasImm() {
		n += immBytes
	}
	if src, dst := fl.sgid.Addr(), fl.dgid.Addr(); src.Is4() && dst.Is4() {
		for i := 0; !f.opt.Calm && i < 20; i += 4 {
			binary.BigEndian.PutUint32(h[i:], f.rng.Uint32())
		}
		ip := h[20:]
		ip[0], ip[1] = 0x45, a.TClass
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+n))
		ip[6] = 0x40 // do not fragment
		ip[8], ip[9] = a.HopLimit, rocePort
		copy(ip[12:], src.AsSlice())
		copy(ip[16:], dst.AsSlice())
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		return h
	}
	binary.BigEndian.PutUint32(h, 6<<28|uint32(a.TClass)<<20|a.FlowLabel&0xfffff)
	binary.BigEndian.PutUint16(h[4:], uint16(n))
	h[6], h[7] = rocePort, a.HopLimit
	copy(h[8:], fl.sgid[:])
	copy(h[24:], fl.dgid[:])
	return h
}

// checksum is that of an IPv4 header (RFC 791, 3.1).
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
