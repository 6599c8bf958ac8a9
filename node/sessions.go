package node

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"mover/node/datapath"
	"mover/peer"
	"mover/reason"
)

// sessions has the one session of each control connection.
type sessions struct {
	control  *peer.Control
	path     *datapath.Path
	log      *slog.Logger
	receiver func(peer.PeerInfo) *receiver

	mu    sync.Mutex
	links map[*peer.Conn]session
}

// session is a link and when it was made.
type session struct {
	link  *datapath.Link
	since time.Time // UTC
}

func newSessions(n *Node) *sessions {
	return &sessions{
		path: n.path, log: n.log, links: map[*peer.Conn]session{},
		receiver: func(p peer.PeerInfo) *receiver { return &receiver{node: n, peer: p.Name} },
	}
}

// to finds or makes the session with a peer and waits until it is up. The
// error is a *reason.Error.
func (s *sessions) to(ctx context.Context, name string) (*datapath.Link, error) {
	conn, err := s.control.Dial(ctx, name)
	if err != nil {
		return nil, err
	}
	l, err := s.of(conn)
	if err != nil {
		return nil, err
	}
	return l, l.Ready(ctx)
}

// all are the sessions there are.
func (s *sessions) all() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.links))
}

// accept takes a session that a peer dialled.
func (s *sessions) accept(conn *peer.Conn) {
	if _, err := s.of(conn); err != nil {
		s.log.Error("no session for the peer's connection", "peer", conn.Peer().Name, "error", err)
	}
}

// of finds or makes the session of a connection: Dial and accept may both come
// with the same one.
func (s *sessions) of(conn *peer.Conn) (*datapath.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.links[conn]; ok {
		return known.link, nil
	}
	select {
	case <-conn.Done():
		return nil, reason.New(reason.PeerUnreachable, "the connection with %s ended at once: %v", conn.Peer().Name, conn.Err())
	default:
	}
	l, err := s.path.Link(conn, s.receiver(conn.Peer()))
	if err != nil {
		conn.Close(err.Error())
		return nil, err
	}
	s.links[conn] = session{l, time.Now().UTC()}
	go func() {
		<-l.Done()
		s.mu.Lock()
		delete(s.links, conn)
		s.mu.Unlock()
		s.log.Info("session ended", "peer", conn.Peer().Name, "session", conn.Session(), "why", l.Err())
	}()
	return l, nil
}
