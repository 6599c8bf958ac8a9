//go:build linux

package soft

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

var ucSide = sideOptions{typ: verbs.UC}

// settleAll polls the sides until they have nothing to do.
func settleAll(sides ...*side) {
	for range 50 {
		for _, s := range sides {
			s.settleOnce()
		}
	}
}

func (s *side) settleOnce() {
	var wcs [8]verbs.WC
	if n, err := s.cq.Poll(wcs[:]); err == nil {
		s.wcs = append(s.wcs, wcs[:n]...)
	}
}

// until polls the side until cond holds or patience ends; what the test then
// checks says more than a timeout could. The kernel may deliver a datagram on
// loopback later than the call that sent it returns.
func (s *side) until(cond func() bool) {
	for end := time.Now().Add(patience); !cond() && time.Now().Before(end); {
		s.settleOnce()
	}
}

func dropsOf(s *side) Drops { return s.ctx.(*device).Drops() }

// TestUCErrInBatch: behind the packet that ended the QP nothing is placed,
// though it came in with the same system call.
func TestUCErrInBatch(t *testing.T) {
	const whole = packetFirst | packetLast
	f := newFakePeer(t, sideOptions{})
	f.recv(verbs.RecvWR{WRID: 1, SGL: f.sge(0, 4)}, verbs.RecvWR{WRID: 2, SGL: f.sge(0, 4)})
	f.say(f.packet(frameSend, whole, 5), make([]byte, 5))
	f.say(f.packet(frameWrite, whole, 3), []byte{7, 7, 7})
	wc := f.side.take(2)
	if wc[0].Status != verbs.WCLocLenErr || wc[1].Status != verbs.WCFlushErr {
		t.Errorf("%+v", wc)
	}
	settleAll(f.side)
	if bytes.Count(f.mem, []byte{7}) != 0 {
		t.Errorf("memory was written after ERR")
	}
}

// TestUCEarlyPacket: what the peer sends while this side is still in INIT
// waits for it.
func TestUCEarlyPacket(t *testing.T) {
	a, b := newSide(t, ucSide), newSide(t, ucSide)
	for _, f := range []func(verbs.QP, connectOptions) error{toInit, func(qp verbs.QP, o connectOptions) error { return toRTR(qp, b.qp, o) }, toRTS} {
		if err := f(a.qp, usual); err != nil {
			t.Fatal(err)
		}
	}
	if err := toInit(b.qp, usual); err != nil {
		t.Fatal(err)
	}
	b.recv(verbs.RecvWR{WRID: 3})
	wr := a.write(1, b, 0, 64)
	wr.Op = verbs.OpWriteWithImm
	a.send(wr)
	a.take(1)
	settleAll(b)
	if len(b.wcs) != 0 {
		t.Fatalf("a QP in INIT received: %+v", b.wcs)
	}
	if err := toRTR(b.qp, a.qp, usual); err != nil {
		t.Fatal(err)
	}
	if wc := b.take(1)[0]; wc.Status != verbs.WCSuccess || wc.WRID != 3 {
		t.Errorf("%+v", wc)
	}
}

