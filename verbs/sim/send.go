package sim

import (
	"hash/crc32"
	"slices"
	"syscall"

	"mover/verbs"
)

// sendWQE is a WR of the send queue.
type sendWQE struct {
	wr       verbs.SendWR
	ah       *ah // UD: where to
	length   uint32
	inline   []byte // a copy of the payload
	hash     uint32 // of the payload, when posted; 0 with hashed false
	hashed   bool
	postedAt uint64 // in the order of Fabric.tick
	polledAt uint64 // when its completion was polled; 0 before
	silent   bool   // ended well, unsignalled: a later completion gives it back
}

func (w *sendWQE) isWrite() bool { return w.wr.Op == verbs.OpWrite || w.wr.Op == verbs.OpWriteWithImm }
func (w *sendWQE) takesReceive() bool {
	return w.wr.Op != verbs.OpWrite
}
func (w *sendWQE) hasImm() bool {
	return w.wr.Op == verbs.OpWriteWithImm || w.wr.Op == verbs.OpSendWithImm
}

// maxMessage is the longest message of the transports, in bytes.
const maxMessage = 1 << 31

func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	const op = "post send"
	if err := q.usable(op); err != nil {
		return 0, err
	}
	defer q.pump() // also when a bad one ends the chain: those before it are posted
	for i := range wrs {
		wr := &wrs[i]
		stopped := q.state == verbs.StateErr || q.state == verbs.StateSQE
		if q.state != verbs.StateRTS && !stopped {
			return i, invalid(op, "the QP is in "+q.state.String())
		}
		if err := q.checkSend(wr); err != nil {
			return i, err
		}
		if stopped && q.f.chance(0.5) {
			return i, invalid(op, "the QP is in "+q.state.String())
		}
		if len(q.sq) == q.cap.MaxSendWR {
			q.f.violate(QueueOverflow, q.dev, q.qpn, "the send queue has %d entries", q.cap.MaxSendWR)
			return i, &verbs.Error{Op: op, Errno: syscall.ENOMEM, Detail: "the send queue is full"}
		}
		q.enqueue(wr)
	}
	return len(wrs), nil
}

func (q *qp) checkSend(wr *verbs.SendWR) error {
	const op = "post send"
	if err := q.checkOp(wr.Op); err != nil {
		return err
	}
	if q.typ == verbs.UD {
		if err := q.checkAddress(wr); err != nil {
			return err
		}
	}
	if len(wr.SGL) > q.cap.MaxSendSGE {
		return invalid(op, "more SGEs than the QP's max_send_sge")
	}
	var total uint64
	for _, s := range wr.SGL {
		total += uint64(s.Length)
	}
	if total > maxMessage {
		return invalid(op, "longer than 2^31 bytes")
	}
	if wr.Flags&verbs.SendInline != 0 && total > uint64(q.cap.MaxInlineBytes) {
		return invalid(op, "inline data beyond the QP's max_inline_data")
	}
	return nil
}

// checkOp refuses what the provider or the transport lacks.
func (q *qp) checkOp(o verbs.Opcode) error {
	switch o {
	case verbs.OpSend, verbs.OpSendWithImm:
		return nil
	case verbs.OpWrite, verbs.OpWriteWithImm:
		if q.typ == verbs.UD {
			return invalid("post send", "UD has no RDMA")
		}
		return nil
	case verbs.OpRead, verbs.OpCompareSwap, verbs.OpFetchAdd:
		if q.typ != verbs.RC {
			return invalid("post send", q.typ.String()+" has no "+o.String())
		}
		return &verbs.UnsupportedError{Provider: providerName, What: o.String()}
	}
	return invalid("post send", "unknown opcode")
}

