package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "mover/api/v1"
	"mover/job"
	"mover/reason"
)

// link carries questions to another node as a node does: as JSON of a bounded
// size.
type link struct {
	t    *testing.T
	from string
	to   *fixture

	mu     sync.Mutex
	down   error
	answer *RemoteResponse // instead of the other node's
	asked  []RemoteRequest
}

func (l *link) Call(ctx context.Context, node string, req RemoteRequest) (RemoteResponse, error) {
	l.mu.Lock()
	l.asked = append(l.asked, req)
	down, answer := l.down, l.answer
	l.mu.Unlock()
	if down != nil {
		return RemoteResponse{}, down
	}
	if answer != nil {
		return *answer, nil
	}
	if node != l.to.cfg.NodeName {
		l.t.Errorf("node %s was asked", node)
	}
	data, err := json.Marshal(req)
	if err != nil || len(data) > MaxRemoteBytes {
		l.t.Errorf("%d bytes, %v", len(data), err)
	}
	var got RemoteRequest
	if err := json.Unmarshal(data, &got); err != nil {
		l.t.Error(err)
	}
	data, err = json.Marshal(l.to.ServeRemote(ctx, l.from, got))
	if err != nil || len(data) > MaxRemoteBytes {
		l.t.Errorf("%d bytes, %v", len(data), err)
	}
	var resp RemoteResponse
	return resp, json.Unmarshal(data, &resp)
}

func (l *link) set(down error, answer *RemoteResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.answer = down, answer
}

// pair is two nodes: a job submitted at a whose source is at b.
func pair(t *testing.T) (a, b *fixture, l *link) {
	b = newFixtureOf(t, "b", nil)
	l = &link{t: t, from: "a", to: b}
	a = newFixture(t, func(c *Config) { c.Remote = l })
	return a, b, l
}

const pull = `{"source":{"node":"b","path":"data/x"},"destination":{"path":"in/"}}`

