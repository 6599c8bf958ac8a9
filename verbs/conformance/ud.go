package conformance

import (
	"slices"

	"mover/verbs"
)

// udCase is a case on UD QPs.
func udCase(name string, run func(t TB, h Harness)) testCase {
	return testCase{name: "ud/" + name, run: run, needs: UD,
		lacking: func(t TB, h Harness) { qpRefused(t, h, verbs.UD, 0) }}
}

var udCases = []testCase{
	udCase("exact masks", func(t TB, h Harness) { exactMasks(t, h, verbs.UD) }),
	udCase("transition graph", func(t TB, h Harness) { transitionGraph(t, h, verbs.UD) }),
	udCase("datagrams", datagrams),
	udCase("scattered receive", udScattered),
	udCase("longer than the MTU", udTooLong),
	udCase("no receive posted", udNoReceive),
	udCase("receive buffer too short", udTooShort),
	udCase("other operations refused", func(t TB, h Harness) {
		opsRefused(t, h, verbs.UD, verbs.OpWrite, verbs.OpWriteWithImm, verbs.OpRead, verbs.OpFetchAdd, verbs.OpCompareSwap)
	}),
	udCase("local access", func(t TB, h Harness) { localFault(t, h, verbs.UD) }),
	udCase("peer in ERR", func(t TB, h Harness) { peerUnnoticed(t, h, verbs.UD, false) }),
	udCase("peer destroyed", func(t TB, h Harness) { peerUnnoticed(t, h, verbs.UD, true) }),
	udCase("lost on the way", udLost),
	udCase("drain in RTR", func(t TB, h Harness) { drainInRTR(t, h, verbs.UD) }),
	udCase("post in ERR", func(t TB, h Harness) { postInErr(t, h, verbs.UD) }),
	udCase("slots come back", func(t TB, h Harness) { slotsComeBack(t, h, verbs.UD) }),
	udCase("no lost wake-up", func(t TB, h Harness) { noLostWakeup(t, h, verbs.UD) }),
}

// grhBytes precede the payload of a UD receive (ibv_post_recv(3)).
const grhBytes = 40

// datagrams: up to a full MTU, with and without immediate, in both directions;
// byte_len counts the GRH, and the completion names the sender.
func datagrams(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	const to = 100_000
	room := grhBytes + l.mtu()
	seed := 0
	for _, d := range []struct{ from, to *side }{{l.a, l.b}, {l.b, l.a}} {
		for _, n := range []int{0, 1, 255, 256, l.mtu() - 1, l.mtu()} {
			for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpSendWithImm} {
				seed++
				fill(d.from.mem[3:3+n], seed)
				clear(d.to.mem[to:])
				id := d.to.recv(to, room)
				wr := d.from.send(3, n)
				wr.Op, wr.Imm = op, testImm
				d.from.sent, d.to.rcvd = nil, nil
				d.from.post(wr)
				l.until("both completions", func() bool { return len(d.from.sent) == 1 && len(d.to.rcvd) == 1 })
				checkSent(t, d.from.sent[0], wr)
				wc := d.to.rcvd[0]
				checkRecv(t, wc, id, op, grhBytes+n, testImm)
				if wc.Flags&verbs.WCGRH == 0 || wc.SrcQPN != d.from.qp.QPN() {
					t.Errorf("completion %+v: want the GRH flag and source QPN %#x", wc, d.from.qp.QPN())
				}
				l.checkGRH(d.to.mem[to:to+grhBytes], d.from, d.to)
				if mismatch(d.to.mem[to+grhBytes:to+grhBytes+n], seed) >= 0 {
					t.Errorf("%v of %d bytes: bytes are wrong", op, n)
				}
				if !isZero(d.to.mem[to+grhBytes+n:]) {
					t.Errorf("%v of %d bytes: bytes behind the message changed", op, n)
				}
			}
		}
	}
}

// checkGRH: the header of the network layer. With IPv4 it is in the last 20
// bytes (InfiniBand Architecture Specification, annex A17, "RoCEv2"), with
// IPv6 and on InfiniBand it fills all 40.
func (l *link) checkGRH(b []byte, from, to *side) {
	l.t.Helper()
	src, dst := from.pickGID().GID, to.pickGID().GID
	if dst.Addr().Is4() {
		ip := b[20:]
		s, d := src.Addr().As4(), dst.Addr().As4()
		if ip[0]>>4 != 4 || !slices.Equal(ip[12:16], s[:]) || !slices.Equal(ip[16:20], d[:]) {
			l.t.Errorf("the GRH is % x, want an IPv4 header from %v to %v in its last 20 bytes", b, src.Addr(), dst.Addr())
		}
		return
	}
	if b[0]>>4 != 6 || !slices.Equal(b[8:24], src[:]) || !slices.Equal(b[24:40], dst[:]) {
		l.t.Errorf("the GRH is % x, want version 6, from %v to %v", b, src, dst)
	}
}

