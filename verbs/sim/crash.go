package sim

import (
	"fmt"

	"mover/verbs"
)

// KillHost ends every process of a host, as SIGKILL does: the kernel destroys
// their QPs, takes their memory back and closes their contexts. Peers hear
// nothing of it. What was on its way to the memory is lost or not, as the seed
// chooses; from now on nothing reaches it. Nothing that was opened before may be
// used again; OpenDevice gives the next process its contexts.
func (f *Fabric) KillHost(hostName string) {
	h := f.host(hostName)
	f.record("kill host", uint64(h.index), 0)
	for _, d := range h.devices {
		for _, q := range d.qps {
			if !d.fatal {
				q.place(f.rng.IntN(len(q.pieces) + 1))
			}
			q.reset()
			q.gone = true
			q.send.cq.gone, q.recv.cq.gone = true, true
			delete(f.qps, q.qpn)
		}
		d.qps = nil
		for _, c := range d.contexts {
			c.closed, c.counts, c.async = true, verbs.Counts{}, nil
		}
		d.contexts = nil
		for _, m := range d.regions {
			m.dead = true
			delete(d.lkeys, m.lkey)
			delete(d.rkeys, m.rkey)
			d.revoked[m.rkey] = true
		}
		d.regions = nil
		d.heldTill = 0
	}
}

// RepairDevice makes a device that FatalDevice killed work again, for contexts
// that are opened from now on. It panics while others are open.
func (f *Fabric) RepairDevice(hostName, deviceName string) {
	d := f.port(PortID{hostName, deviceName, 1}).dev
	if len(d.contexts) > 0 {
		panic(fmt.Sprintf("sim: device %s of %s is in use", deviceName, hostName))
	}
	f.record("repair", uint64(d.index), 0)
	d.fatal = false
}

// QP is a live QP by its number, which is unique on the fabric.
func (f *Fabric) QP(qpn uint32) (QPInfo, bool) {
	q := f.qps[qpn]
	if q == nil {
		return QPInfo{}, false
	}
	return q.info(), true
}

func (q *qp) info() QPInfo {
	return QPInfo{QPN: q.qpn, Type: q.typ, State: q.state, Port: q.attr.Port, Sends: len(q.sq), Receives: q.rqTaken}
}

// Writable reports whether a peer could write to some of the memory: a region
// that holds it is registered for that on a device of the host.
func (f *Fabric) Writable(hostName string, mem []byte) bool {
	if len(mem) == 0 {
		return false
	}
	for _, d := range f.host(hostName).devices {
		for _, m := range d.regions {
			if m.access&verbs.AccessRemoteWrite != 0 && overlap(m.mem, mem) {
				return true
			}
		}
	}
	return false
}
