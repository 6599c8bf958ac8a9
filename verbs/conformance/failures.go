package conformance

import (
	"errors"
	"slices"

	"mover/verbs"
)

var failureCases = []testCase{
	{name: "failure/drain", run: drain},
	{name: "failure/drain in RTR", run: func(t TB, h Harness) { drainInRTR(t, h, verbs.RC) }},
	{name: "failure/drain in mid-stream", run: func(t TB, h Harness) { drainMidStream(t, h, verbs.RC) }},
	{name: "failure/memory is quiet after the drain", run: func(t TB, h Harness) { quietAfterDrain(t, h, verbs.RC) }},
	{name: "failure/post in ERR", run: func(t TB, h Harness) { postInErr(t, h, verbs.RC) }},
	{name: "failure/peer in ERR", run: func(t TB, h Harness) { peerGone(t, h, false) }},
	{name: "failure/peer destroyed", run: func(t TB, h Harness) { peerGone(t, h, true) }},
	{name: "failure/neighbours live on", run: neighboursLive},
	{name: "failure/queue overrun", run: overrun, needs: OverrunIsFatal, lacking: overrunInSilence},
}

// drain: ERR completes every outstanding WR exactly once.
func drain(t TB, h Harness) {
	l := newLink(t, h, linkOpts{splitCQ: true})
	for range 5 {
		l.a.recv(0, 64)
	}
	wrs := l.stalledSends(7)
	for i := range wrs {
		if i%2 == 0 {
			wrs[i].Flags = 0
		}
	}
	l.a.post(wrs...)
	l.settle()
	l.a.toErr()
	l.until("the flush", func() bool { return len(l.a.sent) == 7 && len(l.a.rcvd) == 5 })
	l.settle()
	const flush = verbs.WCFlushErr
	wantStatuses(t, "sends", l.a.sent, flush, flush, flush, flush, flush, flush, flush)
	wantStatuses(t, "receives", l.a.rcvd, flush, flush, flush, flush, flush)
	for i, wc := range l.a.sent {
		if wc.WRID != wrs[i].WRID {
			t.Errorf("flush %d has wr_id %d, want %d", i, wc.WRID, wrs[i].WRID)
		}
	}
}

func drainInRTR(t TB, h Harness, typ verbs.QPType) {
	l := newLink(t, h, linkOpts{typ: typ, noConnect: true})
	must(t, l.a.qp.Modify(l.initAttr(l.a), verbs.InitMask(typ)), "to INIT")
	l.a.recv(0, 64)
	must(t, l.a.qp.Modify(l.rtrAttr(l.a, l.b), verbs.RTRMask(typ)), "to RTR")
	l.a.recv(0, 64)
	l.a.toErr()
	l.until("the flush", func() bool { return len(l.a.rcvd) == 2 })
	wantStatuses(t, "receives", l.a.rcvd, verbs.WCFlushErr, verbs.WCFlushErr)
}

// drainMidStream: ERR while writes are on their way. Each completes once, in
// order, those that succeeded first.
func drainMidStream(t TB, h Harness, typ verbs.QPType) {
	for stop := range 6 {
		l := newLink(t, h, linkOpts{typ: typ})
		fill(l.a.mem, 1)
		var chain []verbs.SendWR
		for i := range 12 {
			chain = append(chain, l.a.write(l.b, 0, i*20_000, 20_000))
		}
		l.a.post(chain...)
		l.until("some of the stream", func() bool { return len(l.a.sent) >= stop })
		l.a.toErr()
		l.until("the drain", func() bool { return len(l.a.sent) >= len(chain) })
		l.settle()
		if len(l.a.sent) != len(chain) {
			t.Fatalf("%d completions of %d WRs", len(l.a.sent), len(chain))
		}
		flushed := false
		for i, wc := range l.a.sent {
			flushed = flushed || wc.Status == verbs.WCFlushErr
			if wc.WRID != chain[i].WRID || flushed != (wc.Status == verbs.WCFlushErr) || !flushed && wc.Status != verbs.WCSuccess {
				t.Errorf("completion %d: %+v", i, wc)
			}
		}
	}
}

