package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve answers requests on ln until ctx ends: then requests that wait are
// answered at once, others have Config.ShutdownTimeout to end, and Serve
// returns nil. It closes ln. On TCP it refuses a listener off loopback without
// Config.TLS (see CheckListen); on a Unix socket (see ListenUnix) there is no
// TLS, and the credentials of the process that connected stand for a token. It
// may be called for several listeners, which end together.
func (a *API) Serve(ctx context.Context, ln net.Listener) error {
	local := ln.Addr().Network() == "unix"
	if !local {
		if err := CheckListen(ln.Addr().String(), a.cfg.TLS != nil); err != nil {
			ln.Close()
			return err
		}
	}
	srv := &http.Server{
		Handler: a,
		// No ReadTimeout: it would end long polls. ServeHTTP bounds bodies
		// and answers by deadlines of their own.
		ReadHeaderTimeout:            10 * time.Second, // the TLS handshake too
		IdleTimeout:                  2 * time.Minute,
		MaxHeaderBytes:               16 << 10,
		DisableGeneralOptionsHandler: true, // OPTIONS * would need no token
		ErrorLog:                     slog.NewLogLogger(a.cfg.Logger.Handler(), slog.LevelDebug),
		TLSConfig:                    a.cfg.TLS,
	}
	if local {
		srv.ConnContext = withCredentials
	}
	limited := &limitedListener{Listener: ln, places: make(chan struct{}, a.cfg.MaxConnections), closed: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		if a.cfg.TLS != nil && !local {
			ended <- srv.ServeTLS(limited, "", "")
		} else {
			ended <- srv.Serve(limited)
		}
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the API on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	a.stop()
	shut, cancel := context.WithTimeout(context.Background(), a.cfg.ShutdownTimeout)
	defer cancel()
	if err := srv.Shutdown(shut); err != nil {
		a.cfg.Logger.Warn("requests under way were cut off", "after", a.cfg.ShutdownTimeout)
		srv.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API on %s: %w", ln.Addr(), err)
	}
	return nil
}

// limitedListener accepts a connection only when there is a place for it; the
// others wait in the kernel's backlog.
type limitedListener struct {
	net.Listener
	places chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placedConn{Conn: conn, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// placedConn gives its place back when it is closed.
type placedConn struct {
	net.Conn
	leave func()
}

func (c *placedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
