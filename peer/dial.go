package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	grpckeepalive "google.golang.org/grpc/keepalive"

	"mover/peer/peerpb"
	"mover/reason"
)

// errYield: the peer's own connection comes first.
var errYield = errors.New("the peer makes a session itself")

const (
	// dialRounds bounds how often an attempt starts over because the peer
	// already has a session, or makes one, that then does not come up.
	dialRounds = 4
	// dialPause is the time between rounds, for the other side to notice.
	dialPause = 100 * time.Millisecond
)

// Dial returns the session with the peer name: the one that is up, the one that
// comes up because the peer dials at the same time, or a new one over the
// peer's addresses in turn. Callers at the same time share one attempt.
//
// The error is a *reason.Error. PEER_REFUSED: an address answered and one of
// the two nodes declined the other (certificate, name, version; errors.As
// finds a *RefusedError). PEER_UNREACHABLE: no address answered, with the cause
// for each; the name is not configured (ErrUnknownPeer); ctx ended; or the
// Control is closed (ErrShutdown).
func (c *Control) Dial(ctx context.Context, name string) (*Conn, error) {
	fail := func(err error) (*Conn, error) {
		return nil, reason.New(reason.PeerUnreachable, "dial %q: %w", name, err)
	}
	if err := ValidName(name); err != nil {
		return fail(fmt.Errorf("%w: %w", ErrUnknownPeer, err))
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return fail(ErrShutdown)
	}
	if name == c.id.Name {
		c.mu.Unlock()
		return fail(fmt.Errorf("%w: it is this node itself, which needs no session", ErrUnknownPeer))
	}
	if p := c.pairs[name]; p != nil && p.conn != nil {
		defer c.mu.Unlock()
		return p.conn, nil
	}
	addrs, err := c.trust.addresses(name)
	if err != nil {
		c.mu.Unlock()
		return fail(err)
	}
	p := c.pairOf(name)
	a := p.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		a.ctx, a.cancel = context.WithCancel(c.ctx)
		p.attempt = a
		c.work.Go(func() { c.pursue(p, a, addrs) })
	}
	a.waiters++
	c.mu.Unlock()

	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.resolved {
		return a.conn, a.err
	}
	if a.waiters--; a.waiters == 0 {
		// A Dial from now on starts afresh instead of joining a dying attempt.
		p.resolve(a, nil, context.Canceled)
	}
	return fail(timely(ctx, ctx.Err()))
}

// pursue carries an attempt to its end.
func (c *Control) pursue(p *pair, a *attempt, addrs []string) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forget(p)
	}()
	var err error
	for round := range dialRounds {
		if round > 0 {
			pause := time.NewTimer(dialPause)
			select {
			case <-pause.C:
			case <-a.done:
			}
			pause.Stop()
		}
		if c.accepted(p, a, round > 0) {
			return
		}
		if err = c.dialAll(p, a, addrs); err == nil {
			return
		}
		if !errors.Is(err, errDuplicate) && !errors.Is(err, errYield) {
			break
		}
	}
	if c.accepted(p, a, true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		err = reason.New(reason.PeerUnreachable, "dial %q: %w", p.name, ErrShutdown)
	case errors.Is(err, errDuplicate), errors.Is(err, errYield):
		err = reason.New(reason.PeerUnreachable, "dial %q: %w, but it does not reach this node; try again, and look at the peer's log", p.name, err)
	}
	p.resolve(a, nil, err)
}

// accepted waits while an inbound session is coming up, and tells whether the
// attempt is resolved, by that or otherwise. With yield, Hellos that wait for
// the attempt go ahead.
func (c *Control) accepted(p *pair, a *attempt, yield bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if yield {
		a.yielding = true
		p.broadcast()
		defer func() { a.yielding = false }()
	}
	for {
		if p.conn != nil {
			p.resolve(a, p.conn, nil)
		}
		// An offer ends at the latest when its link's timer fires.
		if a.resolved || p.offer == nil && (p.held == 0 || !yield) {
			return a.resolved
		}
		changed := p.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-a.ctx.Done():
		}
		c.mu.Lock()
		if a.ctx.Err() != nil {
			return a.resolved
		}
	}
}

