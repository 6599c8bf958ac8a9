package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
	"mover/ring"
	"mover/verbs"
	"mover/verbs/soft"
)

// What the simulation can't see, since it is one goroutine: pollers, sessions
// and workers as goroutines of their own, over verbs/soft, for the race
// detector. softNode is one node of two.
type softNode struct {
	t        *testing.T
	pollers  []*Poller
	parkers  []*ring.Parker
	chans    [][]verbs.CompChannel
	pool     *ring.Pool
	ctxs     []verbs.Context
	session  *Session
	bell     *ring.Bell
	peer     *softNode
	messages [2]chan Message
	tamper   func(Message) Message // what the peer gets instead of it; nil is nothing
	dial     bool
	up       chan struct{}
	ended    chan *reason.Error
	wg       sync.WaitGroup
	stop     context.CancelFunc
	leases   atomic.Int64

	mu    sync.Mutex
	items map[uint32]*softItem
}

type softItem struct {
	data, memory []byte
	dest         []byte
	done         chan ItemResult
	published    atomic.Bool
	item         Item
	place        func() []byte // the destination's memory, if it is not the test's own
	release      func()        // it is the destination's again
}

func (i *softItem) ReadAt(p []byte, offset int64) (int, error)  { return copy(p, i.data[offset:]), nil }
func (i *softItem) Verify(uint32) error                         { return nil }
func (i *softItem) WriteAt(p []byte, offset int64) (int, error) { return copy(i.dest[offset:], p), nil }

