package sim

import (
	"fmt"
	"time"

	"mover/verbs"
)

// SetFaults changes the probabilities of random faults from now on.
func (f *Fabric) SetFaults(p Faults) { f.opt.Faults = p }

// strike draws the random faults for a message from q that reaches p, and took
// the way between the two ports.
func (f *Fabric) strike(q, p *qp, from, to *port) {
	o := &f.opt.Faults
	if f.chance(o.KillQP) {
		f.record("kill", uint64(q.qpn), 0)
		q.killed = true
	}
	if f.chance(o.Corrupt) {
		q.corrupt = max(q.corrupt, 1)
	}
	if f.chance(o.Hold) {
		f.hold(p.dev, f.outage())
	}
	if f.chance(o.PortFlap) {
		f.setPort(from, false)
		f.after(f.outage(), "port up", 0, func() { f.setPort(from, true) })
	}
	if f.chance(o.CutRail) {
		f.cut(from, to, true)
		f.after(f.outage(), "heal", 0, func() { f.cut(from, to, false) })
	}
	if f.chance(o.OverrunCQ) {
		p.recv.cq.overrun()
	}
	if f.chance(o.DeviceFatal) {
		f.fatal(p.dev)
	}
}

// outage is how long a random fault lasts.
func (f *Fabric) outage() int64 { return f.rng.Int64N(int64(50*time.Millisecond)) + 1 }

// damage flips one byte of a message that a fault chose.
func (q *qp) damage(data []byte) {
	if q.corrupt == 0 || len(data) == 0 {
		return
	}
	q.corrupt--
	q.f.stats.Corrupted++
	data[q.f.rng.IntN(len(data))] ^= byte(1 + q.f.rng.IntN(255))
}

// QPInfo is a live QP, for choosing a fault's victim.
type QPInfo struct {
	QPN   uint32
	Type  verbs.QPType
	State verbs.QPState
	Port  uint8 // 0 in RESET
	// Outstanding send and receive WRs: posted, not polled.
	Sends, Receives int
}

// QPs lists a device's QPs in the order of their creation.
func (f *Fabric) QPs(hostName, deviceName string) []QPInfo {
	d := f.port(PortID{hostName, deviceName, 1}).dev
	var list []QPInfo
	for _, q := range d.qps {
		list = append(list, q.info())
	}
	return list
}

func (f *Fabric) qp(qpn uint32) *qp {
	q := f.qps[qpn]
	if q == nil {
		panic(fmt.Sprintf("sim: no QP %#x", qpn))
	}
	return q
}

// KillQP makes the QP's oldest send WR end with RETRY_EXC_ERR, at once or when
// there is one; the peer learns nothing of it. UC and UD know no retries: there
// it ends with LOC_QP_OP_ERR.
func (f *Fabric) KillQP(qpn uint32) {
	q := f.qp(qpn)
	f.record("kill", uint64(qpn), 0)
	q.killed = true
	q.die()
}

// die ends a killed QP when it has a WR to charge.
func (q *qp) die() {
	switch {
	case !q.killed || q.state != verbs.StateRTS || len(q.unacked)+len(q.pending) == 0:
	case q.typ == verbs.RC:
		q.retriesExceeded()
	default:
		q.fail(q.pending[0], verbs.WCLocQPOpErr)
	}
}

// FatalQP ends the QP as a local catastrophic error does: QP_FATAL, and every
// WR is flushed.
func (f *Fabric) FatalQP(qpn uint32) {
	q := f.qp(qpn)
	q.pd.ctx.notify(verbs.AsyncEvent{Type: verbs.EventQPFatal, QPN: qpn})
	q.enterErr(true)
}

// CorruptNext flips one byte in each of the next n messages, with payload,
// that the QP sends.
func (f *Fabric) CorruptNext(qpn uint32, n int) { f.qp(qpn).corrupt = n }

