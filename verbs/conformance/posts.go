package conformance

import (
	"errors"
	"syscall"

	"mover/verbs"
)

var postCases = []testCase{
	{name: "post/chain order", run: chainOrder},
	{name: "post/unsignalled", run: unsignalled},
	{name: "post/signal all", run: signalAll},
	{name: "post/send queue full", run: sendQueueFull},
	{name: "post/slots come back", run: func(t TB, h Harness) { slotsComeBack(t, h, verbs.RC) }},
	{name: "post/slots by polling", run: slotsByPolling, needs: StrictSQ, lacking: slotsBeforePolling},
	{name: "post/bad in mid-chain", run: badMidChain},
	{name: "post/receive queue full", run: recvQueueFull},
	{name: "post/empty chain", run: emptyChain},
}

// chainOrder: a chain of different operations completes in the order posted.
func chainOrder(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	for range 3 {
		l.b.recv(8192, 4096)
	}
	chain := []verbs.SendWR{l.a.write(l.b, 0, 0, 4096), l.a.send(0, 100), l.a.writeImm(l.b, 0, 0, 1, 9),
		l.a.write(l.b, 0, 64, 0), l.a.send(0, 0), l.a.write(l.b, 0, 100, 5000)}
	l.a.post(chain...)
	l.until("the chain", func() bool { return len(l.a.sent) == len(chain) && len(l.b.rcvd) == 3 })
	for i, wc := range l.a.sent {
		checkSent(t, wc, chain[i])
	}
	for i, n := range []uint32{100, 1, 0} {
		if l.b.rcvd[i].ByteLen != n {
			t.Errorf("receive %d has %d bytes, want %d", i, l.b.rcvd[i].ByteLen, n)
		}
	}
}

// unsignalled: no completion of its own, and it is done when a later one is.
func unsignalled(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	fill(l.a.mem[:3000], 1)
	quiet1, quiet2 := l.a.write(l.b, 0, 0, 1000), l.a.write(l.b, 1000, 1000, 1000)
	quiet1.Flags, quiet2.Flags = 0, 0
	last := l.a.write(l.b, 2000, 2000, 1000)
	l.a.post(quiet1, quiet2, last)
	l.until("the signalled write", func() bool { return len(l.a.sent) > 0 })
	l.settle()
	if len(l.a.sent) != 1 {
		t.Errorf("completions: %+v, want one", l.a.sent)
	}
	checkSent(t, l.a.sent[0], last)
	l.fence(l.a, l.b)
	if mismatch(l.b.mem[:3000], 1) >= 0 {
		t.Errorf("bytes are wrong")
	}
}

func signalAll(t TB, h Harness) {
	l := newLink(t, h, linkOpts{signalAll: true})
	quiet := l.a.write(l.b, 0, 0, 10)
	quiet.Flags = 0
	l.a.post(quiet)
	l.until("the write", func() bool { return len(l.a.sent) == 1 })
	checkSent(t, l.a.sent[0], quiet)
}

// stalledSends makes n sends that stay in the queue, since the peer has no
// receive posted.
func (l *link) stalledSends(n int) []verbs.SendWR {
	wrs := make([]verbs.SendWR, n)
	for i := range wrs {
		wrs[i] = l.a.send(0, 8)
	}
	return wrs
}

// sendQueueFull: ENOMEM tells how many were accepted, and those complete.
func sendQueueFull(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	slots := l.a.qp.Cap().MaxSendWR
	n, err := l.a.qp.PostSend(l.stalledSends(slots + 3))
	wantErrno(t, err, syscall.ENOMEM, "post beyond the send queue")
	if n != slots {
		t.Fatalf("%d sends accepted by a queue of %d", n, slots)
	}
	n, err = l.a.qp.PostSend(l.stalledSends(1))
	wantErrno(t, err, syscall.ENOMEM, "post to a full send queue")
	if n != 0 {
		t.Errorf("a full queue accepted %d", n)
	}
	for done := 0; done < slots; {
		l.b.recv(0, 64)
		done++
		l.until("a send of the full queue", func() bool { return len(l.a.sent) >= done && len(l.b.rcvd) >= done })
	}
	for i, wc := range l.a.sent {
		if wc.Status != verbs.WCSuccess || wc.WRID != uint64(i+1) {
			t.Errorf("completion %d: %+v", i, wc)
		}
	}
	l.settle()
	if len(l.a.sent) != slots {
		t.Errorf("%d completions for %d accepted", len(l.a.sent), slots)
	}
}

