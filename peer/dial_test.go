package peer

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mover/reason"
)

// deadAddress is a loopback address where nothing listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// listenRaw accepts TCP connections and gives each to serve, which must return
// when the connection is closed.
func listenRaw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { defer c.Close(); serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// silent reads and never answers.
func silent(c net.Conn) {
	b := make([]byte, 4096)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}

func TestUnreachable(t *testing.T) {
	b := testIdentity(t, "b")
	dead := deadAddress(t)
	mute := listenRaw(t, silent)
	rude := listenRaw(t, func(net.Conn) {})
	http := listenRaw(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		silent(c)
	})
	a := startNode(t, testIdentity(t, "a"), pin(b, dead, mute, rude, http), func(c *Config) { c.DialTimeout = 200 * time.Millisecond })
	err := dialError(t, a, "b")
	if reason.Of(err) != reason.PeerUnreachable {
		t.Errorf("reason %s", reason.Of(err))
	}
	mentionErr(t, err, `peer "b" is unreachable`, dead+": ", "connection refused", mute+": no answer in time", rude+": ", http+": what listens there is not a mover control port",
		"check that mover runs there", "firewall")
}

func TestUnknownPeer(t *testing.T) {
	a := startNode(t, testIdentity(t, "a"), Trust{})
	for name, says := range map[string][]string{
		"b":   {`unknown peer "b"`, `peers: {"b":`},
		"a":   {"this node itself"},
		"B/x": {"node name"},
	} {
		err := dialError(t, a, name)
		if !errors.Is(err, ErrUnknownPeer) || reason.Of(err) != reason.PeerUnreachable {
			t.Errorf("%q: %v", name, err)
		}
		mentionErr(t, err, says...)
	}
}

func TestAddressesInTurn(t *testing.T) {
	idb := testIdentity(t, "b")
	ida := testIdentity(t, "a")
	b := startNode(t, idb, pin(ida))
	other := startNode(t, testIdentity(t, "c"), pin(ida))
	a := startNode(t, ida, pin(idb, deadAddress(t), other.addr(), b.addr()))
	if got := dial(t, a, "b").Peer().Addr; got != b.addr() {
		t.Errorf("connected to %s", got)
	}
}

func TestIPv6(t *testing.T) {
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 on this host: %v", err)
	} else {
		l.Close()
	}
	b := startNode(t, idb, pin(ida), func(c *Config) { c.Listen = []string{"127.0.0.1:0", "[::1]:0"} })
	a := startNode(t, ida, pin(idb, b.Addrs()[1].String()))
	if got := dial(t, a, "b").Peer().Addr; !strings.HasPrefix(got, "[::1]:") {
		t.Errorf("connected to %s", got)
	}
}

