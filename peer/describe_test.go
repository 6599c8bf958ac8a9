package peer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"mover/engine"
	"mover/peer/peerpb"
	"mover/verbs"
)

var someDescription = Description{Node: "b", Version: "v1.2.3", Reason: "ibv has devices", Ports: []engine.PortOffer{
	{Provider: "ibv", Device: "mlx5_0", Port: 1, LinkLayer: verbs.LinkInfiniBand, GID: verbs.GID{0: 0xfe, 1: 0x80, 15: 1}, GIDType: verbs.GIDInfiniBand,
		LID: 7, MTU: verbs.MTU4096, RateBits: 200e9},
	{Provider: "ibv", Device: "rxe0", Port: 1, LinkLayer: verbs.LinkEthernet, MTU: verbs.MTU1024, RateBits: 1e9, Down: true},
}}

// describing are two nodes that pin each other, of which b describes itself.
func describing(t *testing.T, answer func() Description) (a, b *node) {
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	b = startNode(t, idb, pin(ida), func(c *Config) { c.Describe = answer })
	return startNode(t, ida, pin(idb, b.addr())), b
}

func TestDescribe(t *testing.T) {
	a, b := describing(t, func() Description { return someDescription })
	got, err := a.Describe(t.Context(), "b", b.addr())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&someDescription, got); d != "" {
		t.Error(d)
	}
	// It is no session, and does not touch one.
	if len(a.Sessions()) != 0 || len(b.Sessions()) != 0 || len(b.accepted) != 0 {
		t.Error("a session came of it")
	}
	conn := dial(t, a, "b")
	if _, err := a.Describe(t.Context(), "b", b.addr()); err != nil {
		t.Error(err)
	}
	if conn.Err() != nil {
		t.Error(conn.Err())
	}
	waitFor(t, "the connections to go", func() bool { b.gate.mu.Lock(); defer b.gate.mu.Unlock(); return b.gate.total == 1 })
}

func TestDescribeIsForPeersOnly(t *testing.T) {
	_, b := describing(t, func() Description { t.Error("told a stranger"); return someDescription })
	c := startNode(t, testIdentity(t, "c"), pin(b.cfg.Identity))
	var refused *RefusedError
	_, err := c.Describe(t.Context(), "b", b.addr())
	if !errors.As(err, &refused) || !refused.ByPeer || !errors.Is(err, ErrUntrusted) {
		t.Errorf("%v", err)
	}
	// Nor is an answer taken from somebody else.
	d := startNode(t, testIdentity(t, "d"), pin(testIdentity(t, "b")))
	if _, err = d.Describe(t.Context(), "b", b.addr()); !errors.As(err, &refused) || refused.ByPeer {
		t.Errorf("%v", err)
	}
	mentionErr(t, err, b.addr(), b.cfg.Identity.Fingerprint)
}

