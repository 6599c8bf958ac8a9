package sim_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"mover/verbs"
	"mover/verbs/sim"
)

// TestUCCutRail: a sender into a cut rail sees nothing but successes; what is
// sent after the cut arrives.
func TestUCCutRail(t *testing.T) {
	r := ucRig(t, 1, sim.Options{}, 1)
	r.recv(r.b.qps[0])
	r.f.CutRail(portA, portB)
	for range 20 {
		r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 2*packet))
	}
	r.settle()
	r.wantAll(r.a.wcs, 20, verbs.WCSuccess)
	r.wantAll(r.b.wcs, 0, verbs.WCSuccess)
	if st := r.f.Stats(); !isZero(r.b.mem) || st.LostPackets != 40 || st.LostMessages != 20 {
		t.Errorf("something came through: %+v", st)
	}
	r.f.HealRail(portA, portB)
	r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 2*packet))
	r.until(func() bool { return len(r.b.wcs) == 1 })
	if !r.same(0, 2*packet) {
		t.Error("bytes are wrong")
	}
	if _, err := r.a.ctx.GetAsyncEvent(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("a cut rail was announced: %v", err)
	}
	r.wantNoViolation()
}

// TestUCCutInMid: a cut while a message is on the wire takes the rest of it.
func TestUCCutInMid(t *testing.T) {
	parts := 0
	for seed := range uint64(40) {
		r := ucRig(t, seed, sim.Options{}, 1)
		r.recv(r.b.qps[0])
		const n = 20 * packet
		r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, n))
		r.until(func() bool { return r.f.Now() > 8*time.Microsecond }) // it has left
		for range seed % 4 {
			r.f.Step()
		}
		r.f.CutRail(portA, portB)
		r.settle()
		r.wantAll(r.a.wcs, 1, verbs.WCSuccess)
		announced := len(r.b.wcs) == 1
		if announced != r.same(0, n) {
			t.Errorf("seed %d: announced %v, and whole %v", seed, announced, !announced)
		}
		if !announced && !isZero(r.b.mem[:n]) {
			parts++
		}
	}
	if parts == 0 {
		t.Error("no message was cut in two")
	}
}

// TestUCPortDown: PORT_ERR, and successes that mean nothing, or LOC_QP_OP_ERR.
func TestUCPortDown(t *testing.T) {
	s := seen{}
	for seed := range uint64(20) {
		r := ucRig(t, seed, sim.Options{}, 1)
		r.recv(r.b.qps[0])
		r.f.PortDown(portA)
		r.event(r.a, verbs.EventPortErr)
		r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 100), r.writeImm(r.a, r.b, 0, 100))
		r.settle()
		if !isZero(r.b.mem) || len(r.b.wcs) != 0 {
			t.Errorf("seed %d: something came through", seed)
		}
		if r.a.wcs[0].Status == verbs.WCSuccess {
			r.wantAll(r.a.wcs, 2, verbs.WCSuccess)
			s["success"]++
			continue
		}
		wantCause(t, r.a.wcs, 2, verbs.WCLocQPOpErr)
		s[r.stopped(r.a.qps[0]).String()]++
	}
	s.want(t, "success", "ERR", "SQE")
}

// TestUCKillQP: the QP's own failure is the one thing a sender learns of. In
// SQE its receive queue works on, until the user ends it.
func TestUCKillQP(t *testing.T) {
	s := seen{}
	for seed := range uint64(20) {
		r := ucRig(t, seed, sim.Options{}, 2)
		for i := range 4 {
			r.post(r.a.qps[0], r.write(r.a, r.b, i*40_000, 40_000))
		}
		r.recvInto(r.a, r.a.qps[0], 0, 100)
		r.recvInto(r.a, r.a.qps[0], 0, 100)
		r.f.KillQP(r.a.qps[0].QPN())
		r.until(func() bool { return r.f.QPs("a", "sim0")[0].Sends == 0 })
		state := r.stopped(r.a.qps[0])
		s[state.String()]++
		r.settle()
		r.wantState(r.b.qps[0], verbs.StateRTS)
		sent, received := split(r.a.wcs)
		wantCause(t, sent, 4, verbs.WCLocQPOpErr)
		if state == verbs.StateErr {
			r.wantAll(received, 2, verbs.WCFlushErr)
			continue
		}
		r.wantAll(received, 0, verbs.WCSuccess)
		r.post(r.b.qps[0], r.send(r.b, 0, 100))
		r.settle()
		_, received = split(r.a.wcs)
		r.wantAll(received, 1, verbs.WCSuccess)
		n, err := r.a.qps[0].PostSend([]verbs.SendWR{r.send(r.a, 0, 8)})
		if n == 0 && err == nil {
			t.Error("a post in SQE: neither accepted nor refused")
		}
		r.must(r.a.qps[0].Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		r.settle()
		sent, received = split(r.a.wcs)
		r.wantAll(sent[4:], n, verbs.WCFlushErr)
		r.wantAll(received[1:], 1, verbs.WCFlushErr)
		r.wantNoViolation()
	}
	s.want(t, "ERR", "SQE")
}

// TestUCOutlivesItsSender: what is on the wire arrives though its QP is gone,
// and a flushed WR may have been sent, wholly or in part.
func TestUCOutlivesItsSender(t *testing.T) {
	s := seen{}
	for seed := range uint64(80) {
		r := ucRig(t, seed, sim.Options{}, 1)
		r.recv(r.b.qps[0])
		const n = 5 * packet
		r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, n))
		if seed%2 == 0 {
			r.until(func() bool { return len(r.a.wcs) == 1 })
			r.must(r.a.qps[0].Destroy())
		} else {
			r.must(r.a.qps[0].Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		}
		early := len(r.b.wcs) == 0
		r.settle()
		arrived := len(r.b.wcs) == 1
		if arrived != r.same(0, n) {
			t.Errorf("seed %d: announced %v", seed, arrived)
		}
		switch {
		case seed%2 == 0 && !arrived:
			t.Errorf("seed %d: the message did not arrive", seed)
		case seed%2 == 0 && early:
			s["arrived after the QP was destroyed"]++
		case seed%2 == 0:
		case r.a.wcs[0].Status != verbs.WCFlushErr:
			t.Errorf("seed %d: %v", seed, r.a.wcs[0].Status)
		case arrived:
			s["flushed, and received"]++
		case isZero(r.b.mem):
			s["flushed, and not sent"]++
		default:
			s["flushed, and a part sent"]++
		}
		r.wantNoViolation()
	}
	s.want(t, "arrived after the QP was destroyed", "flushed, and received", "flushed, and not sent",
		"flushed, and a part sent")
}

