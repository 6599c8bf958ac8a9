package sim

import "mover/verbs"

// outbox holds the completions of one queue that are not on the CQ yet, in
// order: the order within a queue is promised, everything else is not.
type outbox struct {
	cq    *cq
	list  []cqe
	armed bool
}

// newWC makes a completion. The fields that are not valid after an error hold
// garbage, for those who read them without looking at the status.
func (f *Fabric) newWC(q *qp, id uint64, status verbs.WCStatus) verbs.WC {
	wc := verbs.WC{WRID: id, Status: status, QPN: q.qpn}
	if status != verbs.WCSuccess {
		junk := f.rng.Uint64()
		wc.Opcode = []verbs.WCOpcode{verbs.WCSend, verbs.WCRDMAWrite, verbs.WCRecv, verbs.WCRecvRDMAWithIm}[junk%4]
		wc.Flags = verbs.WCFlags(junk >> 8 & 3)
		wc.ByteLen, wc.Imm = uint32(junk>>16), uint32(junk>>32)
		wc.VendorErr = uint32(status)<<8 | 0x51
	}
	return wc
}

func (q *qp) out(o *outbox, e cqe) {
	if q.dev.fatal {
		return
	}
	o.list = append(o.list, e)
	q.arm(o, q.f.delay(q.f.opt.MaxCompletionDelay))
}

func (q *qp) arm(o *outbox, delay int64) {
	if o.armed {
		return
	}
	o.armed = true
	q.f.after(delay, "complete", q.qpn, func() {
		o.armed = false
		q.release(o)
	})
}

// release puts some of the completions on the CQ. A receive completion is what
// makes bytes visible, so they reach memory here and not before.
func (q *qp) release(o *outbox) {
	f := q.f
	if q.gone || q.dev.fatal || len(o.list) == 0 {
		return
	}
	held := q.dev.heldTill
	if o == &q.send {
		held = max(held, q.sendsHeldTill)
	}
	if f.now < held {
		q.arm(o, held-f.now)
		return
	}
	n := len(o.list)
	if !f.opt.Calm {
		n = 1 + f.rng.IntN(n)
	}
	for _, e := range o.list[:n] {
		if e.success && e.recv != nil {
			q.placeUpTo(e.msg)
		}
	}
	if o == &q.recv && n == len(o.list) && q.state == verbs.StateErr {
		// The last flush: after it the user may reuse the memory.
		q.place(len(q.pieces))
	}
	for _, e := range o.list[:n] {
		o.cq.push(e)
	}
	o.list = o.list[:copy(o.list, o.list[n:])]
	if len(o.list) > 0 {
		q.arm(o, f.delay(f.opt.MaxCompletionDelay))
	}
}
