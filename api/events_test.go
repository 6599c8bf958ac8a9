package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

// page asks for a page of events.
func (f *fixture) page(target string) (l v1.EventList) {
	f.t.Helper()
	w := f.do("GET", target, "read", "")
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != 200 || l.Events == nil {
		f.t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	return l
}

func types(l v1.EventList) (out string) {
	for _, e := range l.Events {
		out += string(e.Type) + ":" + string(e.State) + " "
	}
	return strings.TrimSpace(out)
}

func TestEventPages(t *testing.T) {
	f := newFixture(t, nil)
	if l := f.page("/v1/events"); len(l.Events) != 0 || l.NextAfter != 0 {
		t.Errorf("%+v", l)
	}
	s := f.submit()
	other := f.snapshot(f.do("POST", "/v1/jobs", "other", body), 202)
	c := <-f.calls
	c.end <- nil
	f.ended(s.ID)
	events := "/v1/jobs/" + s.ID.String() + "/events"
	all := f.page(events)
	if got := types(all); got != "submitted:queued state:preparing state:running state:verifying state:publishing state:succeeded" {
		t.Errorf("%s", got)
	}
	if l := f.page(events + "?limit=2"); len(l.Events) != 2 || l.NextAfter != l.Events[1].Seq {
		t.Errorf("%+v", l)
	}
	after := fmt.Sprintf("?after=%d", all.Events[4].Seq)
	if l := f.page(events + after); types(l) != "state:succeeded" {
		t.Errorf("%+v", l)
	}
	if l := f.page(fmt.Sprintf("%s?after=%d", events, all.NextAfter)); len(l.Events) != 0 || l.NextAfter != all.NextAfter {
		t.Errorf("%+v", l)
	}
	if l := f.page("/v1/events?owner=a/other"); len(l.Events) == 0 || l.Events[0].Job != other.ID {
		t.Errorf("%+v", l)
	}
	if l := f.page("/v1/events?after=latest"); len(l.Events) != 0 || l.NextAfter != f.queue.LastEvent() {
		t.Errorf("%+v", l)
	}
	for _, q := range []string{"after=x", "after=-1", "after=", "limit=0", "limit=501", "wait=61s", "wait=x", "page_token=x", "after=99999999999999999999"} {
		f.problem(f.do("GET", events+"?"+q, "read", ""), 400, v1.CodeInvalidRequest)
		f.problem(f.do("GET", "/v1/events?"+q, "read", ""), 400, v1.CodeInvalidRequest)
	}
	f.problem(f.do("GET", events+"?owner=a/b", "read", ""), 400, v1.CodeInvalidRequest)
	f.problem(f.do("GET", "/v1/jobs/"+job.ID{1}.String()+"/events", "read", ""), 404, v1.CodeNotFound)
	f.problem(f.do("GET", "/v1/events", "metrics", ""), 403, v1.CodeScopeTooLow)
	f.problem(f.do("GET", "/v1/events?limit=1", "read", "", "Accept: text/event-stream"), 400, v1.CodeInvalidRequest)
	f.problem(f.do("GET", "/v1/events", "read", "", "Accept: text/event-stream", "Last-Event-ID: x"), 400, v1.CodeInvalidRequest)
	f.problem(f.do("GET", "/v1/events", "read", "", "Accept: text/html"), 406, v1.CodeNotAcceptable)
	if w := f.do("HEAD", "/v1/events", "read", "", "Accept: text/event-stream"); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
}

func TestEventLongPoll(t *testing.T) {
	f := newFixture(t, nil)
	got := make(chan v1.EventList, 1)
	wait := func(after string) {
		go func() { got <- f.page("/v1/events?wait=30s&after=" + after) }()
		f.waitFor(1)
	}
	wait("latest")
	f.submit()
	if l := <-got; types(l) == "" {
		t.Errorf("%+v", l)
	}
	<-f.calls
	wait("latest")
	f.clock.Advance(30 * time.Second)
	if l := <-got; len(l.Events) != 0 || l.NextAfter == 0 {
		t.Errorf("%+v", l)
	}
	wait("latest")
	f.stop()
	if l := <-got; len(l.Events) != 0 {
		t.Errorf("%+v", l)
	}
}

// sse is a client of a stream.
type sse struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

// openStream opens one over the network.
func (f *fixture) openStream(client *http.Client, url, token string, header ...string) *sse {
	f.t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.tokens[token])
	r.Header.Set("Accept", "text/event-stream")
	for _, h := range header {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Set(k, v)
	}
	resp, err := client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	return &sse{f.t, resp, bufio.NewReader(resp.Body)}
}

// block reads up to the next empty line; "" at the end of the stream.
func (s *sse) block() string {
	var b strings.Builder
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return ""
		}
		if line == "\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

// event reads one event, and checks its form.
func (s *sse) event() (e job.Event) {
	s.t.Helper()
	lines := strings.Split(s.block(), "\n")
	if len(lines) != 4 || json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "data: ")), &e) != nil ||
		lines[0] != fmt.Sprintf("id: %d", e.Seq) || lines[1] != "event: "+string(e.Type) {
		s.t.Fatalf("no event: %q", lines)
	}
	return e
}