// TestUCDrainedReceiver: once the receiver's last flush was polled its memory
// is quiet, whatever is still on the wire.
func TestUCDrainedReceiver(t *testing.T) {
	forSeeds(t, 20, func(t *testing.T, seed uint64) {
		r := ucRig(t, seed, sim.Options{}, 1)
		r.recv(r.b.qps[0])
		for i := range 6 {
			r.post(r.a.qps[0], r.write(r.a, r.b, i*50_000, 50_000))
		}
		for range 3 * seed {
			r.f.Step()
		}
		r.must(r.b.qps[0].Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		r.until(func() bool { return len(r.b.wcs) == 1 })
		clear(r.b.mem)
		r.must(r.b.mr.Dereg())
		r.settle()
		if !isZero(r.b.mem) {
			t.Error("memory was written after the drain")
		}
		r.wantAll(r.a.wcs, 6, verbs.WCSuccess)
		r.wantNoViolation()
	})
}

// TestUCRevoked: memory deregistered while a message for it is arriving is not
// written any more, and it is recorded.
func TestUCRevoked(t *testing.T) {
	caught := 0
	for seed := range uint64(30) {
		r := ucRig(t, seed, sim.Options{}, 1)
		r.post(r.a.qps[0], r.write(r.a, r.b, 0, 60*packet))
		r.f.Step() // it leaves
		r.f.Step() // some or all of it arrives
		r.must(r.b.mr.Dereg())
		before := bytes.Clone(r.b.mem)
		r.settle()
		if !bytes.Equal(before, r.b.mem) {
			t.Errorf("seed %d: deregistered memory was written", seed)
		}
		for _, v := range r.f.Violations() {
			if v.Kind == sim.WriteRevoked && (!isZero(before) || r.f.Violations()[0].Kind == sim.DeregInFlight) {
				caught++ // some of it had been taken
			}
		}
	}
	if caught == 0 {
		t.Error("no message was caught half-way")
	}
}

// TestUCBadPath: ends that do not fit are recorded. Wrong PSNs do not keep
// messages away, since the first packet sets the number; different MTUs keep
// long ones away.
func TestUCBadPath(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*verbs.QPAttr)
		arrives int
	}{
		{"PSN", func(a *verbs.QPAttr) { a.RQPSN = 77 }, 2},
		{"QPN", func(a *verbs.QPAttr) { a.DestQPN ^= 1 }, 2},
		{"MTU", func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU1024 }, 1},
	} {
		r := ucRig(t, 1, sim.Options{}, 1)
		qp := r.b.qps[0]
		r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
		r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1, AccessFlags: verbs.AccessRemoteWrite},
			verbs.InitMask(verbs.UC)))
		attr := r.rtr(r.b, r.a, 0)
		c.change(attr)
		r.must(qp.Modify(attr, verbs.RTRMask(verbs.UC)))
		r.recv(qp)
		r.recv(qp)
		r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 2*packet), r.writeImm(r.a, r.b, 100_000, 1000))
		r.settle()
		r.wantAll(r.a.wcs, 2, verbs.WCSuccess)
		r.wantAll(r.b.wcs, c.arrives, verbs.WCSuccess)
		r.wantViolation(sim.BadPath)
	}
}

