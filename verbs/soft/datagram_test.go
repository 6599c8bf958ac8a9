//go:build linux

package soft

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// TestDatagramCleartext: UC and UD send off loopback only when told to.
func TestDatagramCleartext(t *testing.T) {
	far := verbs.AHAttr{IsGlobal: true, Port: 1, DGID: verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))}
	for _, allow := range []bool{false, true} {
		cfg := Config{AllowCleartext: allow}
		s := newSide(t, sideOptions{typ: verbs.UD, cfg: cfg})
		ah, err := s.pd.CreateAH(far)
		if allow && err == nil {
			s.check(ah.Destroy())
		}
		c := newSide(t, sideOptions{typ: verbs.UC, cfg: cfg})
		if err := toInit(c.qp, usual); err != nil {
			t.Fatal(err)
		}
		cd := connData{kind: connDatagram, port: 9}
		errUC := c.qp.Modify(&verbs.QPAttr{State: verbs.StateRTR, PathMTU: verbs.MTU1024, AV: far, RemoteConnData: cd.encode()},
			verbs.RTRMask(verbs.UC))
		if !allow {
			for _, err := range []error{err, errUC} {
				if !errors.Is(err, ErrCleartext) || !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "192.0.2.1") {
					t.Errorf("off loopback: %v", err)
				}
			}
			continue
		}
		// From a loopback address the kernel may have no route; that is another error.
		if err != nil || errors.Is(errUC, ErrCleartext) {
			t.Errorf("allowed, but %v, %v", err, errUC)
		}
	}
}

// TestDatagramBuffer: where nothing is set a datagram socket takes 4 MiB, on
// loopback too, whose default is for connections.
func TestDatagramBuffer(t *testing.T) {
	want, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(want)
	for set, bytes := range map[int]int{0: datagramBuffer, -1: datagramBuffer, 4096: datagramBufferLeast, 300 << 10: 300 << 10} {
		if unix.SetsockoptInt(want, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes) != nil { // needs CAP_NET_ADMIN
			if err := unix.SetsockoptInt(want, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes); err != nil {
				t.Fatal(err)
			}
		}
		s := newSide(t, sideOptions{typ: verbs.UC, cfg: Config{RecvBuffer: set}})
		got := must[int](t)(unix.GetsockoptInt(s.qp.(*datagramPair).fd, unix.SOL_SOCKET, unix.SO_RCVBUF))
		if n := must[int](t)(unix.GetsockoptInt(want, unix.SOL_SOCKET, unix.SO_RCVBUF)); got != n {
			t.Errorf("RecvBuffer %d: the socket has %d bytes, want %d", set, got, n)
		}
	}
}

