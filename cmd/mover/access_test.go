package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mover/api"
	v1 "mover/api/v1"
	"mover/job"
	"mover/reason"
)

// grant adds a token to a node that does not run yet.
func (n *testNode) grant(t *testing.T, name string, scope api.Scope, roots api.Roots) string {
	t.Helper()
	plain, err := api.CreateToken(n.path("state", "tokens.yaml"), name, scope, roots)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// callWith is call with another token; "" is none.
func (n *testNode) callWith(t *testing.T, token, method, path, body string) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.api+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if strings.HasPrefix(body, "{") {
		request.Header.Set("Content-Type", "application/json")
	} else if body != "" {
		request.Header.Set("Content-Type", "application/octet-stream")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, text
}

// access is three nodes with tokens of every scope on each. What lists whom is
// in newAccess alone.
type access struct {
	a, b, c       *testNode
	open, guarded string                       // buffers, whose files have their names on this host
	tokens        map[string]map[string]string // by node and name
}

// everything is said of a root or a buffer as it is said in a token.
var everything = api.AllRoots()

// newAccess starts the nodes: b may ask for jobs of a and of c; nobody else may
// for anybody's.
func newAccess(t *testing.T) *access {
	x := &access{a: newNode(t, "a"), b: newNode(t, "b"), c: newNode(t, "c"), tokens: map[string]map[string]string{},
		open: fmt.Sprintf("open%d", os.Getpid()), guarded: fmt.Sprintf("guarded%d", os.Getpid())}
	nodes := []*testNode{x.a, x.b, x.c}
	for _, n := range nodes {
		for _, dir := range []string{"home", "guarded"} {
			if err := os.Mkdir(n.path(dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{"data", "home", "guarded"} {
			writeFile(t, n.path(dir, "f"), n.name+"'s "+dir)
		}
	}
	x.configure(t, x.a, "[b]", "[a, c]", "[b]", x.b, x.c)
	x.configure(t, x.b, "[]", "[a]", "[]", x.a, x.c)
	x.configure(t, x.c, "[a]", "[]", "[b]", x.a, x.b)
	for _, n := range nodes {
		narrow := api.Roots{Read: []string{"a:data"}, Write: []string{"*:incoming"}}
		x.tokens[n.name] = map[string]string{
			"all":     n.grant(t, "all", api.ScopeSubmit, everything),
			"narrow":  n.grant(t, "narrow", api.ScopeSubmit, narrow),
			"nothing": n.grant(t, "nothing", api.ScopeSubmit, api.Roots{}),
			"read":    n.grant(t, "read", api.ScopeRead, everything),
			"metrics": n.grant(t, "metrics", api.ScopeMetrics, everything),
			"admin":   n.grant(t, "admin", api.ScopeAdmin, everything),
			"unknown": "mvr_" + strings.Repeat("x", 43),
			"none":    "",
		}
		writeFile(t, n.path("state", "token"), x.tokens[n.name]["admin"]+"\n")
		n.start(t)
		t.Cleanup(func() {
			for _, name := range []string{x.open, x.guarded} {
				os.Remove("/dev/shm/mover." + n.name + "." + name)
			}
		})
	}
	for _, n := range nodes {
		for _, name := range []string{x.open, x.guarded} {
			if status, text := n.callWith(t, x.tokens[n.name]["admin"], http.MethodPut, "/v1/buffers/"+name+"/data", strings.Repeat(n.name+"'s mem ", 512)); status/100 != 2 {
				t.Fatalf("filling %s: %d %s", name, status, text)
			}
		}
	}
	return x
}

// configure gives a node four roots and two buffers: data and the open buffer
// may be read by readers, incoming and the open buffer written by writers, home
// is for the node itself, and what is guarded lists nobody.
func (x *access) configure(t *testing.T, n *testNode, readers, writers, delegates string, peers ...*testNode) {
	t.Helper()
	extra := fmt.Sprintf("  home: {path: %q, read: [%s], write: [%s]}\n", n.path("home"), n.name, n.name) +
		fmt.Sprintf("  guarded: {path: %q, read: [], write: []}\n", n.path("guarded")) +
		fmt.Sprintf("delegates: %s\nbuffers:\n  %s: {bytes: 4KiB, read: %s, write: %s}\n", delegates, x.open, readers, writers) +
		fmt.Sprintf("  %s: {bytes: 4KiB, read: [], write: []}\n", x.guarded)
	var known []peerOf
	for _, p := range peers {
		known = append(known, p.as(t))
	}
	n.configure(t, extra, known...)
	text, err := os.ReadFile(n.config())
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(`read: ["*"]`, "read: "+readers, `write: ["*"]`, "write: "+writers).Replace(string(text))
	writeFile(t, n.config(), changed)
}

// place is NODE:root/path or NODE:buffer:NAME.
func (x *access) place(text string) map[string]string {
	node, rest, _ := strings.Cut(text, ":")
	switch rest {
	case "buffer:open":
		return map[string]string{"node": node, "buffer": x.open}
	case "buffer:guarded":
		return map[string]string{"node": node, "buffer": x.guarded}
	}
	return map[string]string{"node": node, "path": rest}
}

// state is every byte that a job could have written: files by name, buffers.
func (x *access) state(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, n := range []*testNode{x.a, x.b, x.c} {
		for _, dir := range []string{"data", "incoming", "home", "guarded"} {
			names, err := filepath.Glob(n.path(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			hidden, err := filepath.Glob(n.path(dir, ".*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range append(names, hidden...) {
				fmt.Fprintf(&b, "%s %s\n", name, sha256File(t, name))
			}
		}
		for _, name := range []string{x.open, x.guarded} {
			fmt.Fprintf(&b, "%s %s %s\n", n.name, name, sha256File(t, "/dev/shm/mover."+n.name+"."+name))
		}
	}
	return b.String()
}

// TestWhoMayMoveWhat is the authorization rule as a table, through real nodes:
// what a node's token may name, whom the source's node takes jobs from, and
// whom each root and buffer lists. What is refused writes nothing anywhere.
func TestWhoMayMoveWhat(t *testing.T) {
	x := newAccess(t)
	nodes := map[string]*testNode{"a": x.a, "b": x.b, "c": x.c}
	refused := string(reason.NotAuthorized)
	for i, c := range []struct {
		at, token string
		from, to  string
		status    int    // 0 is 202
		why       string // the problem's code, or the reason that the job ends with; "" succeeds
	}{
		// What the token says, at the node that is asked.
		{"a", "none", "a:data/f", "b:incoming/", 401, v1.CodeUnauthenticated},
		{"a", "unknown", "a:data/f", "b:incoming/", 401, v1.CodeUnauthenticated},
		{"a", "metrics", "a:data/f", "b:incoming/", 403, v1.CodeScopeTooLow},
		{"a", "read", "a:data/f", "b:incoming/", 403, v1.CodeScopeTooLow},
		{"a", "nothing", "a:data/f", "b:incoming/", 403, v1.CodeRootNotAllowed},
		{"a", "narrow", "a:home/f", "a:incoming/", 403, v1.CodeRootNotAllowed},
		{"a", "narrow", "a:data/f", "b:guarded/", 403, v1.CodeRootNotAllowed},
		{"a", "narrow", "a:buffer:open", "b:incoming/", 403, v1.CodeRootNotAllowed},
		{"a", "narrow", "a:data/f", "b:buffer:open", 403, v1.CodeRootNotAllowed},
		{"a", "narrow", "a:data/f", "b:incoming/", 0, ""},
		{"b", "narrow", "c:data/f", "a:incoming/", 403, v1.CodeRootNotAllowed},
		{"b", "none", "a:data/f", "b:incoming/", 401, v1.CodeUnauthenticated},
		// Push: the source's root and the destination's list the other node.
		{"a", "all", "a:data/f", "b:incoming/", 0, ""},
		{"a", "admin", "a:data/f", "b:incoming/", 0, ""},
		{"a", "admin", "a:guarded/f", "b:incoming/", 0, refused},
		{"a", "all", "a:data/f", "b:guarded/", 0, refused},
		{"a", "all", "a:data/f", "c:incoming/", 0, refused}, // neither lists the other
		{"b", "all", "b:data/f", "a:incoming/", 0, refused}, // b's data lists nobody
		{"c", "all", "c:data/f", "a:incoming/", 0, ""},
		{"c", "all", "c:home/f", "a:incoming/", 0, refused}, // it lists c alone
		{"a", "all", "a:data/f", "b:nowhere/", 0, string(reason.PathOutsideRoot)},
		// Within a node it is a peer like others.
		{"a", "all", "a:home/f", "a:home/", 0, ""},
		{"a", "all", "a:home/f", "a:incoming/", 0, ""},
		{"a", "all", "a:data/f", "a:incoming/", 0, refused},
		{"b", "all", "b:home/f", "b:incoming/", 0, refused},
		{"a", "all", "a:home/f", "a:guarded/", 0, refused},
		// Pull: the source's node lists who asks.
		{"b", "all", "a:data/f", "b:incoming/", 0, ""},
		{"b", "narrow", "a:data/f", "b:incoming/", 0, ""},
		{"b", "all", "a:guarded/f", "b:incoming/", 0, refused},
		{"b", "all", "a:data/f", "b:guarded/", 0, refused},
		{"a", "all", "c:data/f", "a:incoming/", 0, refused}, // a is not c's delegate, though c's data lists it
		// Third party: both, and the two ends decide about each other alone.
		{"b", "all", "c:data/f", "a:incoming/", 0, ""},
		{"b", "all", "c:data/f", "a:guarded/", 0, refused},
		{"b", "admin", "c:guarded/f", "a:incoming/", 0, refused},
		{"c", "admin", "a:data/f", "b:incoming/", 0, refused},
		// Buffers have the same rule.
		{"a", "all", "a:buffer:open", "b:buffer:open", 0, ""},
		{"a", "all", "a:buffer:guarded", "b:buffer:open", 0, refused},
		{"a", "all", "a:buffer:open", "b:buffer:guarded", 0, refused},
		{"a", "all", "a:buffer:open", "b:incoming/", 0, ""},
		{"a", "all", "a:data/f", "b:buffer:open", 0, ""},
		{"a", "all", "a:data/f", "b:buffer:guarded", 0, refused},
		{"a", "admin", "a:buffer:open", "a:home/", 0, refused},
		{"b", "all", "c:buffer:open", "a:buffer:open", 0, ""},
		{"b", "all", "c:buffer:open", "a:buffer:guarded", 0, refused},
		{"c", "all", "a:buffer:open", "b:buffer:open", 0, refused},
	} {
		what := fmt.Sprintf("%s's token %s: %s to %s", c.at, c.token, c.from, c.to)
		if strings.HasSuffix(c.to, "/") {
			c.to += fmt.Sprint(i)
		}
		before := x.state(t)
		body, err := json.Marshal(map[string]any{"source": x.place(c.from), "destination": x.place(c.to)})
		if err != nil {
			t.Fatal(err)
		}
		status, text := nodes[c.at].callWith(t, x.tokens[c.at][c.token], http.MethodPost, "/v1/jobs", string(body))
		var problem v1.Problem
		switch {
		case c.status != 0:
			if json.Unmarshal(text, &problem) != nil || status != c.status || problem.Code != c.why || problem.Detail == "" {
				t.Errorf("%s: %d %s, want %d %s", what, status, text, c.status, c.why)
			}
		case status != http.StatusAccepted:
			t.Errorf("%s: %d %s, want a job", what, status, text)
		default:
			s := nodes[c.at].ended(t, decodeJob(t, text).ID.String())
			if want := c.at + "/" + c.token; s.Owner != want {
				t.Errorf("%s: the owner is %s, want %s", what, s.Owner, want)
			}
			if c.why == "" && s.State != job.Succeeded || c.why != "" && (s.State != job.Failed || s.LastReason == nil || string(s.LastReason.Code) != c.why) {
				t.Errorf("%s: %s, %+v; want %q", what, s.State, s.LastReason, c.why)
			}
		}
		if changed := x.state(t) != before; changed != (c.why == "") && !strings.Contains(c.to, "buffer:open") {
			t.Errorf("%s: bytes changed is %v", what, changed)
		}
	}
	x.othersJobs(t)
	x.data(t)
}

// othersJobs: who may see is not who may change, also through a stub.
func (x *access) othersJobs(t *testing.T) {
	makeFile(t, x.a.path("data", "large"), 64<<20) // minutes, at its rate
	submit := func(at *testNode, token string) string {
		t.Helper()
		status, text := at.callWith(t, x.tokens[at.name][token], http.MethodPost, "/v1/jobs",
			`{"source": {"node": "a", "path": "data/large"}, "destination": {"node": "b", "path": "incoming/`+at.name+token+`"}, "bandwidth_limit": "1Mbit/s"}`)
		if status != http.StatusAccepted {
			t.Fatalf("%d %s", status, text)
		}
		return decodeJob(t, text).ID.String()
	}
	own, stub := submit(x.a, "narrow"), submit(x.b, "narrow")
	within(t, jobLimit, "the job that b took is not at a", func() bool {
		status, _ := x.a.callWith(t, x.tokens["a"]["read"], http.MethodGet, "/v1/jobs/"+stub, "")
		return status == http.StatusOK
	})
	for _, c := range []struct {
		at          *testNode
		token       string
		method, way string
		id          string
		status      int
		code        string
	}{
		{x.a, "none", "GET", "", own, 401, v1.CodeUnauthenticated},
		{x.a, "metrics", "GET", "", own, 403, v1.CodeScopeTooLow},
		{x.a, "read", "GET", "", own, 200, ""},
		{x.a, "nothing", "GET", "", own, 200, ""},
		{x.a, "read", "POST", "/cancel", own, 403, v1.CodeScopeTooLow},
		{x.a, "all", "POST", "/cancel", own, 403, v1.CodeOwnerNotAllowed},
		{x.a, "all", "POST", "/pause", own, 403, v1.CodeOwnerNotAllowed},
		{x.a, "all", "POST", "/retry", own, 403, v1.CodeOwnerNotAllowed},
		{x.a, "all", "PATCH", "", own, 403, v1.CodeOwnerNotAllowed},
		{x.a, "all", "DELETE", "", own, 403, v1.CodeOwnerNotAllowed},
		// The owner's name is a node's and a token's: the same token elsewhere is another.
		{x.a, "narrow", "POST", "/cancel", stub, 403, v1.CodeOwnerNotAllowed},
		{x.c, "admin", "GET", "", stub, 404, v1.CodeNotFound},
		{x.c, "admin", "POST", "/cancel", stub, 404, v1.CodeNotFound},
		{x.b, "read", "GET", "", stub, 200, ""},
		{x.b, "read", "GET", "/items", stub, 200, ""},
		{x.b, "metrics", "GET", "/items", stub, 403, v1.CodeScopeTooLow},
		{x.b, "all", "POST", "/cancel", stub, 403, v1.CodeOwnerNotAllowed},
		{x.b, "all", "DELETE", "", stub, 403, v1.CodeOwnerNotAllowed},
		{x.b, "narrow", "POST", "/pause", stub, 200, ""},
		{x.b, "admin", "POST", "/resume", stub, 200, ""},
		{x.a, "admin", "POST", "/pause", stub, 200, ""},
		{x.b, "narrow", "POST", "/cancel", stub, 200, ""},
		{x.a, "narrow", "POST", "/pause", own, 200, ""},
		{x.a, "admin", "POST", "/cancel", own, 200, ""},
	} {
		what := fmt.Sprintf("%s's token %s: %s %s%s", c.at.name, c.token, c.method, c.id, c.way)
		body := ""
		if c.method == "PATCH" {
			body = `{"priority": 1}`
		}
		status, text := c.at.callWith(t, x.tokens[c.at.name][c.token], c.method, "/v1/jobs/"+c.id+c.way, body)
		var problem v1.Problem
		if c.code != "" && json.Unmarshal(text, &problem) != nil || status != c.status || problem.Code != c.code {
			t.Errorf("%s: %d %s, want %d %s", what, status, text, c.status, c.code)
		}
	}
	if s := x.a.ended(t, stub); s.State != job.Canceled {
		t.Errorf("the job that its owner canceled through the stub is %s", s.State)
	}
	for token, want := range map[string]int{"all": 403, "admin": 202} {
		status, text := x.a.callWith(t, x.tokens["a"][token], http.MethodPost, "/v1/jobs",
			`{"source": {"path": "data/f"}, "destination": {"node": "b", "path": "incoming/as-`+token+`"}, "owner": "a/somebody"}`)
		if status != want {
			t.Errorf("%s names another owner: %d %s, want %d", token, status, text, want)
		}
	}
}

// data: the content of buffers over HTTP needs the same of the token.
func (x *access) data(t *testing.T) {
	for _, c := range []struct {
		token, method string
		status        int
	}{
		{"none", "GET", 401}, {"metrics", "GET", 403}, {"nothing", "GET", 403}, {"narrow", "GET", 403}, {"read", "GET", 200}, {"all", "GET", 200},
		{"none", "PUT", 401}, {"read", "PUT", 403}, {"nothing", "PUT", 403}, {"narrow", "PUT", 403},
	} {
		before := x.state(t)
		body := ""
		if c.method == "PUT" {
			body = strings.Repeat("from out", 512)
		}
		status, text := x.a.callWith(t, x.tokens["a"][c.token], c.method, "/v1/buffers/"+x.guarded+"/data", body)
		if status != c.status || status != 200 && bytes.Contains(text, []byte("a's mem")) {
			t.Errorf("%s of a buffer's data with token %s: %d, want %d", c.method, c.token, status, c.status)
		}
		if x.state(t) != before {
			t.Errorf("%s of a buffer's data with token %s: bytes changed", c.method, c.token)
		}
	}
}
