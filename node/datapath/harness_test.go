package datapath

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"mover/engine"
	"mover/node/config"
	"mover/peer"
	"mover/reason"
	"mover/verbs"
)

// recorder is a provider that remembers the QPs it made, so that a test can
// cut them.
type recorder struct {
	verbs.Provider
	mu   sync.Mutex
	qps  []verbs.QP
	down map[string]bool // devices whose port is down
}

// setDown takes the port of a device down, or up.
func (r *recorder) setDown(device string, down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down == nil {
		r.down = map[string]bool{}
	}
	r.down[device] = down
}

// QueryPort has the port as the test wants it.
func (c *recordingContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	a, err := c.Context.QueryPort(port)
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.down[c.Device().Name] {
		a.State = verbs.PortDown
	}
	return a, err
}

func (r *recorder) OpenDevice(name string) (verbs.Context, error) {
	c, err := r.Provider.OpenDevice(name)
	if err != nil {
		return nil, err
	}
	return &recordingContext{c, r}, nil
}

type recordingContext struct {
	verbs.Context
	r *recorder
}

func (c *recordingContext) AllocPD() (verbs.PD, error) {
	pd, err := c.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	return &recordingPD{pd, c.r}, nil
}

type recordingPD struct {
	verbs.PD
	r *recorder
}

func (p *recordingPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	qp, err := p.PD.CreateQP(a)
	if err == nil {
		p.r.mu.Lock()
		p.r.qps = append(p.r.qps, qp)
		p.r.mu.Unlock()
	}
	return qp, err
}

func (r *recorder) all() []verbs.QP {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]verbs.QP(nil), r.qps...)
}

// host is one side: a path, its control plane and the sessions made on it.
type host struct {
	path     *Path
	control  *peer.Control
	provider *recorder
	links    chan *Link
}

// memory is a Source and a Sink.
type memory struct {
	mu sync.Mutex
	p  []byte
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) { return copy(p, m.p[off:]), nil }
func (m *memory) Verify(uint32) error                     { return nil }
func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(m.p[off:], p), nil
}

// receiver takes every item into memory.
type receiver struct {
	mu    sync.Mutex
	items map[string]*memory // by Meta
}

func (r *receiver) Open(s *engine.Session, ref engine.ItemRef, offer *engine.ItemOffer) {
	m := &memory{p: make([]byte, offer.Bytes)}
	s.Opened(ref, &engine.Target{Sink: m, Handle: string(offer.Meta)}, false, nil, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items[string(offer.Meta)] = m
}

func (r *receiver) Publish(s *engine.Session, ref engine.ItemRef, _ *engine.Target, _ uint32, _ bool) {
	s.Published(ref, nil, nil)
}

func (r *receiver) Discard(s *engine.Session, ref engine.ItemRef, _ *engine.Target, _ *reason.Error) {
	s.Discarded(ref)
}

func (r *receiver) bytes(name string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.items[name]; m != nil {
		return m.p
	}
	return nil
}

// newHosts makes two hosts with two rails between them, ready to dial.
func newHosts(t *testing.T, change func(*config.Config)) (a, b *host, received *receiver) {
	t.Helper()
	received = &receiver{items: map[string]*memory{}}
	ids := map[string]*peer.Identity{}
	for _, name := range []string{"a", "b"} {
		id, _, err := peer.LoadOrCreate(t.TempDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = id
	}
	newHost := func(name, other string, addresses []string) *host {
		cfg := config.Default()
		cfg.Soft.Addresses = []string{"127.0.0.1", "127.0.0.2"}
		cfg.Memory.Arena, cfg.Memory.SessionShare = 64<<20, 16<<20
		cfg.Session.SlotPayload, cfg.Session.Segment = 256<<10, 1<<20
		if change != nil {
			change(cfg)
		}
		level := slog.LevelError
		if testing.Verbose() {
			level = slog.LevelInfo
		}
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
		selection, err := Prepare(cfg, log)
		if err != nil {
			t.Fatal(err)
		}
		h := &host{provider: &recorder{Provider: selection.Provider}, links: newLinks()}
		selection.Provider = h.provider
		if h.path, err = Open(cfg, log, selection); err != nil {
			t.Fatal(err)
		}
		if err := h.path.Start(); err != nil {
			t.Fatal(err)
		}
		h.control, err = peer.New(peer.Config{Identity: ids[name], Listen: []string{"127.0.0.1:0"}, Logger: log,
			Trust: peer.Trust{Peers: map[string]peer.PeerConfig{other: {Addresses: addresses, Fingerprint: ids[other].Fingerprint}}},
			Accept: func(c *peer.Conn) {
				if l, err := h.path.Link(c, received); err == nil {
					h.links <- l
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		h.control.Start()
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := h.path.Close(ctx); err != nil {
				t.Errorf("closing %s: %v", name, err)
			}
			h.control.Close()
		})
		return h
	}
	b = newHost("b", "a", nil)
	a = newHost("a", "b", []string{b.control.Addrs()[0].String()})
	return a, b, received
}

func newLinks() chan *Link { return make(chan *Link, 16) }

// dial makes a session from a to b.
func dial(t *testing.T, a *host) *Link {
	t.Helper()
	l, err := tryDial(t, a)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// tryDial is dial for a session that may be refused.
func tryDial(t *testing.T, a *host) (*Link, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := a.control.Dial(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.path.Link(conn, &receiver{items: map[string]*memory{}})
	if err != nil {
		t.Fatal(err)
	}
	return l, l.Ready(ctx)
}

// pattern differs by position, so that a chunk in the wrong place shows.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	x := uint32(seed) + 1
	for i := range p {
		x = x*1664525 + 1013904223
		p[i] = byte(x >> 24)
	}
	return p
}

// send sends p under a name and waits for its end.
func send(t *testing.T, l *Link, name string, p []byte) engine.ItemResult {
	t.Helper()
	done := make(chan engine.ItemResult, 1)
	l.Session().Send(&engine.Item{Kind: engine.Staged, Bytes: int64(len(p)), Verify: true, Meta: []byte(name),
		Source: &memory{p: p}, Done: func(r engine.ItemResult) { done <- r }})
	select {
	case r := <-done:
		return r
	case <-time.After(2 * time.Minute):
		t.Fatal("the item did not end")
	}
	panic("unreachable")
}

func equal(t *testing.T, received *receiver, name string, want []byte) {
	t.Helper()
	if got := received.bytes(name); !bytes.Equal(got, want) {
		t.Errorf("%s: the destination has other bytes (%d of %d)", name, len(got), len(want))
	}
}
