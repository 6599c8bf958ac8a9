package conformance

import (
	"encoding/binary"
	"errors"
	"syscall"

	"mover/verbs"
)

// The cases of who may reach whom over UD.
var udAddressCases = []testCase{
	udCase("Q_Key mismatch", udQKey),
	udCase("queue pair number of nobody", udWrongQPN),
	udCase("address handle", addressHandle),
	udCase("address handle destroyed early", handleDestroyedEarly),
	udCase("many senders", manySenders),
}

// udQKey: a datagram with another Q_Key than the receiver's QP has is dropped.
func udQKey(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	fill(l.a.mem, 1)
	id := l.b.recv(0, 1000)
	for _, key := range []uint32{testQKey + 1, 0, 0x7fffffff} {
		wr := l.a.send(0, 100)
		wr.RemoteQKey = key
		l.vanish("datagram with a wrong Q_Key", wr)
	}
	if !isZero(l.b.mem) {
		t.Errorf("memory was written")
	}
	l.arrives("one with the right Q_Key", id, 0, 0, 100)
}

func udWrongQPN(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	fill(l.a.mem, 1)
	id := l.b.recv(0, 1000)
	// Both halves of the number count.
	for _, flip := range []uint32{0x1, 0x10000, 0x800000} {
		wr := l.a.send(0, 100)
		if wr.RemoteQPN ^= flip; wr.RemoteQPN < 2 {
			continue // a management QP
		}
		l.vanish("datagram to no QP", wr)
	}
	l.arrives("one to the right QP", id, 0, 0, 100)
}

// addressHandle: what a bad one gets, that it is counted and keeps its PD, and
// that a send without one is refused.
func addressHandle(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	good := l.ahAttr(l.a, l.b)
	for name, change := range map[string]func(*verbs.AHAttr){
		"port 0":               func(a *verbs.AHAttr) { a.Port = 0 },
		"a port that is not":   func(a *verbs.AHAttr) { a.Port = uint8(l.a.ctx.Device().Ports + 1) },
		"no GRH":               func(a *verbs.AHAttr) { a.IsGlobal = false },
		"a GID index too high": func(a *verbs.AHAttr) { a.SGIDIndex = 1 << 16 },
	} {
		port, err := l.a.ctx.QueryPort(l.a.port)
		must(t, err, "query port")
		attr := good
		if change(&attr); !attr.IsGlobal && !port.GRHRequired {
			continue // InfiniBand routes by LID
		}
		ah, err := l.a.pd.CreateAH(attr)
		wantErrno(t, err, syscall.EINVAL, "create an AH with "+name)
		if err == nil {
			must(t, ah.Destroy(), "destroy AH")
		}
	}

	pd, err := l.a.ctx.AllocPD()
	must(t, err, "alloc PD")
	before := l.a.ctx.Counts().AH
	ah, err := pd.CreateAH(good)
	must(t, err, "create AH")
	if c := l.a.ctx.Counts().AH; c != before+1 {
		t.Errorf("%d AHs counted, want %d", c, before+1)
	}
	wantErrno(t, pd.Dealloc(), syscall.EBUSY, "dealloc a PD with an AH")
	wantErrno(t, l.a.ctx.Close(), syscall.EBUSY, "close a device in use")
	must(t, ah.Destroy(), "destroy AH")
	if c := l.a.ctx.Counts().AH; c != before {
		t.Errorf("%d AHs counted, want %d", c, before)
	}
	must(t, pd.Dealloc(), "dealloc PD")

	wr := l.a.send(0, 8)
	wr.AH = nil
	n, err := l.a.qp.PostSend([]verbs.SendWR{wr})
	wantErrno(t, err, syscall.EINVAL, "post a UD send without an AH")
	if n != 0 {
		t.Errorf("a UD send without an AH was accepted")
	}
}

