package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "mover/api/v1"
	"mover/job"
)

func TestSubmit(t *testing.T) {
	f := newFixture(t, nil)
	w := f.do("POST", "/v1/jobs", "submit", body, "Idempotency-Key: k1")
	s := f.snapshot(w, http.StatusAccepted)
	if w.Header().Get("Location") != "/v1/jobs/"+s.ID.String() || w.Header().Get("ETag") == "" ||
		w.Header().Get("Idempotent-Replayed") != "" || s.Owner != "a/submit" || s.Spec.Destination.Path != "in/x" {
		t.Errorf("%v\n%+v", w.Header(), s)
	}
	w = f.do("POST", "/v1/jobs", "submit", strings.ReplaceAll(body, ",", " ,\n"), "Idempotency-Key: k1")
	if again := f.snapshot(w, http.StatusAccepted); again.ID != s.ID || w.Header().Get("Idempotent-Replayed") != "true" ||
		w.Header().Get("Location") != "/v1/jobs/"+s.ID.String() {
		t.Errorf("replay: %v", w.Header())
	}
	w = f.do("POST", "/v1/jobs", "submit", strings.Replace(body, "data/x", "data/y", 1), "Idempotency-Key: k1")
	f.problem(w, http.StatusUnprocessableEntity, v1.CodeKeyReused)
	if other := f.snapshot(f.do("POST", "/v1/jobs", "other", body, "Idempotency-Key: k1"), http.StatusAccepted); other.ID == s.ID {
		t.Error("another owner's key gives this one's job")
	}
}

func TestSubmitRefused(t *testing.T) {
	f := newFixture(t, nil)
	for name, c := range map[string]struct {
		token, body string
		header      []string
		status      int
		code, field string
	}{
		"not JSON":       {"submit", `{"source":"leak-me`, nil, 400, v1.CodeInvalidJob, ""},
		"empty":          {"submit", "", nil, 400, v1.CodeInvalidJob, ""},
		"unknown field":  {"submit", `{"leak-me":1}`, nil, 400, v1.CodeInvalidJob, ""},
		"bad field":      {"submit", strings.Replace(body, "data/x", "/leak-me", 1), nil, 400, v1.CodeInvalidJob, "source.path"},
		"unsupported":    {"submit", strings.Replace(body, "{", `{"transport":"uc",`, 1), nil, 400, v1.CodeUnsupported, "transport"},
		"huge":           {"submit", `{"owner":"` + strings.Repeat("x", job.MaxSpecBytes) + `"}`, nil, 413, v1.CodeTooLarge, ""},
		"deep":           {"submit", strings.Repeat("[", 100000), nil, 400, v1.CodeInvalidJob, ""},
		"form":           {"submit", body, []string{"Content-Type: application/x-www-form-urlencoded"}, 415, v1.CodeMediaType, ""},
		"odd type":       {"submit", body, []string{"Content-Type: ;;;"}, 415, v1.CodeMediaType, ""},
		"key: space":     {"submit", body, []string{"Idempotency-Key: leak me"}, 400, v1.CodeInvalidRequest, ""},
		"key: empty":     {"submit", body, []string{"Idempotency-Key: "}, 400, v1.CodeInvalidRequest, ""},
		"key: long":      {"submit", body, []string{"Idempotency-Key: " + strings.Repeat("k", 256)}, 400, v1.CodeInvalidRequest, ""},
		"key: twice":     {"submit", body, []string{"Idempotency-Key: a", "Idempotency-Key: b"}, 400, v1.CodeInvalidRequest, ""},
		"source root":    {"submit", strings.Replace(body, "data/x", "leak-me/x", 1), nil, 403, v1.CodeRootNotAllowed, "source"},
		"dest root":      {"submit", strings.Replace(body, "in/", "leak-me/", 1), nil, 403, v1.CodeRootNotAllowed, "destination"},
		"no roots":       {"rootless", body, nil, 403, v1.CodeRootNotAllowed, "source"},
		"read is not it": {"submit", strings.Replace(body, `"b","path":"in/`, `"a","path":"data/`, 1), nil, 403, v1.CodeRootNotAllowed, "destination"},
		"owner":          {"submit", strings.Replace(body, "{", `{"owner":"a/leak-me",`, 1), nil, 403, v1.CodeOwnerNotAllowed, "owner"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/v1/jobs", strings.NewReader(c.body))
			r.Header.Set("Authorization", "Bearer "+f.tokens[c.token])
			for _, h := range c.header {
				k, v, _ := strings.Cut(h, ": ")
				r.Header.Add(k, v)
			}
			w := httptest.NewRecorder()
			f.ServeHTTP(w, r)
			p := f.problem(w, c.status, c.code)
			if p.Field != c.field || strings.Contains(w.Body.String(), "leak") {
				t.Errorf("%s", w.Body)
			}
		})
	}
	if n := f.queue.Counts()[job.Queued] + f.queue.Stats().Running; n != 0 {
		t.Errorf("%d jobs came of it", n)
	}
	f.problem(f.do("POST", "/v1/jobs?dry_run=1", "submit", body), 400, v1.CodeInvalidRequest)
	if strings.Contains(f.log.String(), "leak") {
		t.Error("input is in the log")
	}
	own := f.do("POST", "/v1/jobs", "submit", strings.Replace(body, "{", `{"owner":"a/submit",`, 1))
	f.snapshot(own, http.StatusAccepted)
	s := f.snapshot(f.do("POST", "/v1/jobs", "admin", strings.Replace(body, "{", `{"owner":"a/someone",`, 1)), http.StatusAccepted)
	if s.Owner != "a/someone" {
		t.Errorf("owner %s", s.Owner)
	}
}