func mapped(t *testing.T, n int64) []byte {
	if n == 0 {
		return nil
	}
	b, err := unix.Mmap(-1, 0, int(roundPage(n)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func softClock() int64 { return int64(time.Since(softEpoch)) + 1 }

var softEpoch = time.Now()

func newSoftNode(t *testing.T, dial bool, addresses []netip.Addr, pollers int) *softNode {
	n := &softNode{t: t, dial: dial, bell: ring.NewBell(), up: make(chan struct{}), ended: make(chan *reason.Error, 1),
		items: map[uint32]*softItem{}}
	for k := range n.messages {
		n.messages[k] = make(chan Message, 4096)
	}
	var err error
	if n.pool, err = ring.NewPool(2); err != nil {
		t.Fatal(err)
	}
	provider, err := soft.New(soft.Config{Addresses: addresses})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := provider.Devices()
	if err != nil {
		t.Fatal(err)
	}
	open := Open{PayloadBytes: 16 << 10, LanesPerRail: 4, LaneDepth: 8, SegmentBytes: 64 << 10}
	var ports []LocalPort
	n.chans = make([][]verbs.CompChannel, pollers)
	for _, d := range devices {
		ctx, err := provider.OpenDevice(d.Name)
		if err != nil {
			t.Fatal(err)
		}
		n.ctxs = append(n.ctxs, ctx)
		table, err := ctx.QueryGIDTable(1)
		if err != nil {
			t.Fatal(err)
		}
		p := LocalPort{Context: ctx, Channels: map[uint16]verbs.CompChannel{}, Offer: PortOffer{Provider: "soft", Device: d.Name, Port: 1,
			LinkLayer: verbs.LinkEthernet, GID: table[0].GID, GIDType: table[0].Type, MTU: verbs.MTU4096, RateBits: 100e9}}
		for k := range pollers {
			ch, err := ctx.CreateCompChannel()
			if err != nil {
				t.Fatal(err)
			}
			n.chans[k] = append(n.chans[k], ch)
			p.Channels[uint16(k)] = ch
			p.Offer.Pollers = append(p.Offer.Pollers, uint16(k))
		}
		ports = append(ports, p)
		open.Ports = append(open.Ports, p.Offer)
	}
	for k := range pollers {
		parker, err := ring.NewParker()
		if err != nil {
			t.Fatal(err)
		}
		n.parkers = append(n.parkers, parker)
		n.pollers = append(n.pollers, NewPoller(PollerConfig{Index: k, Work: NewWorkQueue(4096, n.pool), Waker: parker, Channels: n.chans[k]}))
	}
	n.session = NewSession(SessionConfig{Dialler: dial, Open: open, Ports: ports, Pollers: n.pollers, ShareBytes: 4 << 20,
		Lease: func(_ uint16, bytes int64) ([]byte, func(), error) {
			n.leases.Add(1)
			return mapped(t, bytes), func() { n.leases.Add(-1) }, nil
		},
		Control: n, Receiver: n, Waker: n.bell, Random: rand.Uint32, Log: func(text string, args ...any) { t.Log(dial, text, args) },
		Info: func(text string, args ...any) { t.Log(dial, text, args) },
		Up:   func() { close(n.up) }, Ended: func(why *reason.Error) { n.ended <- why },
		AckTimeout: 14, PingEvery: s1, DeadAfter: 30 * s1, SetupTimeout: 30 * s1, DrainTimeout: 20 * s1, LaneDeadline: 60 * s1, StallAfter: 60 * s1,
		RebuildMin: 5 * ms, RebuildMax: 100 * ms})
	return n
}

// Send implements Control.
func (n *softNode) Send(m Message) error {
	if n.tamper != nil {
		if m = n.tamper(m); m == nil {
			return nil
		}
	}
	k := 0
	if ItemStream(m) {
		k = 1
	}
	select {
	case n.peer.messages[k] <- m:
		n.peer.bell.Wake()
		return nil
	default:
		return errors.New("the queue is full")
	}
}

func (n *softNode) run() {
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	for k, p := range n.pollers {
		n.wg.Go(func() { n.poll(ctx, p, n.parkers[k], n.chans[k]) })
	}
	for seat := range n.pool.Len() {
		n.wg.Go(func() { n.work(ctx, n.pool.Seat(seat)) })
	}
	n.wg.Go(n.converse)
}

func (n *softNode) poll(ctx context.Context, p *Poller, parker *ring.Parker, chans []verbs.CompChannel) {
	fds := make([]unix.PollFd, len(chans))
	for i, ch := range chans {
		fds[i] = unix.PollFd{Fd: int32(ch.FD()), Events: unix.POLLIN}
	}
	for ctx.Err() == nil {
		if p.Step(softClock()) > 0 {
			continue
		}
		parker.Prepare()
		if err := p.Arm(); err != nil {
			n.t.Error(err)
		}
		if p.Step(softClock()) > 0 {
			parker.Cancel()
			continue
		}
		wait := max(0, min(p.Deadline()-softClock(), 50*ms))
		if _, err := parker.Park(fds, time.Duration(wait)); err != nil {
			n.t.Error(err)
		}
		for _, ch := range chans {
			if err := ch.Drain(); err != nil {
				n.t.Error(err)
			}
		}
	}
}

func (n *softNode) work(ctx context.Context, seat *ring.Parker) {
	scratch := new(Scratch)
	next := func() *Op {
		for _, p := range n.pollers {
			if op, ok := p.work.Pop(); ok {
				return op
			}
		}
		return nil
	}
	for ctx.Err() == nil {
		op := next()
		if op == nil {
			seat.Prepare()
			if op = next(); op == nil {
				if _, err := seat.Park(nil, 50*time.Millisecond); err != nil {
					n.t.Error(err)
				}
				continue
			}
			seat.Cancel()
		}
		op.Execute(scratch)
	}
}

// converse is the session's goroutine.
func (n *softNode) converse() {
	s := n.session
	handle := func() (any bool) {
		for k := range n.messages {
			for more := true; more; {
				select {
				case m := <-n.messages[k]:
					s.Handle(m, softClock())
					any = true
				default:
					more = false
				}
			}
		}
		return any
	}
	s.Start(softClock())
	for !s.Ended() {
		handle()
		next := s.Run(softClock())
		n.bell.Prepare()
		if handle() || s.pending() {
			n.bell.Cancel()
			continue
		}
		wait := max(0, min(next-softClock(), 50*ms))
		if _, err := n.bell.Wait(context.Background(), time.Duration(wait)); err != nil {
			n.t.Error(err)
		}
	}
}

// pending is the second look before sleeping.
func (s *Session) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.results)+len(s.acks)+s.events.Len() > 0
}

func (n *softNode) find(meta []byte) *softItem {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.items[binary.LittleEndian.Uint32(meta)]
}

// Open, Publish and Discard implement Receiver; the answers come from another
// goroutine.
func (n *softNode) Open(s *Session, ref ItemRef, offer *ItemOffer) {
	i := n.peer.find(offer.Meta)
	n.wg.Go(func() {
		t := &Target{Handle: i}
		if i.place != nil {
			i.dest = i.place()
		} else {
			i.dest = mapped(n.t, offer.Bytes)
		}
		if offer.Kind == Direct {
			t.Memory = i.dest
		} else {
			t.Sink = i
		}
		s.Opened(ref, t, false, nil, nil)
	})
}

func (n *softNode) Publish(s *Session, ref ItemRef, t *Target, _ uint32, _ bool) {
	i := t.Handle.(*softItem)
	n.wg.Go(func() {
		i.published.Store(true)
		if i.release != nil {
			i.release()
		}
		s.Published(ref, []byte("meta"), nil)
	})
}

func (n *softNode) Discard(s *Session, ref ItemRef, t *Target, _ *reason.Error) {
	i := t.Handle.(*softItem)
	n.wg.Go(func() {
		if i.release != nil {
			i.release()
		}
		s.Discarded(ref)
	})
}

func (n *softNode) send(index uint32, kind ItemKind, size int64) *softItem {
	i := n.newItem(index, kind, size)
	n.session.Send(&i.item)
	return i
}

// newItem makes an item that the peer finds when it is offered.
func (n *softNode) newItem(index uint32, kind ItemKind, size int64) *softItem {
	i := &softItem{data: make([]byte, size), done: make(chan ItemResult, 2)}
	_, _ = rand.NewChaCha8([32]byte{byte(index)}).Read(i.data)
	i.item = Item{Kind: kind, Bytes: size, Verify: true, Meta: binary.LittleEndian.AppendUint32(nil, index), Source: i,
		Done: func(r ItemResult) { i.done <- r }}
	if kind == Direct {
		i.memory = mapped(n.t, size)
		copy(i.memory, i.data)
		i.item.Memory = i.memory
	}
	n.mu.Lock()
	n.items[index] = i
	n.mu.Unlock()
	return i
}

func (n *softNode) shut() {
	n.stop()
	n.wg.Wait()
	for k, p := range n.pollers {
		if len(p.groups) != 0 || p.work.reserved.Load() != 0 {
			n.t.Errorf("poller %d: %d groups, %d ops reserved", k, len(p.groups), p.work.reserved.Load())
		}
		for _, ch := range n.chans[k] {
			if err := ch.Destroy(); err != nil {
				n.t.Error(err)
			}
		}
		if err := n.parkers[k].Close(); err != nil {
			n.t.Error(err)
		}
	}
	for _, ctx := range n.ctxs {
		if c := ctx.Counts(); c != (verbs.Counts{}) {
			n.t.Errorf("left open: %+v", c)
		}
		if err := ctx.Close(); err != nil {
			n.t.Error(err)
		}
	}
	if err := n.pool.Close(); err != nil {
		n.t.Error(err)
	}
	if got := n.leases.Load(); got != 0 {
		n.t.Errorf("%d leases left", got)
	}
}

func waitFor[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(60 * time.Second): // far beyond what any machine needs
		t.Fatalf("%s: not within a minute", what)
	}
	return v
}