// handleDestroyedEarly: the AH must outlive the WRs that use it. Who breaks
// that rule gets some completion for each, and no crash; a later post is refused.
func handleDestroyedEarly(t TB, h Harness) {
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	ah, err := l.a.pd.CreateAH(l.ahAttr(l.a, l.b))
	must(t, err, "create AH")
	var chain []verbs.SendWR
	for range 8 {
		wr := l.a.send(0, 100)
		wr.AH = ah
		chain = append(chain, wr)
	}
	l.a.post(chain...)
	must(t, ah.Destroy(), "destroy AH")
	l.until("a completion for each", func() bool { return len(l.a.sent) == len(chain) })

	wr := l.a.send(0, 100)
	wr.AH = ah
	if n, err := l.a.qp.PostSend([]verbs.SendWR{wr}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("post with a destroyed AH: %d, %v", n, err)
	}
}

// manySenders: a UD QP takes from everybody; the completion tells from whom.
// The senders share one AH.
func manySenders(t TB, h Harness) {
	const senders, each, room = 5, 3, 256
	l := newLink(t, h, linkOpts{typ: verbs.UD})
	buffers := map[uint64]int{}
	for i := range senders * each {
		buffers[l.b.recv(i*room, room)] = i * room
	}
	twins := []*side{l.a}
	for range senders - 1 {
		twins = append(twins, l.twin(l.a))
	}
	number := map[uint32]int{} // of the sender, by QPN
	for i, s := range twins {
		number[s.qp.QPN()] = i
		for k := range each {
			off := (i*each + k) * 64
			fill(l.a.mem[off:off+64], i)
			binary.BigEndian.PutUint32(l.a.mem[off:], uint32(k))
			s.post(s.send(off, 64))
		}
	}
	l.until("all datagrams", func() bool {
		done := len(l.b.rcvd) == senders*each
		for _, s := range twins {
			s.poll()
			done = done && len(s.sent) == each
		}
		return done
	})
	seen := map[[2]uint32]bool{} // UD promises no order
	for _, wc := range l.b.rcvd {
		i, known := number[wc.SrcQPN]
		at := buffers[wc.WRID] + grhBytes
		if !known || wc.Status != verbs.WCSuccess || wc.ByteLen != grhBytes+64 {
			t.Fatalf("completion %+v", wc)
		}
		k := binary.BigEndian.Uint32(l.b.mem[at:])
		if mismatchAt(l.b.mem[at+4:at+64], 4, i) >= 0 || k >= each || seen[[2]uint32{uint32(i), k}] {
			t.Errorf("datagram %d of sender %d is wrong, or came twice", k, i)
		}
		seen[[2]uint32{uint32(i), k}] = true
	}
}

// twin is another QP of s's device, PD and memory, with a CQ of its own,
// connected as a UD QP is.
func (l *link) twin(s *side) *side {
	l.t.Helper()
	w := *s
	w.sent, w.rcvd = nil, nil
	var err error
	w.scq, err = s.ctx.CreateCQ(verbs.CQInitAttr{Entries: l.opt.cqEntries})
	must(l.t, err, "create CQ")
	w.rcq = w.scq
	w.qp, err = s.pd.CreateQP(verbs.QPInitAttr{Type: verbs.UD, SendCQ: w.scq, RecvCQ: w.rcq, Cap: l.opt.cap})
	must(l.t, err, "create QP")
	l.t.Cleanup(func() {
		if err := errors.Join(w.qp.Destroy(), w.scq.Destroy()); err != nil {
			l.t.Errorf("destroy a twin: %v", err)
		}
	})
	must(l.t, w.qp.Modify(l.initAttr(&w), verbs.InitMask(verbs.UD)), "to INIT")
	must(l.t, w.qp.Modify(&verbs.QPAttr{State: verbs.StateRTR}, verbs.RTRMask(verbs.UD)), "to RTR")
	must(l.t, w.qp.Modify(l.rtsAttr(&w), verbs.RTSMask(verbs.UD)), "to RTS")
	return &w
}
