package peer

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mover/engine"
	"mover/peer/peerpb"
	"mover/reason"
)

// messageBacklog is how many received messages wait for the consumer before
// the streams are left to gRPC's flow control. It is small because a lane-down
// waits behind what is in it.
const messageBacklog = 16

// sessionID is the random name of a session, and the token that links its
// streams.
type sessionID [16]byte

// String is the part of it that goes to logs: enough to match the two ends.
func (s sessionID) String() string { return hex.EncodeToString(s[:4]) }

// PeerInfo describes the other end of a Conn.
type PeerInfo struct {
	Name        string // proved by its certificate
	Fingerprint string // of the key it proved to hold
	Instance    string // changes when its process restarts; hexadecimal
	Version     uint32 // of the protocol, as agreed
	Addr        string // host:port of the TCP connection's other end
}

// stream is what the two ends of a gRPC stream have in common.
type stream interface {
	Send(*peerpb.Frame) error
	Recv() (*peerpb.Frame, error)
}

// owner is told of the two steps of a Conn's end, each once.
type owner interface {
	ending(*Conn) // it takes no messages any more; a new session may begin
	ended(*Conn)  // its connection is gone
}

// Conn is one authenticated session. All methods may be called from any
// goroutine. It ends by Close, by the peer, by a lost connection or by a
// violation of the protocol, and then Done is closed; it never comes back.
type Conn struct {
	info    PeerInfo
	dialler bool
	id      sessionID
	link    *link
	drain   time.Duration
	out     [2]*outbox // by streamIndex
	msgs    chan engine.Message
	owner   owner
	client  peerpb.PeerClient // for questions; nil unless this node dialled, and the peer answers there

	stopOnce sync.Once
	stop     chan struct{} // closed when the session starts to end
	drained  bool          // written before stop is closed: queued frames are still sent
	cause    error         // the same

	farewells atomic.Int32  // streams on which the peer has said Closing
	bye       chan struct{} // closed when it has on both
	dying     chan struct{} // closed when the connection is torn down
	done      chan struct{}
}

const (
	controlStream = 0
	itemStream    = 1
)

func streamIndex(m engine.Message) int {
	if engine.ItemStream(m) {
		return itemStream
	}
	return controlStream
}

func newConn(info PeerInfo, dialler bool, id sessionID, l *link, cfg *Config, o owner) *Conn {
	return &Conn{
		info: info, dialler: dialler, id: id, link: l, drain: cfg.DrainTimeout, owner: o,
		out:   [2]*outbox{newOutbox(cfg.QueueFrames, cfg.QueueBytes), newOutbox(cfg.QueueFrames, cfg.QueueBytes)},
		msgs:  make(chan engine.Message, messageBacklog),
		stop:  make(chan struct{}),
		bye:   make(chan struct{}),
		dying: make(chan struct{}),
		done:  make(chan struct{}),
	}
}

// Peer describes the other end.
func (c *Conn) Peer() PeerInfo { return c.info }

// Dialler reports whether this node dialled the connection.
func (c *Conn) Dialler() bool { return c.dialler }

// Session is a short name of the session, the same on both sides, for logs.
func (c *Conn) Session() string { return c.id.String() }

// Messages delivers what the peer sends, in order per stream (see
// engine.ItemStream). A consumer that stops reading stops the peer, by flow
// control. The channel is closed once the session has ended and what was
// received before is taken.
func (c *Conn) Messages() <-chan engine.Message { return c.msgs }

// Done is closed when the session has ended and its connection is gone. What
// Messages still holds can be taken afterwards.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil until Done, then why the session ended: ErrClosed for an orderly
// end, else a *reason.Error (TRANSPORT_ERROR) around ErrReplaced, ErrOverflow,
// a *ViolationError, a *RefusedError after a reload, or the failure of the
// connection.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.cause
	default:
		return nil
	}
}

// Send queues m and never blocks. The Conn keeps m: do not change it, or what
// its slices hold, afterwards. Messages of one stream arrive in the order of
// their Sends; consecutive batches of acks or grants may arrive as one.
//
// An error that wraps ErrMessage is about m alone, which is not sent (a batch
// over its limit, for example). ErrOverflow ends the session: the peer has not
// taken Config.QueueFrames or QueueBytes. ErrClosed means it has ended.
func (c *Conn) Send(m engine.Message) error {
	f, err := toFrame(m)
	if err != nil {
		return fmt.Errorf("send to %q: %w", c.info.Name, err)
	}
	switch err := c.out[streamIndex(m)].push(f); {
	case err == nil:
		return nil
	case errors.Is(err, ErrOverflow):
		err = reason.New(reason.TransportError, "session with %q at %s: %w: it does not read what is sent to it; check whether it hangs or the network is cut", c.info.Name, c.info.Addr, ErrOverflow)
		c.end(err, false, peerpb.ClosingCode_CLOSING_UNSPECIFIED, "")
		return err
	default:
		return fmt.Errorf("send to %q: %w", c.info.Name, err)
	}
}

// Close ends the session: what was queued is still sent, for at most
// Config.DrainTimeout, then the connection is torn down and Done closed. It
// does not wait for that. The peer's Err carries the text why, cut to 1 KiB.
// Messages that arrive from now on are dropped. Closing twice is harmless.
func (c *Conn) Close(why string) {
	c.end(fmt.Errorf("session with %q: %w here: %s", c.info.Name, ErrClosed, why), true, peerpb.ClosingCode_CLOSING_ORDERLY, why)
}