// TestUCConnData: RC and UC do not connect, nor does a peer that forges.
func TestUCConnData(t *testing.T) {
	rc, uc, other := newSide(t, sideOptions{}), newSide(t, ucSide), newSide(t, ucSide)
	for _, s := range []*side{rc, uc, other} {
		if err := toInit(s.qp, usual); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range [][2]verbs.QP{{rc.qp, uc.qp}, {uc.qp, rc.qp}, {uc.qp, uc.qp}} {
		if err := toRTR(p[0], p[1], usual); err == nil {
			t.Errorf("%v connected to %v", p[0].Type(), p[1].Type())
		}
	}
	if err := BreakConnection(uc.qp); err == nil {
		t.Errorf("BreakConnection of a UC QP")
	}
	// other has the right port of uc, but not its secret.
	var cd connData
	if err := cd.decode(uc.qp.ConnData(), connDatagram); err != nil {
		t.Fatal(err)
	}
	cd.secret[3] ^= 1
	if err := other.qp.Modify(&verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU4096, DestQPN: uc.qp.QPN(),
		AV: verbs.AHAttr{IsGlobal: true, Port: 1, DGID: gidOf(uc.ctx)}, RemoteConnData: cd.encode()}, verbs.RTRMask(verbs.UC)); err != nil {
		t.Fatal(err)
	}
	for _, f := range []error{toRTS(other.qp, usual), toRTR(uc.qp, other.qp, usual)} {
		if f != nil {
			t.Fatal(f)
		}
	}
	other.send(other.write(1, uc, 0, 64))
	other.take(1)
	uc.until(func() bool { return dropsOf(uc).Foreign > 0 })
	if d := dropsOf(uc); d.Foreign != 1 {
		t.Errorf("drops %+v, want one foreign", d)
	}
}

// TestUCReset: a new connection has a new secret and port, and nothing of the
// old one comes in.
func TestUCReset(t *testing.T) {
	a, b := pair(t, ucSide, ucSide, usual)
	for i := range 4 {
		a.send(a.write(uint64(i), b, 0, 4096))
		if wc := a.take(1)[0]; wc.Status != verbs.WCSuccess || wc.WRID != uint64(i) {
			t.Fatalf("round %d: %+v", i, wc)
		}
		late := a.write(9, b, 0, 10)
		late.Op = verbs.OpWriteWithImm
		a.send(late)
		a.take(1) // on its way
		old := b.qp.ConnData()
		for _, s := range []*side{a, b} {
			s.recv(verbs.RecvWR{}) // leaves no trace
			if err := s.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState); err != nil {
				t.Fatal(err)
			}
		}
		if now := b.qp.ConnData(); bytes.Equal(old[2:4], now[2:4]) || bytes.Equal(old[4:], now[4:]) {
			t.Errorf("port or secret stayed")
		}
		join(t, a.qp, b.qp, usual)
		b.recv(verbs.RecvWR{})
		settleAll(a, b)
		if len(b.wcs) != 0 {
			t.Fatalf("something of the old connection arrived: %+v", b.wcs)
		}
		b.recv(verbs.RecvWR{})
	}
}

// TestUCBackPressure: a socket that takes no more keeps the packets queued:
// none is lost, none comes twice, and a parked poller is woken.
func TestUCBackPressure(t *testing.T) {
	f := newFakePeer(t, sideOptions{channel: true, memBytes: 1 << 20})
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	f.q.unwatch()
	unix.Close(f.q.fd)
	f.q.fd = fds[0] // a datagram socket that blocks its sender, unlike UDP on loopback
	if err := f.q.watch(); err != nil {
		t.Fatal(err)
	}
	fill(f.mem)
	const packets = 1000
	f.send(verbs.SendWR{WRID: 1, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: f.sge(0, (packets-1)*1024+1)})
	drive(t, "a full socket", func() bool { return !f.q.writable }, f.side)
	var got []byte
	b := make([]byte, 9000)
	want := uint32(1) // usual's SQ PSN
	wcs := make([]verbs.WC, 4)
	for len(f.wcs) == 0 {
		for {
			n, err := unix.Read(fds[1], b)
			if err != nil {
				break
			}
			var p packet
			if err := p.decode(b[:n]); err != nil || p.psn != want {
				t.Fatalf("packet %+v, %v; want PSN %d", p, err, want)
			}
			want++
			got = append(got, b[packetBytes:n]...)
		}
		if err := f.cq.ReqNotify(false); err != nil {
			t.Fatal(err)
		}
		n, err := f.cq.Poll(wcs)
		if err != nil {
			t.Fatal(err)
		}
		f.wcs = append(f.wcs, wcs[:n]...)
		if n == 0 && f.q.writable == false {
			// Make room: the wake-up must follow.
			if n, err := unix.Read(fds[1], b); err == nil {
				got = append(got, b[packetBytes:n]...)
				want++
			}
			ready := []unix.PollFd{{Fd: int32(f.ch.FD()), Events: unix.POLLIN}}
			if n, err := unix.Poll(ready, int(patience.Milliseconds())); n == 0 && err == nil {
				t.Fatalf("not woken after %d packets", want)
			}
			f.check(f.ch.Drain())
		}
	}
	for {
		n, err := unix.Read(fds[1], b)
		if err != nil {
			break
		}
		got = append(got, b[packetBytes:n]...)
	}
	if !bytes.Equal(got, f.mem[:(packets-1)*1024+1]) {
		t.Errorf("%d bytes came, not those sent", len(got))
	}
	if f.wcs[0].Status != verbs.WCSuccess || dropsOf(f.side) != (Drops{}) {
		t.Errorf("%+v, drops %+v", f.wcs[0], dropsOf(f.side))
	}
}

