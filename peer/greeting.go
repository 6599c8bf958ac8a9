package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
)

// The acceptor speaks first once TLS is up: either HTTP/2's SETTINGS frame,
// whose first byte is 0 (the high byte of its length, RFC 9113, 4.1), or one
// line that begins with refusedPrefix and says why the dialler is declined. So
// a stranger gets a reason, and never reaches gRPC.
const (
	refusedPrefix   = "mover refused: "
	maxRefusalBytes = 2 << 10
)

// serverCreds authenticates accepted connections for gRPC.
type serverCreds struct{ c *Control }

// authInfo hands the link to the stream handlers.
type authInfo struct {
	credentials.CommonAuthInfo
	link *link
}

// AuthType is for gRPC.
func (authInfo) AuthType() string { return "mover" }

func newAuthInfo(l *link) authInfo {
	return authInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, l}
}

// ServerHandshake does TLS on an accepted connection and admits or refuses the
// peer. gRPC has set its deadline.
func (s serverCreds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := s.c
	a, ok := raw.(*arrival)
	if !ok {
		return nil, nil, fmt.Errorf("accepted a %T", raw)
	}
	id, tr := c.current()
	conn := tls.Server(a, tlsConfig(id))
	if err := conn.Handshake(); err != nil {
		a.Close()
		c.refusals.warn("inbound connection failed", "addr", raw.RemoteAddr().String(), "error", err.Error())
		return nil, nil, err
	}
	refuse := func(err error) (net.Conn, credentials.AuthInfo, error) {
		c.refusals.warn("refused inbound connection", "addr", raw.RemoteAddr().String(), "error", err.Error())
		// The deadline still holds, so a peer that does not read costs no more
		// than one that does not write.
		line := refusedPrefix + refusalWord(err) + ": " + clip(strings.ReplaceAll(err.Error(), "\n", " ")) + "\n"
		_, _ = io.WriteString(conn, line)
		conn.Close()
		return nil, nil, err
	}
	chain := conn.ConnectionState().PeerCertificates
	name, err := tr.verify(chain, "", x509.ExtKeyUsageClientAuth)
	if err != nil {
		return refuse(err)
	}
	if name == id.Name {
		return refuse(&RefusedError{Peer: name, Err: ErrWrongName, Detail: fmt.Sprintf(
			"%q is the name of this node itself; give every node its own name, and do not dial oneself", name)})
	}
	l := newLink(a, conn, id.Fingerprint)
	l.name, l.key, l.chain, l.usage, l.trust = name, Fingerprint(chain[0]), chain, x509.ExtKeyUsageClientAuth, tr
	l.gone = func() { c.gate.release(l) }
	if !c.gate.admit(l) {
		return refuse(fmt.Errorf("too many connections (%d in all, %d of one peer); wait for old ones to end", maxLinks, maxPerPeer))
	}
	c.gate.leave(a)
	l.timer = time.AfterFunc(c.cfg.HandshakeTimeout, func() {
		if l.up.Load() || l.answering() {
			return
		}
		if !l.asked.Load() {
			c.refusals.warn("no session on an inbound connection", "peer", l.name, "addr", raw.RemoteAddr().String(), "after", c.cfg.HandshakeTimeout.String())
		}
		l.shut()
	})
	return l, newAuthInfo(l), nil
}

// ClientHandshake is not for this role.
func (serverCreds) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials only accept")
}

// Info is for gRPC.
func (serverCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone is for gRPC.
func (s serverCreds) Clone() credentials.TransportCredentials { return s }

// OverrideServerName is for gRPC.
func (serverCreds) OverrideServerName(string) error { return nil }

// dialledCreds lets gRPC use a link that is authenticated already.
type dialledCreds struct{ serverCreds }

// ClientHandshake passes the link through.
func (dialledCreds) ClientHandshake(_ context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	l, ok := raw.(*link)
	if !ok {
		return nil, nil, fmt.Errorf("dialled a %T", raw)
	}
	return l, newAuthInfo(l), nil
}

// ServerHandshake is not for this role.
func (dialledCreds) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials only dial")
}

// Clone is for gRPC.
func (d dialledCreds) Clone() credentials.TransportCredentials { return d }

// dialLink connects to addr, proves that node name is there, and waits until it
// has admitted this node. A *RefusedError says that one of the two declined the
// other; ctx bounds it all.
func (c *Control) dialLink(ctx context.Context, addr, name string) (*link, error) {
	d := net.Dialer{KeepAliveConfig: c.keepalive.config()}
	tcp, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, timely(ctx, err))
	}
	stop := context.AfterFunc(ctx, func() { tcp.Close() })
	defer stop()
	l, err := c.greet(ctx, tcp, name)
	if err != nil {
		tcp.Close()
		var refused *RefusedError
		if errors.As(err, &refused) {
			refused.Addr = addr
			return nil, refused
		}
		return nil, fmt.Errorf("%s: %w", addr, timely(ctx, err))
	}
	return l, nil
}

func (c *Control) greet(ctx context.Context, tcp net.Conn, name string) (*link, error) {
	if err := c.keepalive.apply(tcp); err != nil {
		return nil, fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	id, tr := c.current()
	conn := tls.Client(tcp, tlsConfig(id))
	if err := conn.HandshakeContext(ctx); err != nil {
		var header tls.RecordHeaderError
		if errors.As(err, &header) {
			return nil, errors.New("what listens there is not a mover control port (no TLS); correct the address")
		}
		return nil, fmt.Errorf("TLS 1.3 handshake: %w", err)
	}
	chain := conn.ConnectionState().PeerCertificates
	if _, err := tr.verify(chain, name, x509.ExtKeyUsageServerAuth); err != nil {
		return nil, err
	}
	l := newLink(tcp, conn, id.Fingerprint)
	l.name, l.key, l.chain, l.usage, l.trust = name, Fingerprint(chain[0]), chain, x509.ExtKeyUsageServerAuth, tr

	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, fmt.Errorf("%q hung up during the handshake: %w; its log may say why", name, err)
	}
	if first[0] == 0 {
		l.first = first
		return l, nil
	}
	rest, _ := io.ReadAll(io.LimitReader(conn, maxRefusalBytes)) // what came is worth showing
	line, _, _ := bytes.Cut(append(first, rest...), []byte{'\n'})
	text, ok := strings.CutPrefix(string(line), refusedPrefix)
	if !ok {
		return nil, errors.New("what listens there is not a mover control port; correct the address")
	}
	word, text, _ := strings.Cut(text, ": ")
	return nil, &RefusedError{Peer: name, ByPeer: true, Err: refusalWords[word], Detail: printable(text)}
}

// refusalWords are the kinds of refusal that travel in the line.
var refusalWords = map[string]error{"untrusted": ErrUntrusted, "name": ErrWrongName, "expired": ErrExpired}

func refusalWord(err error) string {
	for word, kind := range refusalWords {
		if errors.Is(err, kind) {
			return word
		}
	}
	return "busy"
}

// timely says that ctx ended rather than what that broke.
func timely(ctx context.Context, err error) error {
	switch e := context.Cause(ctx); {
	case errors.Is(e, context.DeadlineExceeded):
		return fmt.Errorf("no answer in time: %w", e)
	case e != nil:
		return e
	}
	return err
}
