package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "mover/api/v1"
)

var pagePaths = map[string]string{"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8"}

// TestPageNeedsNoToken: and says nothing that is not the same on every node.
func TestPageNeedsNoToken(t *testing.T) {
	f, other := newFixtureOf(t, "node-with-a-name", nil), newFixture(t, nil)
	other.submit()
	for path, kind := range pagePaths {
		w := f.do("GET", path, "", "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s: %d %s", path, w.Code, w.Header())
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
			"Content-Security-Policy": pagePolicy, "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		// The same bytes and tag from a node of another name, with a job, for
		// someone with a token too.
		for _, token := range []string{"", "admin", "metrics"} {
			if again := other.do("GET", path, token, ""); again.Body.String() != w.Body.String() || again.Header().Get("ETag") != w.Header().Get("ETag") {
				t.Errorf("%s depends on the node or the token", path)
			}
		}
		if text := w.Body.String(); strings.Contains(text, "node-with-a-name") || text == "" {
			t.Errorf("%s: %.100q", path, text)
		}
		head := f.do("HEAD", path, "", "")
		if head.Code != http.StatusOK || head.Header().Get("ETag") != w.Header().Get("ETag") || head.Header().Get("Content-Type") != kind {
			t.Errorf("HEAD %s: %d %v", path, head.Code, head.Header())
		}
	}
}

func TestPageIsKeptByTag(t *testing.T) {
	f := newFixture(t, nil)
	for path := range pagePaths {
		tag := f.do("GET", path, "", "").Header().Get("ETag")
		for seen, want := range map[string]int{tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 200, tag[:5] + `"`: 200} {
			w := f.do("GET", path, "", "", "If-None-Match: "+seen)
			if w.Code != want || (want == 304) != (w.Body.Len() == 0) || w.Header().Get("ETag") != tag || w.Header().Get("Content-Security-Policy") == "" {
				t.Errorf("%s, If-None-Match %s: %d, want %d, %d bytes", path, seen, w.Code, want, w.Body.Len())
			}
		}
	}
}

func TestPageTakesGetAlone(t *testing.T) {
	f := newFixture(t, nil)
	for path := range pagePaths {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
			f.problem(f.do(method, path, "admin", ""), http.StatusMethodNotAllowed, v1.CodeMethodNotAllowed)
			f.problem(f.do(method, path, "", ""), http.StatusUnauthorized, v1.CodeUnauthenticated)
		}
		f.problem(f.do("GET", path+"?x=1", "", ""), http.StatusBadRequest, v1.CodeInvalidRequest)
		f.problem(f.do("GET", path, "", "", "Accept: application/json"), http.StatusNotAcceptable, v1.CodeNotAcceptable)
	}
	// The page's paths open no others.
	for _, path := range []string{"/index.html", "/page", "/page/", "/page/page.js", "/page.go", "/favicon.ico", "/nope"} {
		f.problem(f.do("GET", path, "", ""), http.StatusUnauthorized, v1.CodeUnauthenticated)
		f.problem(f.do("GET", path, "admin", ""), http.StatusNotFound, v1.CodeNotFound)
	}
}

