package api

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "mover/api/v1"
	"mover/reason"
)

const bufferBody = `{"bytes":"1KiB","page_size":"4KiB","numa_node":0,"mode":"0660","group":"users","read":["b","*"],"write":["b"]}`

func TestBufferLife(t *testing.T) {
	f, m := newBuffers(t)
	w := f.do("PUT", "/v1/buffers/in", "submit", bufferBody)
	var b v1.Buffer
	if err := json.Unmarshal(w.Body.Bytes(), &b); err != nil || w.Code != http.StatusCreated || w.Header().Get("Location") != "/v1/buffers/in" ||
		b.Bytes != 1024 || b.Owner != "a/submit" || b.Mode != "0660" || !cmp.Equal(b.Read, []string{"*", "b"}) {
		t.Fatalf("%d %s %+v", w.Code, w.Header(), w.Body)
	}
	// The same again, in other words, changes nothing.
	same := strings.NewReplacer(`"1KiB"`, "1024", `"0660"`, `"660"`, `["b","*"]`, `["*","b","b"]`).Replace(bufferBody)
	if w := f.do("PUT", "/v1/buffers/in", "submit", same); w.Code != http.StatusOK || w.Header().Get("Location") != "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.problem(f.do("PUT", "/v1/buffers/in", "submit", `{"bytes":5}`), 409, v1.CodeBufferExists)
	if w := f.do("PUT", "/v1/buffers/plain", "other", `{"bytes":5}`); w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	any := -1
	if d := cmp.Diff(m.buffers["plain"].spec, v1.BufferSpec{Bytes: 5, PageSize: "auto", NUMANode: &any, Mode: "0600", Read: []string{}, Write: []string{}}); d != "" {
		t.Error(d)
	}
	w = f.do("GET", "/v1/buffers", "read", "")
	if !strings.Contains(w.Body.String(), `"leases":[]`) || strings.Contains(w.Body.String(), "null") || strings.Count(w.Body.String(), `"name"`) != 2 {
		t.Errorf("%s", w.Body)
	}
	if w := f.do("GET", "/v1/buffers/in", "read", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"name":"in"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.problem(f.do("DELETE", "/v1/buffers/in", "other", ""), 403, v1.CodeOwnerNotAllowed)
	if w := f.do("DELETE", "/v1/buffers/in", "submit", ""); w.Code != http.StatusNoContent || w.Body.Len() > 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := f.do("DELETE", "/v1/buffers/plain", "admin", "{}"); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.problem(f.do("DELETE", "/v1/buffers/in", "admin", ""), 404, v1.CodeNotFound)
	f.problem(f.do("GET", "/v1/buffers/in", "admin", ""), 404, v1.CodeNotFound)
	f.problem(f.do("GET", "/v1/buffers/in/data", "admin", ""), 404, v1.CodeNotFound)
}

func TestBufferRefused(t *testing.T) {
	f, m := newBuffers(t)
	for name, c := range map[string]struct {
		token, path, body string
		status            int
		code, field       string
	}{
		"no bytes":     {"admin", "x", `{}`, 400, v1.CodeInvalidRequest, "bytes"},
		"empty":        {"admin", "x", ``, 400, v1.CodeInvalidRequest, ""},
		"zero":         {"admin", "x", `{"bytes":0}`, 400, v1.CodeInvalidRequest, "bytes"},
		"huge":         {"admin", "x", `{"bytes":"65TiB"}`, 400, v1.CodeInvalidRequest, "bytes"},
		"negative":     {"admin", "x", `{"bytes":-1}`, 400, v1.CodeInvalidRequest, "bytes"},
		"pages":        {"admin", "x", `{"bytes":1,"page_size":"3MiB"}`, 400, v1.CodeInvalidRequest, "page_size"},
		"node":         {"admin", "x", `{"bytes":1,"numa_node":-2}`, 400, v1.CodeInvalidRequest, "numa_node"},
		"setuid":       {"admin", "x", `{"bytes":1,"mode":"4600"}`, 400, v1.CodeInvalidRequest, "mode"},
		"execute":      {"admin", "x", `{"bytes":1,"mode":"0700"}`, 400, v1.CodeInvalidRequest, "mode"},
		"mode number":  {"admin", "x", `{"bytes":1,"mode":600}`, 400, v1.CodeInvalidRequest, "mode"},
		"group":        {"admin", "x", `{"bytes":1,"group":"a b"}`, 400, v1.CodeInvalidRequest, "group"},
		"read":         {"admin", "x", `{"bytes":1,"read":["a b"]}`, 400, v1.CodeInvalidRequest, "read"},
		"many":         {"admin", "x", `{"bytes":1,"write":["*"` + strings.Repeat(`,"*"`, 256) + `]}`, 400, v1.CodeInvalidRequest, "write"},
		"unknown":      {"admin", "x", `{"bytes":1,"leak":1}`, 400, v1.CodeInvalidRequest, ""},
		"name":         {"admin", "a%20leak", `{"bytes":1}`, 400, v1.CodeInvalidRequest, "name"},
		"body":         {"admin", "x", `{"bytes":1,"group":"` + strings.Repeat("x", 64<<10) + `"}`, 413, v1.CodeTooLarge, ""},
		"scope":        {"read", "x", `{"bytes":1}`, 403, v1.CodeScopeTooLow, ""},
		"not in roots": {"submit", "x", `{"bytes":1}`, 403, v1.CodeRootNotAllowed, ""},
	} {
		w := f.do("PUT", "/v1/buffers/"+c.path, c.token, c.body)
		if p := f.problem(w, c.status, c.code); p.Field != c.field || strings.Contains(w.Body.String(), "leak") {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
	if len(m.buffers) != 0 {
		t.Errorf("%d buffers", len(m.buffers))
	}
	for err, want := range map[error]struct {
		status int
		code   string
	}{
		reason.New(reason.NoSpace, "no huge pages"): {507, v1.CodeNoSpace}, reason.New(reason.Quota, "used up"): {507, v1.CodeNoSpace},
		reason.New(reason.PermissionDenied, "no"): {422, v1.CodeImpossible}, errors.New("secret"): {500, v1.CodeInternal},
	} {
		m.fail = err
		w := f.do("PUT", "/v1/buffers/x", "admin", `{"bytes":1}`)
		p := f.problem(w, want.status, want.code)
		if want.code != v1.CodeInternal && (p.Reason == "" || p.Reason != reason.Of(err)) || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: %s", err, w.Body)
		}
	}
	without := newFixture(t, nil)
	for _, target := range []string{"GET /v1/buffers", "GET /v1/buffers/x", "PUT /v1/buffers/x", "DELETE /v1/buffers/x", "GET /v1/buffers/x/data", "PUT /v1/buffers/x/data"} {
		method, path, _ := strings.Cut(target, " ")
		without.problem(without.do(method, path, "admin", ""), http.StatusNotImplemented, v1.CodeUnsupported)
	}
}

// octets makes a request with a body of bytes.
func octets(header ...string) []string {
	return append(header, "Content-Type: application/octet-stream")
}

// put makes a PUT of bytes.
func (f *fixture) put(name, token string, data []byte, header ...string) (int, v1.BufferWritten, []byte) {
	f.t.Helper()
	w := f.raw("PUT", "/v1/buffers/"+name+"/data", token, bytes.NewReader(data), octets(header...)...)
	var out v1.BufferWritten
	if w.Code == 200 {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			f.t.Fatal(err)
		}
		if w.Header().Get("ETag") != dataTag(out.Generation) {
			f.t.Errorf("ETag %s for generation %d", w.Header().Get("ETag"), out.Generation)
		}
	}
	return w.Code, out, w.Body.Bytes()
}

func TestBufferData(t *testing.T) {
	f, m := newBuffers(t)
	const size = 3*copyBytes + 17 // several blocks, and a part of one
	if w := f.do("PUT", "/v1/buffers/in", "submit", fmt.Sprintf(`{"bytes":%d}`, size)); w.Code != 201 {
		t.Fatalf("%s", w.Body)
	}
	data := make([]byte, size)
	rand.Read(data)
	if code, out, text := f.put("in", "submit", data); code != 200 || out != (v1.BufferWritten{Bytes: size, Generation: 2}) {
		t.Fatalf("%d %+v %s", code, out, text)
	}
	get := func(want int, header ...string) ([]byte, http.Header) {
		t.Helper()
		w := f.do("GET", "/v1/buffers/in/data", "admin", "", header...)
		if w.Code != want {
			t.Errorf("%v: %d %.200s", header, w.Code, w.Body)
		}
		return w.Body.Bytes(), w.Header()
	}
	got, h := get(200)
	if !bytes.Equal(got, data) || h.Get("ETag") != `"g2"` || h.Get("Content-Length") != fmt.Sprint(size) || h.Get("Accept-Ranges") != "bytes" ||
		h.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%d bytes, %v", len(got), h)
	}
	for header, want := range map[string]span{
		"bytes=0-0": {0, 1}, "bytes=1-": {1, size - 1}, "bytes=-3": {size - 3, 3}, "bytes=10-99999999": {10, size - 10},
		fmt.Sprintf("bytes=%d-%d", copyBytes-1, 2*copyBytes): {copyBytes - 1, copyBytes + 2}, "bytes=-99999999": {0, size}, "BYTES=5-6": {5, 2},
	} {
		got, h := get(206, "Range: "+header)
		if !bytes.Equal(got, data[want.first:want.first+want.length]) ||
			h.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", want.first, want.first+want.length-1, size) {
			t.Errorf("%s: %d bytes, %s", header, len(got), h.Get("Content-Range"))
		}
	}
	get(200, "Range: lines=1-2") // another unit is ignored
	get(206, "Range: bytes=1-2", `If-Range: "g2"`)
	if got, _ := get(200, "Range: bytes=1-2", `If-Range: "g1"`); !bytes.Equal(got, data) {
		t.Errorf("%d bytes", len(got))
	}
	get(304, `If-None-Match: "g1", "g2"`)
	get(200, `If-Match: "g2"`)
	f.problem(f.do("GET", "/v1/buffers/in/data", "admin", "", `If-Match: "g1"`), 412, v1.CodeVersionMismatch)
	for _, bad := range []string{fmt.Sprintf("bytes=%d-", size), "bytes=-0", "bytes=99999999-"} {
		w := f.do("GET", "/v1/buffers/in/data", "admin", "", "Range: "+bad)
		f.problem(w, 416, v1.CodeBadRange)
		if w.Header().Get("Content-Range") != fmt.Sprintf("bytes */%d", size) {
			t.Errorf("%s: %v", bad, w.Header())
		}
	}
	for _, bad := range []string{"bytes", "bytes=", "bytes=-", "bytes=2-1", "bytes=0-1,3-4", "bytes=a-b", "bytes=+1-2", "bytes=99999999999999999999-"} {
		f.problem(f.do("GET", "/v1/buffers/in/data", "admin", "", "Range: "+bad), 400, v1.CodeInvalidRequest)
	}
	if w := f.do("HEAD", "/v1/buffers/in/data", "admin", ""); w.Code != 200 || w.Header().Get("Content-Length") != fmt.Sprint(size) || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
	f.problem(f.do("GET", "/v1/buffers/in/data", "read", "", "Accept: application/json"), 406, v1.CodeNotAcceptable)
	if len(m.buffers["in"].Leases) != 0 {
		t.Error("leases are left")
	}
}

