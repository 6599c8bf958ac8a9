//go:build linux && cgo

package ibv

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// wantError checks the errno and, when given, a part of the detail.
func wantError(t *testing.T, what string, err error, errno syscall.Errno, part string) {
	t.Helper()
	var e *verbs.Error
	if !errors.As(err, &e) || e.Errno != errno || !strings.Contains(e.Error(), part) {
		t.Errorf("%s: %v, want %v with %q", what, err, errno, part)
	}
}

// TestDestroyOrder: what is in use is not destroyed, in any order but the
// right one; and everything goes once.
func TestDestroyOrder(t *testing.T) {
	f := newFake(t)
	d := f.open()
	pd, err := d.AllocPD()
	must(t, err)
	mr, err := pd.RegMR(pages(t, 2), verbs.AccessLocalWrite)
	must(t, err)
	ch, err := d.CreateCompChannel()
	must(t, err)
	scq, err := d.CreateCQ(verbs.CQInitAttr{Entries: 10, Channel: ch, Vector: 1})
	must(t, err)
	rcq, err := d.CreateCQ(verbs.CQInitAttr{Entries: 10})
	must(t, err)
	ah, err := pd.CreateAH(verbs.AHAttr{IsGlobal: true, SGIDIndex: 1, HopLimit: 64, Port: 1})
	must(t, err)
	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.UD, SendCQ: scq, RecvCQ: rcq, Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4}})
	must(t, err)
	if want := (verbs.Counts{PD: 1, MR: 1, CQ: 2, QP: 1, AH: 1, CompChannel: 1}); d.Counts() != want {
		t.Errorf("counts %+v, want %+v", d.Counts(), want)
	}
	if f.get("VECTOR") != 0 { // of the second
		t.Errorf("vector %d", f.get("VECTOR"))
	}

	busy := func(what string, err error) { t.Helper(); wantError(t, what, err, syscall.EBUSY, "") }
	busy("close", d.Close())
	busy("PD with all", pd.Dealloc())
	busy("send CQ", scq.Destroy())
	busy("receive CQ", rcq.Destroy())
	busy("channel", ch.Destroy())
	must(t, qp.Destroy())
	busy("PD with an MR and an AH", pd.Dealloc())
	must(t, mr.Dereg())
	busy("PD with an AH", pd.Dealloc())
	must(t, ah.Destroy())
	must(t, pd.Dealloc())
	busy("channel with a CQ", ch.Destroy())
	must(t, scq.Destroy())
	must(t, ch.Destroy())
	busy("close with a CQ", d.Close())
	must(t, rcq.Destroy())

	for what, again := range map[string]func() error{"QP": qp.Destroy, "MR": mr.Dereg, "AH": ah.Destroy, "PD": pd.Dealloc,
		"CQ": scq.Destroy, "channel": ch.Destroy} {
		wantError(t, what+" twice", again(), syscall.EINVAL, "destroyed before")
	}
	if d.Counts() != (verbs.Counts{}) || f.get("LIVE") != 1 {
		t.Errorf("counts %+v, and %d objects of the library", d.Counts(), f.get("LIVE"))
	}
	_, err = pd.RegMR(pages(t, 1), 0)
	wantError(t, "register in a PD that is gone", err, syscall.EINVAL, "destroyed")
	wantError(t, "modify a QP that is gone", qp.Modify(initAttr(), verbs.InitMask(verbs.UD)), syscall.EINVAL, "destroyed")
	if _, err := qp.Query(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("query a QP that is gone: %v", err)
	}
	if n, err := scq.Poll(make([]verbs.WC, 1)); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("poll a CQ that is gone: %d, %v", n, err)
	}

	must(t, d.Close())
	if err := d.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("close twice: %v", err)
	}
	for what, call := range map[string]func() error{
		"PD":          func() error { _, err := d.AllocPD(); return err },
		"CQ":          func() error { _, err := d.CreateCQ(verbs.CQInitAttr{Entries: 1}); return err },
		"channel":     func() error { _, err := d.CreateCompChannel(); return err },
		"port":        func() error { _, err := d.QueryPort(1); return err },
		"GID table":   func() error { _, err := d.QueryGIDTable(1); return err },
		"device":      func() error { _, err := d.QueryDevice(); return err },
		"async event": func() error { _, err := d.GetAsyncEvent(time.Minute); return err },
	} {
		if err := call(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s of a closed device: %v", what, err)
		}
	}
}

