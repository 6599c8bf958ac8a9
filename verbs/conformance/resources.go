package conformance

import (
	"errors"
	"os"
	"syscall"

	"mover/verbs"
)

var resourceCases = []testCase{
	{name: "resources/registration", run: registration},
	{name: "resources/busy", run: busy},
	{name: "resources/counts", run: counts},
	{name: "resources/queue pair limits", run: qpLimits},
	{name: "resources/addresses and keys", run: keys},
	{name: "resources/device and port", run: deviceAndPort},
	{name: "resources/close", run: closing},
}

// registration: whole, page-aligned pages; remote write needs local write.
func registration(t TB, h Harness) {
	l := newLink(t, h, linkOpts{noConnect: true})
	page := os.Getpagesize()
	mem := l.pair.Alloc(t, 4*page)
	const rw = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	for _, c := range []struct {
		name   string
		mem    []byte
		access verbs.Access
	}{
		{"nothing", nil, rw},
		{"no bytes", mem[:0], rw},
		{"unaligned", mem[1 : page+1], rw},
		{"half a page", mem[:page/2], rw},
		{"a page and a byte", mem[:page+1], rw},
		{"remote write without local write", mem[:page], verbs.AccessRemoteWrite},
		{"remote atomic without local write", mem[:page], verbs.AccessRemoteAtomic},
	} {
		mr, err := l.a.pd.RegMR(c.mem, c.access)
		wantErrno(t, err, syscall.EINVAL, "register "+c.name)
		if err == nil {
			must(t, mr.Dereg(), "deregister")
		}
	}
	var mrs []verbs.MR
	for _, access := range []verbs.Access{0, verbs.AccessLocalWrite, rw, rw} { // one memory many times
		mr, err := l.a.pd.RegMR(mem, access)
		must(t, err, "register")
		mrs = append(mrs, mr)
	}
	for _, mr := range mrs {
		must(t, mr.Dereg(), "deregister")
	}
}

// busy: what is in use is not destroyed, and works on.
func busy(t TB, h Harness) {
	l := newLink(t, h, linkOpts{channel: true})
	for _, s := range []*side{l.a, l.b} {
		wantErrno(t, s.ctx.Close(), syscall.EBUSY, "close a device in use")
		wantErrno(t, s.pd.Dealloc(), syscall.EBUSY, "dealloc a PD in use")
		wantErrno(t, s.scq.Destroy(), syscall.EBUSY, "destroy a CQ in use")
		wantErrno(t, s.channel.Destroy(), syscall.EBUSY, "destroy a channel in use")
	}
	l.fence(l.a, l.b)
	pd, err := l.a.ctx.AllocPD()
	must(t, err, "alloc PD")
	mr, err := pd.RegMR(l.a.mem, 0)
	must(t, err, "register")
	wantErrno(t, pd.Dealloc(), syscall.EBUSY, "dealloc a PD with an MR")
	must(t, mr.Dereg(), "deregister")
	must(t, pd.Dealloc(), "dealloc an empty PD")
}

func counts(t TB, h Harness) {
	l := newLink(t, h, linkOpts{channel: true, splitCQ: true})
	want := verbs.Counts{PD: 1, MR: 1, CQ: 2, QP: 1, CompChannel: 1}
	if c := l.a.ctx.Counts(); c != want {
		t.Errorf("counts %+v, want %+v", c, want)
	}
	for range 50 { // what comes and goes leaves nothing behind
		qp, err := l.a.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: l.a.scq, RecvCQ: l.a.rcq, Cap: l.opt.cap})
		must(t, err, "create QP")
		must(t, qp.Modify(l.initAttr(l.a), verbs.InitMask(verbs.RC)), "to INIT")
		must(t, qp.Destroy(), "destroy QP")
	}
	if c := l.a.ctx.Counts(); c != want {
		t.Errorf("counts %+v, want %+v", c, want)
	}
}

