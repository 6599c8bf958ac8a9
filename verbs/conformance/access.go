package conformance

import (
	"slices"

	"mover/verbs"
)

var accessCases = []testCase{
	{name: "access/remote", run: remoteAccess},
	{name: "access/local", run: localAccess},
	{name: "access/region without remote write", run: regionReadOnly},
	{name: "access/queue pair without remote write", run: qpReadOnly},
	{name: "access/foreign protection domain", run: foreignPD},
	{name: "access/deregistered", run: deregistered},
	{name: "access/receive buffer too short", run: recvTooShort},
	{name: "access/receive without local write", run: recvBadKey},
	{name: "access/errors flush both queues", run: errorFlushes},
	{name: "access/event", run: accessEvent, needs: AccessEvents, lacking: noAccessEvent},
}

// refused posts [good, bad, good] from A and asserts that the first succeeds,
// the second ends as one of statuses, the third is flushed, and B's memory
// beyond the first write is untouched.
func (l *link) refused(what string, bad verbs.SendWR, statuses ...verbs.WCStatus) {
	l.t.Helper()
	fill(l.a.mem, 9)
	clear(l.b.mem)
	l.a.post(l.a.write(l.b, 0, 0, 16), bad, l.a.write(l.b, 0, 4096, 16))
	l.until(what, func() bool { return len(l.a.sent) == 3 })
	if l.a.sent[0].Status != verbs.WCSuccess || !slices.Contains(statuses, l.a.sent[1].Status) ||
		l.a.sent[2].Status != verbs.WCFlushErr {
		l.t.Errorf("%s: statuses %v, %v, %v; want SUCCESS, one of %v, WR_FLUSH_ERR", what,
			l.a.sent[0].Status, l.a.sent[1].Status, l.a.sent[2].Status, statuses)
	}
	if l.a.sent[1].WRID != bad.WRID {
		l.t.Errorf("%s: wr_id %d of the error, want %d", what, l.a.sent[1].WRID, bad.WRID)
	}
	wantState(l.t, l.a.qp, verbs.StateErr)
	l.settle()
	if !isZero(l.b.mem[16:]) {
		l.t.Errorf("%s: memory was changed", what)
	}
}

// remoteAccess: keys and bounds are checked in 64 bits at both ends, an
// address near 2^64 must not wrap into the region.
func remoteAccess(t TB, h Harness) {
	for _, c := range []struct {
		name   string
		change func(l *link, wr *verbs.SendWR)
	}{
		{"wrong rkey", func(l *link, wr *verbs.SendWR) { wr.RKey ^= 0x5a00 }},
		{"rkey 0", func(l *link, wr *verbs.SendWR) { wr.RKey = 0 }},
		{"one byte before", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = l.b.addr(-1) }},
		{"one byte behind", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = l.b.addr(len(l.b.mem) - 63) }},
		{"wholly behind", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = l.b.addr(len(l.b.mem)) }},
		{"address 0", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = 0 }},
		{"wraps around", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(0) - 31 }},
		{"ends at 2^64", func(l *link, wr *verbs.SendWR) { wr.RemoteAddr = ^uint64(0) - 63 }},
		{"with immediate", func(l *link, wr *verbs.SendWR) {
			wr.Op = verbs.OpWriteWithImm
			wr.RKey ^= 0x5a00
		}},
	} {
		{
			l := newLink(t, h, linkOpts{})
			l.b.recv(0, 0)
			bad := l.a.write(l.b, 0, 64, 64)
			c.change(l, &bad)
			l.refused(c.name, bad, verbs.WCRemAccessErr)
			l.until("the responder's flush", func() bool { return len(l.b.rcvd) == 1 })
			// A provider may charge the error to the receive that an immediate
			// would have taken.
			if st := l.b.rcvd[0].Status; st == verbs.WCSuccess || bad.Op == verbs.OpWrite && st != verbs.WCFlushErr {
				t.Errorf("%s: the responder's receive is %v", c.name, st)
			}
			wantState(t, l.b.qp, verbs.StateErr)
		}
	}
}

// localAccess: a bad lkey or range is the poster's own error, and nothing
// reaches the peer.
func localAccess(t TB, h Harness) {
	for _, c := range []struct {
		name   string
		change func(l *link, sge *verbs.SGE)
	}{
		{"wrong lkey", func(l *link, sge *verbs.SGE) { sge.LKey ^= 0x5a00 }},
		{"one byte before", func(l *link, sge *verbs.SGE) { sge.Addr = l.a.addr(-1) }},
		{"one byte behind", func(l *link, sge *verbs.SGE) { sge.Addr = l.a.addr(len(l.a.mem) - 63) }},
		{"wraps around", func(l *link, sge *verbs.SGE) { sge.Addr = ^uint64(0) - 31 }},
	} {
		l := newLink(t, h, linkOpts{})
		l.b.recv(0, 0)
		bad := l.a.write(l.b, 0, 64, 64)
		c.change(l, &bad.SGL[0])
		l.refused(c.name, bad, h.ownFault(verbs.WCLocProtErr)...)
		if len(l.b.rcvd) != 0 && l.b.rcvd[0].Status != verbs.WCFlushErr {
			t.Errorf("%s: something reached the peer: %+v", c.name, l.b.rcvd)
		}
	}
}

