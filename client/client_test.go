package client

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"mover/api"
	v1 "mover/api/v1"
	"mover/job"
	"mover/job/jobtest"
	"mover/reason"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a real API server over a queue whose attempts the test carries out.
type node struct {
	t       *testing.T
	clock   *jobtest.Clock
	queue   *job.Queue
	api     *api.API
	server  *httptest.Server
	token   string
	calls   chan *job.Attempt
	results chan error
}

func (n *node) Run(ctx context.Context, a *job.Attempt) (job.Result, error) {
	n.calls <- a
	select {
	case err := <-n.results:
		return job.Result{Bytes: 10}, err
	case <-ctx.Done():
		return job.Result{}, reason.New(reason.Canceled, "ended")
	}
}

func (n *node) Version() v1.Version { return v1.Version{Node: "a"} }
func (n *node) Devices(context.Context) (v1.Devices, error) {
	return v1.Devices{Devices: []v1.Device{{Name: "soft0"}}}, nil
}
func (n *node) Peers(context.Context) (v1.Peers, error) {
	return v1.Peers{Peers: []v1.Peer{{Name: "b"}}}, nil
}
func (n *node) Roots(context.Context) (v1.Roots, error) {
	return v1.Roots{Roots: []v1.Root{{Name: "data"}}}, nil
}
func (n *node) Pollers(context.Context) (v1.Pollers, error) {
	return v1.Pollers{Pollers: []v1.Poller{{CPU: new(3)}}}, nil
}
func (n *node) Ready(context.Context) error { return nil }

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, clock: jobtest.NewClock(), calls: make(chan *job.Attempt, 100), results: make(chan error, 100)}
	var err error
	if n.queue, err = job.NewQueue(job.Config{NodeName: "a", Router: n, Clock: n.clock}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if n.token, err = api.CreateToken(path, "t", api.ScopeSubmit, api.AllRoots()); err != nil {
		t.Fatal(err)
	}
	tokens, err := api.LoadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	parts := &store{}
	h, err := api.New(api.Config{NodeName: "a", Queue: n.queue, Info: n, Tokens: tokens, Registry: prometheus.NewRegistry(), Clock: n.clock,
		Buffers: parts, Planner: parts, Drainer: parts})
	if err != nil {
		t.Fatal(err)
	}
	n.api = h
	n.server = httptest.NewServer(h)
	t.Cleanup(func() {
		if err := n.queue.Close(context.Background()); err != nil {
			t.Error(err)
		}
		n.server.Close()
	})
	return n
}

// client returns one whose requests pass through rt, which may be nil.
func (n *node) client(rt func(next http.RoundTripper) http.RoundTripper) *Client {
	n.t.Helper()
	transport := &http.Transport{}
	cfg := Config{Server: n.server.URL, Token: n.token, RetryDelay: time.Millisecond, HTTPClient: &http.Client{Transport: transport}}
	if rt != nil {
		cfg.HTTPClient.Transport = rt(transport)
	}
	c, err := New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(transport.CloseIdleConnections)
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func testSpec() job.Spec {
	return job.Spec{Source: job.Place{Path: "data/x"}, Destination: job.Place{Node: "b", Path: "in/"}}
}

func TestSubmitGetCancel(t *testing.T) {
	n := newNode(t)
	c := n.client(nil)
	s, err := c.Submit(t.Context(), testSpec(), "")
	if err != nil || s.Owner != "a/t" || s.Spec.Destination.Path != "in/x" {
		t.Fatalf("%+v, %v", s, err)
	}
	<-n.calls
	got, err := c.Get(t.Context(), s.ID)
	if err != nil || !cmp.Equal(s, got) {
		t.Errorf("%v\n%s", err, cmp.Diff(s, got))
	}
	if list, err := c.List(t.Context(), ListOptions{States: []job.State{job.Preparing, job.Running}, Owner: "a/t", Limit: 5}); err != nil || len(list.Jobs) != 1 {
		t.Errorf("%d, %v", len(list.Jobs), err)
	}
	if list, err := c.Receiving(t.Context(), ListOptions{}); err != nil || len(list.Jobs) != 0 {
		t.Errorf("%d, %v", len(list.Jobs), err)
	}
	if s, err = c.Cancel(t.Context(), s.ID); err != nil || s.State != job.Canceling && s.State != job.Canceled {
		t.Errorf("%s, %v", s.State, err)
	}
	if s, err = c.Wait(t.Context(), s.ID, nil); err != nil || s.State != job.Canceled || s.LastReason.Code != reason.Canceled {
		t.Errorf("%s, %v", s.State, err)
	}
}

func TestNode(t *testing.T) {
	n := newNode(t)
	c := n.client(nil)
	v, err1 := c.Version(t.Context())
	d, err2 := c.Devices(t.Context())
	p, err3 := c.Peers(t.Context())
	r, err4 := c.Roots(t.Context())
	o, err5 := c.Pollers(t.Context())
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	if v.Node != "a" || d.Devices[0].Name != "soft0" || p.Peers[0].Name != "b" || r.Roots[0].Name != "data" || o.Pollers[0].CPU == nil || *o.Pollers[0].CPU != 3 {
		t.Errorf("%+v %+v %+v %+v %+v", v, d, p, r, o)
	}
}

// TestLostAnswersMakeOneJob: the server did the work and the answer was lost,
// again and again.
func TestLostAnswersMakeOneJob(t *testing.T) {
	n := newNode(t)
	var sent atomic.Int32
	c := n.client(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if sent.Add(1) < maxTries && err == nil {
				resp.Body.Close()
				return nil, errors.New("connection reset by peer")
			}
			return resp, err
		})
	})
	s, err := c.Submit(t.Context(), testSpec(), "")
	if err != nil || sent.Load() != maxTries {
		t.Fatalf("%v after %d", err, sent.Load())
	}
	if list, err := c.List(t.Context(), ListOptions{}); err != nil || len(list.Jobs) != 1 || list.Jobs[0].ID != s.ID {
		t.Errorf("%d jobs, %v", len(list.Jobs), err)
	}
	// The caller's own key does the same across callers.
	a, err1 := c.Submit(t.Context(), testSpec(), "mine")
	b, err2 := c.Submit(t.Context(), testSpec(), "mine")
	if err1 != nil || err2 != nil || a.ID != b.ID || a.ID == s.ID {
		t.Errorf("%v, %v", err1, err2)
	}
	other := testSpec()
	other.Priority = 1
	var refused *Error
	if _, err := c.Submit(t.Context(), other, "mine"); !errors.As(err, &refused) || refused.Status != 422 || refused.Code != v1.CodeKeyReused {
		t.Errorf("%v", err)
	}
}

