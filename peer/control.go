package peer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	encproto "google.golang.org/grpc/encoding/proto"
	grpckeepalive "google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// MaxListen bounds Config.Listen.
const MaxListen = 64

// Config is what a Control needs. Zero durations and sizes mean the defaults.
type Config struct {
	// Identity is this node's. Required.
	Identity *Identity
	// Listen are the control addresses to accept on: "HOST:PORT", ":9471" for
	// all interfaces, "[::1]:9471" for IPv6; port 0 for any. Empty: only dial.
	Listen []string
	// Trust says who the peers are.
	Trust Trust
	// Accept is called, in its own goroutine, with every session that a peer
	// dialled. A Dial of that peer may return the same Conn, before or after.
	// nil: such sessions are only returned by Dial.
	Accept func(*Conn)
	// Describe answers peers that ask what this node would offer them. It is
	// called from any goroutine, at most once a second in the long run. nil:
	// the node does not describe itself.
	Describe func() Description
	// Answer answers a question of a peer (see Control.Ask), in a goroutine of
	// its own. ctx ends with the connection, after AnswerTimeout, or when the
	// asker gives up or the Control is closed; Answer must return soon after,
	// since Close waits for it. What it returns is at most MaxQuestionBytes and
	// is not touched afterwards. An error reaches the asker as the
	// *reason.Error in its chain, else as INTERNAL with its text; return
	// ErrUnknownQuestion for a kind that is not known. In PeerInfo only Name,
	// Fingerprint and Addr are set. nil: no kind is known.
	Answer func(ctx context.Context, from PeerInfo, kind string, body []byte) ([]byte, error)
	// Logger takes refusals, and sessions that begin and end. Required.
	Logger *slog.Logger

	DialTimeout      time.Duration // for each address, all handshakes included; 5 s
	HandshakeTimeout time.Duration // for an accepted connection: TLS, and then again until it has a session; 10 s
	Keepalive        time.Duration // an idle connection is probed after it; at least 1 s; 5 s
	KeepaliveTimeout time.Duration // and is dead without an answer for it; at least 1 s; 5 s
	DrainTimeout     time.Duration // for queued messages when a session is closed; 1 s
	AnswerTimeout    time.Duration // for the answer to a question; 90 s
	QuestionIdle     time.Duration // a connection for questions is kept so long without one; 60 s
	QueueFrames      int           // messages waiting on one stream; 4096
	QueueBytes       int           // and their bytes; 64 MiB
}

func (c *Config) setDefaults() {
	setDefault(&c.DialTimeout, 5*time.Second)
	setDefault(&c.HandshakeTimeout, 10*time.Second)
	setDefault(&c.Keepalive, 5*time.Second)
	setDefault(&c.KeepaliveTimeout, 5*time.Second)
	setDefault(&c.DrainTimeout, time.Second)
	setDefault(&c.AnswerTimeout, 90*time.Second)
	setDefault(&c.QuestionIdle, time.Minute)
	setDefault(&c.QueueFrames, 4096)
	setDefault(&c.QueueBytes, 64<<20)
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Control is this node's end of the control plane: it accepts sessions of
// peers and dials them, at most one for each. All methods may be called from
// any goroutine.
type Control struct {
	cfg       Config
	keepalive keepalive
	instance  []byte // 16 random bytes: this process
	versions  versions
	now       func() time.Time
	refusals  *refusalLog
	questions *questions
	answers   *answers
	gate      *gate
	listeners []net.Listener
	server    *grpc.Server
	work      sync.WaitGroup // everything but gRPC's own goroutines

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu      sync.Mutex
	id      *Identity
	trust   *trust
	pairs   map[string]*pair // by the peer's name
	live    map[*Conn]struct{}
	askers  map[string]*asker // connections for questions, by the peer's name
	started bool
	closed  bool
}

// New checks cfg and listens; Start begins to accept. An error says which
// setting to change.
func New(cfg Config) (*Control, error) { return newControl(cfg, time.Now) }

func newControl(cfg Config, now func() time.Time) (*Control, error) {
	cfg.setDefaults()
	if cfg.Identity == nil || cfg.Logger == nil {
		return nil, errors.New("peer: Config needs Identity and Logger")
	}
	if len(cfg.Listen) > MaxListen {
		return nil, fmt.Errorf("control plane: %d addresses to listen on, at most %d; remove some", len(cfg.Listen), MaxListen)
	}
	tr, err := newTrust(cfg.Trust, cfg.Identity.Name, now)
	if err != nil {
		return nil, err
	}
	c := &Control{
		cfg: cfg, now: now, refusals: newRefusalLog(cfg.Logger, now), questions: newQuestions(now), answers: newAnswers(), gate: newGate(),
		keepalive: keepalive{cfg.Keepalive, cfg.KeepaliveTimeout},
		instance:  make([]byte, 16), id: cfg.Identity, trust: tr, pairs: make(map[string]*pair), live: make(map[*Conn]struct{}), askers: make(map[string]*asker),
		versions: versions{minVersion, Version},
	}
	_, _ = rand.Read(c.instance) // never fails (crypto/rand)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	if err := c.listen(); err != nil {
		for _, l := range c.listeners {
			l.Close()
		}
		return nil, err
	}
	c.server = c.newServer()
	return c, nil
}

func (c *Control) listen() error {
	lc := net.ListenConfig{KeepAliveConfig: c.keepalive.config()}
	for _, s := range c.cfg.Listen {
		addr, err := parseAddress(s, true)
		if err != nil {
			return fmt.Errorf("control plane: %w", err)
		}
		l, err := lc.Listen(c.ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("control plane: listen on %s: %w; free the port (is another mover running?) or change the control address", addr, err)
		}
		c.listeners = append(c.listeners, listener{l, c})
	}
	return nil
}