// end starts the end of the session; the first call decides its cause. With
// drain, the queued frames and a Closing with code and text are sent first.
func (c *Conn) end(cause error, drain bool, code peerpb.ClosingCode, text string) {
	c.stopOnce.Do(func() {
		c.cause, c.drained = cause, drain
		for _, o := range c.out {
			o.seal(&peerpb.Frame{Body: &peerpb.Frame_Closing{Closing: &peerpb.Closing{Code: code, Detail: clip(text)}}})
		}
		close(c.stop)
		c.owner.ending(c)
	})
}

// replaced ends a session that its peer has given up.
func (c *Conn) replaced() {
	c.end(reason.New(reason.TransportError, "session with %q at %s: %w", c.info.Name, c.info.Addr, ErrReplaced), true,
		peerpb.ClosingCode_CLOSING_REPLACED, "the peer made a new session")
}

// untrusted ends a session whose peer a reload has made a stranger.
func (c *Conn) untrusted(err error) {
	c.end(reason.New(reason.TransportError, "session with %q at %s ended after a reload: %w", c.info.Name, c.info.Addr, err), true,
		peerpb.ClosingCode_CLOSING_UNTRUSTED, "the configuration was reloaded, and: "+err.Error())
}

// lost ends the session because the connection failed.
func (c *Conn) lost(err error) {
	// The transport's own error says more than what gRPC makes of it.
	if e := c.link.failure(); e != nil {
		err = e
	}
	c.end(reason.New(reason.TransportError, "session with %q at %s lost: %w; check that mover still runs there and that the network is up",
		c.info.Name, c.info.Addr, err), false, peerpb.ClosingCode_CLOSING_UNSPECIFIED, "")
}

// run moves frames until the session ends, and returns when nothing of it is
// left: no goroutine touches the streams any more, the connection is closed and
// Done has fired.
func (c *Conn) run(control, items stream) {
	var readers, writers sync.WaitGroup
	for i, s := range [2]stream{control, items} {
		writers.Go(func() { c.write(s, c.out[i]) })
		readers.Go(func() { c.read(s, i) })
	}
	<-c.stop
	if c.drained {
		c.linger(&writers)
	}
	close(c.dying)
	c.link.shut()
	readers.Wait()
	writers.Wait()
	close(c.done) // first: who sees the end of Messages may ask Err why
	close(c.msgs)
	c.owner.ended(c)
}

// linger gives the queued frames their time. A peer that has read our Closing
// on both streams hangs up; if it was closing as well, it is enough that both
// have said so.
func (c *Conn) linger(writers *sync.WaitGroup) {
	written := make(chan struct{})
	go func() { writers.Wait(); close(written) }() // ends with the writers
	t := time.NewTimer(c.drain)
	defer t.Stop()
	select {
	case <-c.bye:
		select {
		case <-written:
		case <-c.link.dead:
		case <-t.C:
		}
	case <-c.link.dead:
	case <-t.C:
	}
}

// write sends what is queued until the frame of seal.
func (c *Conn) write(s stream, o *outbox) {
	for {
		f, last := o.take(c.dying)
		if f == nil {
			return
		}
		if err := s.Send(f); err != nil {
			c.lost(err)
			return
		}
		if last {
			return
		}
	}
}

// read delivers what arrives on one stream until it ends.
func (c *Conn) read(s stream, index int) {
	for {
		f, err := s.Recv()
		if err != nil {
			if tooLarge(err) {
				c.violated(&ViolationError{Frame: "frame", Detail: fmt.Sprintf("larger than %d bytes", maxFrameBytes)})
				return
			}
			c.lost(err)
			return
		}
		if closing := f.GetClosing(); closing != nil {
			c.farewell(closing)
			return // nothing may follow it, and nothing that does is read
		}
		m, err := fromFrame(f)
		if err != nil {
			c.violated(err)
			return
		}
		if streamIndex(m) != index {
			c.violated(&ViolationError{Frame: fmt.Sprintf("%T", m), Detail: "sent on the wrong stream"})
			return
		}
		select {
		case c.msgs <- m:
		case <-c.stop: // dropped: the session ends, and the peer's Closing may be behind it
		case <-c.link.dead: // nobody takes the messages, so Recv would not tell
			c.lost(errors.New("connection closed"))
			return
		}
	}
}

// farewell notes the peer's Closing on one stream. On both, everything it had
// to say was delivered.
func (c *Conn) farewell(closing *peerpb.Closing) {
	if c.farewells.Add(1) < 2 {
		return
	}
	who := fmt.Sprintf("session with %q at %s", c.info.Name, c.info.Addr)
	why := printable(closing.GetDetail())
	var cause error
	switch closing.GetCode() {
	case peerpb.ClosingCode_CLOSING_ORDERLY:
		cause = fmt.Errorf("%s: %w by the peer: %s", who, ErrClosed, why)
	case peerpb.ClosingCode_CLOSING_REPLACED:
		cause = reason.New(reason.TransportError, "%s: %w, says the peer: %s", who, ErrReplaced, why)
	default:
		cause = reason.New(reason.TransportError, "%s: ended by the peer: %s", who, why)
	}
	c.end(cause, false, peerpb.ClosingCode_CLOSING_UNSPECIFIED, "")
	close(c.bye)
}

// violated ends the session because of what the peer sent, and tells it.
func (c *Conn) violated(err error) {
	c.end(reason.New(reason.TransportError, "session with %q at %s: %w; check that both nodes run a release of mover, and which",
		c.info.Name, c.info.Addr, err), true, peerpb.ClosingCode_CLOSING_VIOLATION, err.Error())
}

// tooLarge tells gRPC's refusal, on the receiving side, of a message over the
// limit. The code alone does not: it is also that of a peer that is busy.
func tooLarge(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && strings.HasPrefix(s.Message(), "grpc: received message larger than max")
}

// printable makes text from a peer fit for a log line or a terminal.
func printable(s string) string {
	s = clip(s)
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