func TestStream(t *testing.T) {
	f := newFixture(t, nil)
	addr, stop := f.serve()
	client := &http.Client{Transport: &http.Transport{}}
	s := f.submit()
	c := <-f.calls
	url := "http://" + addr + "/v1/jobs/" + s.ID.String() + "/events"
	in := f.openStream(client, url, "read")
	if in.resp.StatusCode != 200 || in.resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", in.resp.StatusCode, in.resp.Header)
	}
	if b := in.block(); b != "retry: 2000\n" {
		t.Errorf("%q", b)
	}
	if e := in.event(); e.Type != job.EventSubmitted || e.Job != s.ID {
		t.Errorf("%+v", e)
	}
	last := in.event()
	if last.State != job.Preparing {
		t.Errorf("%+v", last)
	}
	// Silence: a sign of life.
	f.waitForTimers(1)
	f.clock.Advance(heartbeat)
	if b := in.block(); b != ": heartbeat\n" {
		t.Errorf("%q", b)
	}
	c.end <- nil
	// Who lost the stream goes on where it was, and the newer of what it says
	// counts.
	again := f.openStream(client, url+"?after=0", "read", fmt.Sprintf("Last-Event-ID: %d", last.Seq))
	again.block()
	for _, from := range []*sse{in, again} {
		for _, want := range []job.State{job.Running, job.Verifying, job.Publishing, job.Succeeded} {
			if e := from.event(); e.State != want || e.Seq <= last.Seq {
				t.Errorf("%+v", e)
			}
		}
	}
	if w := f.do("DELETE", "/v1/jobs/"+s.ID.String(), "submit", ""); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if e := in.event(); e.Type != job.EventDeleted || in.block() != "" {
		t.Errorf("%+v, or the stream goes on", e)
	}
	node := f.openStream(client, "http://"+addr+"/v1/events?after=latest", "read")
	node.block()
	fresh := f.submit()
	if e := node.event(); e.Type != job.EventSubmitted || e.Job != fresh.ID {
		t.Errorf("%+v", e)
	}
	if err := stop(); err != nil { // which ends streams
		t.Error(err)
	}
	for node.block() != "" {
	}
	client.CloseIdleConnections()
}

// waitForTimers returns when so many timers of the clock run.
func (f *fixture) waitForTimers(n int) {
	f.t.Helper()
	for end := time.Now().Add(10 * time.Second); f.clock.Timers() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("%d timers, want %d", f.clock.Timers(), n)
		}
	}
}

func TestStreamEndsWithItsToken(t *testing.T) {
	f := newFixture(t, nil)
	addr, stop := f.serve()
	client := &http.Client{Transport: &http.Transport{}}
	in := f.openStream(client, "http://"+addr+"/v1/events", "read")
	in.block()
	if err := RevokeToken(f.path, "read"); err != nil {
		t.Fatal(err)
	}
	if err := f.cfg.Tokens.Reload(f.path); err != nil {
		t.Fatal(err)
	}
	f.submit()
	if b := in.block(); b != "" {
		t.Errorf("a revoked token sees %q", b)
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestStreamsAreLimitedAndLeave(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxStreams = 1 })
	addr, stop := f.serve()
	client := &http.Client{Transport: &http.Transport{}}
	first := f.openStream(client, "http://"+addr+"/v1/events", "read")
	first.block()
	f.problem(f.do("GET", "/v1/events", "read", "", "Accept: text/event-stream"), 429, v1.CodeTooManyStreams)
	first.resp.Body.Close()
	for end := time.Now().Add(10 * time.Second); len(f.streams) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the place of a client that left is not free")
		}
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestSlowClientIsDropped: one that does not read fills the socket's buffers
// and no memory of the node.
func TestSlowClientIsDropped(t *testing.T) {
	f := newFixture(t, nil)
	ours, theirs := net.Pipe() // no buffer at all
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &pipeWriter{conn: ours, header: http.Header{}}
	r, err := http.NewRequestWithContext(ctx, "GET", "/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.tokens["read"])
	r.Header.Set("Accept", "text/event-stream")
	f.ServeHTTP(w, r) // returns, although ctx does not end
	if w.deadlines == 0 || len(f.streams) != 0 {
		t.Errorf("%d deadlines, %d streams", w.deadlines, len(f.streams))
	}
	ours.Close()
}

// pipeWriter writes to a connection whose every deadline has passed.
type pipeWriter struct {
	conn      net.Conn
	header    http.Header
	deadlines int
}

func (w *pipeWriter) Header() http.Header         { return w.header }
func (w *pipeWriter) WriteHeader(int)             {}
func (w *pipeWriter) Write(p []byte) (int, error) { return w.conn.Write(p) }
func (w *pipeWriter) FlushError() error           { return nil }
func (w *pipeWriter) SetWriteDeadline(time.Time) error {
	w.deadlines++
	return w.conn.SetWriteDeadline(time.Now().Add(-time.Second))
}
