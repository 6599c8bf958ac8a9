//go:build linux

package soft

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

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

func dropsOf(s *side) Drops { return s.ctx.(*device).Drops() }

// fakePeer is a UC side whose peer is a socket of the test.
type fakePeer struct {
	*side
	q   *datagramPair
	fd  int
	psn uint32
}

const fakeQPN = 77

func newFakePeer(t testing.TB, o sideOptions) *fakePeer {
	t.Helper()
	o.typ = verbs.UC
	s := newSide(t, o)
	q := s.qp.(*datagramPair)
	fd, port, err := q.dev.openDatagramSocket()
	if err != nil {
		t.Fatal(err)
	}
	f := &fakePeer{side: s, q: q, fd: fd, psn: 5}
	t.Cleanup(func() { unix.Close(f.fd) })
	if err := toInit(q, usual); err != nil {
		t.Fatal(err)
	}
	cd := connData{kind: connDatagram, port: port, secret: newSecret()}
	if err := q.Modify(&verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU1024, DestQPN: fakeQPN, RQPSN: 5,
		AV: verbs.AHAttr{IsGlobal: true, Port: 1, DGID: q.dev.gid}, RemoteConnData: cd.encode()}, verbs.RTRMask(verbs.UC)); err != nil {
		t.Fatal(err)
	}
	if err := toRTS(q, usual); err != nil {
		t.Fatal(err)
	}
	if err := connectDatagram(fd, netip.AddrPortFrom(q.dev.addr, q.conn.port)); err != nil {
		t.Fatal(err)
	}
	return f
}

// packet is the next of a message.
func (f *fakePeer) packet(op frameOp, flags uint8, msgLen int) packet {
	p := packet{service: verbs.UC, op: op, flags: flags, dstQPN: f.q.qpn, psn: f.psn, token: f.q.uc.token, msgLen: uint32(msgLen)}
	if !op.sends() {
		p.addr, p.rkey = f.mr.Addr(), f.mr.RKey()
	}
	if op.hasImm() {
		p.imm = 99
	}
	f.psn = (f.psn + 1) & 0xffffff
	return p
}

func (f *fakePeer) say(p packet, payload []byte) {
	f.t.Helper()
	b := make([]byte, packetBytes, packetBytes+len(payload))
	p.encode((*[packetBytes]byte)(b))
	if _, err := unix.Write(f.fd, append(b, payload...)); err != nil {
		f.t.Fatal(err)
	}
}

// heard reports whether the QP has sent anything.
func (f *fakePeer) heard() bool {
	n, err := unix.Read(f.fd, make([]byte, 9000))
	return n > 0 || err != unix.EAGAIN
}

