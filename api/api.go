package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "mover/api/v1"
	"mover/job"
)

// NodeInfo is what the API shows of the node beside its jobs. Every method may
// be called from any goroutine, must return soon, and honours ctx.
type NodeInfo interface {
	Version() v1.Version
	Devices(ctx context.Context) (v1.Devices, error)
	Peers(ctx context.Context) (v1.Peers, error)
	Roots(ctx context.Context) (v1.Roots, error)
	Pollers(ctx context.Context) (v1.Pollers, error)
	// Ready returns nil when the node takes jobs. An error goes to the log
	// alone: who asks has no token.
	Ready(ctx context.Context) error
}

// Config is what the API needs. Optional fields have the default given.
type Config struct {
	NodeName string               // required: owners are NodeName/token-name
	Queue    *job.Queue           // required
	Info     NodeInfo             // required
	Tokens   *Tokens              // required
	Registry *prometheus.Registry // required; also gets the API's and the jobs' metrics

	// KnownPeer tells whether a name can be dialled, so that a slip is refused
	// at once instead of retried for minutes; nil knows every name.
	KnownPeer func(name string) bool
	Receiving *job.Receiving // what other nodes send here; none
	TLS       *tls.Config    // with a certificate; needed off loopback
	Logger    *slog.Logger   // discards
	Clock     job.Clock      // for waits; job.SystemClock{}

	// SocketUsers is who may use the Unix socket beside root and the user that
	// the node runs as, by uid, until SetSocketUsers says otherwise.
	SocketUsers map[uint32]SocketUser

	// What a node may lack; the endpoints then answer 501.
	Planner Planner
	Buffers Buffers
	Drainer Drainer
	Remote  Remote // without it, jobs of other nodes are shown as last heard of

	MaxLongPolls    int           // requests that wait at a time; 256
	MaxStreams      int           // streams of events, and of buffers' data, at a time, each; 64
	MaxConnections  int           // 1024
	ShutdownTimeout time.Duration // for requests under way when Serve's ctx ends; 5 s
}

// API is the HTTP interface, a http.Handler. Safe for concurrent use.
type API struct {
	cfg      Config
	mux      *http.ServeMux
	routes   map[string]map[string]route // path, method
	metrics  *metrics
	waits    chan struct{}   // a place for each request that waits
	streams  chan struct{}   // a place for each stream of events
	remotes  chan struct{}   // a place for each request that waits at another node
	copies   chan struct{}   // a place for each transfer of a buffer's data
	stopping context.Context // ends when Serve's first does
	stop     context.CancelFunc
	// socketUsers is replaced as a whole while the node runs.
	socketUsers atomic.Pointer[map[uint32]SocketUser]
	notReady    atomic.Value // a string: why, as the log was told last; "" when ready
}

// New returns the API. It registers its metrics, so a registry serves one API.
func New(cfg Config) (*API, error) {
	if !job.ValidName(cfg.NodeName) || cfg.Queue == nil || cfg.Info == nil || cfg.Tokens == nil || cfg.Registry == nil {
		return nil, errors.New("api: Config needs NodeName, Queue, Info, Tokens and Registry")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = job.SystemClock{}
	}
	if cfg.MaxLongPolls <= 0 {
		cfg.MaxLongPolls = 256
	}
	if cfg.MaxStreams <= 0 {
		cfg.MaxStreams = 64
	}
	if cfg.MaxConnections <= 0 {
		cfg.MaxConnections = 1024
	}
	if cfg.ShutdownTimeout <= 0 {
		cfg.ShutdownTimeout = 5 * time.Second
	}
	a := &API{cfg: cfg, mux: http.NewServeMux(), waits: make(chan struct{}, cfg.MaxLongPolls),
		streams: make(chan struct{}, cfg.MaxStreams), copies: make(chan struct{}, cfg.MaxStreams),
		remotes: make(chan struct{}, remoteWaits)}
	a.SetSocketUsers(cfg.SocketUsers)
	a.stopping, a.stop = context.WithCancel(context.Background())
	var err error
	if a.metrics, err = newMetrics(cfg); err != nil {
		return nil, fmt.Errorf("api: register metrics: %w", err)
	}
	a.routes = a.table()
	for path := range a.routes {
		a.mux.HandleFunc(muxPattern(path), a.dispatch)
	}
	return a, nil
}

// SetSocketUsers replaces Config.SocketUsers: later requests, and streams under
// way when they next write, are judged by it. The map must not be changed
// afterwards. Any goroutine may call it.
func (a *API) SetSocketUsers(users map[uint32]SocketUser) { a.socketUsers.Store(&users) }
