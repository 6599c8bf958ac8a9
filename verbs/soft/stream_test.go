//go:build linux

package soft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// wired is a side whose QP's connection ends in the test: the peer is whatever
// the test writes.
func wired(t testing.TB, o sideOptions) (*side, *queuePair, int) {
	t.Helper()
	s := newSide(t, o)
	q := s.qp.(*queuePair)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[1]) })
	if err := toInit(q, usual); err != nil {
		t.Fatal(err)
	}
	q.attr.MinRNRTimer, q.attr.RNRRetry = 12, 6
	q.state = verbs.StateRTS
	q.setup.conn.Store(int64(fds[0]) + 1)
	q.notify()
	return s, q, fds[1]
}

func frame(h header, payload ...byte) []byte {
	var b [headerBytes]byte
	h.length = uint32(len(payload))
	h.encode(&b)
	return append(b[:], payload...)
}

// settle polls until the QP has nothing to do.
func (s *side) settle() {
	var wcs [8]verbs.WC
	for range 200 {
		n, err := s.cq.Poll(wcs[:])
		if err != nil {
			return
		}
		s.wcs = append(s.wcs, wcs[:n]...)
	}
}

// TestPeerBreaksProtocol: what a peer of this version never sends fails the
// QP, and changes no memory.
func TestPeerBreaksProtocol(t *testing.T) {
	for _, c := range []struct {
		name   string
		frames func(s *side) []byte
		status verbs.WCStatus
	}{
		{"noise", func(*side) []byte { return bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 9) }, verbs.WCBadRespErr},
		{"acknowledges what was not sent", func(*side) []byte { return frame(header{op: frameAck, ack: 2, credit: 1}) }, verbs.WCBadRespErr},
		{"credit beyond any queue", func(*side) []byte { return frame(header{op: frameAck, credit: 1 << 20}) }, verbs.WCBadRespErr},
		{"credit runs backwards", func(*side) []byte {
			return append(frame(header{op: frameAck, credit: 4}), frame(header{op: frameAck, credit: 3})...)
		}, verbs.WCBadRespErr},
		{"message number", func(*side) []byte { return frame(header{op: frameWrite, flags: flagLast, msn: 1}) }, verbs.WCBadRespErr},
		{"send without a receive", func(*side) []byte { return frame(header{op: frameSend, flags: flagLast}, 1, 2) }, verbs.WCBadRespErr},
		{"immediate without a receive", func(*side) []byte { return frame(header{op: frameWriteImm, flags: flagLast}) }, verbs.WCBadRespErr},
		{"refusal of another message", func(*side) []byte { return frame(header{op: frameNak, code: 1, msn: 1}) }, verbs.WCBadRespErr},
		{"operation changes in mid-message", func(s *side) []byte {
			first := frame(header{op: frameWrite, addr: s.mr.Addr(), rkey: s.mr.RKey()}, make([]byte, maxFrameBytes)...)
			return append(first, frame(header{op: frameSend, flags: flagLast}, 1)...)
		}, verbs.WCBadRespErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, q, peer := wired(t, sideOptions{memBytes: 2 * maxFrameBytes})
			s.send(s.write(1, s, 0, 64)) // carries the cause
			for b := c.frames(s); len(b) > 0; {
				n, err := unix.Write(peer, b)
				if err != nil && err != unix.EAGAIN {
					break
				}
				b = b[max(n, 0):]
				s.settle()
			}
			wc := s.take(1)
			if wc[0].Status != c.status || q.state != verbs.StateErr {
				t.Errorf("status %v, state %v; want %v and ERR", wc[0].Status, q.state, c.status)
			}
			if !bytes.Equal(s.mem, make([]byte, len(s.mem))) {
				t.Errorf("memory was changed")
			}
		})
	}
}

// readFrames reads the headers that the QP sent; it has no payload to send.
func readFrames(t testing.TB, s *side, fd, n int) (got []header) {
	t.Helper()
	var buf []byte
	drive(t, "frames", func() bool {
		var b [4096]byte
		if k, err := unix.Read(fd, b[:]); err == nil {
			buf = append(buf, b[:k]...)
		}
		for len(buf) >= headerBytes {
			var h header
			if err := h.decode((*[headerBytes]byte)(buf)); err != nil {
				t.Fatal(err)
			}
			got, buf = append(got, h), buf[headerBytes:]
		}
		return len(got) >= n
	}, s)
	return got
}

// TestCredits: receives are announced at once when the peer knows of none or
// waits, and a wait without any is an RNR event.
func TestCredits(t *testing.T) {
	s, q, peer := wired(t, sideOptions{})
	if h := readFrames(t, s, peer, 1)[0]; h.op != frameAck || h.credit != 0 {
		t.Fatalf("first frame %+v, want an ack with no credit", h)
	}
	unix.Write(peer, frame(header{op: frameWant, code: 6}))
	s.settle()
	if n := q.dev.RNREvents(); n != 1 || q.receiveBy.at == 0 {
		t.Errorf("%d RNR events, deadline %d; want 1 and one", n, q.receiveBy.at)
	}
	s.recv(verbs.RecvWR{WRID: 1}, verbs.RecvWR{WRID: 2})
	if h := readFrames(t, s, peer, 1)[0]; h.op != frameAck || h.credit != 2 || q.receiveBy.at != 0 {
		t.Errorf("frame %+v, want an ack with 2 credits and no deadline", h)
	}
	unix.Write(peer, frame(header{op: frameSend, flags: flagLast}))
	if wc := s.take(1)[0]; wc.Status != verbs.WCSuccess || wc.WRID != 1 {
		t.Errorf("%+v", wc)
	}
	if h := readFrames(t, s, peer, 1)[0]; h.ack != 1 || h.credit != 2 {
		t.Errorf("frame %+v, want ack 1", h)
	}
}

