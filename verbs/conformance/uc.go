package conformance

import (
	"slices"

	"mover/verbs"
)

// ucCase is a case on UC QPs.
func ucCase(name string, run func(t TB, h Harness)) testCase {
	return testCase{name: "uc/" + name, run: run, needs: UC,
		lacking: func(t TB, h Harness) { qpRefused(t, h, verbs.UC, 0) }}
}

var ucCases = []testCase{
	ucCase("exact masks", func(t TB, h Harness) { exactMasks(t, h, verbs.UC) }),
	ucCase("transition graph", func(t TB, h Harness) { transitionGraph(t, h, verbs.UC) }),
	ucCase("write", func(t TB, h Harness) { eachSize(t, h, verbs.UC, verbs.OpWrite, ucSizes) }),
	ucCase("write with immediate", func(t TB, h Harness) { eachSize(t, h, verbs.UC, verbs.OpWriteWithImm, ucSizes) }),
	ucCase("send", func(t TB, h Harness) { eachSize(t, h, verbs.UC, verbs.OpSend, ucSizes) }),
	ucCase("send with immediate", func(t TB, h Harness) { eachSize(t, h, verbs.UC, verbs.OpSendWithImm, ucSizes) }),
	ucCase("immediate covers earlier writes", func(t TB, h Harness) { visible(t, h, verbs.UC, verbs.OpWriteWithImm) }),
	ucCase("no receive posted", ucNoReceive),
	ucCase("receive buffer too short", ucTooShort),
	ucCase("remote access", ucRemoteAccess),
	ucCase("queue pair without remote write", ucReadOnly),
	ucCase("local access", func(t TB, h Harness) { localFault(t, h, verbs.UC) }),
	ucCase("read and atomics refused", func(t TB, h Harness) {
		opsRefused(t, h, verbs.UC, verbs.OpRead, verbs.OpFetchAdd, verbs.OpCompareSwap)
	}),
	ucCase("peer in ERR", func(t TB, h Harness) { peerUnnoticed(t, h, verbs.UC, false) }),
	ucCase("peer destroyed", func(t TB, h Harness) { peerUnnoticed(t, h, verbs.UC, true) }),
	ucCase("drain in RTR", func(t TB, h Harness) { drainInRTR(t, h, verbs.UC) }),
	ucCase("drain in mid-stream", func(t TB, h Harness) { drainMidStream(t, h, verbs.UC) }),
	ucCase("memory is quiet after the drain", func(t TB, h Harness) { quietAfterDrain(t, h, verbs.UC) }),
	ucCase("post in ERR", func(t TB, h Harness) { postInErr(t, h, verbs.UC) }),
	ucCase("slots come back", func(t TB, h Harness) { slotsComeBack(t, h, verbs.UC) }),
	ucCase("no lost wake-up", func(t TB, h Harness) { noLostWakeup(t, h, verbs.UC) }),
}

// ucSizes are around the packet boundaries, and one of many packets; not so
// many that a receiver's queue could overflow, which nothing would repair.
var ucSizes = []int{0, 1, 255, 256, 4095, 4096, 4097, 3 * 4096, 100_001}

// vanish posts a message that must not arrive: success at the sender, nothing
// at the receiver.
func (l *link) vanish(what string, wr verbs.SendWR) {
	l.t.Helper()
	sent, rcvd := len(l.a.sent), len(l.b.rcvd)
	l.a.post(wr)
	l.until("the completion of a "+what, func() bool { return len(l.a.sent) > sent })
	checkSent(l.t, l.a.sent[sent], wr)
	l.settle()
	if len(l.b.rcvd) != rcvd {
		l.t.Errorf("a %s completed at the receiver: %+v", what, l.b.rcvd[rcvd:])
	}
}