// dialAll tries the addresses in turn. The error is a *reason.Error, or
// errYield or errDuplicate.
func (c *Control) dialAll(p *pair, a *attempt, addrs []string) error {
	return c.inTurn(a.ctx, p.name, addrs, func(ctx context.Context, addr string) error { return c.dialOne(ctx, p, a, addr) })
}

// inTurn calls dial with each address of the peer name until one succeeds, and
// sums up why none did.
func (c *Control) inTurn(all context.Context, name string, addrs []string, dial func(context.Context, string) error) error {
	var causes []error
	refused := false
	for _, addr := range addrs {
		ctx, cancel := context.WithTimeout(all, c.cfg.DialTimeout)
		err := dial(ctx, addr)
		cancel()
		var r *RefusedError
		switch {
		case err == nil, errors.Is(err, errYield), errors.Is(err, errDuplicate):
			return err
		case errors.As(err, &r) && errors.Is(r, ErrVersion):
			return reason.New(reason.PeerRefused, "peer %q: %w", name, err)
		case r != nil:
			refused = true
		}
		causes = append(causes, err)
		if all.Err() != nil {
			break
		}
	}
	texts := make([]string, len(causes))
	for i, err := range causes {
		texts[i] = err.Error()
	}
	out := &reason.Error{Code: reason.PeerUnreachable, Err: errors.Join(causes...)}
	if refused {
		out.Code = reason.PeerRefused
		out.Detail = fmt.Sprintf("peer %q: %s", name, strings.Join(texts, "; "))
		return out
	}
	out.Detail = fmt.Sprintf("peer %q is unreachable: %s; check that mover runs there, its control addresses, and the firewall in between",
		name, strings.Join(texts, "; "))
	return out
}

// dialOne makes the session over one address and starts it.
func (c *Control) dialOne(ctx context.Context, p *pair, a *attempt, addr string) error {
	l, err := c.dialLink(ctx, addr, p.name)
	if err != nil {
		return err
	}
	// From here the deadline is kept by cutting the connection, because the
	// streams must outlive ctx.
	stop := context.AfterFunc(ctx, l.shut)
	streams, cancel := context.WithCancel(context.Background())
	cc, err := newClient(l, c.cfg.Keepalive, c.cfg.KeepaliveTimeout)
	abort := func(err error) error {
		stop()
		l.shut()
		cancel()
		if cc != nil {
			cc.Close()
		}
		c.settle(p, a)
		return err
	}
	if err != nil {
		return abort(fmt.Errorf("%s: %w", addr, err))
	}
	client := peerpb.NewPeerClient(cc)
	s, err := c.hail(streams, client, p, a)
	if err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) {
			refused.Addr = addr
			return abort(refused)
		}
		if errors.Is(err, errYield) || errors.Is(err, errDuplicate) {
			return abort(err)
		}
		if e := l.failure(); e != nil {
			err = e
		}
		return abort(fmt.Errorf("%s: session handshake: %w", addr, timely(ctx, err)))
	}
	if !stop() {
		return abort(fmt.Errorf("%s: session handshake: %w", addr, timely(ctx, ctx.Err())))
	}
	info := PeerInfo{Name: p.name, Fingerprint: l.key, Instance: s.instance, Version: s.version, Addr: l.RemoteAddr().String()}
	conn := newConn(info, true, s.id, l, &c.cfg, c)
	if s.asks {
		conn.client = client
	}
	if !c.establishDialled(a, conn) {
		return abort(errYield)
	}
	c.cfg.Logger.Info("session dialled", "peer", info.Name, "session", conn.Session(), "addr", info.Addr, "version", info.Version)
	c.work.Go(func() {
		conn.run(s.control, s.items)
		cancel()
		cc.Close()
	})
	return nil
}

// newClient makes a gRPC client of a link: one connection, and no other when
// that is lost, so that a session never continues on another one unseen.
func newClient(l *link, idle, answer time.Duration) (*grpc.ClientConn, error) {
	var used atomic.Bool
	return grpc.NewClient("passthrough:///mover",
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the connection is lost")
			}
			return l, nil
		}),
		grpc.WithTransportCredentials(dialledCreds{}),
		grpc.WithAuthority("mover"),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithDisableHealthCheck(), grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(8<<10),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithReadBufferSize(ioBuffer), grpc.WithWriteBufferSize(ioBuffer),
		grpc.WithKeepaliveParams(grpckeepalive.ClientParameters{Time: max(idle, 10*time.Second), Timeout: answer, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newFrameCodec()), grpc.MaxCallRecvMsgSize(maxFrameBytes)),
	)
}

