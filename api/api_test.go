package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	v1 "mover/api/v1"
	"mover/job"
	"mover/job/jobtest"
	"mover/reason"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNode is a NodeInfo.
type fakeNode struct{ ready, broken error }

func (n *fakeNode) Version() v1.Version { return v1.Version{Node: "a", API: "v1"} }
func (n *fakeNode) Devices(context.Context) (v1.Devices, error) {
	return v1.Devices{Devices: []v1.Device{{Name: "soft0", Provider: "soft", Ports: []v1.Port{}}}, Reason: "no hardware"}, n.broken
}
func (n *fakeNode) Peers(context.Context) (v1.Peers, error) {
	return v1.Peers{Peers: []v1.Peer{{Name: "b", Addresses: []string{}, Rails: []v1.Rail{}}}}, nil
}
func (n *fakeNode) Roots(context.Context) (v1.Roots, error) {
	return v1.Roots{Roots: []v1.Root{{Name: "data", Read: []string{}, Write: []string{}}}}, nil
}
func (n *fakeNode) Pollers(context.Context) (v1.Pollers, error) { panic("secret") }
func (n *fakeNode) Ready(context.Context) error                 { return n.ready }

// fixture is an API with tokens of every scope, and attempts that end when the
// test says.
type fixture struct {
	*API
	t      *testing.T
	clock  *jobtest.Clock
	queue  *job.Queue
	node   *fakeNode
	recv   *job.Receiving
	log    *bytes.Buffer
	tokens map[string]string // secret by name
	path   string
	calls  chan *call
	hold   chan struct{} // unless nil, attempts that are told to end wait for it
}

type call struct {
	ctx     context.Context
	attempt *job.Attempt
	end     chan error
}

// errPartly ends an attempt of which some items failed.
var errPartly = errors.New("partly")

func (f *fixture) Run(ctx context.Context, a *job.Attempt) (job.Result, error) {
	c := &call{ctx, a, make(chan error, 1)}
	select {
	case f.calls <- c:
	case <-ctx.Done():
		return job.Result{}, reason.New(reason.Canceled, "ended")
	}
	select {
	case err := <-c.end:
		if errors.Is(err, errPartly) {
			why := job.NewReason(reason.New(reason.PermissionDenied, "not allowed"))
			return job.Result{Bytes: 7, ItemsFailed: 1, FirstFailure: &why}, nil
		}
		return job.Result{Bytes: 7}, err
	case <-ctx.Done():
		if f.hold != nil {
			<-f.hold
		}
		return job.Result{}, reason.New(reason.Canceled, "ended")
	}
}

func newFixture(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	return newFixtureOf(t, "a", change)
}

