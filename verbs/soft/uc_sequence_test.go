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
			f.until(func() bool { return len(f.wcs) >= c.arrive && dropsOf(f.side) == c.drops })
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
