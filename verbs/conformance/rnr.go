package conformance

import "mover/verbs"

var rnrCases = []testCase{
	{name: "rnr/stall and recovery", run: rnrRecovers},
	{name: "rnr/retries exceeded", run: rnrExceeded},
}

// rnrRecovers: without a receive the sender waits, and what is behind it
// waits too; a receive posted later lets both through.
func rnrRecovers(t TB, h Harness) {
	l := newLink(t, h, linkOpts{minRNR: 1})
	fill(l.a.mem[:200], 1)
	first, second := l.a.writeImm(l.b, 0, 0, 100, 1), l.a.writeImm(l.b, 100, 100, 100, 2)
	behind := l.a.write(l.b, 100, 300, 100)
	l.a.post(first, second, behind)
	l.settle()
	if len(l.a.sent) != 0 || len(l.b.rcvd) != 0 {
		t.Fatalf("completions without a receive: %+v %+v", l.a.sent, l.b.rcvd)
	}
	for i := range 2 {
		id := l.b.recv(0, 0)
		l.until("recovery", func() bool { return len(l.b.rcvd) == i+1 && len(l.a.sent) >= i+1 })
		checkRecv(t, l.b.rcvd[i], id, verbs.OpWriteWithImm, 100, uint32(i+1))
	}
	l.until("the write behind", func() bool { return len(l.a.sent) == 3 })
	for i, wr := range []verbs.SendWR{first, second, behind} {
		checkSent(t, l.a.sent[i], wr)
	}
	if mismatch(l.b.mem[:200], 1) >= 0 {
		t.Errorf("bytes are wrong")
	}
}

// rnrExceeded: a finite rnr_retry ends in RNR_RETRY_EXC_ERR; the responder is
// not at fault and stays as it is.
func rnrExceeded(t TB, h Harness) {
	l := newLink(t, h, linkOpts{minRNR: 1, rnrRetry: 2})
	l.a.recv(0, 8)
	l.a.post(l.a.send(0, 8), l.a.write(l.b, 0, 4096, 8))
	l.until("the errors", func() bool { return len(l.a.sent) == 2 && len(l.a.rcvd) == 1 })
	wantStatuses(t, "A's sends", l.a.sent, verbs.WCRNRRetryExcErr, verbs.WCFlushErr)
	wantStatuses(t, "A's receives", l.a.rcvd, verbs.WCFlushErr)
	wantState(t, l.a.qp, verbs.StateErr)
	if len(l.b.rcvd) != 0 || len(l.b.sent) != 0 {
		t.Errorf("completions at B: %+v %+v", l.b.rcvd, l.b.sent)
	}
}

func wantStatuses(t TB, what string, wcs []verbs.WC, want ...verbs.WCStatus) {
	t.Helper()
	if len(wcs) != len(want) {
		t.Errorf("%s: %d completions, want %d: %+v", what, len(wcs), len(want), wcs)
		return
	}
	for i, wc := range wcs {
		if wc.Status != want[i] {
			t.Errorf("%s: completion %d is %v, want %v", what, i, wc.Status, want[i])
		}
	}
}
