package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"mover/peer/peerpb"
	"mover/reason"
)

func TestConfigIsChecked(t *testing.T) {
	id := testIdentity(t, "a")
	log := slog.New(slog.DiscardHandler)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for name, tt := range map[string]struct {
		cfg  Config
		says []string
	}{
		"no identity": {Config{Logger: log}, []string{"Identity"}},
		"bad address": {Config{Identity: id, Logger: log, Listen: []string{"127.0.0.1:0", "::1"}}, []string{"brackets"}},
		"busy port":   {Config{Identity: id, Logger: log, Listen: []string{busy.Addr().String()}}, []string{"address already in use", "another mover", "change the control address"}},
		"bad trust":   {Config{Identity: id, Logger: log, Trust: Trust{CAFile: "/nonexistent"}}, []string{"/nonexistent"}},
		"many":        {Config{Identity: id, Logger: log, Listen: make([]string, MaxListen+1)}, []string{"at most"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(tt.cfg)
			mentionErr(t, err, tt.says...)
		})
	}
}

func TestCloseWithoutStart(t *testing.T) {
	c, err := New(Config{Identity: testIdentity(t, "a"), Listen: []string{"127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	addr := c.Addrs()[0].String()
	c.Close()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

func TestCloseEndsSessionsAndDials(t *testing.T) {
	a, b := twoNodes(t, func(c *Config) { c.DialTimeout, c.HandshakeTimeout = time.Hour, time.Hour })
	ca, cb := connect(t, a, b)
	if err := a.Reload(nil, Trust{Peers: map[string]PeerConfig{
		b.cfg.Identity.Name: {Fingerprint: b.cfg.Identity.Fingerprint, Addresses: []string{b.addr()}},
		"mute":              {Fingerprint: b.cfg.Identity.Fingerprint, Addresses: []string{listenRaw(t, silent)}}}}); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 1)
	go func() { _, err := a.Dial(context.Background(), "mute"); errs <- err }()
	waitFor(t, "the attempt", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.pairs["mute"] != nil && a.pairs["mute"].attempt != nil
	})
	// Neither a handshake that never ends nor an idle peer delays it.
	half, err := net.Dial("tcp", a.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	waitFor(t, "the half connection", func() bool { a.gate.mu.Lock(); defer a.gate.mu.Unlock(); return len(a.gate.handshaking) == 1 })
	a.Close()
	a.Close()
	if err := receive(t, errs, "Dial"); !errors.Is(err, ErrShutdown) {
		t.Errorf("Dial = %v", err)
	}
	if err := ended(t, ca); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	mentionErr(t, ended(t, cb), "by the peer", "shutting down")
	if err := dialError(t, a, b.cfg.Identity.Name); !errors.Is(err, ErrShutdown) {
		t.Error(err)
	}
	if err := dialError(t, b, a.cfg.Identity.Name); reason.Of(err) != reason.PeerUnreachable {
		t.Error(err)
	}
}

func TestReload(t *testing.T) {
	ida, idb, idc := testIdentity(t, "a"), testIdentity(t, "b"), testIdentity(t, "c")
	n := startNode(t, testIdentity(t, "n"), Trust{Peers: map[string]PeerConfig{
		"a": {Fingerprint: ida.Fingerprint}, "b": {Fingerprint: idb.Fingerprint}}})
	a := startNode(t, ida, pin(n.cfg.Identity, n.addr()))
	b := startNode(t, idb, pin(n.cfg.Identity, n.addr()))
	c := startNode(t, idc, pin(n.cfg.Identity, n.addr()))
	connA, _ := connect(t, a, n)
	connB, atN := connect(t, b, n)
	if err := dialError(t, c, "n"); !errors.Is(err, ErrUntrusted) {
		t.Fatal(err)
	}

	bad := Trust{Peers: map[string]PeerConfig{"b": {Fingerprint: "x"}}}
	mentionErr(t, n.Reload(nil, bad), "mover identity")
	mentionErr(t, n.Reload(testIdentity(t, "other"), Trust{}), `"other"`, "restart")
	if len(n.Sessions()) != 2 {
		t.Fatal("a failed reload changed something")
	}

	if err := n.Reload(nil, Trust{Peers: map[string]PeerConfig{"a": {Fingerprint: ida.Fingerprint}, "c": {Fingerprint: idc.Fingerprint}}}); err != nil {
		t.Fatal(err)
	}
	err := ended(t, atN)
	if !errors.Is(err, ErrUntrusted) {
		t.Errorf("the removed peer's session: %v", err)
	}
	mentionErr(t, err, "reload", idb.Fingerprint)
	mentionErr(t, ended(t, connB), "ended by the peer", "reload")
	dial(t, c, "n")
	if err := dialError(t, b, "n"); !errors.Is(err, ErrUntrusted) {
		t.Error(err)
	}
	// The untouched session is untouched.
	if err := connA.Send(ping(1)); err != nil || connA.Err() != nil {
		t.Error(err, connA.Err())
	}

	// A new key for the node itself counts from the next connection on.
	renewed := testIdentity(t, "n")
	if err := n.Reload(renewed, Trust{Peers: map[string]PeerConfig{"b": {Fingerprint: idb.Fingerprint}}}); err != nil {
		t.Fatal(err)
	}
	if err := dialError(t, b, "n"); !errors.Is(err, ErrUntrusted) {
		t.Error(err)
	}
	if err := b.Reload(nil, pin(renewed, n.addr())); err != nil {
		t.Fatal(err)
	}
	if got := dial(t, b, "n").Peer().Fingerprint; got != renewed.Fingerprint {
		t.Errorf("fingerprint %s", got)
	}
}

// A link that a reload made a stranger's between handshake and session.
func TestReloadDuringHandshake(t *testing.T) {
	n, s := strangerNode(t)
	_, f, err := s.say(s.hello())
	if err != nil || f.GetWelcome() == nil {
		t.Fatal(f, err)
	}
	if err := n.Reload(nil, Trust{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.items(f.GetWelcome().GetSession()); err == nil {
		t.Error("the session came up")
	}
	if len(n.accepted) != 0 || len(n.Sessions()) != 0 {
		t.Error("a session was accepted")
	}
}

// closedByPeer reads until the other side closes.
func closedByPeer(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("the connection stays open")
	}
	return string(b)
}

// What never becomes a session is closed: silence and garbage at every step.
func TestSilenceAndGarbage(t *testing.T) {
	quick := func(c *Config) { c.HandshakeTimeout = 2 * time.Second }
	connectTo := func(t *testing.T, n *node) net.Conn {
		c, err := net.Dial("tcp", n.addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	t.Run("nothing at all", func(t *testing.T) {
		t.Parallel()
		n, _ := strangerNode(t, quick)
		closedByPeer(t, connectTo(t, n))
	})
	t.Run("garbage instead of TLS", func(t *testing.T) {
		n, _ := strangerNode(t)
		c := connectTo(t, n)
		if _, err := c.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 10))); err != nil {
			t.Fatal(err)
		}
		closedByPeer(t, c)
		waitFor(t, "the log", func() bool { return strings.Contains(n.log.String(), "inbound connection failed") })
	})
	t.Run("old TLS", func(t *testing.T) {
		n, _ := strangerNode(t)
		c := tls.Client(connectTo(t, n), &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true})
		if err := c.Handshake(); err == nil || !strings.Contains(err.Error(), "protocol version") {
			t.Errorf("TLS 1.2: %v", err)
		}
	})
	t.Run("no certificate", func(t *testing.T) {
		n, _ := strangerNode(t)
		c := tls.Client(connectTo(t, n), &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("without a certificate: %v", err)
		}
	})
	t.Run("TLS and nothing", func(t *testing.T) {
		t.Parallel()
		n, s := strangerNode(t, quick)
		c := tls.Client(connectTo(t, n), tlsConfig(s.c.cfg.Identity))
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		closedByPeer(t, c)
	})
	t.Run("garbage instead of HTTP/2", func(t *testing.T) {
		n, s := strangerNode(t)
		c := tls.Client(connectTo(t, n), tlsConfig(s.c.cfg.Identity))
		if _, err := c.Write([]byte(strings.Repeat("garbage ", 100))); err != nil {
			t.Fatal(err)
		}
		closedByPeer(t, c)
	})
	t.Run("no Hello", func(t *testing.T) {
		t.Parallel()
		n, s := strangerNode(t, quick)
		if _, err := s.client.Control(s.ctx); err != nil {
			t.Fatal(err)
		}
		receiveDead(t, s.link)
		waitFor(t, "the log", func() bool { return strings.Contains(n.log.String(), "no session on an inbound connection") })
	})
	t.Run("no Link", func(t *testing.T) {
		t.Parallel()
		n, s := strangerNode(t, quick)
		if _, f, err := s.say(s.hello()); err != nil || f.GetWelcome() == nil {
			t.Fatal(f, err)
		}
		receiveDead(t, s.link)
		waitFor(t, "the offer to be withdrawn", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.pairs["stranger"] == nil })
	})
	t.Run("first frame is no Hello", func(t *testing.T) {
		_, s := strangerNode(t)
		st, err := s.client.Control(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(frameOf(t, ping(1))); err != nil {
			t.Fatal(err)
		}
		receiveDead(t, s.link)
	})
	t.Run("undecodable Hello", func(t *testing.T) {
		_, s := strangerNode(t)
		st, err := s.client.Control(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(garbage()); err != nil {
			t.Fatal(err)
		}
		receiveDead(t, s.link)
	})
	t.Run("Hello of another name", func(t *testing.T) {
		n, s := strangerNode(t)
		h := s.hello()
		h.Node = "other\nnode"
		_, f, err := s.say(h)
		if err != nil || f.GetRefusal().GetCode() != peerpb.RefusalCode_REFUSAL_NAME {
			t.Fatal(f, err)
		}
		mention(t, f.GetRefusal().GetDetail(), `"other\nnode"`, `"stranger"`)
		if len(n.accepted) != 0 {
			t.Error("accepted")
		}
	})
}

func receiveDead(t *testing.T, l *link) {
	t.Helper()
	select {
	case <-l.dead:
	case <-time.After(patience):
		t.Fatal("the connection stays open")
	}
}

// The token counts on the connection it was given on, and only there.
func TestItemsNeedTheirToken(t *testing.T) {
	for _, name := range []string{"wrong", "empty", "before Welcome", "other connection"} {
		t.Run(name, func(t *testing.T) {
			n, s := strangerNode(t)
			if name == "before Welcome" {
				if _, err := s.items(gid()); err == nil {
					t.Error("linked without a session")
				}
				receiveDead(t, s.link)
				return
			}
			_, f, err := s.say(s.hello())
			if err != nil {
				t.Fatal(err)
			}
			token := f.GetWelcome().GetSession()
			from := s
			switch name {
			case "wrong":
				token = append([]byte(nil), token...)
				token[15]++
			case "empty":
				token = nil
			case "other connection":
				from = newStranger(t, s.c.cfg.Identity, n)
			}
			if _, err := from.items(token); err == nil {
				t.Error("linked")
			}
			receiveDead(t, from.link)
			if len(n.accepted) != 0 {
				t.Error("accepted")
			}
		})
	}
}

// A flood of connections that never authenticate does not keep a peer out.
func TestFloodOfStrangers(t *testing.T) {
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	b := startNode(t, idb, pin(ida))
	a := startNode(t, ida, pin(idb, b.addr()))
	for range maxHandshaking + 20 {
		c, err := net.Dial("tcp", b.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	dial(t, a, "b")
	b.gate.mu.Lock()
	defer b.gate.mu.Unlock()
	if n := len(b.gate.handshaking); n > maxHandshaking {
		t.Errorf("%d connections in handshake", n)
	}
}

// One peer's attempts do not pile up, and do not cost it its session.
func TestConnectionsOfOnePeer(t *testing.T) {
	n, s := strangerNode(t)
	s.session()
	conn := receive(t, n.accepted, "session")
	var later []*stranger
	for range 2 * maxPerPeer {
		later = append(later, newStranger(t, s.c.cfg.Identity, n))
	}
	for _, l := range later[:maxPerPeer] {
		closedByPeer(t, l.link)
	}
	n.gate.mu.Lock()
	total, mine := n.gate.total, len(n.gate.links["stranger"])
	n.gate.mu.Unlock()
	if total > maxPerPeer || mine != total || conn.Err() != nil {
		t.Errorf("%d connections, %d of the peer; the session: %v", total, mine, conn.Err())
	}
}

// The acceptor finds a peer that is connected but does not run any more: a
// proxy keeps TCP alive and swallows everything.
func TestFrozenPeer(t *testing.T) {
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	b := startNode(t, idb, pin(ida), func(c *Config) { c.Keepalive, c.KeepaliveTimeout = time.Second, time.Second })
	freeze := make(chan struct{})
	proxy := listenRaw(t, func(down net.Conn) {
		up, err := net.Dial("tcp", b.addr())
		if err != nil {
			return
		}
		defer up.Close()
		done := make(chan struct{})
		go func() { defer close(done); relay(up, down, freeze) }()
		relay(down, up, freeze)
		up.Close()
		<-done
	})
	a := startNode(t, ida, pin(idb, proxy), shortDrain)
	_, cb := connect(t, a, b)
	close(freeze)
	err := ended(t, cb)
	if reason.Of(err) != reason.TransportError {
		t.Errorf("Err = %v", err)
	}
}

// relay copies until freeze, then reads and forgets.
func relay(to, from net.Conn, freeze <-chan struct{}) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		select {
		case <-freeze:
		default:
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
}

func TestRefusalLogIsBounded(t *testing.T) {
	var out logBuffer
	now := time.Unix(0, 0)
	r := newRefusalLog(slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return now })
	for range 1000 {
		r.warn("x")
	}
	if n := strings.Count(out.String(), "\n"); n != refusalBurst {
		t.Errorf("%d lines in no time", n)
	}
	now = now.Add(time.Second)
	r.warn("x")
	mention(t, out.String(), "similar_left_out=980")
}
