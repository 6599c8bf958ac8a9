package datapath

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"mover/engine"
	"mover/peer"
	"mover/reason"
)

// The timers of a session that no setting changes.
const (
	pingEvery  = time.Second
	rebuildMin = 100 * time.Millisecond
	rebuildMax = 2 * time.Second
)

// deadAfter is how long a silent peer counts as alive. Where attempts stall
// earlier the session ends by then too, so that the next one is dialled over
// another rail than that which the control connection was lost with; but not
// before a few pings could be lost.
func deadAfter(stallAfter time.Duration) time.Duration {
	return min(max(stallAfter, 3*pingEvery), 10*time.Second)
}

// laneLimit is how long a lane with work posted may be without any completion.
// A lane that moves at all completes something much sooner, on any link worth
// the name: RC gives up after half a second to two by itself.
func laneLimit(stallAfter time.Duration) time.Duration {
	return min(max(stallAfter, 2*time.Second), 10*time.Second)
}

// ackTimeout encodes a duration as a QP's timeout, rounded up:
// ibv_modify_qp(3), timeout.
func ackTimeout(d time.Duration) uint8 {
	t := uint8(1)
	for t < 31 && 4096*time.Nanosecond<<t < d {
		t++
	}
	return t
}

// handleBatch is how many messages are handled between two runs of the
// session's own work.
const handleBatch = 64

// Link is a session on its goroutine. Its methods may be called from any.
type Link struct {
	path    *Path
	conn    *peer.Conn
	session *engine.Session
	wake    bell
	up      chan struct{}
	done    chan struct{}
	why     *reason.Error // after done
}

// bell wakes the session's goroutine: a full one has rung already.
type bell chan struct{}

func (b bell) Wake() bool {
	select {
	case b <- struct{}{}:
		return true
	default:
		return false
	}
}

// Link runs a session over a control connection until either ends. The
// receiver decides on what the peer sends.
func (p *Path) Link(conn *peer.Conn, receiver engine.Receiver) (*Link, error) {
	ports, err := p.ports()
	if err != nil {
		return nil, err
	}
	l := &Link{path: p, conn: conn, wake: make(bell, 1), up: make(chan struct{}), done: make(chan struct{})}
	c := p.cfg
	sc := engine.SessionConfig{
		Dialler: conn.Dialler(), Ports: ports, Pollers: p.pollers,
		Open: engine.Open{PayloadBytes: uint32(c.Session.SlotPayload), LanesPerRail: uint16(c.Session.LanesPerRail),
			LaneDepth: uint16(c.Session.LaneDepth), SegmentBytes: uint32(c.Session.Segment)},
		ShareBytes: int64(c.Memory.SessionShare), Lease: p.lease,
		Control: conn, Receiver: receiver, Waker: l.wake, Random: random32,
		Log: func(text string, args ...any) {
			p.log.Warn(text, append([]any{"peer", conn.Peer().Name, "session", conn.Session()}, args...)...)
		},
		Info: func(text string, args ...any) {
			p.log.Info(text, append([]any{"peer", conn.Peer().Name, "session", conn.Session()}, args...)...)
		},
		Aside:      p.aside(),
		Up:         func() { close(l.up) },
		Ended:      func(why *reason.Error) { l.why = why },
		AckTimeout: ackTimeout(c.Session.AckTimeout), PingEvery: int64(pingEvery), DeadAfter: int64(deadAfter(c.Jobs.StallAfter)), SetupTimeout: int64(setupTimeout),
		DrainTimeout: int64(c.Session.DrainTimeout), LaneDeadline: int64(laneLimit(c.Jobs.StallAfter)), StallAfter: int64(c.Jobs.StallAfter),
		RebuildMin: int64(rebuildMin), RebuildMax: int64(rebuildMax),
	}
	for _, port := range ports {
		sc.Open.Ports = append(sc.Open.Ports, port.Offer)
	}
	l.session = engine.NewSession(sc)
	if !p.links.add(l) {
		return nil, reason.New(reason.PeerRefused, "this node is stopping")
	}
	go l.run()
	return l, nil
}

// aside runs what may block in the kernel on a goroutine of its own: as many as
// lanes connect at a time. A QP of software verbs is driven by its CQ's Poll,
// so it can't leave the poller, and never blocks.
func (p *Path) aside() func(*engine.Op) {
	if p.selection.Provider.Name() == "soft" {
		return nil
	}
	return func(op *engine.Op) { go op.Execute(nil) }
}

// random32 is for packet sequence numbers, which must not be guessed.
func random32() uint32 {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err) // crypto/rand does not fail
	}
	return binary.LittleEndian.Uint32(b[:])
}

// run is the session's goroutine.
func (l *Link) run() {
	defer l.path.links.remove(l)
	defer close(l.done)
	s, now := l.session, l.path.clock.now
	messages := l.conn.Messages()
	s.Start(now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := s.Run(now())
		if s.Ended() {
			break
		}
		timer.Reset(max(time.Duration(next-now()), 0))
		select {
		case m, open := <-messages:
			messages = l.handle(m, open, messages)
		case <-l.wake:
		case <-timer.C:
		}
	}
	l.conn.Close("the session has ended")
}

// handle takes a message and those already behind it.
func (l *Link) handle(m engine.Message, open bool, messages <-chan engine.Message) <-chan engine.Message {
	for range handleBatch {
		if !open {
			l.session.Lost(l.conn.Err(), l.path.clock.now())
			return nil
		}
		l.session.Handle(m, l.path.clock.now())
		select {
		case m, open = <-messages:
		default:
			return messages
		}
	}
	if !open {
		l.session.Lost(l.conn.Err(), l.path.clock.now())
		return nil
	}
	l.session.Handle(m, l.path.clock.now())
	return messages
}

// Session takes items to send.
func (l *Link) Session() *engine.Session { return l.session }

// Conn is the control connection.
func (l *Link) Conn() *peer.Conn { return l.conn }

// Ready waits until the session is up. The error is a *reason.Error.
func (l *Link) Ready(ctx context.Context) error {
	select {
	case <-l.up:
		return l.Err() // it may have ended since
	case <-l.done:
		return l.Err()
	case <-ctx.Done():
		return reason.New(reason.PeerUnreachable, "waiting for the session with %s: %v", l.conn.Peer().Name, context.Cause(ctx))
	}
}

// Up reports whether the session is set up and has not ended.
func (l *Link) Up() bool {
	select {
	case <-l.done:
		return false
	default:
	}
	select {
	case <-l.up:
		return true
	default:
		return false
	}
}

// Done is closed when the session holds nothing any more.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the session ended, once Done is closed.
func (l *Link) Err() error {
	select {
	case <-l.done:
	default:
		return nil
	}
	if l.why == nil {
		return reason.New(reason.TransportError, "the session was closed")
	}
	return l.why
}

// Close ends the session in order.
func (l *Link) Close(why string) {
	l.session.Close(&reason.Error{Code: reason.TransportError, Detail: fmt.Sprintf("session closed: %s", why)})
}
