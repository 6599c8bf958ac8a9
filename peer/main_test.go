package peer

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"mover/engine"
	"mover/peer/peerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits that end by an event; it is only reached by a failure.
const patience = 15 * time.Second

// testIdentity makes a self-signed identity for name.
func testIdentity(t *testing.T, name string) *Identity {
	t.Helper()
	id, created, err := LoadOrCreate(t.TempDir(), name)
	if err != nil || !created {
		t.Fatalf("LoadOrCreate: created %v, %v", created, err)
	}
	return id
}

// logBuffer keeps what a node logs, for tests to read.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// node is a Control with what tests look at.
type node struct {
	*Control
	log      *logBuffer
	accepted chan *Conn
}

// addr is the node's first control address.
func (n *node) addr() string { return n.Addrs()[0].String() }

// startNode starts a node on a free loopback port.
func startNode(t *testing.T, id *Identity, trust Trust, change ...func(*Config)) *node {
	t.Helper()
	return startNodeAt(t, id, trust, time.Now, change...)
}

func startNodeAt(t *testing.T, id *Identity, trust Trust, now func() time.Time, change ...func(*Config)) *node {
	t.Helper()
	n := &node{log: &logBuffer{}, accepted: make(chan *Conn, 64)}
	cfg := Config{Identity: id, Listen: []string{"127.0.0.1:0"}, Trust: trust, Logger: slog.New(slog.NewTextHandler(n.log, nil)),
		DrainTimeout: patience, // nodes hang up when told; hand-driven peers need a short one
		Accept:       func(c *Conn) { n.accepted <- c }}
	for _, f := range change {
		f(&cfg)
	}
	c, err := newControl(cfg, now)
	if err != nil {
		t.Fatal(err)
	}
	n.Control = c
	c.Start()
	t.Cleanup(c.Close)
	return n
}

// pin is a Trust in one pinned peer.
func pin(id *Identity, addrs ...string) Trust {
	return Trust{Peers: map[string]PeerConfig{id.Name: {Addresses: addrs, Fingerprint: id.Fingerprint}}}
}

// twoNodes starts nodes that pin each other. The first has the lower
// fingerprint, so it is the one that decides between simultaneous dials.
func twoNodes(t *testing.T, change ...func(*Config)) (a, b *node) {
	t.Helper()
	ida, idb := testIdentity(t, "node-a"), testIdentity(t, "node-b")
	if idb.Fingerprint < ida.Fingerprint {
		ida, idb = idb, ida
	}
	a = startNode(t, ida, pin(idb), change...)
	b = startNode(t, idb, pin(ida, a.addr()), change...)
	if err := a.Reload(nil, pin(idb, b.addr())); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// dial is Dial with the test's patience.
func dial(t *testing.T, n *node, name string) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := n.Dial(ctx, name)
	if err != nil {
		t.Fatalf("Dial(%q): %v", name, err)
	}
	return conn
}

// dialError is the error of a Dial that must fail.
func dialError(t *testing.T, n *node, name string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := n.Dial(ctx, name)
	if err == nil {
		conn.Close("unexpected")
		t.Fatalf("Dial(%q) succeeded", name)
	}
	return err
}

func receive[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v, ok := <-ch:
		if !ok {
			t.Fatalf("%s: the channel is closed", what)
		}
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing came", what)
	}
	panic("unreachable")
}

func ended(t *testing.T, c *Conn) error {
	t.Helper()
	select {
	case <-c.Done():
		return c.Err()
	case <-time.After(patience):
		t.Fatal("the session does not end")
	}
	panic("unreachable")
}

// mention checks that a text tells its reader what is needed.
func mention(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("text lacks %q:\n%s", p, text)
		}
	}
}

func mentionErr(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	mention(t, err.Error(), parts...)
}

// stranger is a peer driven by hand: it authenticates like any node, and says
// on the streams what the test wants.
type stranger struct {
	t      *testing.T
	c      *Control // supplies identity and trust; not started
	link   *link
	conn   *grpc.ClientConn
	client peerpb.PeerClient
	ctx    context.Context
}

// newStranger connects to n as id, which n must trust.
func newStranger(t *testing.T, id *Identity, n *node) *stranger {
	t.Helper()
	self := n.cfg.Identity
	c, err := New(Config{Identity: id, Logger: slog.New(slog.DiscardHandler), Trust: pin(self)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	l, err := c.dialLink(ctx, n.addr(), self.Name)
	if err != nil {
		t.Fatal(err)
	}
	cc, err := newClient(l, 10*time.Second, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.shut(); cc.Close() })
	return &stranger{t: t, c: c, link: l, conn: cc, client: peerpb.NewPeerClient(cc), ctx: ctx}
}

func (s *stranger) hello() *peerpb.Hello {
	return &peerpb.Hello{Version: Version, MinVersion: minVersion, Node: s.c.cfg.Identity.Name, Instance: s.c.instance}
}

// say opens Control, sends h and returns the answer.
func (s *stranger) say(h *peerpb.Hello) (stream, *peerpb.Frame, error) {
	s.t.Helper()
	st, err := s.client.Control(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := st.Send(&peerpb.Frame{Body: &peerpb.Frame_Hello{Hello: h}}); err != nil {
		s.t.Fatal(err)
	}
	f, err := st.Recv()
	return st, f, err
}

// session completes the handshake.
func (s *stranger) session() (control, items stream) {
	s.t.Helper()
	control, f, err := s.say(s.hello())
	if err != nil || f.GetWelcome() == nil {
		s.t.Fatalf("answer to Hello: %v, %v", f, err)
	}
	items, err = s.items(f.GetWelcome().GetSession())
	if err != nil {
		s.t.Fatal(err)
	}
	return control, items
}

func (s *stranger) items(token []byte) (stream, error) {
	s.t.Helper()
	st, err := s.client.Items(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := st.Send(&peerpb.Frame{Body: &peerpb.Frame_Link{Link: &peerpb.Link{Session: token}}}); err != nil {
		s.t.Fatal(err)
	}
	f, err := st.Recv()
	if err == nil && f.GetLinked() == nil {
		err = fmt.Errorf("answer to Link: %v", f)
	}
	return st, err
}

// strangerNode starts a node that trusts a stranger, and connects that.
func strangerNode(t *testing.T, change ...func(*Config)) (*node, *stranger) {
	t.Helper()
	id := testIdentity(t, "stranger")
	n := startNode(t, testIdentity(t, "node"), pin(id), change...)
	return n, newStranger(t, id, n)
}

// shortDrain is for nodes whose peer is driven by hand and never hangs up.
func shortDrain(c *Config) { c.DrainTimeout = 20 * time.Millisecond }

func ping(n uint64) engine.Message { return &engine.Ping{Seq: n} }
