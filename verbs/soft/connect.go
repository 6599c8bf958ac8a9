//go:build linux

package soft

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxHalfOpen bounds the connections of a device that have not proved a
	// secret yet; more are closed at once.
	maxHalfOpen = 64
	// handshakeTime bounds every step of a handshake that needs the peer's
	// attention only.
	handshakeTime = 2 * time.Second
	// setupTime bounds set-up from the transition to RTR: the peer may be in
	// INIT for a while, waiting for its control plane.
	setupTime = 30 * time.Second
	// redialAfter..redialMost is the back-off between dials.
	redialAfter = 5 * time.Millisecond
	redialMost  = 250 * time.Millisecond
)

// setup brings up the one connection of a QP between two visits to RESET. It
// is shared by the QP's owner and the goroutines that dial and accept.
type setup struct {
	dev    *device
	secret [secretBytes]byte
	ctx    context.Context // ends when the QP leaves for ERR, RESET or Destroy
	cancel context.CancelFunc
	ready  chan struct{} // closed at RTR, when local and peer are set
	notify func()        // tells the owner that conn is set
	local  endpoint
	peer   endpoint
	// peerSecret proves this side to the peer.
	peerSecret [secretBytes]byte

	mu      sync.Mutex
	pending context.CancelFunc // the authenticated connection that waits for ready
	waiting uint64             // its number
	over    bool               // a connection was handed over, or cancelled

	conn atomic.Int64 // descriptor+1 for the owner, 0 none
}

func newSetup(d *device, notify func()) *setup {
	s := &setup{dev: d, secret: newSecret(), ready: make(chan struct{}), notify: notify}
	s.ctx, s.cancel = context.WithCancel(d.ctx)
	return s
}

// end gives up; a connection not yet taken by the owner is closed.
func (s *setup) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.cancel()
	if fd := s.take(); fd >= 0 {
		closeDescriptor(fd)
	}
}

// take gives the owner the connection, -1 when there is none yet.
func (s *setup) take() int { return int(s.conn.Swap(0)) - 1 }

// handOver gives conn to the owner unless there was one already.
func (s *setup) handOver(conn *net.TCPConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		conn.Close()
		return errors.New("the QP has or had a connection")
	}
	conn.SetDeadline(time.Time{})
	fd, err := takeDescriptor(conn)
	if err != nil {
		return err
	}
	s.over = true
	s.conn.Store(int64(fd) + 1)
	s.notify()
	return nil
}

// start is the transition to RTR: the lower endpoint dials, the other waits.
func (s *setup) start(local, peer endpoint, peerSecret [secretBytes]byte) {
	s.local, s.peer, s.peerSecret = local, peer, peerSecret
	close(s.ready)
	if local.compare(peer) < 0 {
		s.dev.work.Add(1)
		go s.dial()
	}
}