func TestRefusals(t *testing.T) {
	n := newNode(t)
	var sent atomic.Int32
	c := n.client(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			return next.RoundTrip(r)
		})
	})
	bad := testSpec()
	bad.Transport = job.TransportUC
	_, err := c.Submit(t.Context(), bad, "")
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != v1.CodeUnsupported || refused.Field != "transport" || refused.RequestID == "" ||
		!strings.Contains(err.Error(), "not supported by this version") || !strings.Contains(err.Error(), refused.RequestID) {
		t.Errorf("%v", err)
	}
	if _, err = c.Get(t.Context(), job.ID{1}); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("%v", err)
	}
	if _, err = c.Wait(t.Context(), job.ID{1}, nil); !errors.As(err, &refused) || refused.Status != 404 {
		t.Errorf("%v", err)
	}
	if sent.Load() != 3 {
		t.Errorf("%d requests: a refusal is not repeated", sent.Load())
	}
}

func TestBusyServerIsAskedAgain(t *testing.T) {
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) < 3 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"queue_full","detail":"full"}`)
			return
		}
		_, _ = io.WriteString(w, `{"node":"a"}`)
	}))
	defer srv.Close()
	c, err := New(Config{Server: srv.URL, Token: "t", RetryDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, err := c.Version(t.Context()); err != nil || v.Node != "a" || asked.Load() != 3 {
		t.Errorf("%+v, %v after %d", v, err, asked.Load())
	}
	asked.Store(-100)
	var refused *Error
	if _, err := c.Version(t.Context()); !errors.As(err, &refused) || refused.Code != "queue_full" || asked.Load() != -100+maxTries {
		t.Errorf("%v after %d", err, asked.Load()+100)
	}
}

// TestDrainingServerIsNotAskedAgain: who drains a node wants the others to go
// elsewhere now.
func TestDrainingServerIsNotAskedAgain(t *testing.T) {
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"draining","detail":"the node drains"}`)
	}))
	defer srv.Close()
	c, err := New(Config{Server: srv.URL, Token: "t", RetryDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var refused *Error
	if _, err := c.Submit(t.Context(), testSpec(), ""); !errors.As(err, &refused) || refused.Code != v1.CodeDraining || asked.Load() != 1 {
		t.Errorf("%v after %d requests, want one", err, asked.Load())
	}
}

func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := "http://" + ln.Addr().String()
	ln.Close()
	c, err := New(Config{Server: addr, Token: "t", RetryDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Submit(t.Context(), testSpec(), "")
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Server != addr {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{addr, "mover run", "connection refused", "MOVER_SERVER"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Version(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := c.Wait(ctx, job.ID{1}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestStrangeServers(t *testing.T) {
	var mu sync.Mutex
	var answer http.HandlerFunc
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		answer(w, r)
	}))
	defer srv.Close()
	c, err := New(Config{Server: srv.URL, Token: "t", RetryDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, f := range map[string]http.HandlerFunc{
		"not JSON": func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"plain error": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "<html>\x1b[2J", 500)
		},
		"huge": func(w http.ResponseWriter, r *http.Request) {
			chunk := strings.Repeat(" ", 1<<20)
			for range maxAnswerBytes>>20 + 1 {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		},
	} {
		mu.Lock()
		answer = f
		mu.Unlock()
		if _, err := c.Version(t.Context()); err == nil || strings.Contains(err.Error(), "html") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWaitShowsEveryStateAndProgress(t *testing.T) {
	n := newNode(t)
	c := n.client(nil)
	s, err := c.Submit(t.Context(), testSpec(), "")
	if err != nil {
		t.Fatal(err)
	}
	a := <-n.calls
	shown := make(chan job.Snapshot)
	ended := make(chan job.Snapshot, 1)
	go func() {
		s, err := c.Wait(t.Context(), s.ID, func(s job.Snapshot) { shown <- s })
		if err != nil {
			t.Error(err)
		}
		ended <- s
	}()
	expect := func(want job.State, bytes int64) {
		t.Helper()
		select {
		case s := <-shown:
			if s.State != want || s.Progress.BytesDone != bytes {
				t.Fatalf("shown %s with %d bytes, want %s with %d", s.State, s.Progress.BytesDone, want, bytes)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s is not shown", want)
		}
	}
	expect(job.Preparing, 0)
	a.Progress.SetTotal(10, 1)
	a.Phase(job.Running)
	expect(job.Running, 0)
	a.Progress.Add(4)
	for end := time.Now().Add(10 * time.Second); n.clock.Timers() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
	n.clock.Advance(watchPeriod)
	expect(job.Running, 4)
	a.Phase(job.Verifying)
	expect(job.Verifying, 4)
	a.Phase(job.Publishing)
	expect(job.Publishing, 4)
	a.Progress.Add(6)
	n.results <- nil
	expect(job.Succeeded, 10)
	if s := <-ended; s.State != job.Succeeded || s.Result == nil || s.Result.Bytes != 10 {
		t.Errorf("%+v", s)
	}
}

func TestWaitPutsUpWithAnOutage(t *testing.T) {
	n := newNode(t)
	var asked atomic.Int32
	c := n.client(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if k := asked.Add(1); k > 2 && k < 12 {
				return nil, errors.New("connection refused")
			}
			return next.RoundTrip(r)
		})
	})
	s, err := c.Submit(t.Context(), testSpec(), "")
	if err != nil {
		t.Fatal(err)
	}
	<-n.calls
	shown := 0
	s, err = c.Wait(t.Context(), s.ID, func(job.Snapshot) {
		if shown++; shown == 1 {
			n.results <- reason.New(reason.NoSpace, "full") // the outage begins
		}
	})
	if err != nil || s.State != job.Failed || s.LastReason.Code != reason.NoSpace || asked.Load() < 12 {
		t.Errorf("%+v, %v after %d requests", s, err, asked.Load())
	}
}

func TestNewRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, data string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"scheme":       {Config{Server: "host-a:9470", Token: "t"}, "MOVER_SERVER"},
		"no host":      {Config{Server: "http://", Token: "t"}, "MOVER_SERVER"},
		"path":         {Config{Server: "http://127.0.0.1:1/v1", Token: "t"}, "MOVER_SERVER"},
		"user":         {Config{Server: "http://a:b@127.0.0.1:1", Token: "t"}, "MOVER_SERVER"},
		"clear text":   {Config{Server: "http://host-a:9470", Token: "t"}, "https://"},
		"no token":     {Config{}, "MOVER_TOKEN_FILE"},
		"no file":      {Config{TokenFile: filepath.Join(dir, "none")}, "MOVER_TOKEN_FILE"},
		"empty file":   {Config{TokenFile: file("empty", "\n")}, "one word"},
		"two words":    {Config{TokenFile: file("words", "a b")}, "one word"},
		"header split": {Config{Token: "a\r\nX: y"}, "one word"},
		"no CA":        {Config{Token: "t", CAFile: filepath.Join(dir, "none")}, "MOVER_CA"},
		"not a CA":     {Config{Token: "t", CAFile: file("ca", "x")}, "MOVER_CA"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	env := map[string]string{"MOVER_SERVER": "https://host-a:1", "MOVER_TOKEN_FILE": file("good", "mvr_x\n"), "MOVER_CA": ""}
	c, err := New(FromEnv(func(k string) string { return env[k] }))
	if err != nil || c.Server() != "https://host-a:1" || c.token != "mvr_x" {
		t.Errorf("%v", err)
	}
	if c, err = New(Config{Token: "t"}); err != nil || c.Server() != DefaultServer {
		t.Errorf("%v", err)
	}
}

func TestCA(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"node":"`+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+`"}`)
	}))
	defer srv.Close()
	srv.Config.ErrorLog = nil
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Server: srv.URL, Token: "secret", CAFile: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, err := c.Version(t.Context()); err != nil || v.Node != "secret" {
		t.Errorf("%+v, %v", v, err)
	}
	without, err := New(Config{Server: srv.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer without.Close()
	if _, err := without.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "MOVER_CA") {
		t.Errorf("%v", err)
	}
}