// TestDeadlines: each wait ends, but not at the first look after its time.
func TestDeadlines(t *testing.T) {
	later := func(q *queuePair, after time.Duration) {
		now := nanotime() + int64(after)
		q.expire(now)
		q.expire(now)
	}
	t.Run("answer", func(t *testing.T) {
		s, q, _ := wired(t, sideOptions{})
		s.send(s.write(1, s, 0, 64), s.write(2, s, 0, 64))
		s.settle()
		later(q, 0)
		later(q, answerLeast-time.Second)
		if s.settle(); len(s.wcs) != 0 {
			t.Fatalf("too early: %+v", s.wcs)
		}
		later(q, answerMost+time.Second)
		wc := s.take(2)
		if wc[0].Status != verbs.WCRetryExcErr || wc[1].Status != verbs.WCFlushErr {
			t.Errorf("%+v", wc)
		}
	})
	t.Run("receive", func(t *testing.T) {
		s, q, peer := wired(t, sideOptions{})
		s.recv(verbs.RecvWR{WRID: 1})
		unix.Write(peer, append(frame(header{op: frameSend, flags: flagLast}), frame(header{op: frameWant, code: 1, msn: 1, credit: 0})...))
		s.take(1)
		s.settle()
		later(q, rnrTime(12, 1)+time.Second)
		h := readFrames(t, s, peer, 2) // one acknowledgement for all before
		if last := h[len(h)-1]; last.op != frameNak || nakCode(last.code) != nakRNR || last.msn != 1 {
			t.Errorf("last frame %+v, want an RNR refusal of message 1", last)
		}
	})
	t.Run("connect", func(t *testing.T) {
		a, b := newSide(t, sideOptions{}), newSide(t, sideOptions{})
		q := a.qp.(*queuePair)
		for _, err := range []error{toInit(a.qp, usual), toRTR(a.qp, b.qp, usual), toRTS(a.qp, usual)} { // b stays in RESET
			if err != nil {
				t.Fatal(err)
			}
		}
		a.send(a.write(1, b, 0, 64))
		later(q, 0)
		later(q, connectMost+time.Second)
		if wc := a.take(1); wc[0].Status != verbs.WCRetryExcErr || q.state != verbs.StateErr {
			t.Errorf("%+v, state %v", wc, q.state)
		}
	})
	if d := lossTime(0, 7, connectLeast, connectMost); d != connectMost {
		t.Errorf("timeout 0 waits %v", d)
	}
	if d := lossTime(31, 7, answerLeast, answerMost); d != answerMost {
		t.Errorf("timeout 31 waits %v", d)
	}
	if rnrTime(0, 0) != 655360*time.Microsecond || rnrTime(12, 1) != 1280*time.Microsecond {
		t.Errorf("RNR timers: %v, %v", rnrTime(0, 0), rnrTime(12, 1))
	}
}

// FuzzStream feeds a QP with what a peer that has passed the handshake may
// send. Whatever it is, only memory registered for remote writes changes.
func FuzzStream(f *testing.F) {
	add := func(frames ...[]byte) { f.Add(bytes.Join(frames, nil)) }
	const key, base = 0xfffffffe, 0xffffffffffff0000 // replaced by the real ones
	add(frame(header{op: frameWrite, flags: flagLast, addr: base, rkey: key}, 1, 2, 3))
	add(frame(header{op: frameSend, flags: flagLast}, 1, 2), frame(header{op: frameSendImm, flags: flagLast, msn: 1}))
	add(frame(header{op: frameAck, credit: 5, ack: 1}), frame(header{op: frameWant, code: 0}))
	add(frame(header{op: frameNak, code: 3}))
	add(frame(header{op: frameWriteImm, flags: flagLast, addr: base + 8000, rkey: key}, make([]byte, 300)...), []byte("x"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s, q, peer := wired(t, sideOptions{memBytes: 3 * 4096})
		// The region is the middle page of three; the others are guards.
		page := s.mem[4096:8192]
		mr, err := s.pd.RegMR(page, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		in = bytes.Clone(in)
		for i := 0; i+headerBytes <= len(in); i++ { // name the real region
			if binary.BigEndian.Uint16(in[i:]) == frameMagic && binary.BigEndian.Uint32(in[i+24:]) == key {
				binary.BigEndian.PutUint32(in[i+24:], mr.RKey())
				binary.BigEndian.PutUint64(in[i+16:], binary.BigEndian.Uint64(in[i+16:])-base+mr.Addr())
			}
		}
		sge := []verbs.SGE{{Addr: mr.Addr(), Length: 100, LKey: mr.LKey()}, {Addr: mr.Addr() + 200, Length: 10, LKey: mr.LKey()}}
		s.recv(verbs.RecvWR{SGL: sge}, verbs.RecvWR{}, verbs.RecvWR{SGL: sge})
		s.send(s.write(1, s, 0, 64), s.write(2, s, 0, 64))
		for len(in) > 0 {
			n, err := unix.Write(peer, in)
			if err != nil && !errors.Is(err, unix.EAGAIN) {
				break
			}
			in = in[max(n, 0):]
			s.settle()
		}
		unix.Shutdown(peer, unix.SHUT_RDWR)
		s.settle()
		if q.state != verbs.StateErr && q.sq.acked < q.sq.post {
			t.Errorf("state %v after the end of the stream", q.state)
		}
		if z := make([]byte, 4096); !bytes.Equal(s.mem[:4096], z) || !bytes.Equal(s.mem[8192:], z) {
			t.Errorf("memory outside of the region was written")
		}
		if err := mr.Dereg(); err != nil {
			t.Error(err)
		}
	})
}