func (q *qp) enqueue(wr *verbs.SendWR) {
	w := &sendWQE{wr: *wr, postedAt: q.f.tick()}
	if q.typ == verbs.UD {
		w.ah = wr.AH.(*ah) // checkAddress has looked
	}
	w.wr.SGL = slices.Clone(wr.SGL)
	for _, s := range wr.SGL {
		w.length += s.Length
	}
	if wr.Flags&verbs.SendInline != 0 {
		w.inline = make([]byte, 0, w.length)
		for _, s := range wr.SGL {
			w.inline = append(w.inline, pointer(s)...)
		}
		w.wr.SGL = nil
	} else {
		w.hash, w.hashed = q.sourceHash(w)
	}
	q.f.record("post", uint64(q.qpn), wr.WRID<<8|uint64(wr.Op))
	q.sq = append(q.sq, w)
	switch {
	case q.dev.fatal: // a doorbell that nobody hears
	case q.state == verbs.StateErr, q.state == verbs.StateSQE:
		q.complete(w, verbs.WCFlushErr)
	default:
		q.checkFresh(w)
		q.pending = append(q.pending, w)
	}
}

// checkFresh records a path that was found before the port's last flap. A UD QP
// has none; its address handles do.
func (q *qp) checkFresh(w *sendWQE) {
	built, what := q.flaps, "QP"
	if w.ah != nil {
		built, what = w.ah.flaps, "address handle"
	}
	if built != q.port.flaps && !q.reported {
		q.reported = true
		q.f.violate(StaleQP, q.dev, q.qpn, "the port flapped since the %s was built; rebuild it", what)
	}
}

// local finds the memory of an SGE that q may use with the access needed.
func (q *qp) local(s verbs.SGE, need verbs.Access) (*mr, []byte) {
	m := q.dev.lkeys[s.LKey]
	if m == nil || m.pd != q.pd || m.access&need != need {
		return nil, nil
	}
	b := m.slice(s.Addr, s.Length)
	if b == nil {
		return nil, nil
	}
	return m, b
}

// readable reports whether the WR's local memory can be read.
func (q *qp) readable(w *sendWQE) bool {
	for _, s := range w.wr.SGL {
		if m, _ := q.local(s, 0); m == nil && s.Length > 0 {
			return false
		}
	}
	return true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sourceHash is the hash of the payload, if all of it can be read.
func (q *qp) sourceHash(w *sendWQE) (uint32, bool) {
	if !q.readable(w) {
		return 0, false
	}
	var sum uint32
	for _, s := range w.wr.SGL {
		_, b := q.local(s, 0)
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum, true
}

// checkSource records a source that changed since the post.
func (q *qp) checkSource(w *sendWQE, when string) {
	if !w.hashed {
		return
	}
	if sum, ok := q.sourceHash(w); ok && sum != w.hash {
		w.hashed = false // once is enough
		q.f.violate(SourceChanged, q.dev, q.qpn, "WR %d, noticed at its %s", w.wr.WRID, when)
	}
}

// gather copies the payload out of the source.
func (q *qp) gather(w *sendWQE) []byte {
	if w.inline != nil {
		return slices.Clone(w.inline)
	}
	data := make([]byte, 0, w.length)
	for _, s := range w.wr.SGL {
		_, b := q.local(s, 0)
		data = append(data, b...)
	}
	return data
}

// complete ends a WR: a completion when it is signalled or failed.
func (q *qp) complete(w *sendWQE, status verbs.WCStatus) {
	if status == verbs.WCSuccess && w.wr.Flags&verbs.SendSignaled == 0 && !q.signalAll {
		w.silent = true
		return
	}
	e := cqe{q: q, send: w, success: status == verbs.WCSuccess}
	e.wc = q.f.newWC(q, w.wr.WRID, status)
	if e.success {
		e.wc.Opcode = verbs.WCRDMAWrite
		if !w.isWrite() {
			e.wc.Opcode = verbs.WCSend
		}
	}
	q.out(&q.send, e)
}

// giveBack frees the queue's entries up to w, whose completion was polled.
func (q *qp) giveBack(w *sendWQE) {
	i := slices.Index(q.sq, w)
	now := q.f.tick()
	for _, x := range q.sq[:i+1] {
		q.checkSource(x, "completion")
		x.polledAt = now
	}
	q.sq = slices.Delete(q.sq, 0, i+1)
}