// forward does what the node's forwarder does with a stub.
func forward(a, b *fixture, s job.Snapshot) job.Snapshot {
	a.t.Helper()
	owners, _, err := b.queue.Accept(a.t.Context(), s.ID, s.Spec, s.Owner, "a")
	if err == nil {
		s, err = a.queue.UpdateStub(s.ID, owners)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

func TestStubIsTheOwnersJob(t *testing.T) {
	a, b, l := pair(t)
	w := a.do("POST", "/v1/jobs", "other", pull)
	s := a.snapshot(w, 202)
	if s.Forwarded == nil || s.Forwarded.Node != "b" || s.Forwarded.Accepted {
		t.Fatalf("%+v", s.Forwarded)
	}
	path := "/v1/jobs/" + s.ID.String()
	if a.snapshot(a.do("GET", path, "read", ""), 200); len(l.asked) != 0 {
		t.Error("b was asked about a job that it does not have")
	}
	forward(a, b, s)
	c := <-b.calls
	c.attempt.Phase(job.Running)
	c.attempt.Progress.SetTotal(10, 1)
	c.attempt.Progress.Add(4)
	w = a.do("GET", path, "read", "")
	s = a.snapshot(w, 200)
	if s.State != job.Running || s.Progress.BytesDone != 4 || s.Owner != "a/other" || !s.Forwarded.Accepted {
		t.Errorf("%+v", s)
	}
	// The tag is this node's, and being asked is no change.
	tag := w.Header().Get("ETag")
	if w := a.do("GET", path, "read", "", "If-None-Match: "+tag); w.Code != http.StatusNotModified {
		t.Errorf("%d %s, %s", w.Code, w.Header().Get("ETag"), tag)
	}
	// A change is made at the owner, under the version that was seen here.
	w = a.do("PATCH", path, "other", `{"priority":5}`, "If-Match: "+tag)
	if s = a.snapshot(w, 200); s.Spec.Priority != 5 {
		t.Errorf("%+v", s.Spec)
	}
	if theirs, err := b.queue.Get(s.ID); err != nil || theirs.Spec.Priority != 5 || theirs.Origin != "a" {
		t.Errorf("%+v, %v", theirs, err)
	}
	a.problem(a.do("PATCH", path, "other", `{"priority":6}`, "If-Match: "+tag), 412, v1.CodeVersionMismatch)
	a.problem(a.do("PATCH", path, "other", `{"priority":101}`), 400, v1.CodeInvalidJob)
	a.problem(a.do("POST", path+"/retry", "other", ""), 409, v1.CodeWrongState)
	// An admin here acts for the owner there; others do not act at all.
	a.problem(a.do("POST", path+"/pause", "outsider", ""), 403, v1.CodeOwnerNotAllowed)
	if s = a.snapshot(a.do("POST", path+"/pause", "admin", ""), 200); !s.Pausing && s.State != job.Paused {
		t.Errorf("%+v", s)
	}
	b.come(s.ID, job.Paused)
	if s = a.snapshot(a.do("POST", path+"/resume", "other", ""), 200); s.State.Terminal() || s.State == job.Paused {
		t.Errorf("%s", s.State)
	}
	c = <-b.calls
	for _, name := range []string{"one", "two\xff"} {
		c.attempt.Items.Add(job.ItemRecord{Path: []byte(name), Kind: job.EntryFile, State: job.ItemSucceeded})
	}
	c.end <- nil
	b.ended(s.ID)
	if s = a.snapshot(a.do("GET", path, "read", ""), 200); s.State != job.Succeeded || s.Result == nil {
		t.Errorf("%+v", s)
	}
	var items v1.ItemList
	w = a.do("GET", path+"/items?limit=1", "read", "")
	if err := json.Unmarshal(w.Body.Bytes(), &items); err != nil || len(items.Items) != 1 || items.NextPageToken == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	a.problem(a.do("GET", path+"/items?page_token=x", "read", ""), 400, v1.CodeInvalidRequest)
	if got := types(a.page(path + "/events")); !strings.HasPrefix(got, "submitted:queued") || !strings.HasSuffix(got, "state:succeeded") {
		t.Errorf("%s", got)
	}
	if w := a.do("DELETE", path, "other", ""); w.Code != 204 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if _, err := b.queue.Get(s.ID); err == nil {
		t.Error("b still has the job")
	}
	a.problem(a.do("GET", path, "read", ""), 404, v1.CodeNotFound)
}

func TestStubWhoseOwnerIsSilent(t *testing.T) {
	a, b, l := pair(t)
	s := a.snapshot(a.do("POST", "/v1/jobs", "other", pull), 202)
	path := "/v1/jobs/" + s.ID.String()
	forward(a, b, s)
	<-b.calls
	l.set(reason.New(reason.PeerUnreachable, "b does not answer at 10.0.0.2:9471"), nil)
	if s := a.snapshot(a.do("GET", path, "read", ""), 200); s.State != job.Preparing && s.State != job.Queued {
		t.Errorf("%s", s.State)
	}
	for _, what := range []string{"POST " + path + "/cancel", "POST " + path + "/pause", "GET " + path + "/items"} {
		method, target, _ := strings.Cut(what, " ")
		w := a.do(method, target, "other", "")
		if p := a.problem(w, 502, v1.CodePeerUnreachable); p.Reason != reason.PeerUnreachable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %+v", what, p)
		}
	}
	a.problem(a.do("PATCH", path, "other", `{"priority":1}`), 502, v1.CodePeerUnreachable)
	l.set(reason.New(reason.PeerRefused, "busy"), nil)
	a.problem(a.do("POST", path+"/cancel", "other", ""), 503, v1.CodePeerRefused)
	// An owner that answers with anything but the job is not believed.
	for _, bad := range []RemoteResponse{
		{Status: 200}, {Status: 200, Body: []byte(`{"id":"018f0000-0000-7000-8000-000000000000","version":1,"state":"failed"}`)},
		{Status: 200, Body: []byte(`[]`)}, {Status: 500, Body: []byte("<html>")}, {Status: 99}, {Status: 302},
		{Status: 400, Body: []byte(`{"code":"` + strings.Repeat("x", 100) + `"}`)},
	} {
		l.set(nil, &bad)
		a.problem(a.do("POST", path+"/cancel", "other", ""), 500, v1.CodeInternal)
		if s := a.snapshot(a.do("GET", path, "read", ""), 200); s.State.Terminal() {
			t.Errorf("%+v made it %s", bad, s.State)
		}
	}
	// Nor one of a state that does not exist, nor is anything lost by it.
	l.set(nil, &RemoteResponse{Status: 200, Body: []byte(`{"id":"` + s.ID.String() + `","version":9,"state":"odd"}`)})
	if got := a.snapshot(a.do("GET", path, "read", ""), 200); got.ID != s.ID || !got.State.Valid() {
		t.Errorf("job %s is %q", got.ID, got.State)
	}
	l.set(nil, &RemoteResponse{Status: 403, Body: []byte(`{"code":"not_authorized","detail":"\u001b[2J no"}`)})
	if w := a.do("POST", path+"/cancel", "other", ""); w.Code != 403 || strings.Contains(w.Body.String(), "\x1b") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	l.set(nil, nil)
	a.snapshot(a.do("POST", path+"/cancel", "other", ""), 200)
	if s := b.ended(s.ID); s.State != job.Canceled {
		t.Errorf("%s", s.State)
	}
	without := newFixture(t, nil)
	s = without.snapshot(without.do("POST", "/v1/jobs", "other", pull), 202)
	if _, err := without.queue.UpdateStub(s.ID, s); err != nil {
		t.Fatal(err)
	}
	without.problem(without.do("POST", "/v1/jobs/"+s.ID.String()+"/cancel", "other", ""), 501, v1.CodeUnsupported)
}

func TestStubLongPollAndEvents(t *testing.T) {
	a, b, _ := pair(t)
	s := a.snapshot(a.do("POST", "/v1/jobs", "other", pull), 202)
	s = forward(a, b, s)
	c := <-b.calls
	path := "/v1/jobs/" + s.ID.String()
	s = a.snapshot(a.do("GET", path, "read", ""), 200)
	got := make(chan job.Snapshot, 1)
	go func() { got <- a.snapshot(a.do("GET", path+"?wait=60s", "read", ""), 200) }()
	a.waitFor(1)
	c.attempt.Phase(job.Running)
	if s := <-got; s.State != job.Running {
		t.Errorf("%s", s.State)
	}
	// A job's state is seen a moment before the event of it, which is not the
	// one to wait for.
	for seen := uint64(0); ; {
		l := a.page(fmt.Sprintf("%s/events?wait=60s&after=%d", path, seen))
		if seen = l.NextAfter; slices.ContainsFunc(l.Events, func(e job.Event) bool { return e.State == job.Running }) {
			break
		}
	}
	events := make(chan v1.EventList, 1)
	go func() { events <- a.page(path + "/events?wait=60s&after=latest") }()
	a.waitFor(1)
	c.end <- nil
	if l := <-events; len(l.Events) == 0 {
		t.Errorf("%+v", l)
	}
	if len(a.remotes) != 0 {
		t.Error("a place is not given back")
	}
}

// TestAnOldAnswerBringsNothingBack: two ask the owner, and the first answer
// comes last.
func TestAnOldAnswerBringsNothingBack(t *testing.T) {
	a, b, _ := pair(t)
	s := a.snapshot(a.do("POST", "/v1/jobs", "other", pull), 202)
	forward(a, b, s)
	c := <-b.calls
	old, err := b.queue.Get(s.ID)
	if err != nil {
		t.Fatal(err)
	}
	c.end <- reason.New(reason.NoSpace, "full")
	b.ended(s.ID)
	path := "/v1/jobs/" + s.ID.String()
	a.snapshot(a.do("GET", path, "read", ""), 200)
	if s := a.ended(s.ID); s.State != job.Failed {
		t.Fatalf("%s", s.State)
	}
	if s, err := a.queue.UpdateStub(s.ID, old); err != nil || s.State != job.Failed {
		t.Errorf("%s, %v", s.State, err)
	}
	if s := a.snapshot(a.do("POST", path+"/retry", "other", ""), 200); s.State.Terminal() || s.Retries != 1 {
		t.Errorf("%+v", s)
	}
	(<-b.calls).end <- nil
	b.ended(s.ID)
	a.snapshot(a.do("GET", path, "read", ""), 200)
	if s := a.ended(s.ID); s.State != job.Succeeded {
		t.Errorf("%s", s.State)
	}
}

func TestServeRemoteRefuses(t *testing.T) {
	_, b, _ := pair(t)
	own := b.snapshot(b.do("POST", "/v1/jobs", "other", strings.Replace(body, `"b"`, `"c"`, 1)), 202) // not a's business
	<-b.calls
	id, err := job.ParseID("01a22ecb-b2d3-756d-a328-6954eb8df855")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := job.ParseSpec([]byte(strings.Replace(pull, `{"path":"in/"}`, `{"node":"a","path":"in/"}`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	theirs, _, err := b.queue.Accept(t.Context(), id, spec, "a/alice", "a")
	if err != nil {
		t.Fatal(err)
	}
	job1, job2 := "/v1/jobs/"+own.ID.String(), "/v1/jobs/"+theirs.ID.String()
	good := RemoteRequest{Method: "GET", Path: job2, Owner: "a/alice", Scope: "submit"}
	if r := b.ServeRemote(t.Context(), "a", good); r.Status != 200 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	for name, c := range map[string]struct {
		from   string
		change func(*RemoteRequest)
		status int
		code   string
	}{
		"another's job":     {"a", func(r *RemoteRequest) { r.Path = job1 }, 404, v1.CodeNotFound},
		"as its owner":      {"a", func(r *RemoteRequest) { r.Path, r.Owner, r.Scope = job1, own.Owner, "admin" }, 404, v1.CodeNotFound},
		"another node":      {"c", func(*RemoteRequest) {}, 404, v1.CodeNotFound},
		"another owner":     {"a", func(r *RemoteRequest) { r.Method, r.Path, r.Owner = "POST", job2+"/cancel", "a/bob" }, 403, v1.CodeOwnerNotAllowed},
		"admin is not":      {"a", func(r *RemoteRequest) { r.Method, r.Path, r.Owner, r.Scope = "POST", job2+"/cancel", "a/bob", "admin" }, 403, v1.CodeOwnerNotAllowed},
		"too low":           {"a", func(r *RemoteRequest) { r.Method, r.Path, r.Scope = "POST", job2+"/cancel", "read" }, 403, v1.CodeScopeTooLow},
		"all jobs":          {"a", func(r *RemoteRequest) { r.Path = "/v1/jobs" }, 400, v1.CodeInvalidRequest},
		"buffers":           {"a", func(r *RemoteRequest) { r.Path = "/v1/buffers/in/data" }, 400, v1.CodeInvalidRequest},
		"drain":             {"a", func(r *RemoteRequest) { r.Method, r.Path, r.Scope = "POST", "/v1/jobs/../drain", "admin" }, 404, v1.CodeNotFound},
		"events":            {"a", func(r *RemoteRequest) { r.Path = job2 + "/events" }, 403, v1.CodeNotAuthorized},
		"no scope":          {"a", func(r *RemoteRequest) { r.Scope = "root" }, 400, v1.CodeInvalidRequest},
		"no owner":          {"a", func(r *RemoteRequest) { r.Owner = "" }, 400, v1.CodeInvalidRequest},
		"no node":           {"", func(*RemoteRequest) {}, 400, v1.CodeInvalidRequest},
		"no method":         {"a", func(r *RemoteRequest) { r.Method = "G E T" }, 400, v1.CodeInvalidRequest},
		"query":             {"a", func(r *RemoteRequest) { r.Query = "%zz" }, 400, v1.CodeInvalidRequest},
		"a token in header": {"c", func(r *RemoteRequest) { r.Header = map[string]string{"Authorization": "Bearer " + b.tokens["admin"]} }, 404, v1.CodeNotFound},
	} {
		req := good
		c.change(&req)
		r := b.ServeRemote(t.Context(), c.from, req)
		var p v1.Problem
		if err := json.Unmarshal(r.Body, &p); err != nil || r.Status != c.status || p.Code != c.code {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
	}
	if s, _ := b.queue.Get(theirs.ID); s.State.Terminal() {
		t.Errorf("%s", s.State)
	}
}

// TestRemoteAnswersAreBounded: a page of very long paths comes in smaller ones.
func TestRemoteAnswersAreBounded(t *testing.T) {
	a, b, _ := pair(t)
	s := a.snapshot(a.do("POST", "/v1/jobs", "other", pull), 202)
	forward(a, b, s)
	c := <-b.calls
	const n = 60
	for range n {
		c.attempt.Items.Add(job.ItemRecord{Path: []byte(strings.Repeat("<", 4000)), Kind: job.EntryFile, State: job.ItemSucceeded})
	}
	c.end <- nil
	b.ended(s.ID)
	total, token := 0, ""
	for pages := 0; pages == 0 || token != ""; pages++ {
		q := "?limit=500"
		if token != "" {
			q += "&page_token=" + url.QueryEscape(token)
		}
		w := a.do("GET", "/v1/jobs/"+s.ID.String()+"/items"+q, "read", "")
		var l v1.ItemList
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != 200 || len(l.Items) == 0 {
			t.Fatalf("%d %.200s", w.Code, w.Body)
		}
		total, token = total+len(l.Items), l.NextPageToken
	}
	if total != n {
		t.Errorf("%d items", total)
	}
}
