package api

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
	// the node runs as, by uid.
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
	routes   map[string]map[string]route // pattern, method
	metrics  *metrics
	waits    chan struct{}   // a place for each request that waits
	stopping context.Context // ends when Serve's first does
	stop     context.CancelFunc
}

// route is one method of one path.
type route struct {
	scope  Scope // 0: open to all
	handle handler
}

// handler answers a request that token may make; the token is nil on open
// routes. An error becomes a problem.
type handler func(w http.ResponseWriter, r *http.Request, token *Token) error

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
	if cfg.MaxConnections <= 0 {
		cfg.MaxConnections = 1024
	}
	if cfg.ShutdownTimeout <= 0 {
		cfg.ShutdownTimeout = 5 * time.Second
	}
	a := &API{cfg: cfg, mux: http.NewServeMux(), waits: make(chan struct{}, cfg.MaxLongPolls)}
	a.stopping, a.stop = context.WithCancel(context.Background())
	var err error
	if a.metrics, err = newMetrics(cfg); err != nil {
		return nil, fmt.Errorf("api: register metrics: %w", err)
	}
	a.routes = map[string]map[string]route{
		"/healthz": {"GET": {0, a.healthz}},
		"/readyz":  {"GET": {0, a.readyz}},
		"/metrics": {"GET": {ScopeMetrics, fromHTTP(promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{
			ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
			MaxRequestsInFlight: 8, Timeout: 10 * time.Second,
		}))}},
		"/v1/jobs":             {"GET": {ScopeRead, a.listJobs}, "POST": {ScopeSubmit, a.submitJob}},
		"/v1/jobs/{id}":        {"GET": {ScopeRead, a.getJob}},
		"/v1/jobs/{id}/cancel": {"POST": {ScopeSubmit, a.cancelJob}},
		"/v1/version":          {"GET": {ScopeRead, a.version}},
		"/v1/devices":          {"GET": {ScopeRead, show(cfg.Info.Devices)}},
		"/v1/peers":            {"GET": {ScopeRead, show(cfg.Info.Peers)}},
		"/v1/roots":            {"GET": {ScopeRead, show(cfg.Info.Roots)}},
		"/v1/pollers":          {"GET": {ScopeRead, show(cfg.Info.Pollers)}},
	}
	for pattern := range a.routes {
		a.mux.HandleFunc(pattern, a.dispatch)
	}
	return a, nil
}

// Limits in time of one request, so that no client holds a connection for ever.
const (
	bodyTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second
)

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rec := &recorder{ResponseWriter: w, id: newRequestID()}
	h := rec.Header()
	h.Set("X-Request-Id", rec.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	// Not every ResponseWriter has deadlines; the server's always do. A read
	// deadline on a request without body would end a long wait: the server
	// reads in the background to notice a client that leaves.
	if r.Body != nil && r.Body != http.NoBody {
		_ = control.SetReadDeadline(began.Add(bodyTimeout))
	}
	_ = control.SetWriteDeadline(began.Add(writeTimeout))

	pattern := "other"
	if path.Clean(r.URL.Path) == r.URL.Path { // else the mux would redirect
		if _, p := a.mux.Handler(r); p != "" {
			pattern = p
		}
	}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			a.cfg.Logger.Error("a request panicked", "request_id", rec.id, "route", pattern,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			rec.fail(internal())
		}
		took := time.Since(began)
		a.metrics.request(pattern, r.Method, rec.status, took)
		level := slog.LevelDebug
		if rec.status >= 500 {
			level = slog.LevelWarn
		}
		a.cfg.Logger.Log(r.Context(), level, "request", "request_id", rec.id, "route", pattern,
			"method", methodLabel(r.Method), "status", rec.status, "took", took)
	}()
	if pattern == "other" {
		// Who has no token does not learn which paths exist.
		if _, err := a.authenticate(r); err != nil {
			a.fail(rec, r, err)
			return
		}
		a.fail(rec, r, refuse(http.StatusNotFound, v1.CodeNotFound, "there is nothing at this path; the API's paths begin with /v1/"))
		return
	}
	a.mux.ServeHTTP(rec, r)
}

// dispatch is the handler of every pattern: who asks, may they, and then what.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	methods := a.routes[r.Pattern]
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http leaves out the body
	}
	found, ok := methods[method]
	var token *Token
	if !ok || found.scope > 0 {
		var err error
		if token, err = a.authenticate(r); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	if !ok {
		var allowed []string
		for m := range methods {
			allowed = append(allowed, m)
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		a.fail(w, r, refuse(http.StatusMethodNotAllowed, v1.CodeMethodNotAllowed, "this path takes %s", strings.Join(allowed, ", ")))
		return
	}
	if token != nil && token.Scope < found.scope {
		a.fail(w, r, refuse(http.StatusForbidden, v1.CodeScopeTooLow,
			"this needs a token of scope %s; this one's is %s. Make one with `mover token new`", found.scope, token.Scope))
		return
	}
	if err := found.handle(w, r, token); err != nil {
		a.fail(w, r, err)
	}
}

// authenticate returns the token of a request, or the problem of not having one.
func (a *API) authenticate(r *http.Request) (*Token, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return nil, unauthenticated("", "this needs a token: send the header Authorization: Bearer TOKEN; `mover token new` makes one")
	}
	scheme, plain, _ := strings.Cut(headers[0], " ")
	if len(headers) == 1 && strings.EqualFold(scheme, "Bearer") {
		if t := a.cfg.Tokens.Find(strings.TrimSpace(plain)); t != nil {
			return t, nil
		}
	}
	return nil, unauthenticated("invalid_token", "the token is not one of this node's; check that it is whole, or make one with `mover token new`")
}

// fromHTTP makes a handler of a finished http.Handler.
func fromHTTP(h http.Handler) handler {
	return func(w http.ResponseWriter, r *http.Request, _ *Token) error {
		h.ServeHTTP(w, r)
		return nil
	}
}

// newRequestID is the server's own: a client's would be an echo.
func newRequestID() string {
	var raw [8]byte
	rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// recorder remembers the status for log and metrics.
type recorder struct {
	http.ResponseWriter
	id     string
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the deadlines.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