func TestQueueFullAndStopping(t *testing.T) {
	f := newFixture(t, nil)
	for range 4 { // one runs
		f.submit()
	}
	w := f.do("POST", "/v1/jobs", "submit", body)
	f.problem(w, http.StatusServiceUnavailable, v1.CodeQueueFull)
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if err := f.queue.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.problem(f.do("POST", "/v1/jobs", "submit", body), http.StatusServiceUnavailable, v1.CodeStopping)
}

func TestGetAndTags(t *testing.T) {
	f := newFixture(t, nil)
	s := f.submit()
	c := <-f.calls
	path := "/v1/jobs/" + s.ID.String()
	w := f.do("GET", path, "read", "")
	got := f.snapshot(w, http.StatusOK)
	tag := w.Header().Get("ETag")
	if !cmp.Equal(s, got) || !strings.HasPrefix(tag, `"2-`) {
		t.Errorf("%s\n%s", tag, cmp.Diff(s, got))
	}
	for _, seen := range []string{tag, "W/" + tag, "*"} {
		if w = f.do("GET", path, "read", "", "If-None-Match: "+seen); w.Code != http.StatusNotModified || w.Body.Len() > 0 || w.Header().Get("ETag") != tag {
			t.Errorf("%s: %d %s", seen, w.Code, w.Body)
		}
	}
	for _, seen := range []string{`"1-0"`, "2", `"2`, `""`, "x"} {
		if w = f.do("GET", path, "read", "", "If-None-Match: "+seen); w.Code != http.StatusOK {
			t.Errorf("%s: %d", seen, w.Code)
		}
	}
	c.attempt.Progress.SetTotal(10, 1)
	c.attempt.Progress.Add(5) // no new version, but another answer
	if w = f.do("GET", path, "read", "", "If-None-Match: "+tag); w.Code != http.StatusOK {
		t.Errorf("after progress: %d", w.Code)
	}
	var raw map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &raw); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"id", "state", "version", "owner", "spec", "created_at", "started_at", "finished_at", "attempts",
		"last_reason", "next_attempt_at", "progress", "result"} {
		if _, ok := raw[key]; !ok {
			t.Errorf("no %s in %s", key, w.Body)
		}
	}
	if w := f.do("HEAD", path, "read", ""); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
}

// waitFor returns when n requests wait, so that a test knows whom it wakes.
func (f *fixture) waitFor(n int) {
	f.t.Helper()
	for end := time.Now().Add(10 * time.Second); len(f.waits) != n || f.clock.Timers() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("%d requests wait, want %d", len(f.waits), n)
		}
	}
}

func TestLongPoll(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxLongPolls = 1 })
	s := f.submit()
	c := <-f.calls
	path := "/v1/jobs/" + s.ID.String()
	poll := func(wait string, header ...string) chan *httptest.ResponseRecorder {
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() { answer <- f.do("GET", path+"?wait="+wait, "read", "", header...) }()
		return answer
	}
	// Woken by a change.
	answer := poll("30s")
	f.waitFor(1)
	f.problem(<-poll("30s"), http.StatusTooManyRequests, v1.CodeTooManyWaiters)
	c.attempt.Phase(job.Running)
	w := <-answer
	if s = f.snapshot(w, 200); s.State != job.Running {
		t.Errorf("woken: %s", s.State)
	}
	tag := w.Header().Get("ETag")
	// Time is up: nothing new is 304 for who has it, and the job for others.
	for _, seen := range []bool{true, false} {
		var header []string
		want := http.StatusOK
		if seen {
			header, want = []string{"If-None-Match: " + tag}, http.StatusNotModified
		}
		answer = poll("30s", header...)
		f.waitFor(1)
		f.clock.Advance(29 * time.Second)
		if len(answer) > 0 {
			t.Error("answered early")
		}
		f.clock.Advance(time.Second)
		if w = <-answer; w.Code != want {
			t.Errorf("time is up: %d, want %d", w.Code, want)
		}
	}
	// An old tag does not wait; neither does wait=0s, nor a job that ended.
	f.snapshot(<-poll("30s", `If-None-Match: "1-0"`), 200)
	f.snapshot(<-poll("0s"), 200)
	c.end <- nil
	for !s.State.Terminal() {
		s, _ = f.queue.Wait(t.Context(), s.ID, s.Version)
	}
	w = <-poll("30s")
	f.snapshot(w, 200)
	if w = <-poll("30s", "If-None-Match: "+w.Header().Get("ETag")); w.Code != http.StatusNotModified {
		t.Errorf("ended: %d", w.Code)
	}
	for _, bad := range []string{"61s", "-1s", "30", "x", "", "1s&wait=2s"} {
		f.problem(<-poll(bad), http.StatusBadRequest, v1.CodeInvalidRequest)
	}
	if f.clock.Timers() != 0 {
		t.Errorf("%d timers stay", f.clock.Timers())
	}
}

