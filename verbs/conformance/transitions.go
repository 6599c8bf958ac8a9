package conformance

import (
	"syscall"

	"mover/verbs"
)

var transitionCases = []testCase{
	{name: "transitions/exact masks", run: func(t TB, h Harness) { exactMasks(t, h, verbs.RC) }},
	{name: "transitions/graph", run: func(t TB, h Harness) { transitionGraph(t, h, verbs.RC) }},
	{name: "transitions/values", run: transitionValues},
	{name: "transitions/reset", run: resetForgets},
	{name: "transitions/posting by state", run: postingByState},
}

var allMaskBits = []verbs.AttrMask{verbs.AttrState, verbs.AttrAccessFlags, verbs.AttrPKeyIndex, verbs.AttrPort,
	verbs.AttrQKey, verbs.AttrAV, verbs.AttrPathMTU, verbs.AttrTimeout, verbs.AttrRetryCnt, verbs.AttrRNRRetry,
	verbs.AttrRQPSN, verbs.AttrMaxQPRdAtomic, verbs.AttrMinRNRTimer, verbs.AttrSQPSN,
	verbs.AttrMaxDestRdAtomic, verbs.AttrDestQPN}

// exactMasks: one bit missing or one too many is EINVAL and changes nothing.
func exactMasks(t TB, h Harness, typ verbs.QPType) {
	l := newLink(t, h, linkOpts{typ: typ, noConnect: true})
	steps := []struct {
		attr *verbs.QPAttr
		mask verbs.AttrMask
	}{
		{l.initAttr(l.a), verbs.InitMask(typ)},
		{l.rtrAttr(l.a, l.b), verbs.RTRMask(typ)},
		{l.rtsAttr(l.a), verbs.RTSMask(typ)},
	}
	from := verbs.StateReset
	for _, step := range steps {
		for _, bit := range allMaskBits {
			err := l.a.qp.Modify(step.attr, step.mask^bit)
			wantErrno(t, err, syscall.EINVAL, "to "+step.attr.State.String()+" with a wrong mask")
			wantState(t, l.a.qp, from)
		}
		must(t, l.a.qp.Modify(step.attr, step.mask), "to "+step.attr.State.String())
		wantState(t, l.a.qp, step.attr.State)
		from = step.attr.State
	}
}

// transitionGraph: what the graph lacks is EINVAL, though the mask be right.
func transitionGraph(t TB, h Harness, typ verbs.QPType) {
	l := newLink(t, h, linkOpts{typ: typ, noConnect: true})
	toInit := func() error { return l.a.qp.Modify(l.initAttr(l.a), verbs.InitMask(typ)) }
	toRTR := func() error { return l.a.qp.Modify(l.rtrAttr(l.a, l.b), verbs.RTRMask(typ)) }
	toRTS := func() error { return l.a.qp.Modify(l.rtsAttr(l.a), verbs.RTSMask(typ)) }

	wantErrno(t, toRTR(), syscall.EINVAL, "RESET to RTR")
	wantErrno(t, toRTS(), syscall.EINVAL, "RESET to RTS")
	must(t, toInit(), "RESET to INIT")
	wantErrno(t, toRTS(), syscall.EINVAL, "INIT to RTS")
	must(t, toRTR(), "INIT to RTR")
	wantErrno(t, toInit(), syscall.EINVAL, "RTR to INIT")
	must(t, toRTS(), "RTR to RTS")
	wantErrno(t, toInit(), syscall.EINVAL, "RTS to INIT")
	wantErrno(t, toRTR(), syscall.EINVAL, "RTS to RTR")
	wantState(t, l.a.qp, verbs.StateRTS)
	l.a.toErr()
	wantErrno(t, toRTS(), syscall.EINVAL, "ERR to RTS")
	wantErrno(t, toInit(), syscall.EINVAL, "ERR to INIT")
	wantState(t, l.a.qp, verbs.StateErr)
	l.a.toErr() // again is harmless
}