// TestUCSequences: what arrives, for streams of packets as a network or a
// wrong peer may deliver them. Each ends with a good message, which arrives.
func TestUCSequences(t *testing.T) {
	const (
		first, last, whole = packetFirst, packetLast, packetFirst | packetLast
		mtu                = 1024
	)
	full := bytes.Repeat([]byte{7}, mtu)
	for _, c := range []struct {
		name    string
		play    func(f *fakePeer)
		arrive  int // receive completions with success
		written int // bytes of the region that are 7
		drops   Drops
	}{
		{"a message of three packets", func(f *fakePeer) {
			f.say(f.packet(frameSendImm, first, 2*mtu+9), full)
			f.say(f.packet(frameSendImm, 0, 2*mtu+9), full)
			f.say(f.packet(frameSendImm, last, 2*mtu+9), full[:9])
		}, 1, 2*mtu + 9, Drops{}},
		{"PSN wraps", func(f *fakePeer) {
			f.psn = 0xffffff
			f.say(f.packet(frameWriteImm, first, mtu+1), full)
			f.say(f.packet(frameWriteImm, last, mtu+1), full[:1])
		}, 1, mtu + 1, Drops{}},
		{"gap before a first packet", func(f *fakePeer) {
			f.psn += 1000
			f.say(f.packet(frameWriteImm, whole, 5), full[:5])
		}, 1, 5, Drops{}},
		{"gap in a message", func(f *fakePeer) {
			f.say(f.packet(frameSend, first, 3*mtu), full)
			f.psn++
			f.say(f.packet(frameSend, 0, 3*mtu), full)
			f.say(f.packet(frameSend, last, 3*mtu), full)
		}, 0, mtu, Drops{Gap: 2}},
		{"last one twice", func(f *fakePeer) {
			f.say(f.packet(frameWriteImm, first, mtu+4), full)
			f.say(f.packet(frameWriteImm, last, mtu+4), full[:4])
			f.psn--
			f.say(f.packet(frameWriteImm, last, mtu+4), full[:4])
		}, 1, mtu + 4, Drops{Gap: 1}},
		{"first packet missing", func(f *fakePeer) {
			f.say(f.packet(frameWrite, 0, 3*mtu), full)
			f.say(f.packet(frameWrite, last, 3*mtu), full)
		}, 0, 0, Drops{Gap: 2}},
		{"a new message inside of one", func(f *fakePeer) {
			f.say(f.packet(frameSend, first, 2*mtu), full)
			f.say(f.packet(frameWrite, whole, 5), full[:5])
			f.say(f.packet(frameSend, last, 2*mtu), full)
		}, 0, mtu, Drops{Gap: 1}},
		{"another operation in mid-message", func(f *fakePeer) {
			f.say(f.packet(frameSend, first, 2*mtu), full)
			f.say(f.packet(frameSendImm, last, 2*mtu), full)
		}, 0, mtu, Drops{Gap: 1}},
		{"another length in mid-message", func(f *fakePeer) {
			f.say(f.packet(frameWrite, first, 2*mtu), full)
			f.say(f.packet(frameWrite, last, 1<<30), full)
		}, 0, mtu, Drops{Gap: 1}},
		{"a short packet that is not the last", func(f *fakePeer) {
			f.say(f.packet(frameWrite, first, 2*mtu), full[:100])
			f.say(f.packet(frameWrite, last, 2*mtu), full)
		}, 0, 0, Drops{Malformed: 1, Gap: 1}},
		{"more than the path MTU", func(f *fakePeer) {
			f.say(f.packet(frameWrite, whole, mtu+1), append(full, 7))
		}, 0, 0, Drops{Malformed: 1}},
		{"last too early", func(f *fakePeer) {
			f.say(f.packet(frameWriteImm, first|last, 5), full[:5])
			f.say(f.packet(frameWriteImm, first, 3*mtu), full)
			f.say(f.packet(frameWriteImm, last, 3*mtu), full)
		}, 1, mtu, Drops{Malformed: 1}},
		{"no last", func(f *fakePeer) {
			f.say(f.packet(frameSend, first, mtu), full)
			f.say(f.packet(frameSend, 0, mtu), nil)
		}, 0, 0, Drops{Malformed: 1, Gap: 1}},
		{"wrong token", func(f *fakePeer) {
			for i := range tokenBytes {
				p := f.packet(frameWriteImm, whole, 5)
				p.token[i] ^= 0x80
				f.say(p, full[:5])
			}
		}, 0, 0, Drops{Foreign: tokenBytes}},
		{"another QP", func(f *fakePeer) {
			p := f.packet(frameWriteImm, whole, 5)
			p.dstQPN ^= 1
			f.say(p, full[:5])
		}, 0, 0, Drops{Foreign: 1}},
		{"UD to a UC QP", func(f *fakePeer) {
			f.say(packet{service: verbs.UD, op: frameSend, flags: whole, dstQPN: f.q.qpn, qkey: testQKey}, nil)
		}, 0, 0, Drops{Foreign: 1}},
		{"no packets at all", func(f *fakePeer) {
			for _, b := range []string{"", "x", "GET / HTTP/1.1\r\n\r\n", string(make([]byte, 9000))} {
				unix.Write(f.fd, []byte(b))
			}
		}, 0, 0, Drops{Malformed: 4}},
		{"a refused message inside of one", func(f *fakePeer) {
			f.say(f.packet(frameWrite, first, 2*mtu), full)
			f.psn--
			p := f.packet(frameWrite, first, 2*mtu)
			p.rkey++
			f.say(p, full)
			f.say(f.packet(frameWrite, last, 2*mtu), full)
		}, 0, mtu, Drops{Access: 1, Gap: 1}},
		{"more than any packet", func(f *fakePeer) {
			f.say(f.packet(frameWrite, first, 3*maxPayload), bytes.Repeat([]byte{7}, maxPayload+1))
		}, 0, 0, Drops{Malformed: 1}},
		{"the region's end", func(f *fakePeer) {
			p := f.packet(frameWrite, first, 2*mtu)
			p.addr += uint64(len(f.mem)) - 2*mtu + 1
			f.say(p, full)
			f.say(f.packet(frameWrite, last, 2*mtu), full)
		}, 0, 0, Drops{Access: 1, Gap: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakePeer(t, sideOptions{})
			f.recv(verbs.RecvWR{WRID: 1, SGL: f.sge(0, 4*mtu)}, verbs.RecvWR{WRID: 2, SGL: f.sge(8*mtu, 4*mtu)})
			c.play(f)
			settleAll(f.side)
			if len(f.wcs) != c.arrive || c.arrive > 0 && f.wcs[0].Status != verbs.WCSuccess {
				t.Errorf("completions %+v, want %d", f.wcs, c.arrive)
			}
			if n := bytes.Count(f.mem, []byte{7}); n != c.written {
				t.Errorf("%d bytes written, want %d", n, c.written)
			}
			if d := dropsOf(f.side); d != c.drops {
				t.Errorf("drops %+v, want %+v", d, c.drops)
			}
			f.say(f.packet(frameSendImm, whole, 3), []byte{1, 2, 3})
			wc := f.side.take(c.arrive + 1)[c.arrive]
			if wc.Status != verbs.WCSuccess || wc.WRID != uint64(c.arrive+1) || wc.Imm != 99 || wc.ByteLen != 3 {
				t.Errorf("the message behind: %+v", wc)
			}
			if f.heard() {
				t.Errorf("the receiver answered")
			}
		})
	}
}

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
	settleAll(uc)
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
		settleAll(a, b)
		if len(b.wcs) != 0 {
			t.Errorf("local %v: the receiver was told %+v", local, b.wcs)
		}
		if d := dropsOf(b); !local && d.Access != 1 {
			t.Errorf("drops %+v, want one access", d)
		}
	}
}