// newFixtureOf is newFixture for a node of another name.
func newFixtureOf(t *testing.T, node string, change func(*Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, clock: jobtest.NewClock(), node: &fakeNode{}, log: &bytes.Buffer{},
		tokens: map[string]string{}, calls: make(chan *call, 100), path: filepath.Join(t.TempDir(), "tokens.yaml")}
	for _, c := range []struct {
		name  string
		scope Scope
		roots Roots
	}{
		{"metrics", ScopeMetrics, AllRoots()}, {"read", ScopeRead, AllRoots()},
		{"submit", ScopeSubmit, Roots{Read: []string{"a:data"}, Write: []string{"*:in"}}},
		{"other", ScopeSubmit, AllRoots()}, {"admin", ScopeAdmin, AllRoots()}, {"outsider", ScopeSubmit, Roots{}}, {"rootless", ScopeAdmin, Roots{}},
	} {
		plain, err := CreateToken(f.path, c.name, c.scope, c.roots)
		if err != nil {
			t.Fatal(err)
		}
		f.tokens[c.name] = plain
	}
	tokens, err := LoadTokens(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if f.queue, err = job.NewQueue(job.Config{NodeName: node, Router: f, Clock: f.clock, MaxQueued: 3, MaxRunning: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.queue.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	f.recv = job.NewReceiving(f.clock, 10, 10)
	cfg := Config{NodeName: node, Queue: f.queue, Info: f.node, Tokens: tokens, Registry: prometheus.NewRegistry(),
		Receiving: f.recv, Clock: f.clock, Logger: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if change != nil {
		change(&cfg)
	}
	if f.API, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

// do makes a request with the named token ("" for none) and header lines.
func (f *fixture) do(method, target, token, body string, header ...string) *httptest.ResponseRecorder {
	f.t.Helper()
	if body == "" {
		return f.raw(method, target, token, http.NoBody, header...)
	}
	return f.raw(method, target, token, strings.NewReader(body), append([]string{"Content-Type: application/json"}, header...)...)
}

// raw is do with any body, and no header of its own.
func (f *fixture) raw(method, target, token string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	f.t.Helper()
	r := httptest.NewRequest(method, target, body)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+f.tokens[token])
	}
	for _, h := range header {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Add(k, v)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	f.validate(r, w.Code, w.Header(), w.Body.Bytes())
	return w
}

// problem checks that w is a whole problem with this status and code.
func (f *fixture) problem(w *httptest.ResponseRecorder, status int, code string) v1.Problem {
	f.t.Helper()
	var p v1.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		f.t.Errorf("status %d, body %q: %v", w.Code, w.Body, err)
		return p
	}
	if w.Code != status || p.Status != status || p.Code != code || p.Detail == "" || p.Title == "" || p.Type != "about:blank" ||
		p.RequestID == "" || p.RequestID != w.Header().Get("X-Request-Id") ||
		w.Header().Get("Content-Type") != "application/problem+json" {
		f.t.Errorf("status %d (%s), problem %+v; want %d %s", w.Code, w.Header().Get("Content-Type"), p, status, code)
	}
	return p
}

func (f *fixture) snapshot(w *httptest.ResponseRecorder, status int) job.Snapshot {
	f.t.Helper()
	var s job.Snapshot
	if w.Code != status {
		f.t.Fatalf("status %d, body %s; want %d", w.Code, w.Body, status)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		f.t.Fatal(err)
	}
	return s
}

const body = `{"source":{"path":"data/x"},"destination":{"node":"b","path":"in/"}}`

func (f *fixture) submit(header ...string) job.Snapshot {
	f.t.Helper()
	return f.snapshot(f.do("POST", "/v1/jobs", "submit", body, header...), http.StatusAccepted)
}

// TestWhoMayDoWhat is the matrix of paths and scopes.
func TestWhoMayDoWhat(t *testing.T) {
	f := newFixture(t, nil)
	id := f.submit().ID.String()
	const none, metrics, read, submit, admin = 0, 1, 2, 3, 4
	names := []string{"", "metrics", "read", "other", "admin"}
	for _, c := range []struct {
		method, path string
		needs        int
	}{
		{"GET", "/healthz", none}, {"GET", "/readyz", none}, {"HEAD", "/healthz", none}, {"GET", "/metrics", metrics},
		{"GET", "/v1/jobs", read}, {"GET", "/v1/jobs/" + id, read}, {"GET", "/v1/version", read}, {"GET", "/v1/devices", read},
		{"GET", "/v1/peers", read}, {"GET", "/v1/roots", read}, {"POST", "/v1/jobs", submit}, {"HEAD", "/v1/jobs", read},
	} {
		for level, name := range names {
			b := ""
			if c.method == "POST" {
				b = body
			}
			w := f.do(c.method, c.path, name, b)
			switch {
			case c.needs > none && level == 0:
				f.problem(w, http.StatusUnauthorized, v1.CodeUnauthenticated)
				if !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer ") {
					t.Errorf("%s %s: no challenge", c.method, c.path)
				}
			case level < c.needs:
				f.problem(w, http.StatusForbidden, v1.CodeScopeTooLow)
			case w.Code >= 300:
				t.Errorf("%s %s as %q: %d %s", c.method, c.path, name, w.Code, w.Body)
			}
			if w.Header().Get("X-Request-Id") == "" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: headers %v", c.method, c.path, w.Header())
			}
		}
	}
}

func TestWrongCredentials(t *testing.T) {
	f := newFixture(t, nil)
	good := f.tokens["admin"]
	for name, header := range map[string][]string{
		"none":      nil,
		"empty":     {"Authorization: "},
		"no scheme": {"Authorization: " + good},
		"basic":     {"Authorization: Basic " + good},
		"no token":  {"Authorization: Bearer "},
		"cut":       {"Authorization: Bearer " + good[:len(good)-1]},
		"longer":    {"Authorization: Bearer " + good + "x"},
		"hash":      {"Authorization: Bearer " + hashOf(good)},
		"huge":      {"Authorization: Bearer " + strings.Repeat("x", 10000)},
		"twice":     {"Authorization: Bearer " + good, "Authorization: Bearer " + good},
		"query":     {"X-Token: " + good},
	} {
		w := f.do("GET", "/v1/jobs?access_token="+good, "", "", header...)
		if p := f.problem(w, http.StatusUnauthorized, v1.CodeUnauthenticated); strings.Contains(p.Detail, good) {
			t.Errorf("%s: the token comes back", name)
		}
	}
	if w := f.do("GET", "/v1/jobs", "", "", "Authorization: bearer  "+good); w.Code != http.StatusOK {
		t.Errorf("the scheme's case and space: %d", w.Code) // RFC 9110 section 11.1
	}
	// Without a token, a path that does not exist looks like one that does.
	f.problem(f.do("GET", "/v1/nope", "", ""), http.StatusUnauthorized, v1.CodeUnauthenticated)
	f.problem(f.do("DELETE", "/healthz", "", ""), http.StatusUnauthorized, v1.CodeUnauthenticated)
	if strings.Contains(f.log.String(), good[4:]) {
		t.Error("a token is in the log")
	}
}

func TestPathsAndMethods(t *testing.T) {
	f := newFixture(t, nil)
	id := f.submit().ID.String()
	for _, p := range []string{"/nope", "/index.html", "/page/", "/page.css/", "/favicon.ico", "/v1", "/v1/", "/v1/jobs/", "//v1/jobs", "/v1/../v1/jobs", "/v1/jobs/" + id + "/nope",
		"/v1/jobs/" + id + "/cancel/", "/V1/jobs", "/openapi.json", "/debug/pprof/"} {
		f.problem(f.do("GET", p, "admin", ""), http.StatusNotFound, v1.CodeNotFound)
	}
	for p, allow := range map[string]string{
		"DELETE /v1/jobs": "GET, POST", "PUT /v1/jobs/" + id: "DELETE, GET, PATCH", "GET /v1/jobs/" + id + "/cancel": "POST",
		"POST /metrics": "GET", "NOPE /v1/version": "GET", "OPTIONS /v1/peers": "GET", "TRACE /healthz": "GET", "POST /": "GET", "PUT /page.js": "GET", "DELETE /page.css": "GET",
	} {
		method, path, _ := strings.Cut(p, " ")
		w := f.do(method, path, "admin", "")
		f.problem(w, http.StatusMethodNotAllowed, v1.CodeMethodNotAllowed)
		if got := w.Header().Get("Allow"); got != allow {
			t.Errorf("%s: Allow %q, want %q", p, got, allow)
		}
	}
	for _, bad := range []string{"x", "0", strings.ToUpper(id), "urn:uuid:" + id, "{" + id + "}", strings.ReplaceAll(id, "-", ""),
		id + "%00", "..%2f..%2fetc%2fpasswd", strings.Repeat("a", 5000), "018f0000-0000-7000-8000-000000000000"} {
		f.problem(f.do("GET", "/v1/jobs/"+bad, "admin", ""), http.StatusNotFound, v1.CodeNotFound)
		f.problem(f.do("POST", "/v1/jobs/"+bad+"/cancel", "admin", ""), http.StatusNotFound, v1.CodeNotFound)
	}
}

func TestNodeEndpoints(t *testing.T) {
	f := newFixture(t, nil)
	for path, want := range map[string]string{
		"/v1/version": `"node":"a"`, "/v1/devices": `"hardware":false,"reason":"no hardware"`,
		"/v1/peers": `{"peers":[{"name":"b"`, "/v1/roots": `{"roots":[{"name":"data"`,
	} {
		if w := f.do("GET", path, "read", ""); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		f.problem(f.do("GET", path+"?x=1", "read", ""), http.StatusBadRequest, v1.CodeInvalidRequest)
	}
	f.node.broken = errors.New("secret")
	w := f.do("GET", "/v1/devices", "read", "")
	if p := f.problem(w, http.StatusInternalServerError, v1.CodeInternal); strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%+v", p)
	}
	// A defect in a handler is a 500 with a trace in the log, not outside.
	w = f.do("GET", "/v1/pollers", "read", "")
	if p := f.problem(w, http.StatusInternalServerError, v1.CodeInternal); strings.Contains(w.Body.String(), "secret") ||
		!strings.Contains(f.log.String(), p.RequestID) || !strings.Contains(f.log.String(), "goroutine") {
		t.Errorf("%+v", p)
	}
}

