package conformance

import (
	"encoding/binary"
	"errors"
	"syscall"

	"mover/verbs"
)

var featureCases = []testCase{
	{name: "feature/inline", run: inlineWorks, needs: Inline,
		lacking: func(t TB, h Harness) { qpRefused(t, h, verbs.RC, 64) }},
	{name: "feature/inline beyond the limit", run: inlineTooLong},
	{name: "feature/read", run: readWorks, needs: Read,
		lacking: func(t TB, h Harness) { sendRefused(t, h, verbs.OpRead) }},
	{name: "feature/atomics", run: atomicsWork, needs: Atomic, lacking: func(t TB, h Harness) {
		sendRefused(t, h, verbs.OpFetchAdd)
		sendRefused(t, h, verbs.OpCompareSwap)
	}},
}

// wantUnsupported: a lack is typed, and says whose it is and what.
func wantUnsupported(t TB, err error, what string) {
	t.Helper()
	var typed *verbs.UnsupportedError
	if !errors.Is(err, verbs.ErrUnsupported) || !errors.As(err, &typed) || typed.Provider == "" || typed.What == "" {
		t.Errorf("%s, which the provider declares to lack: %v, want an *UnsupportedError", what, err)
	}
}

func qpRefused(t TB, h Harness, typ verbs.QPType, inline int) {
	l := newLink(t, h, linkOpts{noConnect: true})
	c := l.opt.cap
	c.MaxInlineBytes = inline
	qp, err := l.a.pd.CreateQP(verbs.QPInitAttr{Type: typ, SendCQ: l.a.scq, RecvCQ: l.a.rcq, Cap: c})
	wantUnsupported(t, err, typ.String())
	if err == nil {
		must(t, qp.Destroy(), "destroy")
	}
	if typ == verbs.UD {
		_, err := l.a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, DGID: l.b.pickGID().GID, Port: l.a.port, HopLimit: 64})
		wantUnsupported(t, err, "address handle")
	}
}

func sendRefused(t TB, h Harness, op verbs.Opcode) {
	l := newLink(t, h, linkOpts{})
	wr := l.a.write(l.b, 0, 0, 8)
	wr.Op = op
	n, err := l.a.qp.PostSend([]verbs.SendWR{l.a.write(l.b, 0, 0, 8), wr, l.a.write(l.b, 0, 0, 8)})
	wantUnsupported(t, err, op.String())
	if n != 1 {
		t.Errorf("%d accepted, want the one before %v", n, op)
	}
}

// inlineWorks: the buffer may change as soon as the post returns, and needs
// no lkey.
func inlineWorks(t TB, h Harness) {
	l := newLink(t, h, linkOpts{cap: verbs.QPCap{MaxInlineBytes: 64}})
	fill(l.a.mem[:64], 1)
	l.b.recv(0, 64)
	wr := l.a.send(0, 64)
	wr.Flags |= verbs.SendInline
	wr.SGL[0].LKey = 0
	l.a.post(wr)
	clear(l.a.mem[:64])
	l.until("the inline send", func() bool { return len(l.a.sent) == 1 && len(l.b.rcvd) == 1 })
	checkSent(t, l.a.sent[0], wr)
	if mismatch(l.b.mem[:64], 1) >= 0 {
		t.Errorf("bytes are wrong")
	}
}

func inlineTooLong(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	wr := l.a.write(l.b, 0, 0, l.a.qp.Cap().MaxInlineBytes+1)
	wr.Flags |= verbs.SendInline
	n, err := l.a.qp.PostSend([]verbs.SendWR{wr})
	if n != 0 || !errors.Is(err, syscall.EINVAL) && !errors.Is(err, verbs.ErrUnsupported) {
		t.Errorf("inline beyond the QP's limit: %d, %v", n, err)
	}
}

func readWorks(t TB, h Harness) {
	const access = verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	l := newLink(t, h, linkOpts{rdAtomic: 1, qpAccess: access, mrAccess: access | verbs.AccessLocalWrite})
	fill(l.b.mem[:9000], 1)
	wr := l.a.write(l.b, 100, 0, 9000)
	wr.Op = verbs.OpRead
	l.a.post(wr)
	l.until("the read", func() bool { return len(l.a.sent) == 1 })
	if wc := l.a.sent[0]; wc.Status != verbs.WCSuccess || wc.Opcode != verbs.WCRDMARead {
		t.Errorf("completion %+v", wc)
	}
	if mismatch(l.a.mem[100:9100], 1) >= 0 {
		t.Errorf("bytes are wrong")
	}
}

func atomicsWork(t TB, h Harness) {
	const access = verbs.AccessRemoteAtomic | verbs.AccessRemoteWrite
	l := newLink(t, h, linkOpts{rdAtomic: 1, qpAccess: access, mrAccess: access | verbs.AccessLocalWrite})
	binary.NativeEndian.PutUint64(l.b.mem, 40)
	add, swap := l.a.write(l.b, 0, 0, 8), l.a.write(l.b, 8, 0, 8)
	add.Op, add.CompareAdd = verbs.OpFetchAdd, 2
	swap.Op, swap.CompareAdd, swap.Swap = verbs.OpCompareSwap, 42, 7
	l.a.post(add, swap)
	l.until("the atomics", func() bool { return len(l.a.sent) == 2 })
	if l.a.sent[0].Opcode != verbs.WCFetchAdd || l.a.sent[1].Opcode != verbs.WCCompSwap {
		t.Errorf("completions %+v", l.a.sent)
	}
	got := [3]uint64{binary.NativeEndian.Uint64(l.a.mem), binary.NativeEndian.Uint64(l.a.mem[8:]),
		binary.NativeEndian.Uint64(l.b.mem)}
	if got != [3]uint64{40, 42, 7} {
		t.Errorf("fetched %d, then %d; the word is now %d", got[0], got[1], got[2])
	}
}
