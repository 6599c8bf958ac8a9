package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"mover/api"
)

// web is the HTTP API on its listener.
type web struct {
	api      *api.API
	listener net.Listener
	scheme   string
	info     *info
}

func newWeb(n *Node) (*web, error) {
	tokens, err := api.LoadTokens(n.cfg.API.TokensFile)
	if err != nil {
		return nil, err
	}
	w := &web{scheme: "http", info: &info{node: n, started: time.Now()}}
	var conf *tls.Config
	if n.cfg.API.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(n.cfg.API.TLSCert, n.cfg.API.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("api.tls_cert, api.tls_key: %w", err)
		}
		conf = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		w.scheme = "https"
	}
	w.api, err = api.New(api.Config{NodeName: n.cfg.Node.Name, Queue: n.queue, Info: w.info, Tokens: tokens,
		Registry: n.registry, KnownPeer: n.knownPeer, Receiving: n.receiving, TLS: conf, Logger: n.log,
		Buffers: bufferAPI{n}, Drainer: drainer{n}})
	if err != nil {
		return nil, err
	}
	if w.listener, err = net.Listen("tcp", n.cfg.API.Listen); err != nil {
		return nil, fmt.Errorf("api.listen: %w; free the port (is another mover running?) or choose another", err)
	}
	return w, nil
}

func (w *web) url() string { return w.scheme + "://" + w.listener.Addr().String() }

func (w *web) serve(ctx context.Context) error { return w.api.Serve(ctx, w.listener) }

// notReady makes readyz say so from now on.
func (w *web) notReady() { w.info.stopping.Store(true) }

// close gives the address back when the node does not get to run.
func (w *web) close() { _ = w.listener.Close() }

var errStopping = errors.New("the node is stopping")