func qpLimits(t TB, h Harness) {
	l := newLink(t, h, linkOpts{noConnect: true})
	got := l.a.qp.Cap()
	want := l.opt.cap
	if got.MaxSendWR < want.MaxSendWR || got.MaxRecvWR < want.MaxRecvWR || got.MaxSendSGE < want.MaxSendSGE ||
		got.MaxRecvSGE < want.MaxRecvSGE {
		t.Errorf("capacity %+v, asked for %+v", got, want)
	}
	if l.a.scq.Entries() < l.opt.cqEntries {
		t.Errorf("a CQ of %d entries, asked for %d", l.a.scq.Entries(), l.opt.cqEntries)
	}
	dev, err := l.a.ctx.QueryDevice()
	must(t, err, "query device")
	for name, change := range map[string]func(*verbs.QPInitAttr){
		"no send CQ":    func(a *verbs.QPInitAttr) { a.SendCQ = nil },
		"no receive CQ": func(a *verbs.QPInitAttr) { a.RecvCQ = nil },
		"too many WRs":  func(a *verbs.QPInitAttr) { a.Cap.MaxSendWR = dev.MaxQPWR + 1 },
		"too many SGEs": func(a *verbs.QPInitAttr) { a.Cap.MaxRecvSGE = dev.MaxSGE + 1 },
		"negative":      func(a *verbs.QPInitAttr) { a.Cap.MaxRecvWR = -1 },
		"no type":       func(a *verbs.QPInitAttr) { a.Type = 0 },
	} {
		attr := verbs.QPInitAttr{Type: verbs.RC, SendCQ: l.a.scq, RecvCQ: l.a.rcq, Cap: l.opt.cap}
		change(&attr)
		qp, err := l.a.pd.CreateQP(attr)
		if err == nil {
			t.Errorf("a QP with %s was created", name)
			must(t, qp.Destroy(), "destroy")
		}
	}
	for _, entries := range []int{0, -1, dev.MaxCQE + 1} {
		cq, err := l.a.ctx.CreateCQ(verbs.CQInitAttr{Entries: entries})
		wantErrno(t, err, syscall.EINVAL, "create a CQ beyond the limits")
		if err == nil {
			must(t, cq.Destroy(), "destroy")
		}
	}
}

func keys(t TB, h Harness) {
	l := newLink(t, h, linkOpts{noConnect: true})
	for _, s := range []*side{l.a, l.b} {
		if s.mr.Addr() != addrOf(s.mem) || s.mr.Length() != uint64(len(s.mem)) {
			t.Errorf("the MR is at %#x+%d, the memory at %#x+%d", s.mr.Addr(), s.mr.Length(), addrOf(s.mem), len(s.mem))
		}
		if q := s.qp.QPN(); q == 0 || q >= 1<<24 {
			t.Errorf("QPN %#x", q)
		}
		if len(s.qp.ConnData()) > verbs.MaxConnData {
			t.Errorf("%d bytes of connection data", len(s.qp.ConnData()))
		}
		if s.qp.PD() != s.pd || s.mr.PD() != s.pd || s.pd.Context() != s.ctx || s.qp.Type() != verbs.RC {
			t.Errorf("an object does not know what it belongs to")
		}
	}
	other, err := l.a.pd.RegMR(l.a.mem, verbs.AccessLocalWrite)
	must(t, err, "register")
	if other.LKey() == l.a.mr.LKey() {
		t.Errorf("two MRs have one lkey")
	}
	must(t, other.Dereg(), "deregister")
}

func deviceAndPort(t TB, h Harness) {
	l := newLink(t, h, linkOpts{noConnect: true})
	for _, s := range []*side{l.a, l.b} {
		info := s.ctx.Device()
		if info.Provider == "" || info.Name == "" || info.Ports < 1 {
			t.Errorf("device %+v", info)
		}
		port, err := s.ctx.QueryPort(s.port)
		must(t, err, "query port")
		if port.State != verbs.PortActive || !port.ActiveMTU.Valid() || port.ActiveMTU > port.MaxMTU {
			t.Errorf("port %+v", port)
		}
		s.pickGID()
	}
}

// closing: a closed device refuses everything with ErrClosed.
func closing(t TB, h Harness) {
	p := h.Open(t)
	p.setDefaults()
	if _, err := p.A.GetAsyncEvent(0); !errors.Is(err, verbs.ErrTimeout) {
		t.Errorf("get async event without one: %v, want ErrTimeout", err)
	}
	must(t, p.A.Close(), "close")
	must(t, p.B.Close(), "close")
	if _, err := p.A.GetAsyncEvent(0); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("get async event of a closed device: %v, want ErrClosed", err)
	}
	if _, err := p.A.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("alloc PD on a closed device: %v, want ErrClosed", err)
	}
	if _, err := p.A.CreateCQ(verbs.CQInitAttr{Entries: 1}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("create CQ on a closed device: %v, want ErrClosed", err)
	}
}
