//go:build linux

package soft

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

func fill(b []byte) {
	r := rand.New(rand.NewPCG(1, uint64(len(b))))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string // part of the error, "" for none
	}{
		{Config{}, ""},
		{Config{Addresses: addrs("127.0.0.1", "::1", "127.8.8.8")}, ""},
		{Config{Addresses: addrs("192.0.2.1")}, "`soft.allow_cleartext: true`"},
		{Config{Addresses: addrs("2001:db8::1")}, "clear text"},
		{Config{Addresses: addrs("192.0.2.1"), AllowCleartext: true}, ""},
		{Config{Addresses: addrs("0.0.0.0"), AllowCleartext: true}, "unicast"},
		{Config{Addresses: addrs("fe80::1%lo"), AllowCleartext: true}, "zone"},
		{Config{Addresses: addrs("127.0.0.1", "::ffff:127.0.0.1")}, "twice"},
		{Config{CallBytes: 1}, "4 KiB"},
		{Config{SendBuffer: -2}, "socket buffer"},
	} {
		_, err := New(c.cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	if _, err := New(Config{Addresses: addrs("192.0.2.1")}); !errors.Is(err, ErrCleartext) {
		t.Errorf("%v is not ErrCleartext", err)
	}
	p := must[*Provider](t)(New(Config{Addresses: addrs("127.0.0.1", "192.0.2.1"), AllowCleartext: true}))
	if _, err := p.OpenDevice("soft1"); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("an address of another host: %v", err)
	}
	if _, err := p.OpenDevice("soft7"); !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "soft0, soft1") {
		t.Errorf("unknown device: %v", err)
	}
}

func addrs(list ...string) (a []netip.Addr) {
	for _, s := range list {
		a = append(a, netip.MustParseAddr(s))
	}
	return a
}

func TestWrite(t *testing.T) {
	a, b := pair(t, sideOptions{memBytes: 16 << 20}, sideOptions{memBytes: 16 << 20}, usual)
	for _, n := range []int{0, 1, 39, 40, 41, 4096, 4097, 1 << 20, maxFrameBytes, maxFrameBytes + 1, 3*maxFrameBytes + 7} {
		fill(a.mem[:n+64])
		a.send(a.write(7, b, 0, n), a.write(8, b, n, 64))
		for i, wc := range a.take(2, b) {
			if wc.Status != verbs.WCSuccess || wc.WRID != uint64(7+i) || wc.Opcode != verbs.WCRDMAWrite || wc.QPN != a.qp.QPN() {
				t.Fatalf("%d bytes: %+v", n, wc)
			}
		}
		if !bytes.Equal(a.mem[:n+64], b.mem[:n+64]) {
			t.Errorf("%d bytes differ", n)
		}
	}
}

// TestGatherScatter sends in frames and pieces that do not match those of the
// receive, in both directions at once.
func TestGatherScatter(t *testing.T) {
	a, b := pair(t, sideOptions{memBytes: 32 << 20}, sideOptions{memBytes: 32 << 20}, usual)
	const n = 2*maxFrameBytes + 1000
	fill(a.mem[:n])
	fill(b.mem[:n])
	for _, s := range []*side{a, b} {
		at := func(off, n int) verbs.SGE { return s.sge(off, n)[0] }
		s.recv(verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{at(16<<20, 17), at(16<<20+17, 0), at(16<<20+17, 5<<20), at(21<<20+17, 10<<20)}})
		s.send(verbs.SendWR{WRID: 2, Op: verbs.OpSendWithImm, Imm: 0xcafe, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{at(0, 1), at(1, 3<<20), at(3<<20+1, 0), at(3<<20+1, n-3<<20-1)}})
	}
	for _, s := range []*side{a, b} {
		for _, wc := range s.take(2, a, b) {
			if wc.Status != verbs.WCSuccess || wc.ByteLen != n || wc.WRID == 1 && (wc.Imm != 0xcafe || wc.Flags != verbs.WCWithImm) {
				t.Errorf("%+v", wc)
			}
		}
	}
	if !bytes.Equal(a.mem[:n], b.mem[16<<20:16<<20+n]) || !bytes.Equal(b.mem[:n], a.mem[16<<20:16<<20+n]) {
		t.Errorf("data differ")
	}
}