// transitionValues: values outside their field or the port's limits.
func transitionValues(t TB, h Harness) {
	l := newLink(t, h, linkOpts{noConnect: true})
	dev, err := l.a.ctx.QueryDevice()
	must(t, err, "query device")
	if dev.MaxQPWR <= 0 || dev.MaxSGE <= 0 || dev.MaxCQE <= 0 || dev.MaxMRSize == 0 {
		t.Errorf("device limits are missing: %+v", dev)
	}
	for _, port := range []uint8{0, uint8(l.a.ctx.Device().Ports + 1)} {
		attr := l.initAttr(l.a)
		attr.Port = port
		wantErrno(t, l.a.qp.Modify(attr, verbs.InitMask(verbs.RC)), syscall.EINVAL, "INIT with a port that is not there")
		if _, err := l.a.ctx.QueryPort(port); err == nil {
			t.Errorf("QueryPort(%d) of a device with %d ports", port, l.a.ctx.Device().Ports)
		}
	}
	must(t, l.a.qp.Modify(l.initAttr(l.a), verbs.InitMask(verbs.RC)), "to INIT")

	port, err := l.a.ctx.QueryPort(l.a.port)
	must(t, err, "query port")
	for name, change := range map[string]func(*verbs.QPAttr){
		"MTU 0":                func(a *verbs.QPAttr) { a.PathMTU = 0 },
		"MTU 6":                func(a *verbs.QPAttr) { a.PathMTU = 6 },
		"MTU above the port's": func(a *verbs.QPAttr) { a.PathMTU = port.ActiveMTU + 1 },
		"QPN of 25 bits":       func(a *verbs.QPAttr) { a.DestQPN |= 1 << 24 },
		"PSN of 25 bits":       func(a *verbs.QPAttr) { a.RQPSN |= 1 << 24 },
		"RNR timer 32":         func(a *verbs.QPAttr) { a.MinRNRTimer = 32 },
	} {
		attr := l.rtrAttr(l.a, l.b)
		change(attr)
		wantErrno(t, l.a.qp.Modify(attr, verbs.RTRMask(verbs.RC)), syscall.EINVAL, "RTR with "+name)
		wantState(t, l.a.qp, verbs.StateInit)
	}
}

// resetForgets: RESET drops what was posted, without completions.
func resetForgets(t TB, h Harness) {
	l := newLink(t, h, linkOpts{})
	l.a.recv(0, 64)
	must(t, l.a.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState), "to RESET")
	wantState(t, l.a.qp, verbs.StateReset)
	l.settle()
	if len(l.a.rcvd) != 0 {
		t.Errorf("RESET completed a receive: %+v", l.a.rcvd)
	}
}

// postingByState: receives from INIT on, sends from RTS on, nothing in RESET.
func postingByState(t TB, h Harness) {
	l := newLink(t, h, linkOpts{noConnect: true})
	refuseSend := func(state string) {
		n, err := l.a.qp.PostSend([]verbs.SendWR{l.a.send(0, 8)})
		wantErrno(t, err, syscall.EINVAL, "post a send in "+state)
		if n != 0 {
			t.Errorf("a send was accepted in %s", state)
		}
	}
	n, err := l.a.qp.PostRecv([]verbs.RecvWR{{WRID: recvBit}})
	wantErrno(t, err, syscall.EINVAL, "post a receive in RESET")
	if n != 0 {
		t.Errorf("a receive was accepted in RESET")
	}
	refuseSend("RESET")
	must(t, l.a.qp.Modify(l.initAttr(l.a), verbs.InitMask(verbs.RC)), "to INIT")
	l.a.recv(0, 8)
	refuseSend("INIT")
	must(t, l.b.qp.Modify(l.initAttr(l.b), verbs.InitMask(verbs.RC)), "to INIT")
	must(t, l.a.qp.Modify(l.rtrAttr(l.a, l.b), verbs.RTRMask(verbs.RC)), "to RTR")
	l.a.recv(8, 8)
	refuseSend("RTR")

	// In RTR the QP receives already.
	must(t, l.b.qp.Modify(l.rtrAttr(l.b, l.a), verbs.RTRMask(verbs.RC)), "to RTR")
	must(t, l.b.qp.Modify(l.rtsAttr(l.b), verbs.RTSMask(verbs.RC)), "to RTS")
	l.b.post(l.b.send(0, 8))
	l.until("a receive in RTR", func() bool { return len(l.a.rcvd) == 1 && len(l.b.sent) == 1 })
	if l.a.rcvd[0].Status != verbs.WCSuccess || l.b.sent[0].Status != verbs.WCSuccess {
		t.Errorf("receive in RTR: %v, %v", l.a.rcvd[0].Status, l.b.sent[0].Status)
	}
}