// slotsComeBack: a completion frees its entry and those of the unsignalled
// before it, many times around the queue.
func slotsComeBack(t TB, h Harness, typ verbs.QPType) {
	l := newLink(t, h, linkOpts{typ: typ})
	slots := l.a.qp.Cap().MaxSendWR
	for round := range 5 {
		chain := make([]verbs.SendWR, slots)
		for i := range chain {
			chain[i] = l.a.write(l.b, i, i, 1)
			if typ == verbs.UD {
				chain[i] = l.a.send(i, 1) // nobody takes it, and nobody waits
			}
			chain[i].Flags = 0
		}
		chain[slots-1].Flags = verbs.SendSignaled
		l.a.post(chain...)
		l.until("a round", func() bool { return len(l.a.sent) == round+1 })
		checkSent(t, l.a.sent[round], chain[slots-1])
	}
	l.settle()
	if len(l.a.sent) != 5 {
		t.Errorf("%d completions for 5 signalled WRs", len(l.a.sent))
	}
}

// slotsByPolling: unsignalled writes hold their entries until a later
// completion is polled.
func slotsByPolling(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	n, err := l.fillQuietly()
	wantErrno(t, err, syscall.ENOMEM, "post to a queue full of finished unsignalled WRs")
	if n != 0 {
		t.Errorf("accepted %d", n)
	}
}

func slotsBeforePolling(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	if _, err := l.fillQuietly(); err != nil {
		t.Errorf("the provider declares no StrictSQ, but: %v", err)
	}
	l.until("the write", func() bool { return len(l.a.sent) == 1 })
}

// fillQuietly fills the queue with unsignalled writes, waits until they are
// surely done, and posts one more.
func (l *link) fillQuietly() (int, error) {
	l.t.Helper()
	slots := l.a.qp.Cap().MaxSendWR
	for i := range slots {
		wr := l.a.write(l.b, i, i, 1)
		wr.Flags = 0
		l.a.post(wr)
	}
	l.settle()
	return l.a.qp.PostSend([]verbs.SendWR{l.a.write(l.b, 0, 0, 1)})
}

// badMidChain: what is in front of the bad one is posted, the rest is not.
func badMidChain(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	tooMany := l.a.write(l.b, 0, 0, 1)
	for range l.a.qp.Cap().MaxSendSGE {
		tooMany.SGL = append(tooMany.SGL, l.a.sge(0, 1))
	}
	unknown := l.a.write(l.b, 0, 0, 1)
	unknown.Op = 200
	done := 0
	for _, bad := range []verbs.SendWR{tooMany, unknown} {
		good1, good2 := l.a.write(l.b, 0, 0, 8), l.a.write(l.b, 8, 8, 8)
		n, err := l.a.qp.PostSend([]verbs.SendWR{good1, good2, bad, l.a.write(l.b, 0, 0, 8)})
		if !errors.Is(err, syscall.EINVAL) || n != 2 {
			t.Errorf("a chain whose third WR is bad: %d accepted, %v; want 2, EINVAL", n, err)
		}
		l.until("the two good ones", func() bool { return len(l.a.sent) >= done+2 })
		l.settle()
		if len(l.a.sent) != done+2 {
			t.Fatalf("%d completions, want %d", len(l.a.sent), done+2)
		}
		checkSent(t, l.a.sent[done], good1)
		checkSent(t, l.a.sent[done+1], good2)
		done += 2
	}

	wr := verbs.RecvWR{WRID: recvBit}
	for range l.a.qp.Cap().MaxRecvSGE + 1 {
		wr.SGL = append(wr.SGL, l.a.sge(0, 1))
	}
	n, err := l.a.qp.PostRecv([]verbs.RecvWR{{WRID: recvBit}, wr, {WRID: recvBit}})
	if !errors.Is(err, syscall.EINVAL) || n != 1 {
		t.Errorf("a chain whose second receive is bad: %d accepted, %v; want 1, EINVAL", n, err)
	}
}

func recvQueueFull(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	slots := l.b.qp.Cap().MaxRecvWR
	n, err := l.b.qp.PostRecv(make([]verbs.RecvWR, slots+2))
	wantErrno(t, err, syscall.ENOMEM, "post beyond the receive queue")
	if n != slots {
		t.Errorf("%d receives accepted by a queue of %d", n, slots)
	}
}

func emptyChain(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	if n, err := l.a.qp.PostSend(nil); n != 0 || err != nil {
		t.Errorf("post no sends: %d, %v", n, err)
	}
	if n, err := l.a.qp.PostRecv(nil); n != 0 || err != nil {
		t.Errorf("post no receives: %d, %v", n, err)
	}
}