// dial tries until it has a connection, the QP goes away or setupTime is over.
func (s *setup) dial() {
	defer s.dev.work.Done()
	ctx, cancel := context.WithTimeout(s.ctx, setupTime)
	defer cancel()
	for wait := redialAfter; ; wait = min(2*wait, redialMost) {
		err := s.dialOnce(ctx)
		if err == nil {
			return
		}
		s.dev.cfg.Logger.Debug("soft: connecting a QP failed", "device", s.dev.info.Name, "qpn", s.local.qpn, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (s *setup) dialOnce(ctx context.Context) error {
	d := net.Dialer{Timeout: handshakeTime, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(s.dev.addr, 0)),
		Control: s.dev.control}
	c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(s.peer.gid.Addr(), s.peer.port).String())
	if err != nil {
		return err
	}
	conn := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	h := hello{kind: kindHello, dstQPN: s.peer.qpn, srcQPN: s.local.qpn, dstGID: s.peer.gid, srcGID: s.local.gid,
		nonce: newSecret(), srcPort: s.local.port}
	err = s.dialled(conn, &h)
	if err != nil {
		conn.Close()
	}
	return err
}

func (s *setup) dialled(conn *net.TCPConn, h *hello) error {
	conn.SetDeadline(time.Now().Add(setupTime)) // the reply waits for the peer's RTR
	if _, err := conn.Write(h.encode(&s.peerSecret)); err != nil {
		return err
	}
	b := make([]byte, helloBytes)
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	want := h.answer(kindReply, s.peer.port)
	var got hello
	if err := got.decode(b); err != nil {
		return err
	}
	if got != *want || !prove(&s.secret, b) {
		return fmt.Errorf("%w: the reply is not the peer's", errHandshake)
	}
	h.kind = kindConfirm
	if _, err := conn.Write(h.encode(&s.peerSecret)); err != nil {
		return err
	}
	return s.handOver(conn)
}

// accept is the accept loop of a device.
func (d *device) accept() {
	defer d.work.Done()
	for {
		conn, err := d.listener.AcceptTCP()
		if err != nil {
			if d.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// EMFILE and the like: do not spin on it.
			d.cfg.Logger.Warn("soft: accept failed", "device", d.info.Name, "err", err)
			select {
			case <-d.ctx.Done():
				return
			case <-time.After(redialMost):
			}
			continue
		}
		select {
		case d.halfOpen <- struct{}{}:
			d.work.Add(1)
			go d.serve(conn)
		default:
			d.cfg.Logger.Debug("soft: too many half-open connections", "device", d.info.Name, "limit", maxHalfOpen)
			conn.Close()
		}
	}
}

// serve runs the acceptor's side of one handshake.
func (d *device) serve(conn *net.TCPConn) {
	defer d.work.Done()
	s, h, err := d.authenticate(conn)
	<-d.halfOpen
	if err == nil {
		err = s.accepted(conn, h)
	}
	if err != nil {
		conn.Close()
		d.cfg.Logger.Debug("soft: refused a connection", "device", d.info.Name, "from", conn.RemoteAddr(), "err", err)
	}
}

// authenticate reads the hello. An unknown QPN and a wrong secret look alike
// from outside.
func (d *device) authenticate(conn *net.TCPConn) (*setup, *hello, error) {
	stop := context.AfterFunc(d.ctx, func() { conn.Close() })
	defer stop()
	conn.SetDeadline(time.Now().Add(handshakeTime))
	b := make([]byte, helloBytes)
	if _, err := io.ReadFull(conn, b); err != nil {
		return nil, nil, err
	}
	var h hello
	if err := h.decode(b); err != nil {
		return nil, nil, err
	}
	s := d.setupOf(h.dstQPN)
	if s == nil || h.kind != kindHello || h.dstGID != d.gid || !prove(&s.secret, b) {
		return nil, nil, fmt.Errorf("%w: unknown QP %#x or wrong secret", errHandshake, h.dstQPN)
	}
	return s, &h, nil
}

// accepted waits until the QP is in RTR, and answers. A newer connection of
// the same dialler replaces an older one.
func (s *setup) accepted(conn *net.TCPConn, h *hello) error {
	ctx, cancel := context.WithTimeout(s.ctx, setupTime)
	defer cancel()
	s.mu.Lock()
	if s.pending != nil {
		s.pending()
	}
	s.waiting++
	mine := s.waiting
	s.pending = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		if s.waiting == mine {
			s.pending = nil
		}
		s.mu.Unlock()
	}()
	select {
	case <-s.ready:
	case <-ctx.Done():
		return errors.New("the QP did not reach RTR")
	}
	from := endpoint{gid: h.srcGID, port: h.srcPort, qpn: h.srcQPN}
	if from != s.peer || s.local.compare(s.peer) < 0 {
		return fmt.Errorf("%w: QP %#x is not connected to QP %#x", errHandshake, h.dstQPN, h.srcQPN)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	conn.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := conn.Write(h.answer(kindReply, s.local.port).encode(&s.peerSecret)); err != nil {
		return err
	}
	b := make([]byte, helloBytes)
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	want := *h
	want.kind = kindConfirm
	var got hello
	if err := got.decode(b); err != nil {
		return err
	}
	if got != want || !prove(&s.secret, b) {
		return fmt.Errorf("%w: bad confirmation", errHandshake)
	}
	return s.handOver(conn)
}
