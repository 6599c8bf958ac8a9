package node

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mover/node/datapath"
	"mover/peer"
	"mover/reason"
)

// sessions has the one session of each control connection.
type sessions struct {
	control  *peer.Control
	path     *datapath.Path
	log      *slog.Logger
	receiver func(*peer.Conn) *receiver
	labels   *peerLabels
	attempts *prometheus.CounterVec // by peer and code
	made     *prometheus.CounterVec // by peer

	ending sync.WaitGroup // of those that tell of a session's end

	mu    sync.Mutex
	links map[*peer.Conn]session
	past  railTotals // of the sessions that are over
}

// session is a link and when it was made.
type session struct {
	link  *datapath.Link
	peer  string    // its label
	since time.Time // UTC
}

func newSessions(n *Node) *sessions {
	listed := func(name string) bool { _, ok := n.live.Load().Peers[name]; return ok }
	return &sessions{
		path: n.path, log: n.log, links: map[*peer.Conn]session{}, past: railTotals{}, labels: newPeerLabels(listed),
		receiver: func(c *peer.Conn) *receiver { return &receiver{node: n, peer: c.Peer().Name, session: c.Session()} },
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mover_session_attempts_total",
			Help: "Times that a job needed a session with a peer, by the code of what became of it; OK is a session that is up."}, []string{"peer", "code"}),
		made: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mover_sessions_made_total",
			Help: "Sessions begun with a peer, whoever dialled."}, []string{"peer"}),
	}
}

// to finds or makes the session with a peer and waits until it is up. The
// error is a *reason.Error.
func (s *sessions) to(ctx context.Context, name string) (*datapath.Link, error) {
	l, err := s.reach(ctx, name)
	code := "OK"
	switch {
	case err != nil && ctx.Err() != nil:
		code = string(whyEnded(ctx).Code) // the peer may be well
	case err != nil:
		code = string(asReason(err).Code)
	}
	s.attempts.WithLabelValues(s.labels.of(name, err == nil), code).Inc()
	return l, err
}

func (s *sessions) reach(ctx context.Context, name string) (*datapath.Link, error) {
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

// wait waits for what is told of sessions that have ended: all of them, once
// the data path is closed and makes no more.
func (s *sessions) wait() {
	s.mu.Lock() // what was being made is entered
	ending := &s.ending
	s.mu.Unlock()
	ending.Wait()
}

// all are the sessions there are.
func (s *sessions) all() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.links))
}

// rails are what the rails of all sessions counted so far, and the rails there
// are. Both are the caller's own.
func (s *sessions) rails() (railTotals, map[railInfo]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	totals, infos := maps.Clone(s.past), map[railInfo]struct{}{}
	for _, session := range s.links {
		rails := session.link.Session().Rails()
		totals.with(session.peer, rails)
		for _, r := range rails {
			infos[railInfo{session.peer, r.Local.Device, strconv.Itoa(int(r.Local.Port)), r.Remote.Device, strconv.Itoa(int(r.Remote.Port)), r.Local.Provider}] = struct{}{}
		}
	}
	return totals, infos
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
	l, err := s.path.Link(conn, s.receiver(conn))
	if err != nil {
		conn.Close(err.Error())
		return nil, err
	}
	label := s.labels.of(conn.Peer().Name, true)
	s.made.WithLabelValues(label).Inc()
	s.links[conn] = session{l, label, time.Now().UTC()}
	s.ending.Go(func() {
		<-l.Done()
		s.mu.Lock()
		delete(s.links, conn)
		s.past.end(label, l.Session().Rails())
		s.mu.Unlock()
		s.log.Info("session ended", "peer", conn.Peer().Name, "session", conn.Session(), "why", l.Err())
	})
	return l, nil
}