// TestSoftSession moves items both ways over software verbs, with real
// goroutines, while lanes are taken down.
func TestSoftSession(t *testing.T) {
	addresses := func(hosts ...byte) (all []netip.Addr) {
		for _, h := range hosts {
			all = append(all, netip.AddrFrom4([4]byte{127, 0, 0, h}))
		}
		return all
	}
	a, b := newSoftNode(t, true, addresses(1, 2), 2), newSoftNode(t, false, addresses(3, 4), 1)
	a.peer, b.peer = b, a
	a.run()
	b.run()
	var items []*softItem
	nodes := []*softNode{a, b}
	sizes := []int64{0, 1, 4096, 16 << 10, 300_001, 2 << 20}
	for k, size := range sizes { // before the session is up, too
		for j, kind := range []ItemKind{Staged, Direct} {
			items = append(items, nodes[(k+j)%2].send(uint32(len(items)), kind, size))
		}
	}
	waitFor(t, "up here", a.up)
	waitFor(t, "up there", b.up)
	for k := range 4 {
		n := nodes[k%2]
		n.session.PortEvent(n.ctxs[k/2], verbs.AsyncEvent{Type: verbs.EventPortErr, Port: 1})
		for j, kind := range []ItemKind{Staged, Direct} {
			items = append(items, nodes[(k+j)%2].send(uint32(len(items)), kind, 1<<20+int64(k)))
		}
		waitFor(t, "an item", items[k].done) // lanes go at different moments
		items[k].done <- ItemResult{CRC: Checksum(items[k].data)}
	}
	for k, i := range items {
		r := waitFor(t, "an item", i.done)
		if r.Err != nil || !i.published.Load() || r.CRC != Checksum(i.data) || !bytes.Equal(i.dest[:len(i.data)], i.data) {
			t.Errorf("item %d of %d bytes: %v, published %v", k, len(i.data), r.Err, i.published.Load())
		}
	}
	a.session.Close(nil)
	waitFor(t, "end here", a.ended)
	waitFor(t, "end there", b.ended)
	a.shut()
	b.shut()
}