func TestDescribeFails(t *testing.T) {
	a, b := describing(t, nil)
	_, err := a.Describe(t.Context(), "b", b.addr())
	if !errors.Is(err, ErrNoDescription) {
		t.Error(err)
	}
	mentionErr(t, err, "upgrade mover", b.addr())
	if _, err := a.Describe(t.Context(), "b", "::1"); err == nil {
		t.Error("a bad address")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Describe(ctx, "b", b.addr()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// What the node says of itself must fit.
	c, d := describing(t, func() Description { return Description{Version: strings.Repeat("x", maxNameBytes+1)} })
	if _, err := c.Describe(t.Context(), "b", d.addr()); status.Code(errors.Unwrap(err)) != codes.Internal {
		t.Error(err)
	}
}

func TestQuestionsAreLimited(t *testing.T) {
	var asked atomic.Int64
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	frozen := time.Now()
	b := startNodeAt(t, idb, pin(ida), func() time.Time { return frozen }, func(c *Config) {
		c.Describe = func() Description { asked.Add(1); return Description{Node: "b"} }
	})
	s := newStranger(t, ida, b)
	for i := range questionBurst + 3 {
		_, err := s.client.Describe(s.ctx, &peerpb.DescribeRequest{})
		if want := i >= questionBurst; (status.Code(err) == codes.ResourceExhausted) != want || !want && err != nil {
			t.Fatalf("question %d: %v", i, err)
		}
	}
	if asked.Load() != questionBurst {
		t.Errorf("answered %d", asked.Load())
	}
	_, err := s.c.Describe(t.Context(), "b", b.addr())
	if !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	mentionErr(t, err, "try again")

	now := time.Now()
	q := newQuestions(func() time.Time { return now })
	for q.allow() {
	}
	now = now.Add(1500 * time.Millisecond)
	if !q.allow() || q.allow() {
		t.Error("not one a second")
	}
}

// A reload that makes a stranger of the peer counts on connections there are.
func TestDescribeAfterReload(t *testing.T) {
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	b := startNode(t, idb, pin(ida), func(c *Config) { c.Describe = func() Description { return Description{Node: "b"} } })
	s := newStranger(t, ida, b)
	if err := b.Reload(nil, Trust{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Describe(s.ctx, &peerpb.DescribeRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

// A connection that only asked is closed in time, and no reason for a warning.
func TestConnectionThatOnlyAsks(t *testing.T) {
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	b := startNode(t, idb, pin(ida), func(c *Config) {
		c.Describe = func() Description { return Description{Node: "b"} }
		c.HandshakeTimeout = time.Second
	})
	s := newStranger(t, ida, b)
	if _, err := s.client.Describe(s.ctx, &peerpb.DescribeRequest{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.link.dead:
	case <-time.After(patience):
		t.Fatal("the connection stays open")
	}
	if strings.Contains(b.log.String(), "no session on an inbound connection") {
		t.Error(b.log.String())
	}
}

func TestDescriptionsAreChecked(t *testing.T) {
	good := func() *peerpb.Description {
		return must(description(someDescription))
	}
	for name, spoil := range map[string]func(*peerpb.Description){
		"another name":   func(d *peerpb.Description) { d.Node = "c" },
		"no name":        func(d *peerpb.Description) { d.Node = "" },
		"a long version": func(d *peerpb.Description) { d.Version = strings.Repeat("x", maxNameBytes+1) },
		"a long reason":  func(d *peerpb.Description) { d.Reason = strings.Repeat("x", maxDetailBytes+1) },
		"a short GID":    func(d *peerpb.Description) { d.Ports[0].Gid = d.Ports[0].Gid[:15] },
		"an odd MTU":     func(d *peerpb.Description) { d.Ports[0].Mtu = 9 },
		"a large port":   func(d *peerpb.Description) { d.Ports[1].Port = 256 },
		"too many ports": func(d *peerpb.Description) {
			for len(d.Ports) <= engine.MaxPorts {
				d.Ports = append(d.Ports, d.Ports[0])
			}
		},
	} {
		d := good()
		spoil(d)
		var violation *ViolationError
		if _, err := fromDescription(d, "b"); !errors.As(err, &violation) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := good()
	d.Reason = "a\x1b[31m\nb"
	if got, err := fromDescription(d, "b"); err != nil || strings.ContainsAny(got.Reason, "\x1b\n") {
		t.Errorf("%+v, %v", got, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func FuzzDescription(f *testing.F) {
	f.Add(must(proto.Marshal(must(description(someDescription)))))
	f.Add([]byte("\n\x01b\x1a\x02\x1a\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d peerpb.Description
		if proto.Unmarshal(data, &d) != nil {
			return
		}
		got, err := fromDescription(&d, "b")
		if err != nil {
			return
		}
		texts := []string{got.Node, got.Version, got.Reason}
		for _, p := range got.Ports {
			texts = append(texts, p.Provider, p.Device)
			if !p.MTU.Valid() {
				t.Fatalf("%+v", p)
			}
		}
		for _, s := range texts {
			if s != printable(s) {
				t.Fatalf("%q is not for a terminal", s)
			}
		}
		if len(got.Ports) > engine.MaxPorts || got.Node != "b" {
			t.Fatalf("%+v", got)
		}
	})
}
