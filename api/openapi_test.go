package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	v1 "mover/api/v1"
	"mover/job"
	"mover/reason"
)

// node is a part of the document: a map, a list or a value.
type node = any

func sub(n node, keys ...string) node {
	for _, k := range keys {
		m, _ := n.(map[string]any)
		n = m[k]
	}
	return n
}

func keysOf(n node) []string {
	m, _ := n.(map[string]any)
	return slices.Sorted(maps.Keys(m))
}

// document is the parsed openapi.yaml.
type document struct{ root node }

var theDocument = sync.OnceValues(func() (*document, error) {
	var root map[string]any
	if err := yaml.Unmarshal(OpenAPI, &root); err != nil {
		return nil, err
	}
	return &document{root}, nil
})

func openDocument(t testing.TB) *document {
	t.Helper()
	d, err := theDocument()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return d
}

// at follows references.
func (d *document) at(n node) node {
	for {
		ref, ok := sub(n, "$ref").(string)
		if !ok {
			return n
		}
		next := sub(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		if next == nil {
			return map[string]any{"broken reference": ref}
		}
		n = next
	}
}

// operation is one method of one path.
type operation struct {
	method, path string
	node         node
	params       []node
}

func (d *document) operations() (ops []operation) {
	paths, _ := sub(d.root, "paths").(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		shared, _ := sub(paths[path], "parameters").([]any)
		for _, m := range keysOf(paths[path]) {
			if m == "parameters" {
				continue
			}
			op := operation{method: strings.ToUpper(m), path: path, node: sub(paths[path], m)}
			own, _ := sub(op.node, "parameters").([]any)
			for _, p := range slices.Concat(shared, own) {
				op.params = append(op.params, d.at(p))
			}
			ops = append(ops, op)
		}
	}
	return ops
}

// TestDocumentIsTheRoutes: in both directions, with scopes and media types.
func TestDocumentIsTheRoutes(t *testing.T) {
	f, _ := newBuffers(t)
	d := openDocument(t)
	described := map[string]bool{}
	ids := map[string]bool{}
	for _, op := range d.operations() {
		described[op.method+" "+op.path] = true
		r, ok := f.routes[op.path][op.method]
		if !ok {
			t.Errorf("%s %s is described, and no route", op.method, op.path)
			continue
		}
		want := "none"
		if r.scope > 0 {
			want = r.scope.String()
		}
		if sub(op.node, "x-scope") != want {
			t.Errorf("%s %s: x-scope %v, want %s", op.method, op.path, sub(op.node, "x-scope"), want)
		}
		if _, open := sub(op.node, "security").([]any); open != (r.scope == 0) {
			t.Errorf("%s %s: security", op.method, op.path)
		}
		id, _ := sub(op.node, "operationId").(string)
		if id == "" || ids[id] || sub(op.node, "summary") == nil || sub(op.node, "tags") == nil {
			t.Errorf("%s %s: operationId, summary, tags", op.method, op.path)
		}
		ids[id] = true
		for _, name := range regexp.MustCompile(`{(\w+)}`).FindAllStringSubmatch(op.path, -1) {
			if !slices.ContainsFunc(op.params, func(p node) bool { return sub(p, "name") == name[1] && sub(p, "in") == "path" }) {
				t.Errorf("%s %s: {%s} is not described", op.method, op.path, name[1])
			}
		}
	}
	for path, methods := range f.routes {
		for method := range methods {
			if !described[method+" "+path] {
				t.Errorf("%s %s is a route, and not described", method, path)
			}
		}
	}
	// Every reference leads somewhere, and every schema is used.
	used := map[string]bool{}
	var walk func(n node)
	walk = func(n node) {
		switch v := n.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
				if sub(d.at(v), "broken reference") != nil {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(d.root)
	for _, kind := range []string{"schemas", "parameters", "responses"} {
		for _, name := range keysOf(sub(d.root, "components", kind)) {
			if !used["#/components/"+kind+"/"+name] {
				t.Errorf("%s/%s is not used", kind, name)
			}
		}
	}
}

// described is each schema's Go type.
var described = map[string]reflect.Type{
	"Problem": reflect.TypeFor[v1.Problem](), "JobSpec": reflect.TypeFor[job.Spec](), "Place": reflect.TypeFor[job.Place](),
	"Job": reflect.TypeFor[job.Snapshot](), "JobPatch": reflect.TypeFor[job.Patch](), "Reason": reflect.TypeFor[job.Reason](),
	"Result": reflect.TypeFor[job.Result](), "Forward": reflect.TypeFor[job.Forward](), "Progress": reflect.TypeFor[job.ProgressView](),
	"JobList": reflect.TypeFor[v1.JobList](), "ReceivingList": reflect.TypeFor[v1.ReceivingList](), "Inbound": reflect.TypeFor[job.Inbound](),
	"ItemList": reflect.TypeFor[v1.ItemList](), "EventList": reflect.TypeFor[v1.EventList](), "Event": reflect.TypeFor[job.Event](),
	"Plan": reflect.TypeFor[v1.Plan](), "PlanConflict": reflect.TypeFor[v1.PlanConflict](), "BufferSpec": reflect.TypeFor[v1.BufferSpec](),
	"BufferList": reflect.TypeFor[v1.BufferList](), "Buffer": reflect.TypeFor[v1.Buffer](), "BufferLease": reflect.TypeFor[v1.BufferLease](),
	"BufferWritten": reflect.TypeFor[v1.BufferWritten](), "DrainRequest": reflect.TypeFor[v1.DrainRequest](), "Drain": reflect.TypeFor[v1.Drain](),
	"Caller": reflect.TypeFor[v1.Caller](), "Version": reflect.TypeFor[v1.Version](), "Devices": reflect.TypeFor[v1.Devices](), "Device": reflect.TypeFor[v1.Device](),
	"Port": reflect.TypeFor[v1.Port](), "Peers": reflect.TypeFor[v1.Peers](), "Peer": reflect.TypeFor[v1.Peer](), "Rail": reflect.TypeFor[v1.Rail](),
	"Roots": reflect.TypeFor[v1.Roots](), "Root": reflect.TypeFor[v1.Root](), "Pollers": reflect.TypeFor[v1.Pollers](), "Poller": reflect.TypeFor[v1.Poller](),
}

// TestSchemasAreTheTypes: field for field, and what an answer always has is
// required.
func TestSchemasAreTheTypes(t *testing.T) {
	d := openDocument(t)
	requests := []string{"JobSpec", "Place", "JobPatch", "BufferSpec", "DrainRequest"}
	apart := []string{"Status", "ID", "Bytes", "Rate", "Duration", "Item", "State", "ReasonCode"} // no structs with tags
	for _, name := range keysOf(sub(d.root, "components", "schemas")) {
		schema := sub(d.root, "components", "schemas", name)
		typ, ok := described[name]
		if !ok {
			if !slices.Contains(apart, name) {
				t.Errorf("schema %s has no type", name)
			}
			continue
		}
		var fields, always []string
		for i := range typ.NumField() {
			tag, opts, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			fields = append(fields, tag)
			if opts == "" {
				always = append(always, tag)
			}
		}
		slices.Sort(fields)
		if got := keysOf(sub(schema, "properties")); !slices.Equal(got, fields) {
			t.Errorf("%s has %v, its type %v", name, got, fields)
		}
		isRequest := slices.Contains(requests, name)
		if closed := sub(schema, "additionalProperties") == false; closed != isRequest {
			t.Errorf("%s: additionalProperties", name)
		}
		var required []string
		list, _ := sub(schema, "required").([]any)
		for _, r := range list {
			required = append(required, r.(string))
		}
		slices.Sort(required)
		slices.Sort(always)
		if !isRequest && !slices.Equal(required, always) {
			t.Errorf("%s requires %v, its type always has %v", name, required, always)
		}
	}
	for name := range described {
		if sub(d.root, "components", "schemas", name) == nil {
			t.Errorf("type %s has no schema", name)
		}
	}
	enum := func(schema ...string) (out []string) {
		list, _ := sub(sub(d.root, append([]string{"components", "schemas"}, schema...)...), "enum").([]any)
		for _, v := range list {
			out = append(out, v.(string))
		}
		return out
	}
	var states, reasons []string
	for _, s := range job.States() {
		states = append(states, string(s))
	}
	for _, c := range reason.All() {
		reasons = append(reasons, string(c))
	}
	if !slices.Equal(enum("State"), states) || !slices.Equal(enum("ReasonCode"), reasons) {
		t.Error("the states or the reasons are not those of the code")
	}
}

// TestRequestSchemasTakeTheExamples also checks every example of a parameter.
func TestExamplesAreRight(t *testing.T) {
	d := openDocument(t)
	for _, op := range d.operations() {
		for kind, media := range asMap(sub(op.node, "requestBody", "content")) {
			if kind != mediaJSON {
				continue
			}
			data, err := json.Marshal(sub(media, "example"))
			if err != nil || string(data) == "null" {
				t.Errorf("%s %s has no example", op.method, op.path)
				continue
			}
			if err := d.check(sub(media, "schema"), decoded(t, data), false); err != nil {
				t.Errorf("%s %s: example: %v", op.method, op.path, err)
			}
		}
		for _, p := range op.params {
			if example := sub(p, "example"); example != nil && d.checkText(sub(p, "schema"), fmt.Sprint(example)) != nil {
				t.Errorf("%s %s: example of %v", op.method, op.path, sub(p, "name"))
			}
		}
	}
	example := sub(d.root, "components", "responses", "Problem", "content", "application/problem+json", "example")
	data, _ := json.Marshal(example)
	if err := d.check(sub(d.root, "components", "schemas", "Problem"), decoded(t, data), true); err != nil {
		t.Error(err)
	}
}

func asMap(n node) map[string]any {
	m, _ := n.(map[string]any)
	return m
}

func decoded(t testing.TB, data []byte) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %.300s", err, data)
	}
	return v
}

// validate checks an answer against the document. Every answer that this
// package's tests get passes through it.
func (f *fixture) validate(r *http.Request, status int, header http.Header, body []byte) {
	f.t.Helper()
	d := openDocument(f.t)
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if r.Method == http.MethodHead || kind == mediaEvents {
		return
	}
	if kind == "application/problem+json" {
		if err := d.check(sub(d.root, "components", "schemas", "Problem"), decoded(f.t, body), true); err != nil {
			f.t.Errorf("%s %s: problem: %v", r.Method, r.URL.Path, err)
		}
		return
	}
	_, pattern := f.mux.Handler(r)
	pattern = tablePath(pattern)
	op := sub(d.root, "paths", pattern, strings.ToLower(r.Method))
	resp := d.at(sub(op, "responses", fmt.Sprint(status)))
	if resp == nil {
		f.t.Errorf("%s %s: status %d is not described", r.Method, pattern, status)
		return
	}
	content := asMap(sub(resp, "content"))
	if len(content) == 0 {
		if len(body) > 0 {
			f.t.Errorf("%s %s: %d has a body", r.Method, pattern, status)
		}
		return
	}
	media, ok := content[kind]
	if !ok {
		f.t.Errorf("%s %s: %d with %q, which is not described", r.Method, pattern, status, kind)
		return
	}
	if kind == mediaJSON {
		if err := d.check(sub(media, "schema"), decoded(f.t, body), true); err != nil {
			f.t.Errorf("%s %s: %v\n%.500s", r.Method, pattern, err, body)
		}
	}
}