// TestUCOtherEvents: the faults of queues and devices are those of RC.
func TestUCOtherEvents(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.UC, verbs.UD} {
		r := newRigOf(t, typ, 1, sim.Options{}, 1)
		r.recv(r.b.qps[0])
		r.f.FatalQP(r.b.qps[0].QPN())
		if ev := r.event(r.b, verbs.EventQPFatal); ev.QPN != r.b.qps[0].QPN() {
			t.Errorf("%v: event %+v", typ, ev)
		}
		r.settle()
		r.wantAll(r.b.wcs, 1, verbs.WCFlushErr)
		r.f.OverrunCQ(r.b.cq)
		if ev := r.event(r.b, verbs.EventCQErr); ev.CQ != r.b.cq {
			t.Errorf("%v: event %+v", typ, ev)
		}

		r = newRigOf(t, typ, 1, sim.Options{}, 1)
		r.post(r.a.qps[0], r.message(r.a, r.b, 0, 0, 100))
		unheard := r.message(r.a, r.b, 0, 0, 100)
		r.f.HoldCompletions("a", "sim0", 300*ms)
		r.f.Advance(299 * ms)
		if r.poll(); len(r.a.wcs) != 0 {
			t.Errorf("%v: a completion was not held", typ)
		}
		r.f.FatalDevice("a", "sim0")
		r.event(r.a, verbs.EventDeviceFatal)
		r.post(r.a.qps[0], unheard)
		r.settle()
		r.wantAll(r.a.wcs, 0, verbs.WCSuccess)
		for _, ah := range r.ahs {
			r.must(ah.Destroy())
		}
		r.must(r.a.qps[0].Destroy())
		r.wantNoViolation()
	}
}

// TestUCNotify: armed queues announce what the other transports complete.
func TestUCNotify(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.UC, verbs.UD} {
		r := newRigOf(t, typ, 1, sim.Options{}, 1)
		r.recvInto(r.b, r.b.qps[0], 0, 200)
		r.recvInto(r.b, r.b.qps[0], 0, 200)
		r.must(r.a.cq.ReqNotify(false))
		r.must(r.b.cq.ReqNotify(true))
		r.post(r.a.qps[0], r.message(r.a, r.b, 0, 0, 100))
		r.settle()
		r.wantAll(r.b.wcs, 1, verbs.WCSuccess)
		if !r.f.Notified(r.a.cq) || r.f.Notified(r.b.cq) {
			t.Errorf("%v: announced: the send %v, an unsolicited receive %v", typ, r.f.Notified(r.a.cq), r.f.Notified(r.b.cq))
		}
		wr := r.message(r.a, r.b, 0, 0, 100)
		wr.Flags |= verbs.SendSolicited
		r.post(r.a.qps[0], wr)
		r.until(func() bool { return r.f.Notified(r.b.cq) })
	}
}

// TestUCSourceIsFree: after the completion the source may change, though the
// message is still on the wire.
func TestUCSourceIsFree(t *testing.T) {
	early := 0
	for seed := range uint64(20) {
		r := ucRig(t, seed, sim.Options{}, 1)
		r.recv(r.b.qps[0])
		r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 3*packet))
		want := bytes.Clone(r.a.mem[:3*packet])
		r.until(func() bool { return len(r.a.wcs) == 1 })
		if len(r.b.wcs) == 0 && isZero(r.b.mem) {
			early++
		}
		clear(r.a.mem)
		r.settle()
		if !bytes.Equal(r.b.mem[:3*packet], want) || len(r.b.wcs) != 1 {
			t.Errorf("seed %d: what arrived is not what was sent", seed)
		}
		r.wantNoViolation()
	}
	if early == 0 {
		t.Error("no completion came before the message")
	}
}

// TestUCStranger: a packet whose source address is not the peer's is dropped,
// though it names the QP.
func TestUCStranger(t *testing.T) {
	r := ucRig(t, 1, sim.Options{}, 1)
	ctx, err := r.f.Provider("a").OpenDevice("sim1")
	r.must(err)
	pd, err := ctx.AllocPD()
	r.must(err)
	mr, err := pd.RegMR(r.a.mem, 0)
	r.must(err)
	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Entries: 8})
	r.must(err)
	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.UC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	r.must(err)
	r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, verbs.InitMask(verbs.UC)))
	attr := r.rtr(r.a, r.b, 0)
	attr.AV.SGIDIndex = gidOf(r, ctx, 1).Index
	r.must(qp.Modify(attr, verbs.RTRMask(verbs.UC)))
	r.must(qp.Modify(&verbs.QPAttr{State: verbs.StateRTS, SQPSN: 5}, verbs.RTSMask(verbs.UC)))
	r.recvInto(r.b, r.b.qps[0], 0, 100)
	wr := r.send(r.a, 0, 100)
	wr.SGL[0].LKey = mr.LKey()
	r.post(qp, wr)
	r.settle()
	var wcs [2]verbs.WC
	if n, _ := cq.Poll(wcs[:]); n != 1 || wcs[0].Status != verbs.WCSuccess {
		t.Errorf("the stranger's completions: %+v", wcs[:n])
	}
	r.wantAll(r.b.wcs, 0, verbs.WCSuccess)
	if !isZero(r.b.mem) {
		t.Error("memory was written")
	}
}
