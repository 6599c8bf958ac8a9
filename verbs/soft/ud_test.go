//go:build linux

package soft

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

var udSide = sideOptions{typ: verbs.UD}

// udPair is two UD sides and handles that lead from each to the other.
func udPair(t testing.TB, oa, ob sideOptions) (a, b *side, toB, toA verbs.AH) {
	t.Helper()
	oa.typ, ob.typ = verbs.UD, verbs.UD
	a, b = pair(t, oa, ob, usual)
	handle := func(s, to *side) verbs.AH {
		ah := must[verbs.AH](t)(s.pd.CreateAH(verbs.AHAttr{IsGlobal: true, Port: 1, DGID: gidOf(to.ctx)}))
		t.Cleanup(func() { s.check(ah.Destroy()) })
		return ah
	}
	return a, b, handle(a, b), handle(b, a)
}

func (s *side) datagram(id uint64, ah verbs.AH, to *side, off, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Op: verbs.OpSend, Flags: verbs.SendSignaled, SGL: s.sge(off, n),
		AH: ah, RemoteQPN: to.qp.QPN(), RemoteQKey: testQKey}
}

// TestUDNumberLeadsToPort: the QPN is all that a sender knows, so the socket
// has the port that it names, and the QPN outlives RESET.
func TestUDNumberLeadsToPort(t *testing.T) {
	a, b, ah, _ := udPair(t, udSide, udSide)
	qpn := b.qp.QPN()
	for range 3 {
		sa, err := unix.Getsockname(b.qp.(*datagramPair).fd)
		if err != nil || sa.(*unix.SockaddrInet4).Port != int(qpn&0xffff) {
			t.Fatalf("QPN %#x is at %+v, %v", qpn, sa, err)
		}
		if b.qp.ConnData() != nil {
			t.Errorf("a UD QP has ConnData")
		}
		b.recv(verbs.RecvWR{WRID: 5, SGL: b.sge(0, 100)})
		a.send(a.datagram(1, ah, b, 0, 60))
		if wc := b.take(1, a)[0]; wc.Status != verbs.WCSuccess || wc.SrcQPN != a.qp.QPN() {
			t.Fatalf("%+v", wc)
		}
		a.take(1)
		b.recv(verbs.RecvWR{WRID: 6}) // leaves no trace
		if err := b.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState); err != nil {
			t.Fatal(err)
		}
		if b.qp.QPN() != qpn {
			t.Fatalf("the QPN has changed")
		}
		for _, err := range []error{toInit(b.qp, usual), toRTR(b.qp, a.qp, usual), toRTS(b.qp, usual)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestUDGRH: a header that a router would take.
func TestUDGRH(t *testing.T) {
	a, b, ah, _ := udPair(t, sideOptions{addr: "127.0.0.2"}, sideOptions{addr: "127.0.0.3"})
	b.recv(verbs.RecvWR{SGL: b.sge(0, 200)})
	a.send(a.datagram(1, ah, b, 0, 100))
	b.take(1, a)
	ip := b.mem[20:40]
	if string(b.mem[:20]) != string(make([]byte, 20)) || ip[0] != 0x45 || ip[9] != unix.IPPROTO_UDP || ip[8] == 0 ||
		checksum(ip) != 0 || int(ip[2])<<8|int(ip[3]) != 20+8+packetBytes+100 ||
		netip.AddrFrom4([4]byte(ip[12:16])) != netip.MustParseAddr("127.0.0.2") ||
		netip.AddrFrom4([4]byte(ip[16:20])) != netip.MustParseAddr("127.0.0.3") {
		t.Errorf("GRH % x", b.mem[:40])
	}
	a6, b6, ah6, _ := udPair(t, sideOptions{addr: "::1"}, sideOptions{addr: "::1"})
	b6.recv(verbs.RecvWR{SGL: b6.sge(0, 200)})
	a6.send(a6.datagram(1, ah6, b6, 0, 100))
	b6.take(1, a6)
	one := netip.IPv6Loopback().As16()
	if g := b6.mem[:40]; g[0] != 0x60 || int(g[4])<<8|int(g[5]) != 8+packetBytes+100 || g[6] != unix.IPPROTO_UDP || g[7] == 0 ||
		[16]byte(g[8:24]) != one || [16]byte(g[24:40]) != one {
		t.Errorf("GRH % x", g)
	}
}

// TestUDQKey: the upper bit stands for the sender's own Q_Key.
func TestUDQKey(t *testing.T) {
	a, b, ah, _ := udPair(t, udSide, udSide)
	b.recv(verbs.RecvWR{SGL: b.sge(0, 200)})
	wr := a.datagram(1, ah, b, 0, 8)
	wr.RemoteQKey = testQKey | 1<<30
	a.send(wr)
	a.take(1)
	b.until(func() bool { return dropsOf(b).Foreign > 0 })
	if d := dropsOf(b); len(b.wcs) != 0 || d.Foreign != 1 {
		t.Errorf("with a wrong Q_Key: %+v, drops %+v", b.wcs, d)
	}
	wr.RemoteQKey = 0xffffffff
	a.send(wr)
	if wc := b.take(1, a)[0]; wc.Status != verbs.WCSuccess {
		t.Errorf("%+v", wc)
	}
}

// TestUDHostile: datagrams of strangers are dropped and counted, none is
// answered, and the QP goes on.
func TestUDHostile(t *testing.T) {
	a, b, ah, _ := udPair(t, udSide, udSide)
	q := b.qp.(*datagramPair)
	fd, port, err := q.dev.openDatagramSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	b.recv(verbs.RecvWR{WRID: 1, SGL: b.sge(0, 200)})
	good := packet{service: verbs.UD, op: frameSend, flags: packetFirst | packetLast, dstQPN: q.qpn,
		qkey: testQKey, srcQPN: uint32(port), msgLen: 4}
	say := func(change func(p *packet)) []byte {
		p := good
		change(&p)
		b := make([]byte, packetBytes+4)
		p.encode((*[packetBytes]byte)(b))
		return b
	}
	foreign := [][]byte{
		say(func(p *packet) { p.dstQPN ^= 0x10000 }),
		say(func(p *packet) { p.qkey++ }),
		say(func(p *packet) { p.srcQPN = a.qp.QPN() }), // another's number
		say(func(p *packet) { p.service = verbs.UC }),
	}
	malformed := [][]byte{nil, []byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, 9000), say(func(*packet) {})[:packetBytes+3],
		append(say(func(p *packet) { p.msgLen = maxPayload }), make([]byte, maxPayload)...), // cut by the receiver it would fit
		say(func(p *packet) { p.flags = packetFirst }), say(func(p *packet) { p.op = frameWrite })}
	for _, d := range append(foreign, malformed...) {
		if err := unix.Sendto(fd, d, 0, &unix.SockaddrInet4{Port: int(portOfQPN(q.qpn)), Addr: q.dev.addr.As4()}); err != nil {
			t.Fatal(err)
		}
	}
	want := Drops{Foreign: uint64(len(foreign)), Malformed: uint64(len(malformed))}
	b.until(func() bool { return dropsOf(b) == want })
	if len(b.wcs) != 0 || dropsOf(b) != want {
		t.Errorf("%+v, drops %+v, want %+v", b.wcs, dropsOf(b), want)
	}
	if n, err := unix.Read(fd, make([]byte, 100)); err != unix.EAGAIN {
		t.Errorf("a stranger got an answer: %d, %v", n, err)
	}
	a.send(a.datagram(1, ah, b, 0, 8))
	if wc := b.take(1, a)[0]; wc.Status != verbs.WCSuccess {
		t.Errorf("%+v", wc)
	}
}

// TestUDOverrun: datagrams that overrun the CQ while a batch is taken.
func TestUDOverrun(t *testing.T) {
	a, b, ah, _ := udPair(t, udSide, sideOptions{entries: 4})
	q := b.qp.(*datagramPair)
	var wcs [1]verbs.WC
	// Should they come one by one, so that none overruns, more are sent.
	for end := time.Now().Add(patience); q.state != verbs.StateErr && time.Now().Before(end); {
		for q.rq.post-q.rq.free < 12 {
			b.recv(verbs.RecvWR{SGL: b.sge(0, 64)})
			a.send(a.datagram(1, ah, b, 0, 8))
		}
		a.settleOnce()
		if _, err := b.cq.Poll(wcs[:]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.cq.Poll(wcs[:]); !errors.Is(err, verbs.ErrCQOverrun) {
		t.Errorf("poll: %v", err)
	}
	if ev, err := b.ctx.GetAsyncEvent(patience); err != nil || ev.Type != verbs.EventCQErr {
		t.Errorf("%+v, %v", ev, err)
	}
}

// TestUDKernelRefuses: a datagram that the kernel will not send is lost, and
// those behind it are sent.
func TestUDKernelRefuses(t *testing.T) {
	a, b, ah, _ := udPair(t, udSide, udSide)
	b.recv(verbs.RecvWR{WRID: 1, SGL: b.sge(0, 100)})
	nowhere := a.datagram(1, ah, b, 0, 8)
	nowhere.RemoteQPN = 0x120000 // port 0: EINVAL
	a.send(a.datagram(0, ah, b, 0, 8), nowhere, nowhere, a.datagram(3, ah, b, 0, 8))
	b.recv(verbs.RecvWR{WRID: 2, SGL: b.sge(0, 100)})
	for _, wc := range a.take(4) {
		if wc.Status != verbs.WCSuccess {
			t.Errorf("%+v", wc)
		}
	}
	b.take(2, a)
	if d := dropsOf(a); d.Unsent != 2 {
		t.Errorf("drops %+v, want two unsent", d)
	}
}

// TestUDTooLong: not a packet of it is sent.
func TestUDTooLong(t *testing.T) {
	a, b, ah, _ := udPair(t, udSide, udSide)
	b.recv(verbs.RecvWR{WRID: 1, SGL: b.sge(0, 100)})
	a.send(a.datagram(1, ah, b, 0, maxPayload+1), a.datagram(2, ah, b, 0, 8))
	a.take(2)
	b.take(1)
	settleAll(b)
	if d := dropsOf(b); d != (Drops{}) {
		t.Errorf("drops %+v", d)
	}
}

// TestUDReset: what came for a QP before RESET is not for the one after it.
func TestUDReset(t *testing.T) {
	a, b, ah, _ := udPair(t, udSide, udSide)
	modify := func(s verbs.QPState) { b.check(b.qp.Modify(&verbs.QPAttr{State: s}, verbs.AttrState)) }
	modify(verbs.StateErr)
	a.send(a.datagram(1, ah, b, 0, 8))
	a.take(1)
	fds := []unix.PollFd{{Fd: int32(b.qp.(*datagramPair).fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, int(patience.Milliseconds())); n != 1 || err != nil {
		t.Fatalf("nothing came: %d, %v", n, err)
	}
	modify(verbs.StateReset)
	for _, err := range []error{toInit(b.qp, usual), toRTR(b.qp, a.qp, usual)} {
		b.check(err)
	}
	b.recv(verbs.RecvWR{WRID: 1, SGL: b.sge(0, 100)})
	a.send(a.datagram(2, ah, b, 0, 16))
	if wc := b.take(1, a)[0]; wc.Status != verbs.WCSuccess || wc.ByteLen != grhBytes+16 {
		t.Errorf("%+v, want the datagram sent after RESET", wc)
	}
}

// TestUDInErrIsQuiet: what still comes for a QP in ERR wakes nobody.
func TestUDInErrIsQuiet(t *testing.T) {
	a, b, ah, _ := udPair(t, udSide, sideOptions{channel: true})
	if err := b.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState); err != nil {
		t.Fatal(err)
	}
	settleAll(b)
	b.check(b.ch.Drain())
	b.check(b.cq.ReqNotify(false))
	settleAll(b)
	a.send(a.datagram(1, ah, b, 0, 8))
	a.take(1) // on loopback it is in b's socket now
	fds := []unix.PollFd{{Fd: int32(b.ch.FD()), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
		t.Errorf("woken: %d, %v", n, err)
	}
}

// TestAddressHandle: what is refused at creation and at posting.
func TestAddressHandle(t *testing.T) {
	a, b, ah, back := udPair(t, udSide, udSide)
	for name, bad := range map[string]verbs.SendWR{
		"no AH":               {Op: verbs.OpSend, RemoteQPN: b.qp.QPN()},
		"a nil handle":        {Op: verbs.OpSend, AH: (*addressHandle)(nil), RemoteQPN: b.qp.QPN()},
		"another device's AH": {Op: verbs.OpSend, AH: back, RemoteQPN: b.qp.QPN()},
		"a QPN of 25 bits":    {Op: verbs.OpSend, AH: ah, RemoteQPN: 1 << 24},
		"a write":             {Op: verbs.OpWrite, AH: ah, RemoteQPN: b.qp.QPN()},
		"a read":              {Op: verbs.OpRead, AH: ah, RemoteQPN: b.qp.QPN()},
	} {
		if n, err := a.qp.PostSend([]verbs.SendWR{bad}); n != 0 || !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	gone := must[verbs.AH](t)(a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, Port: 1, DGID: gidOf(b.ctx)}))
	a.send(a.datagram(1, gone, b, 0, 8))
	a.check(gone.Destroy())
	if wc := a.take(1)[0]; wc.Status != verbs.WCSuccess {
		t.Errorf("a datagram whose AH was destroyed behind it: %+v", wc)
	}
	if n, err := a.qp.PostSend([]verbs.SendWR{a.datagram(1, gone, b, 0, 8)}); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("destroyed AH: %d, %v", n, err)
	}
	if err := gone.Destroy(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("destroyed twice: %v", err)
	}
	for name, bad := range map[string]verbs.AHAttr{
		"no GID":         {IsGlobal: true, Port: 1},
		"another family": {IsGlobal: true, Port: 1, DGID: verbs.GIDFromAddr(netip.IPv6Loopback())},
	} {
		if _, err := a.pd.CreateAH(bad); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