// LosePackets loses those packets of the context's UC and UD QPs for which pick
// is true; pick may call nothing of the fabric. It is asked once for each packet
// as it leaves, with the number of packets that left since LosePackets. A nil
// pick ends it. It panics when the context is not the simulation's.
func (f *Fabric) LosePackets(c verbs.Context, pick func(n int) bool) {
	own := c.(*context)
	own.losing, own.left = pick, 0
}

// PortDown takes a port down: PORT_ERR, and its WRs end as RETRY_EXC_ERR, or
// as LOC_QP_OP_ERR, as the seed chooses. Those of UC and UD succeed, and their
// packets go nowhere, or end as LOC_QP_OP_ERR.
func (f *Fabric) PortDown(id PortID) { f.setPort(f.port(id), false) }

// PortUp brings a port back: PORT_ACTIVE, and GID_CHANGE when its GIDs moved
// to other indexes.
func (f *Fabric) PortUp(id PortID) { f.setPort(f.port(id), true) }

func (f *Fabric) setPort(p *port, up bool) {
	if p.up == up {
		return
	}
	p.up = up
	if !up {
		p.flaps++
		p.opErr = f.rng.IntN(2) == 0
		f.record("port down", uint64(p.num), 0)
		p.dev.notify(verbs.AsyncEvent{Type: verbs.EventPortErr, Port: p.num})
		return
	}
	f.record("port up", uint64(p.num), 0)
	if !f.opt.FixedGIDs {
		p.firstGID = (p.firstGID + 1 + f.rng.IntN(4)) % 200
		p.dev.notify(verbs.AsyncEvent{Type: verbs.EventGIDChange, Port: p.num})
	}
	p.dev.notify(verbs.AsyncEvent{Type: verbs.EventPortActive, Port: p.num})
}

// CutRail makes two ports lose each other without either noticing. Senders of
// UC and UD never notice: their WRs succeed.
func (f *Fabric) CutRail(a, b PortID) { f.cut(f.port(a), f.port(b), true) }

// HealRail ends CutRail.
func (f *Fabric) HealRail(a, b PortID) { f.cut(f.port(a), f.port(b), false) }

func (f *Fabric) cut(a, b *port, on bool) {
	if on {
		f.record("cut", uint64(a.num), uint64(b.num))
		f.cuts[[2]*port{a, b}] = true
		return
	}
	f.record("heal", uint64(a.num), uint64(b.num))
	delete(f.cuts, [2]*port{a, b})
	delete(f.cuts, [2]*port{b, a})
}

// HoldCompletions keeps a device's completions from its CQs for d.
func (f *Fabric) HoldCompletions(hostName, deviceName string, d time.Duration) {
	f.hold(f.port(PortID{hostName, deviceName, 1}).dev, int64(d))
}

// HoldSends keeps the completions of one QP's send queue from its CQ for d: its
// peer has the messages long before.
func (f *Fabric) HoldSends(qpn uint32, d time.Duration) {
	f.record("hold sends", uint64(qpn), uint64(d))
	q := f.qp(qpn)
	q.sendsHeldTill = max(q.sendsHeldTill, f.now+int64(d))
}

func (f *Fabric) hold(d *device, ns int64) {
	f.record("hold", uint64(d.index), uint64(ns))
	d.heldTill = max(d.heldTill, f.now+ns)
}

// OverrunCQ kills a CQ as an overrun does. It panics when the CQ is not the
// simulation's.
func (f *Fabric) OverrunCQ(c verbs.CQ) { c.(*cq).overrun() }

// FatalDevice kills a device: DEVICE_FATAL, then no completion ever. Posts are
// accepted and nothing comes of them, other verbs fail with EIO, and objects
// can be destroyed. There is no way back.
func (f *Fabric) FatalDevice(hostName, deviceName string) {
	f.fatal(f.port(PortID{hostName, deviceName, 1}).dev)
}

func (f *Fabric) fatal(d *device) {
	if d.fatal {
		return
	}
	f.record("fatal", uint64(d.index), 0)
	d.fatal = true
	for _, q := range d.qps {
		q.pieces = nil
	}
	d.notify(verbs.AsyncEvent{Type: verbs.EventDeviceFatal})
}
