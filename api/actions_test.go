package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "mover/api/v1"
	"mover/job"
	"mover/reason"
)

// ended waits for the job's end.
func (f *fixture) ended(id job.ID) job.Snapshot {
	f.t.Helper()
	s, err := f.queue.Get(id)
	for err == nil && !s.State.Terminal() {
		s, err = f.queue.Wait(f.t.Context(), id, s.Version)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// come waits until the job has come to a state.
func (f *fixture) come(id job.ID, to job.State) job.Snapshot {
	f.t.Helper()
	s, err := f.queue.Get(id)
	for err == nil && s.State != to {
		s, err = f.queue.Wait(f.t.Context(), id, s.Version)
		if s.State.Terminal() && s.State != to {
			f.t.Fatalf("ended %s", s.State)
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func TestPauseResumeRetryDelete(t *testing.T) {
	f := newFixture(t, nil)
	s := f.submit()
	<-f.calls
	path := "/v1/jobs/" + s.ID.String()
	post := func(action string, status int) job.Snapshot {
		t.Helper()
		return f.snapshot(f.do("POST", path+"/"+action, "submit", ""), status)
	}
	f.problem(f.do("DELETE", path, "submit", ""), 409, v1.CodeWrongState)
	f.problem(f.do("POST", path+"/retry", "submit", ""), 409, v1.CodeWrongState)
	post("pause", 200)
	f.come(s.ID, job.Paused)
	if s := post("pause", 200); s.State != job.Paused { // again
		t.Errorf("%s", s.State)
	}
	post("resume", 200)
	c := <-f.calls
	post("resume", 200)
	c.end <- reason.New(reason.NoSpace, "full")
	if s := f.ended(s.ID); s.State != job.Failed {
		t.Fatalf("%s", s.State)
	}
	for _, action := range []string{"pause", "resume", "cancel"} {
		f.problem(f.do("POST", path+"/"+action, "submit", ""), 409, v1.CodeWrongState)
	}
	if s := post("retry", 200); s.State.Terminal() || s.Retries != 1 {
		t.Errorf("%+v", s)
	}
	c = <-f.calls
	c.end <- nil
	if s := f.ended(s.ID); s.State != job.Succeeded {
		t.Errorf("%s", s.State)
	}
	f.problem(f.do("POST", path+"/retry", "submit", ""), 409, v1.CodeWrongState)
	f.problem(f.do("DELETE", path, "other", ""), 403, v1.CodeOwnerNotAllowed)
	f.problem(f.do("DELETE", path, "submit", "", `If-Match: "1-0"`), 412, v1.CodeVersionMismatch)
	if w := f.do("DELETE", path, "submit", ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.problem(f.do("DELETE", path, "submit", ""), 404, v1.CodeNotFound)
	f.problem(f.do("GET", path, "submit", ""), 404, v1.CodeNotFound)
}

func TestActionsRefused(t *testing.T) {
	f := newFixture(t, nil)
	path := "/v1/jobs/" + f.submit().ID.String()
	for _, action := range []string{"cancel", "pause", "resume", "retry"} {
		f.problem(f.do("POST", path+"/"+action, "other", ""), 403, v1.CodeOwnerNotAllowed)
		f.problem(f.do("POST", path+"/"+action, "read", ""), 403, v1.CodeScopeTooLow)
		f.problem(f.do("POST", path+"/"+action+"?x=1", "submit", ""), 400, v1.CodeInvalidRequest)
		f.problem(f.do("POST", path+"/"+action, "submit", `{"leak":1}`), 400, v1.CodeInvalidRequest)
		f.problem(f.do("POST", path+"/"+action, "submit", `[]`), 400, v1.CodeInvalidRequest)
		f.problem(f.raw("POST", path+"/"+action, "submit", strings.NewReader("x=1"), "Content-Type: text/plain"), 415, v1.CodeMediaType)
		f.problem(f.raw("POST", path+"/"+action, "submit", strings.NewReader(strings.Repeat(" ", maxActionBytes+1))), 413, v1.CodeTooLarge)
		f.problem(f.do("POST", "/v1/jobs/nope/"+action, "submit", ""), 404, v1.CodeNotFound)
	}
	// curl -X POST -d '' says that nothing is a form.
	if w := f.raw("POST", path+"/cancel", "submit", strings.NewReader(""), "Content-Type: application/x-www-form-urlencoded"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestPatch(t *testing.T) {
	f := newFixture(t, nil)
	s := f.submit()
	c := <-f.calls
	path := "/v1/jobs/" + s.ID.String()
	w := f.do("GET", path, "read", "")
	tag := w.Header().Get("ETag")
	version := f.snapshot(w, 200).Version
	// Progress does not make a tag of no use for a change.
	c.attempt.Progress.SetTotal(10, 1)
	c.attempt.Progress.Add(5)
	w = f.do("PATCH", path, "submit", `{"priority":7,"bandwidth_limit":"1Gbit/s","deadline":"1h","labels":{"a":"b"}}`, "If-Match: "+tag)
	got := f.snapshot(w, 200)
	if got.Version != version+1 || got.Spec.Priority != 7 || got.Spec.BandwidthLimit != 1e9 || got.Spec.Labels["a"] != "b" ||
		got.DeadlineAt == nil || !got.DeadlineAt.Equal(f.clock.Now().Add(time.Hour)) || w.Header().Get("ETag") == tag {
		t.Errorf("%+v", got)
	}
	if c.attempt.Limit() != 1e9 {
		t.Errorf("the attempt's limit is %v", c.attempt.Limit())
	}
	fresh := w.Header().Get("ETag")
	for _, seen := range []string{tag, "W/" + fresh, `"0-"`, "x", `"x"`, `""`} {
		f.problem(f.do("PATCH", path, "submit", `{"priority":1}`, "If-Match: "+seen), 412, v1.CodeVersionMismatch)
	}
	for _, seen := range []string{tag + ", " + fresh, "*"} {
		if w := f.do("PATCH", path, "submit", `{}`, "If-Match: "+seen); w.Code != 200 {
			t.Errorf("%s: %d %s", seen, w.Code, w.Body)
		}
	}
	if s := f.snapshot(f.do("PATCH", path, "admin", `{"labels":{},"deadline":"0s","bandwidth_limit":"0bit/s"}`), 200); len(s.Spec.Labels) != 0 ||
		s.DeadlineAt != nil || s.Spec.BandwidthLimit != 0 || s.Spec.Priority != 7 {
		t.Errorf("%+v", s)
	}
	for body, field := range map[string]string{
		`{"priority":101}`: "priority", `{"priority":"1"}`: "priority", `{"priority":null}`: "priority", `{"labels":{"a b":"x"}}`: "labels",
		`{"deadline":"366d"}`: "deadline", `{"bandwidth_limit":5}`: "bandwidth_limit", `{"owner":"leak"}`: "", `{`: "", ``: "", `[]`: "",
	} {
		w := f.do("PATCH", path, "submit", body)
		if p := f.problem(w, 400, v1.CodeInvalidJob); p.Field != field || strings.Contains(w.Body.String(), "leak") {
			t.Errorf("%s: %s", body, w.Body)
		}
	}
	f.problem(f.do("PATCH", path, "other", `{}`), 403, v1.CodeOwnerNotAllowed)
	f.problem(f.do("PATCH", path, "read", `{}`), 403, v1.CodeScopeTooLow)
	f.problem(f.raw("PATCH", path, "submit", strings.NewReader("{}"), "Content-Type: application/merge-patch+json"), 415, v1.CodeMediaType)
	f.problem(f.do("PATCH", path, "submit", strings.Repeat(" ", maxActionBytes+1)), 413, v1.CodeTooLarge)
	c.end <- nil
	f.ended(s.ID)
	f.problem(f.do("PATCH", path, "submit", `{"priority":1}`), 409, v1.CodeWrongState)
}

func TestItems(t *testing.T) {
	f := newFixture(t, nil)
	s := f.submit()
	c := <-f.calls
	path := "/v1/jobs/" + s.ID.String() + "/items"
	list := func(query string) (l v1.ItemList) {
		t.Helper()
		w := f.do("GET", path+query, "read", "")
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != 200 || l.Items == nil {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		return l
	}
	if l := list(""); len(l.Items) != 0 {
		t.Errorf("%+v", l)
	}
	for _, name := range []string{"one", "two", "odd\xff", "four"} {
		r := job.ItemRecord{Path: []byte(name), Kind: job.EntryFile, State: job.ItemSucceeded, Bytes: 3, CRC32C: "00000001"}
		if name == "two" {
			r.State, r.Reason = job.ItemFailed, &job.Reason{Code: reason.PermissionDenied, Detail: "no"}
		}
		c.attempt.Items.Add(r)
	}
	c.end <- nil
	f.ended(s.ID)
	if l := list(""); len(l.Items) != 4 || string(l.Items[2].Path) != "odd\xff" || l.Items[1].Reason.Code != reason.PermissionDenied || l.Items[0].Attempt != 1 {
		t.Errorf("%+v", l)
	}
	first := list("?limit=3")
	if rest := list("?limit=3&page_token=" + first.NextPageToken); len(first.Items) != 3 || len(rest.Items) != 1 || rest.NextPageToken != "" {
		t.Errorf("%+v", rest)
	}
	if l := list("?state=failed"); len(l.Items) != 1 || string(l.Items[0].Path) != "two" {
		t.Errorf("%+v", l)
	}
	for _, q := range []string{"state=nope", "state=", "limit=0", "limit=501", "limit=+1", "limit=1e2", "page_token=x", "after=1"} {
		f.problem(f.do("GET", path+"?"+q, "read", ""), 400, v1.CodeInvalidRequest)
	}
	f.problem(f.do("GET", "/v1/jobs/"+job.ID{1}.String()+"/items", "read", ""), 404, v1.CodeNotFound)
}

func TestMediaTypes(t *testing.T) {
	f := newFixture(t, nil)
	for accept, ok := range map[string]bool{
		"application/json": true, "*/*": true, "application/*": true, "text/html, */*;q=0.1": true, "APPLICATION/JSON;q=0.5": true, "nonsense": true,
		"": true, "text/html": false, "application/json;q=0, */*": false, "application/*;q=0": false, "application/xml, text/plain": false,
	} {
		w := f.do("GET", "/v1/version", "read", "", "Accept: "+accept)
		if ok && w.Code != 200 {
			t.Errorf("%q: %d", accept, w.Code)
		} else if !ok {
			f.problem(w, 406, v1.CodeNotAcceptable)
		}
	}
	for _, accept := range []string{"text/plain", "application/openmetrics-text;version=1.0.0, text/plain;q=0.5"} {
		if w := f.do("GET", "/metrics", "metrics", "", "Accept: "+accept); w.Code != 200 {
			t.Errorf("metrics as %s: %d", accept, w.Code)
		}
	}
	f.problem(f.do("GET", "/metrics", "metrics", "", "Accept: application/json"), 406, v1.CodeNotAcceptable)
}

func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"", "*/*", "text/html;q=0.5, */*;q=0", "a/b;q=x", `"1-0"`, `W/"1-"`, `"18446744073709551615-"`, `*, "x"`, ",,,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		// What names one type alone, with no weight, takes it.
		if header == mediaJSON && !accepts([]string{header}, []string{mediaJSON}) {
			t.Error("not accepted")
		}
		if prefers([]string{header}, mediaEvents, mediaJSON) && !accepts([]string{header}, []string{mediaEvents}) {
			t.Errorf("%q prefers what it does not accept", header)
		}
		for _, tag := range tagsOf([]string{header}) {
			if tag == "" || strings.Contains(tag, ",") {
				t.Errorf("tag %q", tag)
			}
			if v, ok := versionOf(tag); ok && !strings.Contains(tag, "-") {
				t.Errorf("%q is version %d", tag, v)
			}
		}
	})
}