// quietAfterDrain: once the responder's last flush was polled, nothing writes
// to its memory any more, although the peer goes on sending. That is what
// makes memory reusable.
func quietAfterDrain(t TB, h Harness, typ verbs.QPType) {
	for stop := range 6 {
		l := newLink(t, h, linkOpts{typ: typ})
		fill(l.a.mem, 1)
		l.b.recv(0, 0)
		l.b.recv(0, 0)
		var chain []verbs.SendWR
		for i := range 12 {
			chain = append(chain, l.a.write(l.b, 0, i*20_000, 20_000))
		}
		l.a.post(chain...)
		l.until("some of the stream", func() bool { return len(l.a.sent) >= stop })
		l.b.toErr()
		l.until("the drain", func() bool { return len(l.b.rcvd) == 2 })
		wantStatuses(t, "B's receives", l.b.rcvd, verbs.WCFlushErr, verbs.WCFlushErr)
		clear(l.b.mem)
		l.settle()
		if !isZero(l.b.mem) {
			t.Errorf("memory was written after the drain")
		}
		l.until("the sender's end", func() bool { return len(l.a.sent) == len(chain) })
		if !isZero(l.b.mem) {
			t.Errorf("memory was written after the drain")
		}
	}
}

// postInErr: accepted and flushed, or refused with an error; never lost.
func postInErr(t TB, h Harness, typ verbs.QPType) {
	l := newLink(t, h, linkOpts{typ: typ})
	l.a.toErr()
	check := func(what string, n, posted int, err error) {
		if n < posted && err == nil {
			t.Errorf("%s: %d of %d accepted without an error", what, n, posted)
		}
		if n < 0 || n > posted {
			t.Fatalf("%s: %d of %d accepted", what, n, posted)
		}
	}
	sends, err := l.a.qp.PostSend(l.stalledSends(3))
	check("sends", sends, 3, err)
	recvs, err := l.a.qp.PostRecv([]verbs.RecvWR{{WRID: recvBit | 1}, {WRID: recvBit | 2}})
	check("receives", recvs, 2, err)
	l.until("the flush", func() bool { return len(l.a.sent) == sends && len(l.a.rcvd) == recvs })
	l.settle()
	for _, wc := range slices.Concat(l.a.sent, l.a.rcvd) {
		if wc.Status != verbs.WCFlushErr {
			t.Errorf("a WR posted in ERR: %v", wc.Status)
		}
	}
	if len(l.a.sent) != sends || len(l.a.rcvd) != recvs {
		t.Errorf("%d and %d completions for %d and %d accepted", len(l.a.sent), len(l.a.rcvd), sends, recvs)
	}
}

// peerGone: the peer's QP goes away in mid-stream. The sender learns of it
// within a bound, the first status blames the path, and every WR completes.
func peerGone(t TB, h Harness, destroy bool) {
	l := newLink(t, h, linkOpts{minRNR: 1})
	fill(l.a.mem, 1)
	l.b.recv(0, 64)
	var chain []verbs.SendWR
	for range 3 {
		chain = append(chain, l.a.write(l.b, 0, 0, 100_000))
	}
	chain = append(chain, l.a.send(0, 64), l.a.send(0, 64))
	l.a.recv(0, 64)
	l.a.post(chain...) // the last one has no receive and stays
	l.until("the stream", func() bool { return len(l.a.sent) >= 2 && len(l.b.rcvd) >= 1 })
	if destroy {
		must(t, l.b.qp.Destroy(), "destroy the peer's QP")
		l.b.qp = nil
	} else {
		l.b.toErr()
	}
	l.until("the error", func() bool {
		return len(l.a.sent) == len(chain) && len(l.a.rcvd) == 1
	})
	bad := false
	for i, wc := range l.a.sent {
		switch {
		case wc.Status == verbs.WCSuccess && !bad:
		case !bad && (wc.Status.Blame() == verbs.BlamePath || wc.Status == verbs.WCRemOpErr):
			bad = true
		case bad && wc.Status == verbs.WCFlushErr:
		default:
			t.Errorf("completion %d is %v", i, wc.Status)
		}
	}
	if !bad {
		t.Errorf("no completion blames the path")
	}
	wantStatuses(t, "A's receive", l.a.rcvd, verbs.WCFlushErr)
	wantState(t, l.a.qp, verbs.StateErr)
}