// TestPageOverTCP: the server leaves the body of HEAD out and says its length.
func TestPageOverTCP(t *testing.T) {
	f := newFixture(t, nil)
	srv := httptest.NewServer(f)
	defer srv.Close()
	for path := range pagePaths {
		want := f.do("GET", path, "", "").Body.Len()
		for _, method := range []string{"GET", "HEAD"} {
			req, err := http.NewRequest(method, srv.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got := len(body)
			if method == "HEAD" {
				got = int(resp.ContentLength)
			}
			if err != nil || resp.StatusCode != http.StatusOK || got != want || method == "HEAD" && len(body) > 0 {
				t.Errorf("%s %s: %d, %d bytes, length %d, want %d, %v", method, path, resp.StatusCode, len(body), resp.ContentLength, want, err)
			}
		}
	}
}

// TestPageMetric: the page's requests count under its own path.
func TestPageMetric(t *testing.T) {
	f := newFixture(t, nil)
	f.do("GET", "/", "", "")
	if text := f.do("GET", "/metrics", "admin", "").Body.String(); !strings.Contains(text, `mover_http_requests_total{method="GET",route="/",status="200"} 1`) {
		t.Error("no request of route /")
	}
}

// TestPageIsWhole: the page needs nothing but its own files, and never makes
// HTML of text.
func TestPageIsWhole(t *testing.T) {
	file := func(name string) string {
		data, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	html, css, script := file("index.html"), file("page.css"), file("page.js")
	elsewhere := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]`)
	for name, text := range map[string]string{"index.html": html, "page.css": css, "page.js": script} {
		text = strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "") // a name, not an address
		if found := elsewhere.FindString(text); found != "" {
			t.Errorf("%s names another host: %s", name, found)
		}
	}
	for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser",
		"setHTMLUnsafe", "localStorage", "document.cookie", "srcdoc", "javascript:"} {
		if strings.Contains(script, way) {
			t.Errorf("page.js uses %s", way)
		}
	}
	// What the policy would refuse: inline scripts, handlers and styles.
	for _, inline := range []string{`<style`, ` style="`, `<script>`, `<iframe`, `action=`} {
		if strings.Contains(html, inline) {
			t.Errorf("index.html has %s", inline)
		}
	}
	if found := regexp.MustCompile(` on[a-z]+="`).FindString(html); found != "" {
		t.Errorf("index.html has %s", found)
	}
	// Every element that the script asks for by name is there, once.
	ids := map[string]int{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if ids[m[1]]++; ids[m[1]] > 1 {
			t.Errorf("id %s is there twice", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\$\("([a-z-]+)"\)|fillTable\("([a-z-]+)"`).FindAllStringSubmatch(script, -1) {
		names := []string{m[1] + m[2]}
		if m[2] != "" {
			names = append(names, m[2]+"-note")
		}
		for _, name := range names {
			if ids[name] == 0 {
				t.Errorf("page.js asks for %s, which index.html lacks", name)
			}
		}
	}
	for _, m := range regexp.MustCompile(` (?:for|aria-labelledby|aria-describedby)="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if ids[m[1]] == 0 {
			t.Errorf("nothing has the id %s", m[1])
		}
	}
}

// TestPageAsksWhatThereIs: each path in the script is a route.
func TestPageAsksWhatThereIs(t *testing.T) {
	f, _ := newBuffers(t)
	script, err := pageFiles.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, m := range regexp.MustCompile("[\"`](v1/[a-z]+|readyz|metrics)").FindAllStringSubmatch(string(script), -1) {
		asked = append(asked, "/"+m[1])
		if f.routes["/"+m[1]]["GET"].handle == nil {
			t.Errorf("page.js asks for %s, which is no route", m[1])
		}
	}
	for _, path := range []string{"/v1/jobs", "/v1/events", "/v1/peers", "/v1/devices", "/v1/caller", "/readyz"} {
		if !slices.Contains(asked, path) {
			t.Errorf("page.js does not ask for %s", path)
		}
	}
}

func TestCaller(t *testing.T) {
	f := newFixture(t, nil)
	for token, want := range map[string]string{
		"read":     `{"owner":"a/read","scope":"read","read":["*:*"],"write":["*:*"]}`,
		"submit":   `{"owner":"a/submit","scope":"submit","read":["a:data"],"write":["*:in"]}`,
		"rootless": `{"owner":"a/rootless","scope":"admin","read":[],"write":[]}`,
	} {
		if w := f.do("GET", "/v1/caller", token, ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %d %s, want %s", token, w.Code, w.Body, want)
		}
	}
	f.problem(f.do("GET", "/v1/caller", "", ""), http.StatusUnauthorized, v1.CodeUnauthenticated)
	f.problem(f.do("GET", "/v1/caller", "metrics", ""), http.StatusForbidden, v1.CodeScopeTooLow)
	f.problem(f.do("GET", "/v1/caller?x=1", "read", ""), http.StatusBadRequest, v1.CodeInvalidRequest)
}