// udScattered: pieces that cut through the GRH and the payload.
func udScattered(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	fill(l.a.mem[:200], 1)
	wr := verbs.RecvWR{WRID: recvBit | 77, SGL: []verbs.SGE{l.b.sge(5000, 10), l.b.sge(100, 35), l.b.sge(9000, 1), l.b.sge(20_000, 4096)}}
	l.b.postRecv(wr)
	l.a.post(l.a.send(0, 200))
	l.until("the datagram", func() bool { return len(l.b.rcvd) == 1 })
	checkRecv(t, l.b.rcvd[0], wr.WRID, verbs.OpSend, grhBytes+200, 0)
	got := slices.Concat(l.b.mem[5000:5010], l.b.mem[100:135], l.b.mem[9000:9001], l.b.mem[20_000:20_000+194])
	l.checkGRH(got[:grhBytes], l.a, l.b)
	if mismatch(got[grhBytes:], 1) >= 0 || !isZero(l.b.mem[20_000+194:]) {
		t.Errorf("bytes are wrong")
	}
}

// udTooLong: no packet is sent for a message longer than the MTU, and that
// need not be an error (InfiniBand Architecture Specification volume 1,
// C10-93.1.1). Some devices refuse the post or fail the WR.
func udTooLong(t TB, h Harness) {
	for _, over := range []int{1, 5000} {
		l := newLink(t, h, linkOpts{typ: verbs.UD})
		fill(l.a.mem, 1)
		id := l.b.recv(0, 100_000)
		n, err := l.a.qp.PostSend([]verbs.SendWR{l.a.send(0, l.mtu()+over)})
		if (err == nil) != (n == 1) {
			t.Errorf("a post of a message that is too long: %d, %v", n, err)
		}
		if err == nil {
			l.until("its completion", func() bool { return len(l.a.sent) == 1 })
			if st := l.a.sent[0].Status; st != verbs.WCSuccess && st != verbs.WCLocLenErr {
				t.Errorf("a message that is too long: %v", st)
			}
		}
		l.settle()
		if len(l.b.rcvd) != 0 || !isZero(l.b.mem) {
			t.Errorf("something of a message that is too long arrived: %+v", l.b.rcvd)
		}
		attr, err := l.a.qp.Query()
		must(t, err, "query QP")
		if attr.State == verbs.StateRTS {
			l.arrives("the next message", id, 0, 0, l.mtu())
		}
	}
}

func udNoReceive(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	fill(l.a.mem, 1)
	for i := range 3 {
		l.vanish("datagram without a receive", l.a.send(0, 100*i))
		id := l.b.recv(i*1000, 1000)
		l.settle()
		if len(l.b.rcvd) != i {
			t.Fatalf("a datagram that had been dropped took a receive: %+v", l.b.rcvd)
		}
		l.arrives("the next datagram", id, 5000, i*1000, 500)
	}
}

// udTooShort: a buffer that has room for the payload only, or not even for the
// GRH.
func udTooShort(t TB, h Harness) {
	for _, room := range []int{100 + grhBytes - 1, 100, grhBytes - 1, 0} {
		l := newLink(t, h, linkOpts{typ: verbs.UD})
		fill(l.a.mem, 1)
		l.b.recv(1000, room)
		wr := l.a.send(0, 100)
		l.a.post(wr)
		l.until("the send", func() bool { return len(l.a.sent) == 1 })
		checkSent(t, l.a.sent[0], wr)
		l.settle()
		l.tooShort(1000, room)
	}
}

// udLost: each datagram stands for itself.
func udLost(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	if l.pair.Lose == nil {
		return
	}
	fill(l.a.mem, 1)
	id := l.b.recv(0, 1000)
	l.pair.Lose(l.a.ctx, func(i int) bool { return i < 2 })
	l.vanish("datagram that is lost", l.a.send(0, 500))
	l.vanish("datagram that is lost", l.a.send(0, 0))
	l.arrives("the third datagram", id, 1000, 0, 500)
	l.pair.Lose(l.a.ctx, nil)
}
