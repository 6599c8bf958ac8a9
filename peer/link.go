package peer

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one authenticated TLS connection, in the form gRPC reads and writes.
// It carries at most one session and is closed with it.
type link struct {
	net.Conn // *tls.Conn
	tcp      net.Conn

	name  string              // the peer's, from its certificate
	key   string              // the peer's fingerprint
	own   string              // this node's, as the peer saw it
	chain []*x509.Certificate // the peer's, for a reload to judge again
	usage x509.ExtKeyUsage    // the role the peer has
	trust *trust              // that admitted it

	first []byte // read ahead of gRPC by the dialler

	once sync.Once
	dead chan struct{}
	err  error // why, before dead is closed; nil when this side closed it

	// Accepted links only.
	timer   *time.Timer // closes the link unless a session comes up in time
	up      atomic.Bool // a session came up
	asked   atomic.Bool // it came with a question, and not for a session
	offered atomic.Pointer[offer]
	gone    func() // gives back the place among the connections

	mu        sync.Mutex
	questions int // being answered
}

func newLink(tcp net.Conn, conn *tls.Conn, own string) *link {
	return &link{Conn: conn, tcp: tcp, own: own, dead: make(chan struct{})}
}

// Read notes the first failure: the transport's reader always waits here, so
// dead is how everyone else learns of a cut connection.
func (l *link) Read(b []byte) (int, error) {
	if len(l.first) > 0 {
		n := copy(b, l.first)
		l.first = l.first[n:]
		return n, nil
	}
	n, err := l.Conn.Read(b)
	if err != nil {
		l.die(err)
	}
	return n, err
}

// Write notes failures as well: with TCP_USER_TIMEOUT it may be a write that
// learns of a dead peer.
func (l *link) Write(b []byte) (int, error) {
	n, err := l.Conn.Write(b)
	if err != nil {
		l.die(err)
	}
	return n, err
}

// Close closes the TCP connection at once. TLS's close_notify is left out: it
// may block on a dead peer, and the session's own Closing says more.
func (l *link) Close() error {
	l.shut()
	return nil
}

func (l *link) shut() { l.die(nil) }

func (l *link) die(err error) {
	l.once.Do(func() {
		l.err = err
		l.tcp.Close()
		close(l.dead)
		if l.gone != nil {
			l.gone()
		}
	})
}

// failure is why the link died by itself, nil if it lives or was closed here.
func (l *link) failure() error {
	select {
	case <-l.dead:
		return l.err
	default:
		return nil
	}
}

// established keeps the link open beyond the time for handshakes.
func (l *link) established() {
	l.up.Store(true)
	if l.timer != nil {
		l.timer.Stop()
	}
}

// question keeps an accepted link open while a question on it is answered.
func (l *link) question() {
	l.asked.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.questions++
}

// answered ends what question began. A link without a session then waits for
// more of them for the time keep.
func (l *link) answered(keep time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.questions--; l.questions == 0 && !l.up.Load() {
		l.timer.Reset(keep) // does nothing if a session comes up meanwhile
	}
}

func (l *link) answering() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.questions > 0
}

// tlsConfig is what both roles have in common. Certificates are judged by
// trust.verify after the handshake and not by crypto/tls: it knows neither
// pins nor mover:// names, and can only refuse with a one-byte alert. Tickets
// are off so that every connection shows its certificate, to the rules in
// force now.
func tlsConfig(id *Identity) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{id.Certificate},
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		InsecureSkipVerify:     true, // see above: verify follows
		ClientAuth:             tls.RequireAnyClientCert,
	}
}