// TestBroken: a cut connection ends everything on both sides, with the cause
// first.
func TestBroken(t *testing.T) {
	a, b := pair(t, sideOptions{memBytes: 16 << 20}, sideOptions{memBytes: 16 << 20}, usual)
	b.recv(verbs.RecvWR{WRID: 9})
	a.recv(verbs.RecvWR{WRID: 9})
	a.send(a.write(0, b, 0, 64))
	a.take(1, b)
	a.send(a.write(1, b, 0, 16<<20), a.write(2, b, 0, 1), a.write(3, b, 0, 1))
	var wcs [1]verbs.WC
	a.cq.Poll(wcs[:]) // fills the socket
	b.cq.Poll(wcs[:])
	if err := BreakConnection(a.qp); err != nil {
		t.Fatal(err)
	}
	wc := a.take(4, b)
	want := []verbs.WCStatus{verbs.WCRetryExcErr, verbs.WCFlushErr, verbs.WCFlushErr, verbs.WCFlushErr}
	for i := range want {
		if wc[i].Status != want[i] {
			t.Errorf("completion %d: %+v, want %v", i, wc[i], want[i])
		}
	}
	if wc := b.take(1, a); wc[0].Status != verbs.WCFlushErr || wc[0].WRID != 9 {
		t.Errorf("the responder's receive: %+v", wc[0])
	}
	if ev, err := b.ctx.GetAsyncEvent(patience); err != nil || ev.Type != verbs.EventQPFatal || ev.QPN != b.qp.QPN() {
		t.Errorf("event %+v, %v", ev, err)
	}
	if ev, err := a.ctx.GetAsyncEvent(0); err != verbs.ErrTimeout {
		t.Errorf("the requester got event %+v, %v besides its completion", ev, err)
	}
	if err := BreakConnection(a.qp); err == nil {
		t.Errorf("no error for a QP without a connection")
	}
}

// TestRefusalBehindPayload: the responder is in the middle of sending a large
// message of its own when it has to refuse one.
func TestRefusalBehindPayload(t *testing.T) {
	a, b := pair(t, sideOptions{memBytes: 16 << 20}, sideOptions{memBytes: 16 << 20}, usual)
	a.send(a.write(1, b, 0, 64))
	a.take(1, b)
	b.send(b.write(2, a, 0, 16<<20))
	drive(t, "full socket", func() bool { return !b.qp.(*queuePair).writable }, b)
	if q := b.qp.(*queuePair); q.sq.hdr == 0 {
		t.Fatalf("no frame is open")
	}
	bad := a.write(3, b, 0, 64)
	bad.RKey++
	a.send(bad)
	if wc := a.take(1, b)[0]; wc.Status != verbs.WCRemAccessErr || wc.WRID != 3 {
		t.Errorf("requester: %+v", wc)
	}
	if wc := b.take(1, a)[0]; wc.Status != verbs.WCFlushErr {
		t.Errorf("responder's own write: %+v", wc)
	}
	if ev, err := b.ctx.GetAsyncEvent(0); err != nil || ev.Type != verbs.EventQPAccessErr {
		t.Errorf("event %+v, %v", ev, err)
	}
	drive(t, "close", func() bool { return b.qp.(*queuePair).fd < 0 }, a, b)
}

// TestDeregister: memory is neither read nor written once Dereg has returned,
// even with a message half way; it is unmapped at once, so that doing so would
// show.
func TestDeregister(t *testing.T) {
	for _, local := range []bool{true, false} {
		want := verbs.WCRemAccessErr
		if local {
			want = verbs.WCLocProtErr
		}
		if got := deregister(t, local, false); got != want {
			t.Errorf("local %v: %v, want %v", local, got, want)
		}
		for range 5 { // from another goroutine it may come too late
			if got := deregister(t, local, true); got != want && got != verbs.WCSuccess {
				t.Errorf("local %v, concurrently: %v, want %v", local, got, want)
			}
		}
	}
}