// arrives posts a send of n bytes at off that takes the oldest receive, which
// is id and has room for it at to.
func (l *link) arrives(what string, id uint64, off, to, n int) {
	l.t.Helper()
	sent, rcvd := len(l.a.sent), len(l.b.rcvd)
	wr := l.a.send(off, n)
	l.a.post(wr)
	l.until(what, func() bool { return len(l.a.sent) > sent && len(l.b.rcvd) > rcvd })
	checkSent(l.t, l.a.sent[sent], wr)
	checkRecv(l.t, l.b.rcvd[rcvd], id, verbs.OpSend, n+l.b.headroom, 0)
	to += l.b.headroom
	if !slices.Equal(l.b.mem[to:to+n], l.a.mem[off:off+n]) {
		l.t.Errorf("%s: bytes are wrong", what)
	}
}

// ucNoReceive: what needs a receive and finds none is dropped in silence, and
// the message behind it is not harmed (class D of the responder errors,
// InfiniBand Architecture Specification volume 1, 9.9.3).
func ucNoReceive(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UC})
	fill(l.a.mem, 1)
	for i, n := range []int{0, 100, 2*l.mtu() + 1} {
		for _, op := range []verbs.Opcode{verbs.OpWriteWithImm, verbs.OpSend, verbs.OpSendWithImm} {
			if op == verbs.OpWriteWithImm && n > l.mtu() && h.Lacks&UCRecovers != 0 {
				continue
			}
			wr := l.a.write(l.b, 0, 100_000, n)
			wr.Op, wr.Imm = op, testImm
			l.vanish(op.String()+" without a receive", wr)
		}
		// The receive is posted first: no message may wait for it.
		id := l.b.recv(i*1000, 1000)
		l.settle()
		if len(l.b.rcvd) != i {
			t.Fatalf("a message that had been dropped took a receive: %+v", l.b.rcvd)
		}
		l.arrives("the next message", id, 5000, i*1000, 500)
	}
	if !isZero(l.b.mem[3000:100_000]) {
		t.Errorf("bytes were written where no message goes")
	}
	wantState(t, l.a.qp, verbs.StateRTS)
	wantState(t, l.b.qp, verbs.StateRTS)
}

// ucTooShort: the receiver's own fault. Devices complete the receive with an
// error or drop the message; never is anything written behind the buffer, and
// the sender does not learn of it.
func ucTooShort(t TB, h Harness) {
	for _, n := range []int{64, 20_000} {
		l := newLink(t, h, linkOpts{typ: verbs.UC})
		fill(l.a.mem, 1)
		l.b.recv(100, n-1)
		wr := l.a.send(0, n)
		l.a.post(wr)
		l.until("the send", func() bool { return len(l.a.sent) == 1 })
		checkSent(t, l.a.sent[0], wr)
		l.settle()
		l.tooShort(100, n-1)
	}
}

// tooShort checks the end of a receive of n bytes at off whose message was
// longer.
func (l *link) tooShort(off, n int) {
	l.t.Helper()
	switch {
	case len(l.b.rcvd) == 0:
		wantState(l.t, l.b.qp, verbs.StateRTS)
	case slices.Contains(l.h.ownFault(verbs.WCLocLenErr), l.b.rcvd[0].Status):
		wantState(l.t, l.b.qp, verbs.StateErr)
	default:
		l.t.Errorf("a message longer than the receive: %+v; want LOC_LEN_ERR or nothing", l.b.rcvd)
	}
	if !isZero(l.b.mem[:off]) || !isZero(l.b.mem[off+n:]) {
		l.t.Errorf("memory outside the receive buffer was written")
	}
}

