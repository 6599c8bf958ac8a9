package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"sync/atomic"
	"time"

	"mover/api"
	"mover/node/config"
)

// web is the HTTP API on its listeners.
type web struct {
	api       *api.API
	listeners []net.Listener // TCP first, then the Unix socket if there is one
	scheme    string
	info      *info
	tokens    *api.Tokens
	cert      atomic.Pointer[tls.Certificate]
}

func newWeb(n *Node) (_ *web, err error) {
	w := &web{scheme: "http", info: &info{node: n, started: time.Now()}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.tokens, err = api.LoadTokens(n.cfg.API.TokensFile); err != nil {
		return nil, err
	}
	var conf *tls.Config
	if n.cfg.API.TLSCert != "" {
		if err := w.loadCertificate(n.cfg); err != nil {
			return nil, fmt.Errorf("api.tls_cert, api.tls_key: %w", err)
		}
		conf = &tls.Config{MinVersion: tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return w.cert.Load(), nil }}
		w.scheme = "https"
	}
	users, err := socketUsers(n.cfg.API.SocketUsers)
	if err != nil {
		return nil, err
	}
	w.api, err = api.New(api.Config{NodeName: n.cfg.Node.Name, Queue: n.queue, Info: w.info, Tokens: w.tokens, SocketUsers: users,
		Registry: n.registry, KnownPeer: n.knownPeer, Receiving: n.receiving, TLS: conf, Logger: n.log,
		Planner: planner{n}, Buffers: bufferAPI{n}, Drainer: drainer{n}, Remote: remote{n}})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", n.cfg.API.Listen)
	if err != nil {
		return nil, fmt.Errorf("api.listen: %w; free the port (is another mover running?) or choose another", err)
	}
	w.listeners = append(w.listeners, l)
	if path := n.cfg.SocketPath(); path != "" {
		if l, err = api.ListenUnix(path); err != nil {
			return nil, fmt.Errorf("api.socket: %w", err)
		}
		w.listeners = append(w.listeners, l)
	}
	return w, nil
}

// loadCertificate reads the certificate of c again, if the API has one.
func (w *web) loadCertificate(c *config.Config) error {
	if c.API.TLSCert == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(c.API.TLSCert, c.API.TLSKey)
	if err == nil {
		w.cert.Store(&cert)
	}
	return err
}

// socketUsers translates the settings, by number.
func socketUsers(cfg map[string]config.SocketUser) (map[uint32]api.SocketUser, error) {
	out := map[uint32]api.SocketUser{}
	for name, c := range cfg {
		uid, err := numberOf(name, func(s string) (string, error) {
			u, err := user.Lookup(s)
			if err != nil {
				return "", err
			}
			return u.Uid, nil
		})
		if err != nil {
			return nil, fmt.Errorf("api.socket_users.%s: %w", name, err)
		}
		scope, err := api.ParseScope(c.Scope)
		if err != nil {
			return nil, fmt.Errorf("api.socket_users.%s: %w", name, err)
		}
		if uid < 0 || uid > 1<<32-2 {
			return nil, fmt.Errorf("api.socket_users: %s is no user's number", strconv.Quote(name))
		}
		out[uint32(uid)] = api.SocketUser{Scope: scope, Roots: api.Roots{Read: c.Read, Write: c.Write}}
	}
	return out, nil
}

func (w *web) url() string { return w.scheme + "://" + w.listeners[0].Addr().String() }

// serve answers until ctx ends, or one of the listeners does.
func (w *web) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(w.listeners))
	for _, l := range w.listeners {
		go func() { ended <- w.api.Serve(ctx, l) }()
	}
	var errs []error
	for range w.listeners {
		errs = append(errs, <-ended)
		cancel()
	}
	return errors.Join(errs...)
}

// notReady makes readyz say so from now on.
func (w *web) notReady() { w.info.stopping.Store(true) }

// close gives the addresses back when the node does not get to run.
func (w *web) close() {
	for _, l := range w.listeners {
		_ = l.Close()
	}
}

var errStopping = errors.New("the node is stopping")