// FuzzUCStream: whatever a peer that knows the token sends, nothing outside of
// what it may write changes, and a good message is still taken behind it.
func FuzzUCStream(f *testing.F) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 2))
		b := make([]byte, 120)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Add([]byte{1, 1, 4, 0, 0, 0, 1, 0, 4, 0, 0, 0, 1, 2, 4, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := newFakePeer(t, sideOptions{memBytes: 3 << 12})
		q := s.q
		inside := s.mem[4096:8192]
		guarded := must[verbs.MR](t)(s.pd.RegMR(inside, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
		t.Cleanup(func() { s.check(guarded.Dereg()) })
		for range 4 {
			s.recv(verbs.RecvWR{SGL: []verbs.SGE{{Addr: guarded.Addr(), Length: 4096, LKey: guarded.LKey()}}})
		}
		payload := bytes.Repeat([]byte{0xee}, 1024)
		psn := uint32(0)
		for ; len(in) >= 6 && q.receives(); in = in[6:] {
			// op, flags, length, offset, PSN step: mostly right, now and then not.
			p := packet{service: verbs.UC, op: frameWrite + frameOp(in[0]%4), flags: in[1] & packetFlags, dstQPN: q.qpn,
				token: q.uc.token, msgLen: uint32(in[2]&7)*512 + uint32(in[3]%3), psn: psn}
			psn = (psn + 1 + uint32(in[5]&0x40>>6)) & 0xffffff
			if !p.op.sends() {
				p.rkey = guarded.RKey()
				p.addr = guarded.Addr() + uint64(int64(int8(in[4]))*64)
			}
			n := min(int(p.msgLen), 1024)
			if in[5]&1 != 0 {
				n = int(in[5]) * 4
			}
			b := make([]byte, packetBytes, packetBytes+n)
			p.encode((*[packetBytes]byte)(b))
			q.take(append(b, payload[:min(n, 1024)]...), &socketAddress{})
			s.settleOnce()
		}
		for i, b := range s.mem {
			if b != 0 && (i < 4096 || i >= 8192) {
				t.Fatalf("byte %d outside of the region was written", i)
			}
		}
		p := packet{service: verbs.UC, op: frameWrite, flags: packetFirst | packetLast, dstQPN: q.qpn, token: q.uc.token,
			msgLen: 8, rkey: guarded.RKey(), addr: guarded.Addr()}
		b := make([]byte, packetBytes+8)
		p.encode((*[packetBytes]byte)(b))
		binary.BigEndian.PutUint64(b[packetBytes:], 0x0102030405060708)
		if q.take(b, &socketAddress{}); !bytes.Equal(inside[:8], b[packetBytes:]) {
			t.Fatalf("a good write is not taken any more")
		}
	})
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
	if n, err := unix.Read(again, make([]byte, 100)); n != packetBytes+9 {
		t.Errorf("the second packet was lost: %d, %v", n, err)
	}
}
