package api

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// pageFiles are the web page, as it is sent: nothing of the node is put into
// it, so it needs no token. What it shows it asks the API for, with the token
// that its user types in.
//
//go:embed page/index.html page/page.css page/page.js
var pageFiles embed.FS

// pagePolicy lets the page load its own two files and ask this node, and
// nothing else: no other host, no inline script, no frame around it. Trusted
// types make the browser refuse what would read text as HTML, since names of
// files are anybody's.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

const (
	mediaHTML   = "text/html"
	mediaCSS    = "text/css"
	mediaScript = "text/javascript"
)

// pageRoute is the route of one file of the page, open to all. A file that
// cannot be read is a defect of the build, and panics at start.
func pageRoute(name, media string) map[string]route {
	data, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(fmt.Sprintf("api: the page's %s is not in the program: %v", name, err))
	}
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	handle := func(w http.ResponseWriter, r *http.Request, _ *caller) error {
		if _, err := query(r); err != nil {
			return err
		}
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		// Kept, but asked for each time: another version of the program may
		// answer, and its three files belong together.
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		same := func(seen string) bool { return seen == "*" || strings.TrimPrefix(seen, "W/") == tag }
		if slices.ContainsFunc(tagsOf(r.Header.Values("If-None-Match")), same) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
		h.Set("Content-Type", media+"; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(data))) // net/http does not count what HEAD leaves out
		_, _ = w.Write(data)                             // a client that is gone cannot be told
		return nil
	}
	return map[string]route{"GET": {handle: handle, media: []string{media}}}
}