// hailed is a session as the dialler learned of it.
type hailed struct {
	control, items stream
	id             sessionID
	version        uint32
	instance       string
	asks           bool
}

// hail says Hello and links the Items stream. ctx is that of the streams; the
// time is bounded by the link's end.
func (c *Control) hail(ctx context.Context, client peerpb.PeerClient, p *pair, a *attempt) (*hailed, error) {
	control, err := client.Control(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.commit(p, a); err != nil {
		return nil, err
	}
	c.mu.Lock()
	hello := &peerpb.Hello{Version: c.versions.newest, MinVersion: c.versions.oldest, Node: c.id.Name, Instance: c.instance}
	if p.last != (sessionID{}) {
		hello.LastSession = append([]byte(nil), p.last[:]...)
	}
	c.mu.Unlock()
	if err := control.Send(&peerpb.Frame{Body: &peerpb.Frame_Hello{Hello: hello}}); err != nil {
		return nil, streamError(control, err)
	}
	f, err := control.Recv()
	if err != nil {
		return nil, err
	}
	if r := f.GetRefusal(); r != nil {
		return nil, c.refusedBy(p.name, r)
	}
	w := f.GetWelcome()
	s := &hailed{control: control, version: w.GetVersion(), instance: instanceText(w.GetInstance()), asks: w.GetAsks()}
	switch {
	case w == nil:
		return nil, &ViolationError{Frame: "frame", Detail: "the answer to Hello is neither Welcome nor Refusal"}
	case len(w.GetSession()) != len(s.id) || len(w.GetInstance()) != 16:
		return nil, &ViolationError{Frame: "welcome", Detail: "session and instance must have 16 bytes"}
	case w.GetVersion() < c.versions.oldest || w.GetVersion() > c.versions.newest:
		return nil, &ViolationError{Frame: "welcome", Field: "version", Detail: fmt.Sprintf("%d was not offered", w.GetVersion())}
	case w.GetNode() != p.name:
		return nil, &RefusedError{Peer: p.name, Err: ErrWrongName, Detail: fmt.Sprintf(
			"the node with the certificate of %q calls itself %.80q; give it the identity of its name", p.name, w.GetNode())}
	}
	copy(s.id[:], w.GetSession())
	c.welcomed(p, s.id)

	items, err := client.Items(ctx)
	if err != nil {
		return nil, err
	}
	if err := items.Send(&peerpb.Frame{Body: &peerpb.Frame_Link{Link: &peerpb.Link{Session: s.id[:]}}}); err != nil {
		return nil, streamError(items, err)
	}
	if f, err = items.Recv(); err != nil {
		return nil, err
	}
	if f.GetLinked() == nil {
		return nil, &ViolationError{Frame: "frame", Detail: "the answer to Link is not Linked"}
	}
	s.items = items
	return s, nil
}

// streamError gets the reason for a failed Send, which a client stream only
// tells on Recv.
func streamError(s stream, err error) error {
	if _, e := s.Recv(); e != nil {
		return e
	}
	return err
}

// refusedBy is the error of a peer's Refusal.
func (c *Control) refusedBy(name string, r *peerpb.Refusal) error {
	switch r.GetCode() {
	case peerpb.RefusalCode_REFUSAL_DUPLICATE:
		return errDuplicate
	case peerpb.RefusalCode_REFUSAL_VERSION:
		theirs := versions{r.GetMinVersion(), r.GetVersion()}
		return &RefusedError{Peer: name, ByPeer: true, Err: ErrVersion, Detail: mismatch(c.cfg.Identity.Name, c.versions, name, theirs)}
	case peerpb.RefusalCode_REFUSAL_NAME:
		return &RefusedError{Peer: name, ByPeer: true, Err: ErrWrongName, Detail: printable(r.GetDetail())}
	}
	return &RefusedError{Peer: name, ByPeer: true, Detail: printable(r.GetDetail())}
}