func TestCancelJob(t *testing.T) {
	f := newFixture(t, nil)
	first := f.submit()
	s := f.submit()
	path := "/v1/jobs/" + s.ID.String() + "/cancel"
	f.problem(f.do("POST", path, "read", ""), http.StatusForbidden, v1.CodeScopeTooLow)
	f.problem(f.do("POST", path, "other", ""), http.StatusForbidden, v1.CodeOwnerNotAllowed)
	f.problem(f.do("POST", path+"?force=1", "submit", ""), http.StatusBadRequest, v1.CodeInvalidRequest)
	for range 2 {
		if got := f.snapshot(f.do("POST", path, "submit", ""), 200); got.State != job.Canceled {
			t.Errorf("%s", got.State)
		}
	}
	(<-f.calls).end <- nil
	for !first.State.Terminal() {
		first, _ = f.queue.Wait(t.Context(), first.ID, first.Version)
	}
	p := f.problem(f.do("POST", "/v1/jobs/"+first.ID.String()+"/cancel", "admin", ""), http.StatusConflict, v1.CodeWrongState)
	if !strings.Contains(p.Detail, "succeeded") {
		t.Errorf("%s", p.Detail)
	}
}

func TestListJobs(t *testing.T) {
	f := newFixture(t, nil)
	labelled := strings.Replace(body, "{", `{"labels":{"team":"ml ops"},`, 1)
	f.submit()
	f.clock.Advance(time.Second)
	f.snapshot(f.do("POST", "/v1/jobs", "other", labelled), 202)
	f.submit()
	list := func(q string) v1.JobList {
		t.Helper()
		w := f.do("GET", "/v1/jobs?"+q, "read", "")
		var l v1.JobList
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %s", q, w.Code, w.Body)
		}
		return l
	}
	after := url.QueryEscape(f.clock.Now().Add(-time.Second).Format(time.RFC3339Nano))
	for q, want := range map[string]int{
		"": 3, "state=queued": 2, "state=queued,preparing": 3, "state=failed": 0, "owner=a/other": 1, "owner=nobody": 0,
		"label=team%3Dml+ops": 1, "label=team%3D": 0, "created_after=" + after: 2, "role=sending": 3, "limit=500": 3,
	} {
		if l := list(q); len(l.Jobs) != want || l.Jobs == nil {
			t.Errorf("%s: %d, want %d", q, len(l.Jobs), want)
		}
	}
	page := list("limit=2")
	rest := list("limit=2&page_token=" + page.NextPageToken)
	if len(page.Jobs) != 2 || len(rest.Jobs) != 1 || rest.NextPageToken != "" || page.Jobs[0].CreatedAt.Before(rest.Jobs[0].CreatedAt) {
		t.Errorf("%d and %d", len(page.Jobs), len(rest.Jobs))
	}
	for _, q := range []string{"state=nope", "state=", "role=both", "label=x", "label=%3Dx", "created_after=yesterday", "limit=0",
		"limit=501", "limit=x", "page_token=x", "nope=1", "state=queued&state=failed", "%zz", "role=receiving&page_token=x",
		"state=" + strings.Repeat("queued,", 100) + "queued"} {
		f.problem(f.do("GET", "/v1/jobs?"+q, "read", ""), http.StatusBadRequest, v1.CodeInvalidRequest)
	}
}

func TestListReceiving(t *testing.T) {
	f := newFixture(t, nil)
	in, err := f.recv.Begin("a", "b", job.Manifest{Job: job.ID{7}, Attempt: 1, Owner: "b/t", Root: "in", Path: []byte("x"), Size: 10})
	if err != nil {
		t.Fatal(err)
	}
	in.Add(4)
	var l v1.ReceivingList
	w := f.do("GET", "/v1/jobs?role=receiving", "read", "")
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || len(l.Jobs) != 1 {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if j := l.Jobs[0]; j.ID != (job.ID{7}) || j.Peer != "b" || j.Progress.BytesDone != 4 || j.Destination.Path != "in/x" {
		t.Errorf("%+v", j)
	}
	without := newFixture(t, func(c *Config) { c.Receiving = nil })
	if w := without.do("GET", "/v1/jobs?role=receiving", "read", ""); w.Body.String() != "{\"jobs\":[]}\n" {
		t.Errorf("%s", w.Body)
	}
}