func regionReadOnly(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	mem := l.pair.Alloc(t, 4096)
	mr, err := l.b.pd.RegMR(mem, verbs.AccessLocalWrite)
	must(t, err, "register")
	bad := l.a.write(l.b, 0, 0, 64)
	bad.RemoteAddr, bad.RKey = mr.Addr(), mr.RKey()
	l.refused("region without remote write", bad, verbs.WCRemAccessErr)
	if !isZero(mem) {
		t.Errorf("the region was written")
	}
	must(t, mr.Dereg(), "deregister")
}

// qpReadOnly: the specification lets a responder answer a function that the QP
// was not enabled for as an invalid request or as an access error.
func qpReadOnly(t TB, h Harness) {
	l := newLink(t, h, linkOpts{noAccess: true})
	fill(l.a.mem, 1)
	l.a.post(l.a.write(l.b, 0, 0, 64))
	l.until("the refusal", func() bool { return len(l.a.sent) == 1 })
	if st := l.a.sent[0].Status; st != verbs.WCRemInvReqErr && st != verbs.WCRemAccessErr {
		t.Errorf("status %v, want REM_INV_REQ_ERR or REM_ACCESS_ERR", st)
	}
	l.settle()
	if !isZero(l.b.mem) {
		t.Errorf("memory was written")
	}
}

