package conformance

import "mover/verbs"

var ucRecoveryCases = []testCase{
	{name: "uc/write that loses its end", run: ucRecovers, needs: UC | UCRecovers, lacking: func(t TB, h Harness) {
		if h.Lacks&UC != 0 {
			qpRefused(t, h, verbs.UC, 0)
			return
		}
		ucStaysLost(t, h)
	}},
}

// loseEnd makes a write of three packets whose last one, with the immediate,
// finds no receive; then a receive is posted, whose wr_id it returns.
func (l *link) loseEnd() uint64 {
	l.t.Helper()
	fill(l.a.mem, 1)
	l.vanish("write with immediate without a receive", l.a.writeImm(l.b, 0, 100_000, 2*l.mtu()+1, testImm))
	id := l.b.recv(0, 1000)
	l.settle()
	if len(l.b.rcvd) != 0 {
		l.t.Fatalf("a message that had been dropped took a receive: %+v", l.b.rcvd)
	}
	return id
}

func ucRecovers(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UC})
	id := l.loseEnd()
	l.arrives("the next message", id, 5000, 0, 500)
}

// ucStaysLost: the next message vanishes too. The QP still drains, so it can
// be built anew.
func ucStaysLost(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UC})
	l.loseEnd()
	l.vanish("message behind a lost end, with a provider that declares no UCRecovers,", l.a.send(0, 500))
	l.b.toErr()
	l.until("the flush", func() bool { return len(l.b.rcvd) == 1 })
	wantStatuses(t, "B's receive", l.b.rcvd, verbs.WCFlushErr)
}
