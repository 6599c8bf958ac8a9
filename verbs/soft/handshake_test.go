//go:build linux

package soft

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"mover/verbs"
)

func FuzzHello(f *testing.F) {
	secret := [secretBytes]byte{1, 2, 3}
	for k := kindHello; k <= kindConfirm; k++ {
		h := hello{kind: k, dstQPN: 5, srcQPN: 1<<24 - 1, srcPort: 9}
		f.Add(h.encode(&secret))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		if h.decode(b) != nil {
			return
		}
		again := h.encode(&secret)
		if string(again[:72]) != string(b[:72]) {
			t.Errorf("%x is written as %x", b, again)
		}
		if prove(&secret, b) != (string(again) == string(b)) {
			t.Errorf("proof of %x", b)
		}
	})
}

func FuzzConnData(f *testing.F) {
	f.Add((&connData{port: 4, secret: [16]byte{5}}).encode())
	f.Add((&connData{kind: connDatagram, port: 4, secret: [16]byte{5}}).encode())
	f.Add([]byte{})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		taken := 0
		for kind := range connDatagram + 1 {
			var c connData
			if c.decode(b, kind) != nil {
				continue
			}
			if taken++; string(c.encode()) != string(b) || taken > 1 {
				t.Errorf("%x does not come back, or is of two kinds", b)
			}
		}
	})
}

func TestEndpointOrder(t *testing.T) {
	g := func(s string) verbs.GID { return verbs.GIDFromAddr(netip.MustParseAddr(s)) }
	order := []endpoint{{g("::1"), 9, 9}, {g("127.0.0.1"), 1, 7}, {g("127.0.0.1"), 1, 8}, {g("127.0.0.1"), 2, 1}, {g("127.0.0.2"), 1, 1}}
	for i, a := range order {
		for j, b := range order {
			if got := a.compare(b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%d against %d: %d", i, j, got)
			}
		}
	}
}

// TestHostileConnections: none of these gets a QP, all are closed by the
// device, and the QP they named still connects afterwards.
func TestHostileConnections(t *testing.T) {
	t.Parallel()
	a, b := newSide(t, sideOptions{}), newSide(t, sideOptions{})
	dev := b.ctx.(*device)
	var cd connData
	if err := cd.decode(b.qp.ConnData(), connStream); err != nil {
		t.Fatal(err)
	}
	good := hello{kind: kindHello, dstQPN: b.qp.QPN(), srcQPN: 7, dstGID: dev.gid, srcGID: dev.gid, srcPort: 1}
	with := func(change func(h *hello, secret *[secretBytes]byte)) []byte {
		h, s := good, cd.secret
		change(&h, &s)
		return h.encode(&s)
	}
	var wg sync.WaitGroup
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"http":                []byte("GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: something that is longer than a hello\r\n\r\n"),
		"unknown QPN":         with(func(h *hello, _ *[secretBytes]byte) { h.dstQPN ^= 1 }),
		"wrong secret":        with(func(_ *hello, s *[secretBytes]byte) { s[15] ^= 1 }),
		"wrong GID":           with(func(h *hello, _ *[secretBytes]byte) { h.dstGID[15] ^= 1 }),
		"reply, not hello":    with(func(h *hello, _ *[secretBytes]byte) { h.kind = kindReply }),
		"cut short":           with(func(*hello, *[secretBytes]byte) {})[:50],
		"another version":     append([]byte{0x6d, 0x76, 0x72, 0x73, 9}, make([]byte, helloBytes)...),
		"tampered after hmac": func() []byte { b := with(func(*hello, *[secretBytes]byte) {}); b[15] ^= 1; return b }(),
	} {
		conn, err := net.Dial("tcp", netip.AddrPortFrom(dev.addr, dev.port).String())
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { // those that say too little are closed after handshakeTime
			defer conn.Close()
			conn.Write(b)
			conn.SetDeadline(time.Now().Add(patience))
			if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: read %d, %v; want it closed", name, n, err)
			}
		})
	}
	wg.Wait()
	// One that knows the secret but is not the peer must not take the place.
	conn, err := net.Dial("tcp", netip.AddrPortFrom(dev.addr, dev.port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write(with(func(*hello, *[secretBytes]byte) {}))
	join(t, a.qp, b.qp, usual)
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, make([]byte, helloBytes)); err == nil {
		t.Errorf("a stranger got a reply")
	}
	a.send(a.write(1, b, 0, 64))
	if wc := a.take(1, b); wc[0].Status != verbs.WCSuccess {
		t.Errorf("%+v", wc)
	}
}

// TestHalfOpenLimit: connections that say nothing do not pile up.
func TestHalfOpenLimit(t *testing.T) {
	t.Parallel()
	a, b := newSide(t, sideOptions{}), newSide(t, sideOptions{})
	dev := b.ctx.(*device)
	var conns []net.Conn
	for range maxHalfOpen + 16 {
		c, err := net.Dial("tcp", netip.AddrPortFrom(dev.addr, dev.port).String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("a silent connection got an answer")
		}
		c.Close()
	}
	join(t, a.qp, b.qp, usual)
	a.send(a.write(1, b, 0, 64))
	if wc := a.take(1, b); wc[0].Status != verbs.WCSuccess {
		t.Errorf("%+v", wc)
	}
}
