package conformance

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"mover/verbs"
)

// The cases of packets lost on the way need a provider that loses on purpose.
var ucLossCases = []testCase{
	ucCase("a packet lost", ucPacketLost),
	ucCase("a lossy stream", ucLossyStream),
}

var ucOps = []verbs.Opcode{verbs.OpWrite, verbs.OpWriteWithImm, verbs.OpSend, verbs.OpSendWithImm}

// ucPacketLost: one packet of four is lost. The sender's success says nothing;
// what came before the gap may be in memory, what came behind it is not; the
// immediate is gone; the receive stays and takes the next message (UC has no
// retransmission: InfiniBand Architecture Specification volume 1, 9.8.2).
func ucPacketLost(t TB, h Harness) {
	for _, op := range ucOps {
		for lost := range 4 {
			l := newLink(t, h, linkOpts{typ: verbs.UC})
			if l.pair.Lose == nil {
				return
			}
			mtu := l.mtu()
			const to = 100_000
			n := 3*mtu + 100
			fill(l.a.mem, 1)
			id := l.b.recv(to, n)
			l.pair.Lose(l.a.ctx, func(i int) bool { return i == lost })
			msg := l.a.write(l.b, 0, to, n)
			msg.Op, msg.Imm = op, testImm
			l.vanish(op.String()+" with a packet lost", msg)
			l.pair.Lose(l.a.ctx, nil)
			for i := range n {
				if b := l.b.mem[to+i]; b != 0 && (i/mtu >= lost || b != l.a.mem[i]) {
					t.Fatalf("%v, packet %d lost: byte %d is %#x", op, lost, i, b)
				}
			}
			if !isZero(l.b.mem[:to]) || !isZero(l.b.mem[to+n:]) {
				t.Errorf("%v, packet %d lost: bytes around the message changed", op, lost)
			}
			clear(l.b.mem)
			l.arrives("the message behind a gap", id, 7, to, n)
			if !isZero(l.b.mem[:to]) || !isZero(l.b.mem[to+n:]) {
				t.Errorf("%v, packet %d lost: the next message went wrong", op, lost)
			}
		}
	}
}

// ucLossyStream: messages of which no packet was lost arrive whole and in
// order, whatever happened to those between them; the others are not announced
// and take no receive.
func ucLossyStream(t TB, h Harness) {
	const round, room = 8, 32 << 10
	l := newLink(t, h, linkOpts{typ: verbs.UC, memBytes: 2 * round * room})
	if l.pair.Lose == nil {
		return
	}
	rng := rand.New(rand.NewPCG(3, 1))
	fill(l.a.mem, 1)
	buffers := map[uint64]int{} // of the receives, by wr_id
	for i := range round {
		buffers[l.b.recv(i*room, room)] = i * room
	}
	losses, arrivals := 0, 0
	for range 12 {
		var lost []bool // of each packet of the round, in the order sent
		l.pair.Lose(l.a.ctx, func(int) bool {
			lost = append(lost, rng.IntN(8) == 0)
			return lost[len(lost)-1]
		})
		var chain []verbs.SendWR
		for i := range round {
			wr := l.a.writeImm(l.b, rng.IntN(room), (round+i)*room, rng.IntN(room), uint32(i))
			wr.Op = []verbs.Opcode{verbs.OpWriteWithImm, verbs.OpSendWithImm}[rng.IntN(2)]
			chain = append(chain, wr)
		}
		l.a.sent, l.b.rcvd = nil, nil
		l.a.post(chain...)
		l.until("the sender's completions", func() bool { return len(l.a.sent) == round })
		l.settle()
		var whole []verbs.SendWR
		for i, wr := range chain {
			checkSent(t, l.a.sent[i], wr)
			k := max(1, (lengthOf(wr)+l.mtu()-1)/l.mtu())
			if !slices.Contains(lost[:k], true) {
				whole = append(whole, wr)
			}
			lost = lost[k:]
		}
		if len(l.b.rcvd) != len(whole) {
			t.Fatalf("%d messages arrived, %d were sent whole", len(l.b.rcvd), len(whole))
		}
		losses, arrivals = losses+round-len(whole), arrivals+len(whole)
		for i, wr := range whole {
			wc := l.b.rcvd[i]
			at := buffers[wc.WRID]
			l.checkArrival(wc, wr, at)
			buffers[l.b.recv(at, room)] = at
		}
	}
	if losses == 0 || arrivals == 0 {
		t.Errorf("%d messages lost, %d arrived: nothing was tested", losses, arrivals)
	}
}

// checkArrival checks a message whose receive has its buffer at off.
func (l *link) checkArrival(wc verbs.WC, wr verbs.SendWR, off int) {
	l.t.Helper()
	n := lengthOf(wr)
	checkRecv(l.t, wc, wc.WRID, wr.Op, n, wr.Imm)
	if wr.Op == verbs.OpWriteWithImm {
		off = int(wr.RemoteAddr - l.b.mr.Addr())
	}
	from := 0
	if n > 0 {
		from = int(wr.SGL[0].Addr - l.a.mr.Addr())
	}
	if !bytes.Equal(l.b.mem[off:off+n], l.a.mem[from:from+n]) {
		l.t.Errorf("%v of %d bytes: bytes are wrong", wr.Op, n)
	}
}

func lengthOf(wr verbs.SendWR) (n int) {
	for _, sge := range wr.SGL {
		n += int(sge.Length)
	}
	return n
}