// ucRemoteAccess: a UC responder has nobody to tell of a bad key or range. It
// writes nothing; it drops the message in silence or goes to ERR.
func ucRemoteAccess(t TB, h Harness) {
	for _, c := range []struct {
		name   string
		change func(l *link, wr *verbs.SendWR)
	}{
		{"wrong rkey", func(l *link, wr *verbs.SendWR) { wr.RKey ^= 0x5a00 }},
		{"rkey 0", func(l *link, wr *verbs.SendWR) { wr.RKey = 0 }},
		{"one byte before", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = l.b.addr(-1) }},
		{"one byte behind", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = l.b.addr(len(l.b.mem) - 19_999) }},
		{"wraps around", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(0) - 31 }},
		{"region without remote write", func(l *link, wr *verbs.SendWR) {
			l.aimAt(wr, l.b.pd, verbs.AccessLocalWrite)
		}},
		{"foreign protection domain", func(l *link, wr *verbs.SendWR) {
			pd, err := l.b.ctx.AllocPD()
			must(l.t, err, "alloc PD")
			l.t.Cleanup(func() { must(l.t, pd.Dealloc(), "dealloc PD") })
			l.aimAt(wr, pd, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		}},
		{"deregistered", func(l *link, wr *verbs.SendWR) {
			must(l.t, l.aimAt(wr, l.b.pd, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)(), "deregister")
		}},
	} {
		ops := []verbs.Opcode{verbs.OpWrite}
		if c.name == "wrong rkey" {
			ops = append(ops, verbs.OpWriteWithImm)
		}
		for _, op := range ops {
			l := newLink(t, h, linkOpts{typ: verbs.UC})
			fill(l.a.mem, 1)
			id := l.b.recv(0, 500)
			bad := l.a.write(l.b, 0, 4096, 20_000) // several packets
			bad.Op = op
			c.change(l, &bad)
			l.a.post(bad)
			l.until("the write", func() bool { return len(l.a.sent) == 1 })
			checkSent(t, l.a.sent[0], bad)
			l.settle()
			if !isZero(l.b.mem) {
				t.Errorf("%v, %s: memory was written", op, c.name)
			}
			l.aliveOrFlushed(id)
		}
	}
}

// aimAt makes a write go to another registration of B's memory, which ends
// with the test or, before it, with what aimAt returns.
func (l *link) aimAt(wr *verbs.SendWR, pd verbs.PD, access verbs.Access) (dereg func() error) {
	l.t.Helper()
	mr, err := pd.RegMR(l.b.mem, access)
	must(l.t, err, "register")
	wr.RKey = mr.RKey()
	gone := false
	dereg = func() error {
		if gone {
			return nil
		}
		gone = true
		return mr.Dereg()
	}
	l.t.Cleanup(func() { must(l.t, dereg(), "deregister") })
	return dereg
}

// aliveOrFlushed: after an access error the responder goes on, and the
// receive id takes the next message, or it is in ERR.
func (l *link) aliveOrFlushed(id uint64) {
	l.t.Helper()
	attr, err := l.b.qp.Query()
	must(l.t, err, "query QP")
	if attr.State == verbs.StateRTS {
		if len(l.b.rcvd) != 0 {
			l.t.Fatalf("a refused write took a receive: %+v", l.b.rcvd)
		}
		l.arrives("the message behind a refused write", id, 0, 0, 500)
		return
	}
	wantState(l.t, l.b.qp, verbs.StateErr)
	l.until("the flush", func() bool { return len(l.b.rcvd) == 1 })
	if l.b.rcvd[0].Status == verbs.WCSuccess {
		l.t.Errorf("a refused write completed a receive with success")
	}
}

func ucReadOnly(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UC, noAccess: true})
	fill(l.a.mem, 1)
	id := l.b.recv(0, 500)
	l.a.post(l.a.write(l.b, 0, 0, 64), l.a.writeImm(l.b, 0, 0, 64, testImm))
	l.until("the writes", func() bool { return len(l.a.sent) == 2 })
	l.settle()
	if !isZero(l.b.mem) {
		t.Errorf("memory was written")
	}
	l.aliveOrFlushed(id)
}

