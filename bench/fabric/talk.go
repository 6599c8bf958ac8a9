package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// RemoteError is why the other side gave up, in its words.
type RemoteError struct {
	Text string
}

func (e *RemoteError) Error() string { return "the other side failed: " + e.Text }

// ErrSilent is matched when the other side is gone, or has said nothing for
// Config.Silence.
var ErrSilent = errors.New("the other side is gone")

// errEnded: the conversation was closed by its own side.
var errEnded = errors.New("closed")

// alivePeriod is a fraction of Silence.
const alivesInSilence = 5

// talk is the conversation of the two sides. One goroutine reads, so that a
// busy poller notices a frame, or the end, by looking at two words; another
// says once in a while that this side lives.
type talk struct {
	conn    net.Conn
	silence time.Duration

	frames chan frame
	ended  chan struct{} // closed when nothing more will be read
	gone   atomic.Bool   // the same, for pollers
	cause  error         // why; read after ended

	writeMu sync.Mutex
	closing chan struct{}
	once    sync.Once
	work    sync.WaitGroup
}

// newTalk takes over conn, which close closes.
func newTalk(ctx context.Context, conn net.Conn, silence time.Duration) *talk {
	t := &talk{conn: conn, silence: silence, frames: make(chan frame, 4), ended: make(chan struct{}), closing: make(chan struct{})}
	t.work.Go(func() { t.read(ctx) })
	t.work.Go(func() { t.keepAlive(ctx) })
	return t
}

func (t *talk) read(ctx context.Context) {
	defer t.gone.Store(true)
	defer close(t.ended)
	for {
		_ = t.conn.SetReadDeadline(time.Now().Add(t.silence)) // an error shows at the read
		if ctx.Err() != nil {                                 // looked at after the deadline is set, see keepAlive
			t.cause = context.Cause(ctx)
			return
		}
		f, err := readFrame(t.conn)
		if err == nil && f.kind == kindFailed {
			var m failed
			if err = f.decode(&m); err == nil {
				err = &RemoteError{Text: m.Text}
			}
		}
		if err != nil {
			t.cause = t.causeOf(ctx, err)
			return
		}
		if f.kind == kindAlive {
			continue
		}
		select {
		case t.frames <- f:
		default:
			t.cause = badFrame("more frames than were asked for")
			return
		}
	}
}

func (t *talk) causeOf(ctx context.Context, err error) error {
	select {
	case <-t.closing:
		return errEnded
	default:
	}
	var remote *RemoteError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &remote), errors.Is(err, ErrProtocol):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it has said nothing for %v", ErrSilent, t.silence)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it closed the connection; see its own message", ErrSilent)
	}
	return fmt.Errorf("%w: %v", ErrSilent, err)
}

// keepAlive writes until the end, and ends the conversation with ctx.
func (t *talk) keepAlive(ctx context.Context) {
	alive, err := appendFrame(nil, kindAlive, nil)
	if err != nil {
		panic(err) // an empty frame
	}
	tick := time.NewTicker(max(t.silence/alivesInSilence, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-t.closing:
			return
		case <-ctx.Done():
			// Wake the reader; what is said last still goes out.
			_ = t.conn.SetReadDeadline(time.Unix(1, 0))
			<-t.ended
			return
		case <-tick.C:
			_ = t.write(alive) // the reader finds out why not
		}
	}
}

func (t *talk) write(b []byte) error {
	t.writeMu.Lock()
	defer t.writeMu.Unlock()
	if err := t.conn.SetWriteDeadline(time.Now().Add(t.silence)); err != nil {
		return err
	}
	_, err := t.conn.Write(b)
	return err
}

// send writes one frame.
func (t *talk) send(kind frameKind, v any) error {
	b, err := appendFrame(nil, kind, v)
	if err != nil {
		return err
	}
	if err := t.write(b); err != nil {
		// The reason that the reader has says more: a failed frame, say.
		select {
		case <-t.ended:
			return t.cause
		case <-time.After(time.Second):
		}
		return fmt.Errorf("%w: sending %v: %v", ErrSilent, kind, err)
	}
	return nil
}

// patience times the silence is how long a step may take the other side while
// it says that it lives: setting up, or checking what arrived.
const patience = 4

// receive waits for the next frame, which must be of the kind. The wait ends
// with the frame, or when the other side is silent or gone, or with ctx; but
// for the end of a run, which takes as long as was asked for, it is bounded.
func (t *talk) receive(kind frameKind, v checked) error {
	var late <-chan time.Time
	if kind != kindDone {
		timer := time.NewTimer(patience * t.silence)
		defer timer.Stop()
		late = timer.C
	}
	var f frame
	select {
	case f = <-t.frames:
	case <-late:
		return fmt.Errorf("%w: it says that it lives, and has not sent %v for %v", ErrSilent, kind, patience*t.silence)
	case <-t.ended:
		select {
		case f = <-t.frames: // came before the end
		default:
			return t.cause
		}
	}
	if f.kind != kind {
		return badFrame("%v where %v was due", f.kind, kind)
	}
	return f.decode(v)
}

// calls reports whether a frame waits or the conversation has ended. It is
// cheap enough for a poller's every round.
func (t *talk) calls() bool { return len(t.frames) > 0 || t.gone.Load() }

func (t *talk) isOver() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// over is why nothing more will come, nil while something may.
func (t *talk) over() error {
	if t.isOver() && len(t.frames) == 0 {
		return t.cause
	}
	return nil
}

// fail tells the other side why this one ends; it has its own way to find out
// when that does not get through.
func (t *talk) fail(err error) {
	if t.send(kindFailed, &failed{Text: fitText(err.Error())}) != nil {
		return
	}
	// Closing with bytes unread would reset the connection, and what was just
	// said with it; so let the other side close first, for a while.
	if c, ok := t.conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		select {
		case <-t.ended:
		case <-time.After(time.Second):
		}
	}
}

// close ends both goroutines and the connection.
func (t *talk) close() {
	t.once.Do(func() {
		close(t.closing)
		t.conn.Close()
	})
	t.work.Wait()
}