func TestBufferDataParts(t *testing.T) {
	f, m := newBuffers(t)
	f.do("PUT", "/v1/buffers/in", "submit", `{"bytes":10}`)
	b := m.buffers["in"]
	if code, out, text := f.put("in", "submit", []byte("abc"), "Content-Range: bytes 2-4/*"); code != 200 || out != (v1.BufferWritten{Offset: 2, Bytes: 3, Generation: 2}) {
		t.Errorf("%d %s", code, text)
	}
	if code, _, text := f.put("in", "submit", []byte("z"), "Content-Range: bytes 9-9/10", `If-Match: "g2"`); code != 200 || string(b.data) != "\x00\x00abc\x00\x00\x00\x00z" {
		t.Errorf("%d %s %q", code, text, b.data)
	}
	for _, c := range []struct {
		data   string
		header string
		status int
		code   string
	}{
		{"abc", "", 400, v1.CodeInvalidRequest}, // shorter than the buffer
		{"", "", 400, v1.CodeInvalidRequest},
		{"01234567890", "", 413, v1.CodeTooLarge},
		{"abcd", "Content-Range: bytes 0-2/*", 413, v1.CodeTooLarge},
		{"ab", "Content-Range: bytes 0-2/*", 400, v1.CodeInvalidRequest},
		{"ab", "Content-Range: bytes 9-10/*", 416, v1.CodeBadRange},
		{"ab", "Content-Range: bytes 0-1/11", 416, v1.CodeBadRange},
		{"ab", "Content-Range: bytes 1-0/*", 400, v1.CodeInvalidRequest},
		{"ab", "Content-Range: bytes */10", 400, v1.CodeInvalidRequest},
		{"ab", "Content-Range: bytes=0-1/10", 400, v1.CodeInvalidRequest},
		{"ab", "Content-Range: lines 0-1/10", 400, v1.CodeInvalidRequest},
		{"ab", "Content-Range: bytes 0-1", 400, v1.CodeInvalidRequest},
		{"0123456789", `If-Match: "g1"`, 412, v1.CodeVersionMismatch},
	} {
		var header []string
		if c.header != "" {
			header = []string{c.header}
		}
		w := f.raw("PUT", "/v1/buffers/in/data", "submit", strings.NewReader(c.data), octets(header...)...)
		f.problem(w, c.status, c.code)
	}
	// A body without a length that is too short, or too long, or breaks off.
	for name, c := range map[string]struct {
		r      io.Reader
		status int
		code   string
	}{
		"short": {io.MultiReader(strings.NewReader("abc")), 400, v1.CodeInvalidRequest},
		"long":  {io.MultiReader(strings.NewReader("01234567890")), 413, v1.CodeTooLarge},
		"break": {io.MultiReader(strings.NewReader("abc"), breaks{}), 400, v1.CodeInvalidRequest},
	} {
		before := b.Generation
		f.problem(f.raw("PUT", "/v1/buffers/in/data", "submit", c.r, octets()...), c.status, c.code)
		if b.Generation == before {
			t.Errorf("%s: bytes were written and the generation is the same", name)
		}
	}
	generation := b.Generation
	f.problem(f.do("PUT", "/v1/buffers/in/data", "submit", "{}"), 415, v1.CodeMediaType)
	f.problem(f.raw("PUT", "/v1/buffers/in/data", "submit", strings.NewReader("x")), 415, v1.CodeMediaType)
	f.problem(f.raw("PUT", "/v1/buffers/in/data", "read", strings.NewReader("0123456789"), octets()...), 403, v1.CodeScopeTooLow)
	f.problem(f.raw("PUT", "/v1/buffers/in/data", "outsider", strings.NewReader("x"), octets("Content-Range: bytes 0-0/*")...), 403, v1.CodeRootNotAllowed)
	if code, _, text := f.put("in", "rootless", []byte("x"), "Content-Range: bytes 0-0/*"); code != 200 { // an admin
		t.Errorf("%d %s", code, text)
	}
	b.Owner = "a/admin"
	f.problem(f.do("GET", "/v1/buffers/in/data", "submit", ""), 403, v1.CodeRootNotAllowed) // may write it alone
	if b.Generation != generation+1 || len(b.Leases) != 0 {
		t.Errorf("generation %d, %d leases", b.Generation, len(b.Leases))
	}
}