// deregister writes from a to b and takes away the source (local) or the
// destination once the message is under way. It returns the write's status.
func deregister(t *testing.T, local, concurrent bool) verbs.WCStatus {
	const n = 8 << 20 // more than the sockets hold
	a, b := pair(t, sideOptions{}, sideOptions{}, usual)
	goes, stays := b, a
	if local {
		goes, stays = a, b
	}
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	const access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	mr := must[verbs.MR](t)(goes.pd.RegMR(mem, access))
	other := must[verbs.MR](t)(stays.pd.RegMR(mapped(t, n), access))
	src, dst := other, mr
	if local {
		src, dst = mr, other
	}
	a.send(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendSignaled, RemoteAddr: dst.Addr(), RKey: dst.RKey(),
		SGL: []verbs.SGE{{Addr: src.Addr(), Length: n, LKey: src.LKey()}}})
	drive(t, "start", func() bool { return b.qp.(*queuePair).rq.bytes > 0 }, a, b)
	take := func() {
		if err := mr.Dereg(); err != nil {
			t.Error(err)
		}
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	if concurrent {
		wg.Go(take)
	} else {
		take()
	}
	wc := a.take(1, b)[0]
	wg.Wait()
	if err := other.Dereg(); err != nil {
		t.Error(err)
	}
	return wc.Status
}

// TestNoAllocation: the steady state of posting and polling.
func TestNoAllocation(t *testing.T) {
	a, b := pair(t, sideOptions{channel: true}, sideOptions{channel: true}, usual)
	recvs := []verbs.RecvWR{{WRID: 1}}
	wrs := []verbs.SendWR{a.write(1, b, 0, 100_000), a.write(2, b, 0, 10), a.write(3, b, 0, 0)}
	wrs[0].Flags = 0
	wrs[1].Op, wrs[1].Flags = verbs.OpWriteWithImm, verbs.SendInline|verbs.SendSignaled
	var wcs [4]verbs.WC
	round := func() {
		b.qp.PostRecv(recvs)
		a.qp.PostSend(wrs)
		for sent, got := 0, 0; sent < 2 || got < 1; {
			a.cq.ReqNotify(false)
			n, err := a.cq.Poll(wcs[:])
			m, err2 := b.cq.Poll(wcs[:])
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			sent, got = sent+n, got+m
		}
	}
	for range 10 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

// TestCreateWhilePolled: QPs come to a CQ that another goroutine polls.
func TestCreateWhilePolled(t *testing.T) {
	b := newSide(t, sideOptions{})
	var stop atomic.Bool
	handed := make(chan verbs.QP, 16)
	var wg sync.WaitGroup
	wg.Go(func() { // owns b.cq
		var wcs [8]verbs.WC
		for !stop.Load() {
			if _, err := b.cq.Poll(wcs[:]); err != nil {
				t.Error(err)
			}
			select {
			case qp := <-handed:
				if err := qp.Destroy(); err != nil {
					t.Error(err)
				}
			default:
			}
		}
	})
	for range 200 {
		qp := must[verbs.QP](t)(b.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: b.cq, RecvCQ: b.cq,
			Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))
		handed <- qp
	}
	for len(handed) > 0 {
		time.Sleep(time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
}

// TestEventsOverflow: a reader that comes late learns that it missed some.
func TestEventsOverflow(t *testing.T) {
	s := newSide(t, sideOptions{})
	d := s.ctx.(*device)
	for i := range eventsKept + 1 {
		d.events.put(verbs.AsyncEvent{Type: verbs.EventQPFatal, QPN: uint32(i)})
	}
	if ev, err := s.ctx.GetAsyncEvent(0); err != nil || ev.Type != verbs.EventDeviceFatal {
		t.Errorf("%+v, %v", ev, err)
	}
	if ev, err := s.ctx.GetAsyncEvent(0); err != nil || ev.QPN != 0 {
		t.Errorf("%+v, %v", ev, err)
	}
}

// TestReset: a QP that went through RESET connects again, with a new secret.
func TestReset(t *testing.T) {
	a, b := pair(t, sideOptions{}, sideOptions{}, usual)
	for i := range 4 {
		a.send(a.write(uint64(i), b, 0, 4096))
		if wc := a.take(1, b)[0]; wc.Status != verbs.WCSuccess || wc.WRID != uint64(i) {
			t.Fatalf("round %d: %+v", i, wc)
		}
		old := a.qp.ConnData()
		for _, s := range []*side{a, b} {
			s.recv(verbs.RecvWR{}) // leaves no trace
			if err := s.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState); err != nil {
				t.Fatal(err)
			}
		}
		if bytes.Equal(old, a.qp.ConnData()) {
			t.Errorf("the secret stayed")
		}
		join(t, a.qp, b.qp, usual)
	}
}
