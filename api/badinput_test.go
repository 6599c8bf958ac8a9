package api

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	v1 "mover/api/v1"
	"mover/job"
	"mover/reason"
)

// planner and drainer are a node's, as far as the API sees them.
type planner struct{ err error }

func (p planner) Plan(_ context.Context, spec job.Spec, owner string) (v1.Plan, error) {
	return v1.Plan{Items: 3, Bytes: 10, Complete: true, Conflicts: 1, Examples: []v1.PlanConflict{{Path: "x", Reason: job.Reason{Code: reason.DestExists}}}}, p.err
}

type drainer struct{ queue *job.Queue }

func (d *drainer) Drain(_ context.Context, undo bool) (v1.Drain, error) {
	d.queue.Drain(!undo)
	return v1.Drain{Draining: d.queue.Draining(), Running: d.queue.Stats().Running}, nil
}

// newWhole is a node that has every part.
func newWhole(t *testing.T) *fixture {
	m := &memory{buffers: map[string]*memoryBuffer{}}
	d := &drainer{}
	f := newFixture(t, func(c *Config) { c.Buffers, c.Planner, c.Drainer = m, planner{}, d })
	d.queue = f.queue
	f.do("PUT", "/v1/buffers/in", "submit", `{"bytes":10}`)
	return f
}