type breaks struct{}

func (breaks) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestBufferBusy(t *testing.T) {
	f, m := newBuffers(t)
	f.do("PUT", "/v1/buffers/in", "submit", `{"bytes":10}`)
	lease, err := m.Open(t.Context(), "in", BufferRange{Offset: 2, Length: 3, Write: true}, "job 1")
	if err != nil {
		t.Fatal(err)
	}
	w := f.do("GET", "/v1/buffers/in/data", "admin", "")
	if p := f.problem(w, 409, v1.CodeBufferBusy); p.Reason != reason.BufferBusy || !strings.Contains(p.Detail, "job 1") || w.Header().Get("Retry-After") == "" {
		t.Errorf("%+v", p)
	}
	if w := f.do("GET", "/v1/buffers/in/data", "admin", "", "Range: bytes=0-1"); w.Code != 206 {
		t.Errorf("beside the lease: %d", w.Code)
	}
	f.problem(f.raw("PUT", "/v1/buffers/in/data", "submit", strings.NewReader("x"), octets("Content-Range: bytes 4-4/*")...), 409, v1.CodeBufferBusy)
	// A DELETE waits, as long as it says.
	f.problem(f.do("DELETE", "/v1/buffers/in?wait=61s", "submit", ""), 400, v1.CodeInvalidRequest)
	gone := make(chan int)
	go func() { gone <- f.do("DELETE", "/v1/buffers/in?wait=10s", "submit", "").Code }()
	f.waitFor(1)
	f.clock.Advance(10 * time.Second)
	if code := <-gone; code != 409 {
		t.Errorf("%d", code)
	}
	go func() { gone <- f.do("DELETE", "/v1/buffers/in", "submit", "").Code }()
	f.waitFor(1)
	if _, err := lease.Close(); err != nil {
		t.Fatal(err)
	}
	if code := <-gone; code != 204 {
		t.Errorf("%d", code)
	}
	f.do("PUT", "/v1/buffers/in", "submit", `{"bytes":10}`)
	m.buffers["in"].Configured = true
	f.problem(f.do("DELETE", "/v1/buffers/in", "submit", ""), 409, v1.CodeBufferConfigured)
	f.problem(f.do("DELETE", "/v1/buffers/in", "submit", `{"x":1}`), 400, v1.CodeInvalidRequest)
	// As many transfers as may.
	for range cap(f.copies) {
		f.copies <- struct{}{}
	}
	f.problem(f.do("GET", "/v1/buffers/in/data", "admin", ""), 429, v1.CodeTooManyStreams)
}