// TestDestroyFails: the error comes out, the object stays and is counted, and
// a later try works.
func TestDestroyFails(t *testing.T) {
	r := newRig(t, verbs.RC)
	ch, err := r.dev.CreateCompChannel()
	must(t, err)
	mr, err := r.pd.RegMR(pages(t, 1), 0)
	must(t, err)
	ah, err := r.pd.CreateAH(verbs.AHAttr{IsGlobal: true, SGIDIndex: 1, Port: 1})
	must(t, err)
	cq, err := r.dev.CreateCQ(verbs.CQInitAttr{Entries: 1})
	must(t, err)
	qp := r.newQP(verbs.RC)
	pd, err := r.dev.AllocPD()
	must(t, err)
	want := r.dev.Counts()
	all := []func() error{qp.Destroy, mr.Dereg, ah.Destroy, cq.Destroy, ch.Destroy, pd.Dealloc}
	r.set("DESTROY_ERRNO", uint64(syscall.EIO))
	for i, destroy := range all {
		if err := destroy(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if got := r.dev.Counts(); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
	r.connect(qp) // it works on
	r.set("DESTROY_ERRNO", 0)
	for i, destroy := range all {
		if err := destroy(); err != nil {
			t.Errorf("%d, again: %v", i, err)
		}
	}
}

// TestCreateFails: errors carry the errno and what to look at, and count
// nothing.
func TestCreateFails(t *testing.T) {
	r := newRig(t, verbs.RC)
	before := r.dev.Counts()
	mem := pages(t, 4)
	cqAttr := verbs.CQInitAttr{Entries: 4}
	qpAttr := verbs.QPInitAttr{Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq, Cap: verbs.QPCap{MaxSendWR: 1}}
	ahAttr := verbs.AHAttr{IsGlobal: true, DGID: verbs.GIDFromAddr(mustAddr(t, "10.0.0.2")), SGIDIndex: 1, Port: 1}
	for _, c := range []struct {
		knob  string
		errno syscall.Errno
		make  func() error
		part  string
	}{
		{"PD_ERRNO", syscall.ENOMEM, func() error { _, err := r.dev.AllocPD(); return err }, "fake0"},
		{"CQ_ERRNO", syscall.ENOMEM, func() error { _, err := r.dev.CreateCQ(cqAttr); return err }, "4 entries"},
		{"QP_ERRNO", syscall.ENOMEM, func() error { _, err := r.pd.CreateQP(qpAttr); return err }, "memlock limit"},
		{"QP_ERRNO", syscall.EINVAL, func() error { _, err := r.pd.CreateQP(qpAttr); return err }, "MaxSendWR"},
		{"QP_ERRNO", syscall.EOPNOTSUPP, func() error { _, err := r.pd.CreateQP(qpAttr); return err }, "has no RC"},
		{"REG_ERRNO", syscall.ENOMEM, func() error { _, err := r.pd.RegMR(mem, 0); return err }, "memlock limit"},
		{"REG_ERRNO", syscall.EFAULT, func() error { _, err := r.pd.RegMR(mem, 0); return err }, "16 KiB"},
		{"AH_ERRNO", syscall.ETIMEDOUT, func() error { _, err := r.pd.CreateAH(ahAttr); return err }, "10.0.0.2"},
	} {
		r.set(c.knob, uint64(c.errno))
		wantError(t, c.knob, c.make(), c.errno, c.part)
		r.set(c.knob, 0)
		if got := r.dev.Counts(); got != before {
			t.Errorf("%s: counts %+v, want %+v", c.knob, got, before)
		}
	}
	other := newFake(t).open()
	ch, err := other.CreateCompChannel()
	must(t, err)
	foreign, err := other.CreateCQ(verbs.CQInitAttr{Entries: 1})
	must(t, err)
	for what, a := range map[string]verbs.CQInitAttr{"no entries": {}, "negative": {Entries: -1}, "too many": {Entries: 2001},
		"vector -1": {Entries: 1, Vector: -1}, "vector 2": {Entries: 1, Vector: 2}, "foreign channel": {Entries: 1, Channel: ch}} {
		_, err := r.dev.CreateCQ(a)
		wantError(t, what, err, syscall.EINVAL, "")
	}
	for what, change := range map[string]func(*verbs.QPInitAttr){
		"no type":          func(a *verbs.QPInitAttr) { a.Type = 0 },
		"unknown type":     func(a *verbs.QPInitAttr) { a.Type = 9 },
		"no send CQ":       func(a *verbs.QPInitAttr) { a.SendCQ = nil },
		"no receive CQ":    func(a *verbs.QPInitAttr) { a.RecvCQ = nil },
		"foreign CQ":       func(a *verbs.QPInitAttr) { a.RecvCQ = foreign },
		"too many WRs":     func(a *verbs.QPInitAttr) { a.Cap.MaxRecvWR = 1001 },
		"negative":         func(a *verbs.QPInitAttr) { a.Cap.MaxSendWR = -1 },
		"too many SGEs":    func(a *verbs.QPInitAttr) { a.Cap.MaxSendSGE = 9 },
		"negative inline":  func(a *verbs.QPInitAttr) { a.Cap.MaxInlineBytes = -1 },
		"enormous inline":  func(a *verbs.QPInitAttr) { a.Cap.MaxInlineBytes = 1 << 40 },
		"too many at send": func(a *verbs.QPInitAttr) { a.Cap.MaxSendWR = 1 << 33 },
	} {
		a := qpAttr
		change(&a)
		_, err := r.pd.CreateQP(a)
		wantError(t, what, err, syscall.EINVAL, "")
	}
	must(t, foreign.Destroy())
	must(t, ch.Destroy())
}

// TestRegister: whole pages, the size limit, the flags, what the driver made
// of it.
func TestRegister(t *testing.T) {
	r := newRig(t, verbs.RC)
	page := os.Getpagesize()
	mem := pages(t, 4)
	const rw = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	for _, c := range []struct {
		name   string
		mem    []byte
		access verbs.Access
		part   string
	}{
		{"nothing", nil, rw, "whole pages"}, {"no bytes", mem[:0], rw, "whole pages"}, {"unaligned", mem[1 : page+1], rw, "whole pages"},
		{"half a page", mem[:page/2], rw, "whole pages"}, {"a page and a byte", mem[:page+1], rw, "whole pages"},
		{"remote write alone", mem, verbs.AccessRemoteWrite, "local write"}, {"remote atomic alone", mem, verbs.AccessRemoteAtomic, "local write"},
		{"unknown flag", mem, 1 << 5, "0x20"},
	} {
		_, err := r.pd.RegMR(c.mem, c.access)
		wantError(t, c.name, err, syscall.EINVAL, c.part)
	}
	if f := r.get("REG_CALLS"); f != 0 {
		t.Errorf("%d bad registrations reached the library", f)
	}
	for _, c := range []struct {
		access verbs.Access
		iova   uint64
	}{{rw, 0}, {rw | verbs.AccessRelaxedOrdering, addressOfMem(mem)}} {
		r.set("IOVA2", 0)
		mr, err := r.pd.RegMR(mem, c.access)
		must(t, err)
		if r.get("REG_ACCESS") != uint64(c.access) || r.get("IOVA2") != c.iova {
			t.Errorf("flags %#x: registered with %#x, iova %#x", c.access, r.get("REG_ACCESS"), r.get("IOVA2"))
		}
		if n := r.get("REG_CALLS"); mr.Addr() != addressOfMem(mem) || mr.Length() != uint64(len(mem)) || mr.PD() != r.pd ||
			uint64(mr.LKey()) != 0x100+n || uint64(mr.RKey()) != 0x9000+n {
			t.Errorf("MR %#x+%d, keys %#x %#x", mr.Addr(), mr.Length(), mr.LKey(), mr.RKey())
		}
		must(t, mr.Dereg())
	}

	r.set("REG_SHORT", uint64(page))
	_, err := r.pd.RegMR(mem, rw)
	wantError(t, "a driver that registers less", err, syscall.EIO, "registered")
	r.set("REG_SHORT", 0)
	if c := r.dev.Counts(); c.MR != 0 || r.dev.registered != 0 {
		t.Errorf("%d MRs, %d bytes", c.MR, r.dev.registered)
	}
	live := r.get("LIVE")
	if live != 4 { // context, PD, CQ, QP
		t.Errorf("%d objects of the library, want 4", live)
	}
}

func TestMaxMRSize(t *testing.T) {
	f := newFake(t)
	f.set("MAX_MR_SIZE", uint64(2*os.Getpagesize()))
	r := f.rig(verbs.RC)
	mr, err := r.pd.RegMR(pages(t, 2), 0)
	must(t, err)
	must(t, mr.Dereg())
	_, err = r.pd.RegMR(pages(t, 3), 0)
	wantError(t, "more than max_mr_size", err, syscall.EINVAL, "in pieces")
}

func TestMemlockDetail(t *testing.T) {
	for _, c := range []struct {
		limit, need, have uint64
		parts             []string
	}{
		{8 << 20, 64 << 20, 3 << 20, []string{"64.0 MiB", "3.0 MiB", "8.0 MiB", "LimitMEMLOCK", "--ulimit memlock=-1", "ulimit -l"}},
		{64 << 10, 2 << 30, 0, []string{"2.0 GiB", "0 KiB", "64 KiB", "LimitMEMLOCK"}},
		{unix.RLIM_INFINITY, 4096, 1, []string{"4 KiB", "1 KiB", "unlimited", "out of memory"}},
	} {
		s := memlockDetail(c.limit, c.need, c.have)
		for _, part := range c.parts {
			if !strings.Contains(s, part) {
				t.Errorf("%q lacks %q", s, part)
			}
		}
	}
}

// TestCreateWhileDestroying: many goroutines make and free resources on one PD
// and one device; nothing is counted twice or lost. Under the race detector.
func TestCreateWhileDestroying(t *testing.T) {
	r := newRig(t, verbs.RC)
	before := r.dev.Counts()
	mem := pages(t, 1)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				pd, err := r.dev.AllocPD()
				if err != nil {
					t.Error(err)
					return
				}
				mr, err := pd.RegMR(mem, 0)
				if err != nil {
					t.Error(err)
					return
				}
				if err := pd.Dealloc(); !errors.Is(err, syscall.EBUSY) {
					t.Errorf("dealloc: %v", err)
				}
				r.dev.Counts()
				if err := errors.Join(mr.Dereg(), pd.Dealloc()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := r.dev.Counts(); got != before {
		t.Errorf("counts %+v, want %+v", got, before)
	}
}

// TestLives: QPs and CQs that come and go leave neither objects of the library
// nor C memory behind, also when creating fails half way.
func TestLives(t *testing.T) {
	r := newRig(t, verbs.RC)
	live, arrays := r.get("LIVE"), blocks()
	for i := range 200 {
		cq, err := r.dev.CreateCQ(verbs.CQInitAttr{Entries: 8})
		must(t, err)
		qp, err := r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: r.cq,
			Cap: verbs.QPCap{MaxSendWR: 1 + i%100, MaxRecvWR: i % 3, MaxSendSGE: i % 2, MaxRecvSGE: 1}})
		must(t, err)
		r.connect(qp)
		must(t, qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		must(t, qp.Destroy())
		must(t, cq.Destroy())
		r.set("CQ_ERRNO", uint64(syscall.ENOMEM))
		r.set("QP_ERRNO", uint64(syscall.ENOMEM))
		_, errCQ := r.dev.CreateCQ(verbs.CQInitAttr{Entries: 8})
		_, errQP := r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq})
		if errCQ == nil || errQP == nil {
			t.Fatal("made in spite of ENOMEM")
		}
		r.set("CQ_ERRNO", 0)
		r.set("QP_ERRNO", 0)
	}
	if r.get("LIVE") != live || blocks() != arrays {
		t.Errorf("%d objects and %d arrays, then %d and %d", live, arrays, r.get("LIVE"), blocks())
	}
}

// TestAbandon: a QP that could not be made whole goes without touching its
// CQs, which another goroutine may be polling.
func TestAbandon(t *testing.T) {
	r := newRig(t, verbs.RC)
	r.connect(r.qp)
	post(t, r.qp, sends(3))
	live, arrays, polls, counts := r.get("LIVE"), blocks(), r.get("POLL_CALLS"), r.dev.Counts()
	qp, err := r.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: r.cq, RecvCQ: r.cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(t, err)
	qp.(*queuePair).abandon()
	if r.get("LIVE") != live || blocks() != arrays || r.dev.Counts() != counts {
		t.Errorf("%d objects and %d arrays, then %d and %d; counts %+v", live, arrays, r.get("LIVE"), blocks(), r.dev.Counts())
	}
	if r.get("POLL_CALLS") != polls {
		t.Error("the CQ was polled")
	}
	if n, err := r.cq.Poll(make([]verbs.WC, 4)); n != 3 || err != nil {
		t.Errorf("%d completions, %v; want the neighbour's 3", n, err)
	}
}