// neighboursLive: an error stays on its own QP; another one on the same CQ,
// PD and device goes on.
func neighboursLive(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	other := &link{t: t, pair: l.pair, opt: l.opt}
	for _, s := range []struct{ from, to **side }{{&l.a, &other.a}, {&l.b, &other.b}} {
		twin := **s.from
		twin.sent, twin.rcvd = nil, nil
		var err error
		twin.qp, err = twin.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: twin.scq, RecvCQ: twin.rcq, Cap: l.opt.cap})
		must(t, err, "create a second QP")
		*s.to = &twin
	}
	other.connect()
	l.provokeAccessError()
	other.b.recv(0, 16)
	other.a.post(other.a.send(0, 16))
	other.until("a message on the other QP", func() bool { return len(other.a.sent) == 1 && len(other.b.rcvd) == 1 })
	if other.a.sent[0].Status != verbs.WCSuccess || other.b.rcvd[0].Status != verbs.WCSuccess {
		t.Errorf("the other QP: %v, %v", other.a.sent[0].Status, other.b.rcvd[0].Status)
	}
	must(t, other.a.qp.Destroy(), "destroy")
	must(t, other.b.qp.Destroy(), "destroy")
}

// overflow flushes more receives than the CQ has room for.
func (l *link) overflow() {
	l.t.Helper()
	room := l.b.rcq.Entries()
	if most := l.b.qp.Cap().MaxRecvWR; room >= most {
		l.t.Fatalf("a CQ asked to have 4 entries has %d, more than the case can flush", room)
	}
	for range l.b.qp.Cap().MaxRecvWR {
		l.b.recv(0, 0)
	}
	l.b.toErr()
}

var overrunOpts = linkOpts{cqEntriesB: 4, cap: verbs.QPCap{MaxRecvWR: 128}}

// overrun: the dead queue answers with an error for good, and CQ_ERR tells
// whose queue it was.
func overrun(t TB, h Harness) {
	l := newLink(t, h, overrunOpts)
	l.overflow()
	l.until("the overrun", func() bool { return l.b.pollErr != nil })
	if !errors.Is(l.b.pollErr, verbs.ErrCQOverrun) {
		t.Errorf("poll of an overrun queue: %v, want ErrCQOverrun", l.b.pollErr)
	}
	if len(l.b.rcvd) > l.b.rcq.Entries() {
		t.Errorf("%d completions came out of %d entries", len(l.b.rcvd), l.b.rcq.Entries())
	}
	for range 3 {
		if n, err := l.b.rcq.Poll(make([]verbs.WC, 4)); n != 0 || !errors.Is(err, verbs.ErrCQOverrun) {
			t.Errorf("poll of a dead queue: %d, %v", n, err)
		}
	}
	ev := l.event(l.b)
	if ev.Type != verbs.EventCQErr || ev.CQ != l.b.rcq {
		t.Errorf("event %+v, want CQ_ERR of the queue", ev)
	}
}

func overrunInSilence(t TB, h Harness) {
	l := newLink(t, h, overrunOpts)
	l.overflow()
	l.settle()
	if l.b.pollErr != nil {
		t.Errorf("the provider declares no OverrunIsFatal, but: %v", l.b.pollErr)
	}
}
