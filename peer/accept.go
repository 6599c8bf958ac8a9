package peer

import (
	"context"
	"encoding/hex"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"mover/peer/peerpb"
)

// The protocol versions this release speaks: the newest and the one before.
// There is only one so far.
const (
	Version    = 1
	minVersion = 1
)

// versions is a range of protocol versions.
type versions struct{ oldest, newest uint32 }

// common returns the newest version in both ranges.
func (v versions) common(other versions) (uint32, bool) {
	n := min(v.newest, other.newest)
	return n, other.oldest <= other.newest && n >= v.oldest && n >= other.oldest
}

func (v versions) String() string {
	if v.oldest == v.newest {
		return fmt.Sprintf("version %d", v.newest)
	}
	return fmt.Sprintf("versions %d to %d", v.oldest, v.newest)
}

// mismatch is the text of a refusal, for both sides' logs.
func mismatch(self string, own versions, name string, peer versions) string {
	older := self
	if own.newest > peer.newest {
		older = name
	}
	return fmt.Sprintf("%q speaks %s of the protocol and %q %s; upgrade mover on %q", self, own, name, peer, older)
}

func instanceText(b []byte) string { return hex.EncodeToString(b) }

type (
	controlServer = grpc.BidiStreamingServer[peerpb.Frame, peerpb.Frame]
	itemsServer   = grpc.BidiStreamingServer[peerpb.Frame, peerpb.Frame]
)

// service answers the streams of accepted connections. Both handlers stay
// until the session's end, because gRPC ends a stream when its handler returns.
type service struct {
	peerpb.UnimplementedPeerServer
	c *Control
}

func linkOf(ctx context.Context) (*link, error) {
	p, ok := grpcpeer.FromContext(ctx)
	if ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.link, nil
		}
	}
	return nil, status.Error(codes.Unauthenticated, "no authenticated connection")
}

// Control handles a session from Hello to its end.
func (s *service) Control(st controlServer) error {
	c := s.c
	l, err := linkOf(st.Context())
	if err != nil {
		return err
	}
	f, err := st.Recv()
	if err != nil {
		return err
	}
	hello := f.GetHello()
	if err := checkHello(hello); err != nil {
		return c.expel(l, err)
	}
	o, refusal := c.judge(st, l, hello)
	if refusal != nil {
		if refusal.GetCode() != peerpb.RefusalCode_REFUSAL_DUPLICATE {
			c.refusals.warn("refused a session", "peer", l.name, "addr", l.RemoteAddr().String(), "error", refusal.GetDetail())
		}
		return st.Send(&peerpb.Frame{Body: &peerpb.Frame_Refusal{Refusal: refusal}})
	}
	if o == nil {
		return status.FromContextError(st.Context().Err()).Err()
	}
	defer close(o.finished)
	defer c.abandon(o)
	l.offered.Store(o)
	if err := st.Send(&peerpb.Frame{Body: &peerpb.Frame_Welcome{Welcome: &peerpb.Welcome{
		Version: o.version, Node: c.cfg.Identity.Name, Instance: c.instance, Session: o.id[:], Asks: true}}}); err != nil {
		return err
	}
	select {
	case items := <-o.linked:
		c.serve(o, st, items)
	case <-o.ended:
	case <-st.Context().Done():
	}
	l.shut() // it carries a session or nothing
	return nil
}

// serve runs the session of an offer that was taken up.
func (c *Control) serve(o *offer, st controlServer, items itemsServer) {
	info := PeerInfo{Name: o.link.name, Fingerprint: o.link.key, Instance: o.instance, Version: o.version, Addr: o.link.RemoteAddr().String()}
	conn := newConn(info, false, o.id, o.link, &c.cfg, c)
	if !c.establishAccepted(o, conn) {
		return
	}
	o.link.established()
	// Linked goes out after the session counts here: a dialler that has it can
	// rely on a second Hello being a duplicate.
	if err := items.Send(&peerpb.Frame{Body: &peerpb.Frame_Linked{Linked: &peerpb.Linked{}}}); err != nil {
		conn.lost(err)
	}
	c.cfg.Logger.Info("session accepted", "peer", info.Name, "session", conn.Session(), "addr", info.Addr, "version", info.Version)
	go func() {
		defer c.work.Done()
		if c.cfg.Accept != nil {
			c.cfg.Accept(conn)
		}
	}()
	conn.run(st, items)
}

// abandon ends an offer that did not become a session.
func (c *Control) abandon(o *offer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pairs[o.link.name]; p != nil && p.offer == o {
		p.withdraw()
		c.forget(p)
	}
}

// judge answers a well-formed Hello.
func (c *Control) judge(st controlServer, l *link, hello *peerpb.Hello) (*offer, *peerpb.Refusal) {
	if hello.GetNode() != l.name {
		return nil, c.refusal(peerpb.RefusalCode_REFUSAL_NAME, fmt.Sprintf(
			"the Hello is of node %.80q and the certificate of %q; give the node the identity of its name", hello.GetNode(), l.name))
	}
	theirs := versions{hello.GetMinVersion(), hello.GetVersion()}
	v, ok := c.versions.common(theirs)
	if !ok {
		return nil, c.refusal(peerpb.RefusalCode_REFUSAL_VERSION, mismatch(c.cfg.Identity.Name, c.versions, l.name, theirs))
	}
	return c.welcomeOrRefuse(st.Context(), l, hello, v)
}

func (c *Control) refusal(code peerpb.RefusalCode, detail string) *peerpb.Refusal {
	return &peerpb.Refusal{Code: code, Detail: clip(detail), Version: c.versions.newest, MinVersion: c.versions.oldest}
}

// checkHello checks the form of a Hello. Unknown fields are a newer version's.
func checkHello(h *peerpb.Hello) error {
	switch {
	case h == nil:
		return &ViolationError{Frame: "frame", Detail: "the first frame is not a Hello"}
	case len(h.GetInstance()) != 16:
		return &ViolationError{Frame: "hello", Field: "instance", Detail: "not 16 bytes"}
	case len(h.GetLastSession()) != 0 && len(h.GetLastSession()) != len(sessionID{}):
		return &ViolationError{Frame: "hello", Field: "last_session", Detail: "not 16 bytes"}
	}
	return nil
}

// expel closes the connection of a peer that breaks the handshake.
func (c *Control) expel(l *link, err error) error {
	c.refusals.warn("closed an inbound connection", "peer", l.name, "addr", l.RemoteAddr().String(), "error", err.Error())
	l.shut()
	return status.Error(codes.InvalidArgument, err.Error())
}

// Items links a stream to the session offered on the same connection, and
// leaves it to that session's Conn.
func (s *service) Items(st itemsServer) error {
	l, err := linkOf(st.Context())
	if err != nil {
		return err
	}
	f, err := st.Recv()
	if err != nil {
		return err
	}
	o := l.offered.Load()
	if f.GetLink() == nil || o == nil || !o.matches(f.GetLink().GetSession()) || !l.offered.CompareAndSwap(o, nil) {
		return s.c.expel(l, &ViolationError{Frame: "link", Detail: "not of a session offered on this connection"})
	}
	o.linked <- st
	<-o.finished
	return nil
}