// TestBufferThatFailsUnderWay: there is no status left to tell it with, so the
// connection ends before the length that was promised.
func TestBufferThatFailsUnderWay(t *testing.T) {
	f, m := newBuffers(t)
	f.do("PUT", "/v1/buffers/in", "submit", `{"bytes":1000}`)
	m.buffers["in"].broken = errors.New("bus error")
	addr, stop := f.serve()
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := f.request(client, "http://"+addr+"/v1/buffers/in/data", "admin")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the answer looks whole")
	}
	code, _, text := f.put("in", "submit", make([]byte, 1000))
	if code != 500 || strings.Contains(string(text), "bus error") {
		t.Errorf("%d %s", code, text)
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(m.buffers["in"].Leases) != 0 || !strings.Contains(f.log.String(), "bus error") {
		t.Error("a lease is left, or nothing in the log")
	}
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=1-0", "x=1-2", "bytes=0-1,2-3", "bytes 0-1/10", "bytes 0-1/*"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 1 || size > maxBufferBytes {
			return
		}
		inside := func(s span) bool { return s.first >= 0 && s.length > 0 && s.first <= size-s.length }
		if s, ok, err := rangeOf(header, size); ok && (err != nil || !inside(s)) {
			t.Errorf("%q of %d: %+v, %v", header, size, s, err)
		}
		if s, ok, err := contentRangeOf([]string{header}, size); ok && (err != nil || !inside(s)) {
			t.Errorf("%q of %d: %+v, %v", header, size, s, err)
		}
	})
}