// listener lets connections in through the gate.
type listener struct {
	net.Listener
	c *Control
}

// Accept sets the socket's timeouts.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := l.c.keepalive.apply(conn); err != nil {
		l.c.refusals.warn("set TCP_USER_TIMEOUT", "addr", conn.RemoteAddr().String(), "error", err.Error())
	}
	return l.c.gate.arrive(conn), nil
}

// The windows of gRPC's flow control: what a peer may have in flight to a
// consumer that does not read. They are fixed, so that gRPC neither probes for
// the bandwidth nor grows them.
const (
	streamWindow = 512 << 10
	connWindow   = 1 << 20
	ioBuffer     = 16 << 10
)

func (c *Control) newServer() *grpc.Server {
	s := grpc.NewServer(
		grpc.Creds(serverCreds{c}),
		grpc.ForceServerCodecV2(newFrameCodec()),
		grpc.ConnectionTimeout(c.cfg.HandshakeTimeout),
		// A session's two, a peer's questions, and a few more, so that one
		// question too many is told so and does not wait in the peer's queue.
		grpc.MaxConcurrentStreams(2+maxAnswersPerPeer+8),
		grpc.MaxRecvMsgSize(maxFrameBytes),
		grpc.MaxHeaderListSize(8<<10),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(grpckeepalive.ServerParameters{Time: c.cfg.Keepalive, Timeout: c.cfg.KeepaliveTimeout}),
		// The dialler pings at most every 10 s (gRPC's own floor); half of it
		// leaves room for its timers.
		grpc.KeepaliveEnforcementPolicy(grpckeepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	s.RegisterService(peerService(), &service{c: c})
	return s
}

// Start begins to accept on all listeners. A second call does nothing.
func (c *Control) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.closed {
		return
	}
	c.started = true
	for _, l := range c.listeners {
		c.work.Go(func() {
			if err := c.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				c.cfg.Logger.Error("control address stopped accepting; restart mover", "addr", l.Addr().String(), "error", err.Error())
			}
		})
	}
}

// Addrs are the addresses listened on, with the ports that 0 became.
func (c *Control) Addrs() []net.Addr {
	var out []net.Addr
	for _, l := range c.listeners {
		out = append(out, l.Addr())
	}
	return out
}

// Instance is this process as its peers see it in PeerInfo.Instance.
func (c *Control) Instance() string { return fmt.Sprintf("%x", c.instance) }

// Sessions returns the sessions that are up, in no order.
func (c *Control) Sessions() []*Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*Conn
	for _, p := range c.pairs {
		if p.conn != nil {
			out = append(out, p.conn)
		}
	}
	return out
}

// Reload replaces the trust, and the identity unless id is nil (its name must
// stay). After an error everything is as before. Sessions with peers that are
// not trusted any more are ended; all others go on untouched, also when an
// address changed.
func (c *Control) Reload(id *Identity, t Trust) error {
	c.mu.Lock()
	self := c.id.Name
	c.mu.Unlock()
	if id != nil && id.Name != self {
		return fmt.Errorf("%w: the new certificate is of node %q, but a running node keeps its name (%q); restart it to rename it", ErrIdentity, id.Name, self)
	}
	tr, err := newTrust(t, self, c.now)
	if err != nil {
		return err
	}
	type lost struct {
		conn *Conn
		err  error
	}
	var ended []lost
	c.mu.Lock()
	c.trust = tr
	if id != nil {
		c.id = id
	}
	for _, p := range c.pairs {
		if p.conn == nil {
			continue
		}
		if _, err := tr.verify(p.conn.link.chain, p.name, p.conn.link.usage); err != nil {
			ended = append(ended, lost{p.conn, err})
		}
	}
	strangers := c.dropAskers(func(a *asker) bool { return !c.stillTrusted(a.link) })
	c.mu.Unlock()
	for _, a := range strangers {
		a.close()
	}
	for _, e := range ended {
		e.conn.untrusted(e.err)
	}
	return nil
}

// Close ends all sessions, stops accepting and dialling, and waits until
// nothing is left: at most DrainTimeout, plus what Accept callbacks take to
// return (so none of them may call it). Closing twice is harmless.
func (c *Control) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.work.Wait()
		return
	}
	c.closed = true
	conns := slices.Collect(maps.Keys(c.live))
	askers := c.dropAskers(func(*asker) bool { return true })
	c.mu.Unlock()
	for _, a := range askers {
		a.close()
	}
	for _, conn := range conns {
		conn.Close("the node is shutting down")
	}
	for _, conn := range conns {
		<-conn.Done()
	}
	c.cancel() // dials
	c.gate.close()
	c.server.Stop()
	for _, l := range c.listeners {
		l.Close() // those that Start never gave to the server
	}
	c.work.Wait()
}

func (c *Control) current() (*Identity, *trust) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id, c.trust
}

// frameCodec is gRPC's codec for protobuf, except that a frame that cannot be
// decoded arrives as an empty one. fromFrame then reports it as the violation
// it is, which in gRPC's hands would look like a failed connection.
type frameCodec struct{ encoding.CodecV2 }

func newFrameCodec() frameCodec { return frameCodec{encoding.GetCodecV2(encproto.Name)} }

// Unmarshal never fails.
func (f frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if err := f.CodecV2.Unmarshal(data, v); err != nil {
		m, ok := v.(proto.Message)
		if !ok {
			return err
		}
		proto.Reset(m)
	}
	return nil
}