func TestPlanAndDrain(t *testing.T) {
	f := newWhole(t)
	var p v1.Plan
	w := f.do("POST", "/v1/plan", "submit", body)
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 || p.Items != 3 || p.Spec.Destination.Path != "in/x" || len(p.Examples) != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.problem(f.do("POST", "/v1/plan", "submit", strings.Replace(body, "data/x", "other/x", 1)), 403, v1.CodeRootNotAllowed)
	gone := newFixture(t, func(c *Config) { c.Planner = planner{reason.New(reason.PeerUnreachable, "b does not answer")} })
	w = gone.do("POST", "/v1/plan", "submit", body)
	if p := gone.problem(w, 502, v1.CodePeerUnreachable); p.Reason != reason.PeerUnreachable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%+v", p)
	}
	gone.problem(gone.do("POST", "/v1/drain", "admin", ""), 501, v1.CodeUnsupported)
	newFixture(t, nil).problem(gone.do("POST", "/v1/drain", "submit", ""), 403, v1.CodeScopeTooLow)
	for range 2 {
		if w := f.do("POST", "/v1/drain", "admin", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"draining":true`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	f.problem(f.do("POST", "/v1/jobs", "submit", body), 503, v1.CodeDraining)
	f.problem(f.do("GET", "/readyz", "", ""), 503, v1.CodeNotReady)
	if w := f.do("POST", "/v1/drain", "admin", `{"undo":true}`); w.Code != 200 || !strings.Contains(w.Body.String(), `"draining":false`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.submit()
	if w := f.do("GET", "/openapi.yaml", "read", ""); w.Code != 200 || w.Body.String() != string(OpenAPI) || w.Header().Get("Content-Type") != "application/yaml" {
		t.Errorf("%d", w.Code)
	}
}

// target fills an operation's path in.
func (op operation) target(id string) string {
	return strings.NewReplacer("{id}", id, "{name}", "in").Replace(op.path)
}

// refused checks that an answer is a problem of the client's making.
func (f *fixture) refused(w interface {
	Result() *http.Response
}, what string, status int, codes ...string) {
	f.t.Helper()
	resp := w.Result()
	var p v1.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != status || p.Status != status ||
		!slices.Contains(codes, p.Code) || p.Detail == "" || p.RequestID == "" {
		f.t.Errorf("%s: status %d, %+v; want %d %v", what, resp.StatusCode, p, status, codes)
	}
}

// TestBadInputFromTheDocument asks for everything that the document says, in
// every way that it does not.
func TestBadInputFromTheDocument(t *testing.T) {
	f := newWhole(t)
	d := openDocument(t)
	id := f.submit().ID.String()
	<-f.calls
	scopes := []string{"", "metrics", "read", "other", "admin"}
	for _, op := range d.operations() {
		target := op.target(id)
		name := op.method + " " + op.path
		level := slices.Index([]string{"none", "metrics", "read", "submit", "admin"}, sub(op.node, "x-scope").(string))
		if level > 0 {
			f.refused(f.do(op.method, target, "", ""), name+" without a token", 401, v1.CodeUnauthenticated)
		}
		if level > 1 {
			f.refused(f.do(op.method, target, scopes[level-1], ""), name+" with too low a scope", 403, v1.CodeScopeTooLow)
		}
		f.refused(f.do(op.method, target, "admin", "", "Accept: image/png"), name+" as an image", 406, v1.CodeNotAcceptable)
		for _, m := range []string{"GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"} {
			if sub(d.root, "paths", op.path, strings.ToLower(m)) == nil {
				f.refused(f.do(m, target, "admin", ""), m+" "+op.path, 405, v1.CodeMethodNotAllowed)
			}
		}
		if level < 2 {
			continue // open, or Prometheus's
		}
		f.refused(f.do(op.method, target+"?nope=1", "admin", ""), name+"?nope=1", 400, v1.CodeInvalidRequest)
		f.badParameters(d, op, target)
		f.badBodies(d, op, target)
	}
}

func (f *fixture) badParameters(d *document, op operation, target string) {
	f.t.Helper()
	tried := 0
	for _, p := range op.params {
		name, in := sub(p, "name").(string), sub(p, "in").(string)
		for _, v := range []string{"", "nope!", "0", "-1", "501", "1e3", "99999999999999999999", "=x", "yesterday", strings.Repeat("k", 300)} {
			if d.checkText(sub(p, "schema"), v) == nil {
				continue
			}
			tried++
			switch in {
			case "query":
				f.refused(f.do(op.method, target+"?"+url.QueryEscape(name)+"="+url.QueryEscape(v), "admin", ""),
					op.method+" "+op.path+"?"+name+"="+v, 400, v1.CodeInvalidRequest)
			case "header":
				if v != "" {
					f.refused(f.do(op.method, target, "admin", "", name+": "+v), op.method+" "+op.path+" "+name+": "+v, 400, v1.CodeInvalidRequest)
				}
			case "path":
				if v == "" || len(v) > 100 && name == "id" {
					continue
				}
				at := strings.ReplaceAll(strings.ReplaceAll(op.path, "{"+name+"}", url.PathEscape(v)), "{name}", "in")
				body, kind := "", mediaBytes
				if op.method == http.MethodPatch {
					body, kind = "{}", mediaJSON
				}
				w := f.raw(op.method, at, "admin", strings.NewReader(body), "Content-Type: "+kind)
				if op.method == http.MethodPut && !strings.HasSuffix(op.path, "/data") {
					f.refused(w, op.method+" "+at, 400, v1.CodeInvalidRequest)
				} else {
					f.refused(w, op.method+" "+at, 404, v1.CodeNotFound)
				}
			}
		}
		if name == "page_token" {
			f.badPageTokens(op, target)
		}
		if in == "query" {
			f.refused(f.do(op.method, target+"?"+name+"=1&"+name+"=1", "admin", ""), op.path+" with "+name+" twice", 400, v1.CodeInvalidRequest)
		}
	}
	if len(op.params) > 2 && tried == 0 {
		f.t.Errorf("%s %s: nothing was tried", op.method, op.path)
	}
}

// badPageTokens asks for pages that nobody was promised.
func (f *fixture) badPageTokens(op operation, target string) {
	f.t.Helper()
	for _, v := range []string{"x", "0", "nope!", "AAAA", "AAAAAAAAAAAAAAAAAAAAAAA", strings.Repeat("A", 5000), "../..", "a b", "é"} {
		f.refused(f.do(op.method, target+"?page_token="+url.QueryEscape(v), "admin", ""), op.path+" with the page token "+v, 400, v1.CodeInvalidRequest)
	}
}

func (f *fixture) badBodies(d *document, op operation, target string) {
	f.t.Helper()
	name := op.method + " " + op.path
	media := sub(op.node, "requestBody", "content", mediaJSON)
	if media == nil {
		if op.method == http.MethodPost || op.method == http.MethodDelete {
			f.refused(f.do(op.method, target, "admin", `{"nope":1}`), name+" with a body", 400, v1.CodeInvalidRequest)
		}
		return
	}
	code, limit := sub(op.node, "x-code").(string), sub(op.node, "x-max-bytes").(int)
	schema := sub(media, "schema")
	data, err := json.Marshal(sub(media, "example"))
	if err != nil {
		f.t.Fatal(err)
	}
	good := string(data)
	f.refused(f.raw(op.method, target, "admin", strings.NewReader(good), "Content-Type: text/plain"), name+" as text", 415, v1.CodeMediaType)
	f.refused(f.do(op.method, target, "admin", good+strings.Repeat(" ", limit)), name+", huge", 413, v1.CodeTooLarge)
	for _, b := range []string{good[:len(good)-1], good + good, "null", "[]", "1", `"x"`, "{\"\xff\":1}", strings.Replace(good, "{", `{"nope":1,`, 1), strings.Replace(good, "{", `{"a":1,"a":1,`, 1)} {
		f.refused(f.do(op.method, target, "admin", b), name+" with "+b, 400, code)
	}
	tried := 0
	for _, b := range mutations(d, schema, decoded(f.t, data)) {
		bad, err := json.Marshal(b)
		if err != nil {
			f.t.Fatal(err)
		}
		if d.check(schema, decoded(f.t, bad), false) == nil {
			continue
		}
		tried++
		f.refused(f.do(op.method, target, "admin", string(bad)), name+" with "+string(bad), 400, code)
	}
	if tried < 4 {
		f.t.Errorf("%s: %d bodies were tried", name, tried)
	}
}

// mutations are value with one thing in it replaced, at every place that the
// schema knows. An empty string is everywhere what leaving it out is.
func mutations(d *document, schema node, value any) (out []any) {
	schema = d.at(schema)
	object, _ := value.(map[string]any)
	for prop, s := range asMap(sub(schema, "properties")) {
		replace := func(v any) {
			m := maps.Clone(object)
			if m == nil {
				m = map[string]any{}
			}
			m[prop] = v
			out = append(out, m)
		}
		for _, v := range []any{nil, true, 7, -7, 1e30, 1.5, "nope nope", []any{}, []any{7}, []any{nil}, map[string]any{}, map[string]any{"nope": 7}} {
			replace(v)
		}
		for _, deep := range mutations(d, s, object[prop]) {
			replace(deep)
		}
	}
	return out
}