// TestConnectionBuffer: the default of a connection on loopback.
func TestConnectionBuffer(t *testing.T) {
	a, b := pair(t, sideOptions{}, sideOptions{}, usual)
	q := a.qp.(*queuePair)
	drive(t, "connect", func() bool { return q.fd >= 0 }, a, b)
	got := must[int](t)(unix.GetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF))
	if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, loopbackSendBuffer); err != nil {
		t.Fatal(err)
	}
	if want := must[int](t)(unix.GetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)); got != want {
		t.Errorf("SO_SNDBUF is %d, want %d", got, want)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestDatagramDescriptors: sockets are closed with their QP, by ERR and RESET
// too.
func TestDatagramDescriptors(t *testing.T) {
	s := newSide(t, sideOptions{})
	before := descriptors(t)
	for _, typ := range []verbs.QPType{verbs.UC, verbs.UD} {
		for range 20 {
			qp := must[verbs.QP](t)(s.pd.CreateQP(verbs.QPInitAttr{Type: typ, SendCQ: s.cq, RecvCQ: s.cq,
				Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))
			for _, state := range []verbs.QPState{verbs.StateErr, verbs.StateReset, verbs.StateReset, verbs.StateErr, verbs.StateReset} {
				if err := toInit(qp, usual); err != nil && state == verbs.StateErr {
					t.Fatal(err)
				}
				if err := qp.Modify(&verbs.QPAttr{State: state}, verbs.AttrState); err != nil {
					t.Fatal(err)
				}
				want := 1
				if typ == verbs.UC && state == verbs.StateErr {
					want = 0
				}
				if open := descriptors(t) - before; open != want {
					t.Errorf("a %v QP in %v has %d sockets", typ, state, open)
				}
			}
			if err := qp.Destroy(); err != nil {
				t.Fatal(err)
			}
			if err := qp.Destroy(); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("destroyed twice: %v", err)
			}
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// TestDatagramInline: the data is copied at the post, and needs no key.
func TestDatagramInline(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.UC, verbs.UD} {
		a, b := pair(t, sideOptions{typ: typ}, sideOptions{typ: typ}, usual)
		wr := verbs.SendWR{Op: verbs.OpSendWithImm, Imm: 4, Flags: verbs.SendSignaled | verbs.SendInline, SGL: a.sge(0, 60)}
		wr.SGL[0].LKey = 0
		at := 0
		if typ == verbs.UD {
			ah := must[verbs.AH](t)(a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, Port: 1, DGID: gidOf(b.ctx)}))
			defer ah.Destroy()
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, b.qp.QPN(), testQKey
			at = grhBytes
		}
		b.recv(verbs.RecvWR{SGL: b.sge(0, 200)})
		fill(a.mem[:60])
		want := string(a.mem[:60])
		a.send(wr)
		clear(a.mem[:60])
		if wc := b.take(1, a)[0]; wc.Status != verbs.WCSuccess || string(b.mem[at:at+60]) != want {
			t.Errorf("%v: %+v", typ, wc)
		}
	}
}

// TestDatagramNoAllocation: the steady state of posting and polling.
func TestDatagramNoAllocation(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.UC, verbs.UD} {
		a, b := pair(t, sideOptions{typ: typ, channel: true}, sideOptions{typ: typ, channel: true}, usual)
		wrs := []verbs.SendWR{a.write(1, b, 0, 50_000), a.write(2, b, 0, 10)}
		wrs[1].Op, wrs[1].Flags = verbs.OpWriteWithImm, verbs.SendInline|verbs.SendSignaled
		if typ == verbs.UD {
			ah := must[verbs.AH](t)(a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, Port: 1, DGID: gidOf(b.ctx)}))
			defer ah.Destroy()
			wrs = []verbs.SendWR{a.datagram(1, ah, b, 0, 4096), a.datagram(2, ah, b, 0, 0)}
		}
		recvs := []verbs.RecvWR{{WRID: 1, SGL: b.sge(0, 8192)}, {WRID: 2, SGL: b.sge(0, 8192)}}
		if typ == verbs.UC {
			recvs = recvs[:1] // the immediate's
		}
		var wcs [4]verbs.WC
		round := func() {
			b.qp.PostRecv(recvs)
			a.qp.PostSend(wrs)
			for sent, got := 0, 0; sent < 2 || got < len(recvs); {
				a.cq.ReqNotify(false)
				b.cq.ReqNotify(false)
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
			t.Errorf("%v: %v allocations a round", typ, n)
		}
	}
}

// BenchmarkUCWrite is a write with immediate of 64 KiB, 16 packets, and both
// completions; one thread polls both ends.
func BenchmarkUCWrite(b *testing.B) {
	tx, rx := pair(b, sideOptions{typ: verbs.UC}, sideOptions{typ: verbs.UC}, usual)
	wr := []verbs.SendWR{tx.write(1, rx, 0, 64<<10)}
	wr[0].Op = verbs.OpWriteWithImm
	recvs := []verbs.RecvWR{{}}
	var wcs [4]verbs.WC
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		rx.qp.PostRecv(recvs)
		tx.qp.PostSend(wr)
		for sent, got := 0, 0; sent == 0 || got == 0; {
			n, err := tx.cq.Poll(wcs[:])
			m, err2 := rx.cq.Poll(wcs[:])
			if err != nil || err2 != nil {
				b.Fatal(err, err2)
			}
			sent, got = sent+n, got+m
		}
	}
}
