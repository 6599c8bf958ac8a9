package sim

import (
	"syscall"

	"mover/verbs"
)

// maxAH is how many address handles a device has.
const maxAH = 1 << 16

// ah is an address handle: where a datagram goes.
type ah struct {
	pd     *pd
	attr   verbs.AHAttr
	port   *port // it leaves through
	remote *port
	sgid   verbs.GID
	flaps  int // the port's, when the handle was made
	gone   bool
}

func (p *pd) CreateAH(attr verbs.AHAttr) (verbs.AH, error) {
	const op = "create AH"
	if err := p.usable(op); err != nil {
		return nil, err
	}
	out, err := p.ctx.port(op, attr.Port)
	if err != nil {
		return nil, err
	}
	remote, sgid, err := out.resolve(op, &attr)
	if err != nil {
		return nil, err
	}
	if p.ctx.counts.AH == maxAH {
		return nil, &verbs.Error{Op: op, Errno: syscall.ENOMEM, Detail: "the device has max_ah address handles"}
	}
	p.inUse++
	p.ctx.counts.AH++
	return &ah{pd: p, attr: attr, port: out, remote: remote, sgid: sgid, flaps: out.flaps}, nil
}

// Destroy frees the handle. Adapters read it when they send, so it has to
// outlive the WRs; nothing but the list of violations tells who forgets.
func (a *ah) Destroy() error {
	if a.gone {
		return invalid("destroy AH", "it is destroyed")
	}
	for _, q := range a.pd.ctx.dev.qps {
		q.destroying(a)
	}
	a.gone = true
	a.pd.inUse--
	a.pd.ctx.counts.AH--
	return nil
}

// destroying records a WR outstanding that uses the handle. Where no completion
// can come any more there is nothing to wait for.
func (q *qp) destroying(a *ah) {
	if q.dev.fatal || q.send.cq.dead {
		return
	}
	for _, w := range q.sq {
		if w.ah == a && !(w.silent && q.state == verbs.StateErr) {
			q.f.violate(AHInFlight, q.dev, q.qpn, "send WR %d uses it", w.wr.WRID)
			return
		}
	}
}

// checkAddress refuses a UD WR that does not say where it goes.
func (q *qp) checkAddress(wr *verbs.SendWR) error {
	const op = "post send"
	a, ok := wr.AH.(*ah)
	switch {
	case !ok || a == nil:
		return invalid(op, "a UD WR needs an address handle of this provider")
	case a.gone:
		return invalid(op, "the address handle is destroyed")
	case a.port != q.port:
		return invalid(op, "the address handle is of another port")
	case wr.RemoteQPN >= 1<<24:
		return invalid(op, "the remote QPN does not fit 24 bits")
	}
	return nil
}
