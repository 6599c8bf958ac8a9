package api

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "mover/api/v1"
)

// Limits in time of one request, so that no client holds a connection for ever.
const (
	bodyTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second
)

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rec := &recorder{ResponseWriter: w, id: newRequestID()}
	h := rec.Header()
	h.Set("X-Request-Id", rec.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	// Not every ResponseWriter has deadlines; the server's always do. A read
	// deadline on a request without body would end a long wait: the server
	// reads in the background to notice a client that leaves.
	if r.Body != nil && r.Body != http.NoBody {
		_ = control.SetReadDeadline(began.Add(bodyTimeout))
	}
	_ = control.SetWriteDeadline(began.Add(writeTimeout))

	pattern := "other"
	if path.Clean(r.URL.Path) == r.URL.Path { // else the mux would redirect
		if _, p := a.mux.Handler(r); p != "" {
			pattern = tablePath(p)
		}
	}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			a.cfg.Logger.Error("a request panicked", "request_id", rec.id, "route", pattern,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			rec.fail(internal())
		}
		took := time.Since(began)
		a.metrics.request(pattern, r.Method, rec.status, took)
		level := slog.LevelDebug
		if rec.status >= 500 && pattern != "/readyz" { // which tells for itself
			level = slog.LevelWarn
		}
		a.cfg.Logger.Log(r.Context(), level, "request", "request_id", rec.id, "route", pattern,
			"method", methodLabel(r.Method), "status", rec.status, "took", took)
	}()
	if pattern == "other" {
		// Who has no token does not learn which paths exist.
		if _, err := a.authenticate(r); err != nil {
			a.fail(rec, r, err)
			return
		}
		a.fail(rec, r, refuse(http.StatusNotFound, v1.CodeNotFound, "there is nothing at this path; the API's paths begin with /v1/"))
		return
	}
	a.mux.ServeHTTP(rec, r)
}

// dispatch is the handler of every pattern: who asks, may they, and then what.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request) {
	methods := a.routes[tablePath(r.Pattern)]
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http leaves out the body
	}
	found, ok := methods[method]
	var who *caller
	if !ok || found.scope > 0 {
		var err error
		if who, err = a.authenticate(r); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	if !ok {
		var allowed []string
		for m := range methods {
			allowed = append(allowed, m)
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		a.fail(w, r, refuse(http.StatusMethodNotAllowed, v1.CodeMethodNotAllowed, "this path takes %s", strings.Join(allowed, ", ")))
		return
	}
	if who != nil && who.from != "" && !found.remote {
		a.fail(w, r, refuse(http.StatusForbidden, v1.CodeNotAuthorized, "this cannot be asked through another node; ask this node itself"))
		return
	}
	if who != nil && who.scope < found.scope {
		a.fail(w, r, refuse(http.StatusForbidden, v1.CodeScopeTooLow,
			"this needs a token of scope %s; this one's is %s. Make one with `mover token new`", found.scope, who.scope))
		return
	}
	if !accepts(r.Header.Values("Accept"), found.makes()) {
		a.fail(w, r, refuse(http.StatusNotAcceptable, v1.CodeNotAcceptable,
			"this answers with %s; change the header Accept, or leave it out", strings.Join(found.makes(), " or ")))
		return
	}
	if err := found.handle(w, r, who); err != nil {
		a.fail(w, r, err)
	}
}

// newRequestID is the server's own: a client's would be an echo.
func newRequestID() string {
	var raw [8]byte
	rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// recorder remembers the status for log and metrics.
type recorder struct {
	http.ResponseWriter
	id     string
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the deadlines.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