// localFault: a bad lkey or range is the poster's own error: the WR tells, the
// rest is flushed, and nothing of it reaches the peer. The send queue may stop
// alone (SQE), as the specification has it for UC and UD, or the whole QP.
func localFault(t TB, h Harness, typ verbs.QPType) {
	for name, change := range map[string]func(l *link, sge *verbs.SGE){
		"wrong lkey":      func(l *link, sge *verbs.SGE) { sge.LKey ^= 0x5a00 },
		"one byte before": func(l *link, sge *verbs.SGE) { sge.Addr = l.a.addr(-1) },
		"one byte behind": func(l *link, sge *verbs.SGE) { sge.Addr = l.a.addr(len(l.a.mem) - 63) },
		"wraps around":    func(l *link, sge *verbs.SGE) { sge.Addr = ^uint64(0) - 31 },
	} {
		l := newLink(t, h, linkOpts{typ: typ})
		for range 3 {
			l.b.recv(0, 500)
		}
		bad := l.a.send(0, 64)
		change(l, &bad.SGL[0])
		l.a.post(l.a.send(0, 64), bad, l.a.send(0, 64))
		l.until("all completions", func() bool { return len(l.a.sent) == 3 && len(l.b.rcvd) >= 1 })
		l.settle()
		got := []verbs.WCStatus{l.a.sent[0].Status, l.a.sent[1].Status, l.a.sent[2].Status}
		if got[0] != verbs.WCSuccess || got[1].Blame() != verbs.BlameLocal || got[2] != verbs.WCFlushErr {
			t.Errorf("%s: statuses %v, want SUCCESS, LOC_PROT_ERR, WR_FLUSH_ERR", name, got)
		}
		if l.a.sent[1].WRID != bad.WRID {
			t.Errorf("%s: wr_id %d of the error, want %d", name, l.a.sent[1].WRID, bad.WRID)
		}
		if len(l.b.rcvd) != 1 || l.b.rcvd[0].Status != verbs.WCSuccess {
			t.Errorf("%s: the peer received %+v, want the first message only", name, l.b.rcvd)
		}
		attr, err := l.a.qp.Query()
		must(t, err, "query QP")
		if attr.State != verbs.StateErr && attr.State != verbs.StateSQE {
			t.Errorf("%s: the QP is in %v", name, attr.State)
		}
	}
}

// opsRefused: an operation that the transport does not have is refused at the
// post or fails the WR; nothing happens at the peer.
func opsRefused(t TB, h Harness, typ verbs.QPType, ops ...verbs.Opcode) {
	for _, op := range ops {
		const access = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
		l := newLink(t, h, linkOpts{typ: typ, qpAccess: access, mrAccess: access | verbs.AccessLocalWrite})
		fill(l.a.mem[:8], 1)
		wr := l.a.send(0, 8)
		wr.Op, wr.RemoteAddr, wr.RKey, wr.CompareAdd = op, l.b.addr(0), l.b.mr.RKey(), 1
		n, err := l.a.qp.PostSend([]verbs.SendWR{wr})
		switch {
		case err != nil && n != 0:
			t.Errorf("%v on %v: %d accepted, and %v", op, typ, n, err)
		case err == nil:
			l.until("the refusal", func() bool { return len(l.a.sent) == 1 })
			if st := l.a.sent[0].Status; st == verbs.WCSuccess {
				t.Errorf("%v on %v: %v", op, typ, st)
			}
		}
		l.settle()
		if !isZero(l.b.mem) || mismatch(l.a.mem[:8], 1) >= 0 {
			t.Errorf("%v on %v changed memory", op, typ)
		}
	}
}

// peerUnnoticed: the sender of an unreliable service does not learn that the
// peer is gone. Its WRs succeed, and its QP stays as it is.
func peerUnnoticed(t TB, h Harness, typ verbs.QPType, destroy bool) {
	l := newLink(t, h, linkOpts{typ: typ})
	fill(l.a.mem, 1)
	id := l.b.recv(0, 500)
	l.arrives("a message before", id, 0, 0, 100)
	if destroy {
		must(t, l.b.qp.Destroy(), "destroy the peer's QP")
		l.b.qp = nil
	} else {
		l.b.recv(0, 500)
		l.b.toErr()
		l.until("the flush", func() bool { return len(l.b.rcvd) == 2 })
	}
	l.b.rcvd = nil
	clear(l.b.mem)
	for range 5 { // an answer of the network, if there is one, must not matter later either
		l.vanish("message to a peer that is gone", l.a.send(0, 64))
	}
	if !isZero(l.b.mem) {
		t.Errorf("a peer that is gone was written to")
	}
	wantState(t, l.a.qp, verbs.StateRTS)
}