// foreignPD: a QP uses only the regions of its own PD, as lkey or as rkey.
func foreignPD(t TB, h Harness) {
	for _, local := range []bool{true, false} {
		l := newLink(t, h, linkOpts{})
		s := l.b
		if local {
			s = l.a
		}
		pd, err := s.ctx.AllocPD()
		must(t, err, "alloc PD")
		mem := l.pair.Alloc(t, 4096)
		mr, err := pd.RegMR(mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		must(t, err, "register")
		bad := l.a.write(l.b, 0, 0, 64)
		if local {
			bad.SGL[0] = verbs.SGE{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}
			l.refused("lkey of another PD", bad, h.ownFault(verbs.WCLocProtErr)...)
		} else {
			bad.RemoteAddr, bad.RKey = mr.Addr(), mr.RKey()
			l.refused("rkey of another PD", bad, verbs.WCRemAccessErr)
		}
		if !isZero(mem) {
			t.Errorf("the other PD's region was written")
		}
		must(t, mr.Dereg(), "deregister")
		must(t, pd.Dealloc(), "dealloc PD")
	}
}

// deregistered: Dereg revokes both keys at once.
func deregistered(t TB, h Harness) {
	for _, local := range []bool{true, false} {
		l := newLink(t, h, linkOpts{})
		s := l.b
		if local {
			s = l.a
		}
		mem := l.pair.Alloc(t, 4096)
		mr, err := s.pd.RegMR(mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		must(t, err, "register")
		good := l.a.write(l.b, 0, 8192, 8)
		bad := l.a.write(l.b, 0, 0, 64)
		if local {
			good.SGL[0] = verbs.SGE{Addr: mr.Addr(), Length: 8, LKey: mr.LKey()}
			bad.SGL[0] = verbs.SGE{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}
		} else {
			good.RemoteAddr, good.RKey = mr.Addr(), mr.RKey()
			bad.RemoteAddr, bad.RKey = mr.Addr(), mr.RKey()
		}
		l.a.post(good)
		l.until("a write before", func() bool { return len(l.a.sent) == 1 })
		l.fence(l.a, l.b)
		checkSent(t, l.a.sent[0], good)
		must(t, mr.Dereg(), "deregister")
		clear(mem)
		l.a.sent = nil
		if local {
			l.refused("deregistered lkey", bad, h.ownFault(verbs.WCLocProtErr)...)
		} else {
			l.refused("deregistered rkey", bad, verbs.WCRemAccessErr)
		}
		if !isZero(mem) {
			t.Errorf("deregistered memory was written")
		}
	}
}

// wantCause: the first status is one of those given, the rest are flushes.
func wantCause(t TB, what string, wcs []verbs.WC, causes []verbs.WCStatus) {
	t.Helper()
	for i, wc := range wcs {
		if i == 0 && !slices.Contains(causes, wc.Status) || i > 0 && wc.Status != verbs.WCFlushErr {
			t.Errorf("%s: completion %d is %v; want one of %v, then WR_FLUSH_ERR", what, i, wc.Status, causes)
		}
	}
}

// recvTooShort: LOC_LEN_ERR here, REM_INV_REQ_ERR there, nothing behind the
// buffer is touched.
func recvTooShort(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	fill(l.a.mem, 1)
	l.b.recv(100, 63)
	l.b.recv(4096, 4096)
	l.a.post(l.a.send(0, 64), l.a.send(0, 64))
	l.until("the errors", func() bool { return len(l.a.sent) == 2 && len(l.b.rcvd) == 2 })
	refusals := []verbs.WCStatus{verbs.WCRemInvReqErr}
	if h.Lacks&ExactStatus != 0 {
		refusals = append(refusals, verbs.WCRemOpErr)
	}
	wantCause(t, "A's sends", l.a.sent, refusals)
	wantCause(t, "B's receives", l.b.rcvd, h.ownFault(verbs.WCLocLenErr))
	wantState(t, l.b.qp, verbs.StateErr)
	if !isZero(l.b.mem[:100]) || !isZero(l.b.mem[163:]) {
		t.Errorf("memory outside the receive buffer was written")
	}
}

// recvBadKey: a receive into memory that this side may not write is the
// receiver's own error, and a remote operation error for the sender.
func recvBadKey(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	mem := l.pair.Alloc(t, 4096)
	mr, err := l.b.pd.RegMR(mem, 0)
	must(t, err, "register without local write")
	l.b.postRecv(verbs.RecvWR{WRID: recvBit, SGL: []verbs.SGE{{Addr: mr.Addr(), Length: 64, LKey: mr.LKey()}}})
	fill(l.a.mem, 1)
	l.a.post(l.a.send(0, 64))
	l.until("the errors", func() bool { return len(l.a.sent) == 1 && len(l.b.rcvd) == 1 })
	wantStatuses(t, "A's send", l.a.sent, verbs.WCRemOpErr)
	wantCause(t, "B's receive", l.b.rcvd, h.ownFault(verbs.WCLocProtErr))
	if !isZero(mem) {
		t.Errorf("memory without local write was written")
	}
	must(t, mr.Dereg(), "deregister")
}

// errorFlushes: the first status is the cause, everything else outstanding on
// both queues of both sides is WR_FLUSH_ERR, one completion each.
func errorFlushes(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	for range 3 {
		l.b.recv(0, 8)
	}
	l.b.post(l.b.send(0, 8), l.b.send(0, 8)) // A has no receives: these wait
	bad := l.a.write(l.b, 0, 0, 8)
	bad.RKey ^= 0x5a00
	quiet := l.a.write(l.b, 0, 64, 8)
	quiet.Flags = 0 // an error completes the unsignalled too
	l.a.post(bad, quiet, l.a.write(l.b, 0, 64, 8), l.a.send(0, 8))
	l.until("all completions", func() bool {
		return len(l.a.sent) == 4 && len(l.b.rcvd) == 3 && len(l.b.sent) == 2
	})
	const flush = verbs.WCFlushErr
	wantStatuses(t, "A's sends", l.a.sent, verbs.WCRemAccessErr, flush, flush, flush)
	wantStatuses(t, "B's receives", l.b.rcvd, flush, flush, flush)
	wantStatuses(t, "B's sends", l.b.sent, flush, flush)
	l.settle()
	if len(l.a.sent) != 4 || len(l.b.rcvd) != 3 || len(l.b.sent) != 2 {
		t.Errorf("more completions than WRs")
	}
}

func (l *link) provokeAccessError() {
	l.t.Helper()
	bad := l.a.write(l.b, 0, 0, 8)
	bad.RKey ^= 0x5a00
	l.a.post(bad)
	l.until("the error", func() bool { return len(l.a.sent) == 1 })
	wantStatuses(l.t, "A's send", l.a.sent, verbs.WCRemAccessErr)
}

func accessEvent(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	l.provokeAccessError()
	ev := l.event(l.b)
	if ev.Type != verbs.EventQPAccessErr || ev.QPN != l.b.qp.QPN() {
		t.Errorf("event %v of QP %#x, want QP_ACCESS_ERR of %#x", ev.Type, ev.QPN, l.b.qp.QPN())
	}
}

func noAccessEvent(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	l.provokeAccessError()
	l.settle()
	if ev, err := l.b.ctx.GetAsyncEvent(0); err == nil {
		t.Errorf("the provider declares no AccessEvents, but sent %v", ev.Type)
	}
}