// TestUCDeregister: memory that goes away in mid-message fails the sender's
// WR, and at the receiver the message is dropped.
func TestUCDeregister(t *testing.T) {
	const n = 1 << 20 // several bursts
	for _, local := range []bool{true, false} {
		a, b := pair(t, ucSide, ucSide, usual)
		goes := b
		if local {
			goes = a
		}
		mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		mr := must[verbs.MR](t)(goes.pd.RegMR(mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
		b.recv(verbs.RecvWR{WRID: 1})
		wr := a.write(2, b, 0, n)
		wr.Op = verbs.OpWriteWithImm
		if local {
			wr.SGL[0].Addr, wr.SGL[0].LKey = mr.Addr(), mr.LKey()
		} else {
			wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
		}
		a.send(wr)
		drive(t, "start", func() bool { return b.qp.(*datagramPair).uc.got > 0 }, a, b)
		if err := mr.Dereg(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Munmap(mem); err != nil { // so that touching it would show
			t.Fatal(err)
		}
		want := verbs.WCSuccess
		if local {
			want = verbs.WCLocProtErr
		}
		if wc := a.take(1, b)[0]; wc.Status != want {
			t.Errorf("local %v: %+v", local, wc)
		}
		if !local {
			b.until(func() bool { return dropsOf(b).Access > 0 })
		}
		settleAll(a, b)
		if len(b.wcs) != 0 {
			t.Errorf("local %v: the receiver was told %+v", local, b.wcs)
		}
		if d := dropsOf(b); !local && d.Access != 1 {
			t.Errorf("drops %+v, want one access", d)
		}
	}
}

// TestUCNetworkError: the kernel tells a connected socket of an earlier packet
// that nobody took, by failing a later call. That call's packet is not lost.
func TestUCNetworkError(t *testing.T) {
	f := newFakePeer(t, sideOptions{})
	sa, err := unix.Getsockname(f.fd)
	if err != nil {
		t.Fatal(err)
	}
	again, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(f.fd)
	f.fd = again
	post := func(id uint64) {
		f.send(verbs.SendWR{WRID: id, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: f.sge(0, 9)})
		drive(t, "a send", func() bool { return f.q.sq.acked == f.q.sq.post }, f.side)
	}
	post(1) // on loopback the refusal is back before the call returns
	if err := unix.Bind(again, sa); err != nil {
		t.Fatal(err)
	}
	f.q.readable = false // or receive would take the error away
	post(2)
	for _, wc := range f.side.take(2) {
		if wc.Status != verbs.WCSuccess {
			t.Errorf("%+v", wc)
		}
	}
	ready := []unix.PollFd{{Fd: int32(again), Events: unix.POLLIN}}
	unix.Poll(ready, int(patience.Milliseconds()))
	if n, err := unix.Read(again, make([]byte, 100)); n != packetBytes+9 {
		t.Errorf("the second packet was lost: %d, %v", n, err)
	}
}