// Every way in which one of two nodes declines the other: the dialler learns
// what to do, and where.
func TestRefused(t *testing.T) {
	now := time.Now()
	ca, caFile := testCA(t)
	otherCA, otherFile := testCA(t)
	hour := func(name, ca string) *Identity { return issued(t, ca, name, now.Add(-time.Hour), now.Add(time.Hour)) }
	ida, idb, idx := testIdentity(t, "a"), testIdentity(t, "b"), testIdentity(t, "x")
	expiredA := issued(t, ca, "a", now.Add(-time.Hour), now.Add(-time.Minute))
	expiredB := issued(t, ca, "b", now.Add(-time.Hour), now.Add(-time.Minute))
	byCA := func(file string) func(...string) Trust {
		return func(addrs ...string) Trust { return Trust{CAFile: file, Addresses: addrs} }
	}
	pinned := func(id *Identity) func(...string) Trust {
		return func(addrs ...string) Trust { return pin(id, addrs...) }
	}
	pinnedAs := func(name, fp string) func(...string) Trust {
		return func(addrs ...string) Trust {
			return Trust{Peers: map[string]PeerConfig{name: {Addresses: addrs, Fingerprint: fp}}}
		}
	}
	for name, tt := range map[string]struct {
		a, b           *Identity
		aTrust, bTrust func(...string) Trust
		kind           error
		byPeer         bool
		says           []string
	}{
		"fingerprint of the acceptor": {ida, idb, pinnedAs("b", idx.Fingerprint), pinned(ida), ErrUntrusted, false,
			[]string{idb.Fingerprint, idx.Fingerprint, `set on "a": peers: {"b":`}},
		"fingerprint of the dialler": {ida, idb, pinned(idb), pinnedAs("a", idx.Fingerprint), ErrUntrusted, true,
			[]string{`peer "b" refused this node`, ida.Fingerprint, idx.Fingerprint, `set on "b": peers: {"a":`}},
		"unknown dialler": {ida, idb, pinned(idb), pinned(idx), ErrUntrusted, true,
			[]string{ida.Fingerprint, `add on "b": peers: {"a": {addresses: ["a:9471"], fingerprint: "` + ida.Fingerprint + `"}}`}},
		"another node at the address": {ida, idb, pinned(idx), pinned(ida), ErrWrongName, false,
			[]string{`the node there is "b"`, `not "x"`, "correct the addresses"}},
		"acceptor of another CA": {hour("a", ca), hour("b", otherCA), byCA(caFile), byCA(caFile), ErrUntrusted, false,
			[]string{`the CA that "a" trusts`, "issue it with that CA"}},
		"dialler of another CA": {hour("a", ca), hour("b", otherCA), byCA(otherFile), byCA(otherFile), ErrUntrusted, true,
			[]string{`refused this node`, `the CA that "b" trusts`, "issue it with that CA"}},
		"expired acceptor": {hour("a", ca), expiredB, byCA(caFile), byCA(caFile), ErrExpired, false,
			[]string{"expired on", "mover ca issue b"}},
		"expired dialler": {expiredA, hour("b", ca), byCA(caFile), byCA(caFile), ErrExpired, true,
			[]string{`refused this node`, "expired on", "mover ca issue a"}},
		"two nodes of one name": {hour("a", ca), hour("a", ca), byCA(caFile), byCA(caFile), ErrWrongName, false,
			[]string{`the node there is "a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			b := startNode(t, tt.b, tt.bTrust())
			a := startNode(t, tt.a, tt.aTrust(b.addr()))
			target := "b"
			if strings.HasPrefix(name, "another node") {
				target = "x"
			}
			err := dialError(t, a, target)
			var r *RefusedError
			if reason.Of(err) != reason.PeerRefused || !errors.As(err, &r) || !errors.Is(err, tt.kind) {
				t.Fatalf("%v; want %v", err, tt.kind)
			}
			if r.ByPeer != tt.byPeer || r.Addr != b.addr() {
				t.Errorf("ByPeer %v, Addr %s", r.ByPeer, r.Addr)
			}
			mentionErr(t, err, append(tt.says, b.addr())...)
			if tt.byPeer { // the acceptor's log says the same
				waitFor(t, "the log", func() bool { return strings.Contains(b.log.String(), "refused inbound connection") })
				mention(t, b.log.String(), a.cfg.Identity.Fingerprint)
			}
			if len(b.accepted) != 0 {
				t.Error("a session was accepted")
			}
		})
	}
}

func TestSessionsByCA(t *testing.T) {
	now := time.Now()
	ca, file := testCA(t)
	ida := issued(t, ca, "a", now.Add(-time.Hour), now.Add(time.Hour))
	idb := issued(t, ca, "b", now.Add(-time.Hour), now.Add(time.Hour))
	b := startNode(t, idb, Trust{CAFile: file})
	a := startNode(t, ida, Trust{CAFile: file, Addresses: []string{b.addr()}})
	ca1, cb := connect(t, a, b)
	if ca1.Peer().Name != "b" || cb.Peer().Name != "a" {
		t.Errorf("%+v, %+v", ca1.Peer(), cb.Peer())
	}
}

func TestNoCommonVersion(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b versions
		old  string
	}{
		"dialler is older":  {versions{1, 1}, versions{2, 3}, `upgrade mover on "a"`},
		"acceptor is older": {versions{2, 3}, versions{1, 1}, `upgrade mover on "b"`},
	} {
		t.Run(name, func(t *testing.T) {
			ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
			b := startNode(t, idb, pin(ida))
			a := startNode(t, ida, pin(idb, b.addr()))
			a.versions, b.versions = tt.a, tt.b
			err := dialError(t, a, "b")
			if !errors.Is(err, ErrVersion) || reason.Of(err) != reason.PeerRefused {
				t.Fatal(err)
			}
			mentionErr(t, err, tt.old, "version 1", "versions 2 to 3", `"a"`, `"b"`)
			waitFor(t, "the log", func() bool { return strings.Contains(b.log.String(), "versions 2 to 3") })
		})
	}
}

func TestVersionsAgree(t *testing.T) {
	for _, tt := range []struct {
		a, b versions
		want uint32 // 0: none
	}{
		{versions{1, 1}, versions{1, 1}, 1}, {versions{1, 2}, versions{2, 3}, 2}, {versions{1, 2}, versions{1, 1}, 1},
		{versions{1, 1}, versions{2, 3}, 0}, {versions{1, 1}, versions{0, 0}, 0}, {versions{1, 1}, versions{5, 1}, 0},
	} {
		for _, p := range [][2]versions{{tt.a, tt.b}, {tt.b, tt.a}} {
			if got, ok := p[0].common(p[1]); ok != (tt.want != 0) || ok && got != tt.want {
				t.Errorf("%v with %v: %d, %v", p[0], p[1], got, ok)
			}
		}
	}
}

// An older node that knows fewer fields of Hello must still understand it.
func TestNewerHello(t *testing.T) {
	_, s := strangerNode(t)
	h := s.hello()
	h.Version = 7
	h.ProtoReflect().SetUnknown([]byte{0xfa, 0x3f, 1, 'x'})
	_, f, err := s.say(h)
	if err != nil || f.GetWelcome().GetVersion() != Version {
		t.Fatalf("%v, %v", f, err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	b := testIdentity(t, "b")
	a := startNode(t, testIdentity(t, "a"), pin(b, listenRaw(t, silent)), func(c *Config) { c.DialTimeout = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	for range 2 {
		go func() { _, err := a.Dial(ctx, "b"); errs <- err }()
	}
	waitFor(t, "the attempt", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		p := a.pairs["b"]
		return p != nil && p.attempt != nil && p.attempt.waiters == 2
	})
	cancel()
	for range 2 {
		err := receive(t, errs, "Dial")
		if !errors.Is(err, context.Canceled) || reason.Of(err) != reason.PeerUnreachable {
			t.Errorf("Dial = %v", err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pairs["b"]; p != nil && p.attempt != nil {
		t.Error("the attempt goes on with nobody waiting")
	}
}

// Names that lead nowhere, which a client of the node may choose, cost nothing
// lasting.
func TestDeadEndsAreForgotten(t *testing.T) {
	_, file := testCA(t)
	a := startNode(t, testIdentity(t, "a"), Trust{CAFile: file, Addresses: []string{deadAddress(t)}})
	for _, name := range []string{"b", "c", "no_name"} {
		dialError(t, a, name)
	}
	waitFor(t, "them to be forgotten", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.pairs) == 0 })
}