func TestHealth(t *testing.T) {
	f := newFixture(t, nil)
	if w := f.do("GET", "/readyz", "", ""); w.Code != 200 {
		t.Errorf("ready: %d", w.Code)
	}
	f.node.ready = errors.New("peer b is gone")
	w := f.do("GET", "/readyz", "", "")
	f.problem(w, http.StatusServiceUnavailable, v1.CodeNotReady)
	if strings.Contains(w.Body.String(), "peer") || !strings.Contains(f.log.String(), "peer b is gone") {
		t.Errorf("%s", w.Body)
	}
	f.do("GET", "/readyz", "", "")
	if n := strings.Count(f.log.String(), "msg=\"not ready\""); n != 1 {
		t.Errorf("two questions were told %d times", n)
	}
	f.node.ready = nil
	if w := f.do("GET", "/readyz", "", ""); w.Code != 200 || !strings.Contains(f.log.String(), "ready again") {
		t.Errorf("ready again: %d", w.Code)
	}
	if w := f.do("GET", "/healthz", "", ""); w.Code != 200 || w.Body.String() != "{\"status\":\"ok\"}\n" {
		t.Errorf("healthz: %d %s", w.Code, w.Body)
	}
}

func TestMetrics(t *testing.T) {
	f := newFixture(t, nil)
	s := f.submit()
	c := <-f.calls
	c.attempt.Progress.SetTotal(7, 1)
	c.attempt.Progress.Add(7)
	c.end <- nil
	for !s.State.Terminal() {
		s, _ = f.queue.Wait(t.Context(), s.ID, s.Version)
	}
	f.do("GET", "/v1/jobs/"+s.ID.String(), "read", "")
	f.do("BREW", "/secret/path", "read", "")
	w := f.do("GET", "/metrics", "metrics", "")
	text := w.Body.String()
	for _, want := range []string{
		`mover_jobs{state="succeeded"} 1`, `mover_jobs{state="queued"} 0`, `mover_attempts_total{code="OK"} 1`,
		`mover_job_bytes_total 7`, `mover_attempts_running 0`, `mover_receiving_items 0`, `mover_received_bytes_total 0`,
		`mover_queue_age_seconds 0`, `mover_queue_store_up 1`, `mover_draining 0`,
		`mover_http_requests_total{method="GET",route="/v1/jobs/{id}",status="200"} 1`,
		`mover_http_requests_total{method="POST",route="/v1/jobs",status="202"} 1`,
		`mover_http_requests_total{method="other",route="other",status="404"} 1`,
		`mover_http_request_seconds_count{method="POST",route="/v1/jobs"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, s.ID.String()) || strings.Contains(text, "secret") || strings.Contains(text, "data/x") {
		t.Error("an id or a path is a label")
	}
	if _, err := New(f.cfg); err == nil {
		t.Error("two APIs on one registry")
	}
}

// TestQueueMetrics: how long the job at the head of the queue has waited, not
// one that runs, and whether the node takes more.
func TestQueueMetrics(t *testing.T) {
	f := newFixture(t, nil)
	f.submit()
	running := <-f.calls
	f.clock.Advance(time.Hour)
	f.submit()
	f.clock.Advance(time.Minute)
	f.submit()
	f.clock.Advance(30 * time.Second)
	f.queue.Drain(true)
	text := f.do("GET", "/metrics", "metrics", "").Body.String()
	for _, want := range []string{`mover_queue_age_seconds 90`, `mover_jobs{state="queued"} 2`, `mover_draining 1`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	running.end <- nil
}

func TestConfigNeedsItsParts(t *testing.T) {
	f := newFixture(t, nil)
	for _, change := range []func(*Config){
		func(c *Config) { c.NodeName = "" }, func(c *Config) { c.Queue = nil }, func(c *Config) { c.Info = nil },
		func(c *Config) { c.Tokens = nil }, func(c *Config) { c.Registry = nil },
	} {
		cfg := f.cfg
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Error("accepted")
		}
	}
}
