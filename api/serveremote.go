package api

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	v1 "mover/api/v1"
	"mover/job"
)

// maxRemoteBody bounds the body of an answer to another node: in base64 it has
// to fit into MaxRemoteBytes.
const maxRemoteBody = MaxRemoteBytes/4*3 - 8<<10

// remoteHeaders are what nodes tell each other of a request.
var remoteHeaders = []string{"If-Match", "If-None-Match", "Content-Type", "Accept"}

// ServeRemote answers a request that fromNode makes for one of its users; the
// caller has authenticated fromNode. The request may be about jobs alone that
// fromNode forwarded here, and is answered by the handlers that HTTP has, as
// for a user of the name and scope given, but never more than submit. A refusal
// is a response like any other. It may be called from any goroutine.
func (a *API) ServeRemote(ctx context.Context, fromNode string, req RemoteRequest) RemoteResponse {
	w := &remoteWriter{header: http.Header{}}
	scope, err := ParseScope(req.Scope)
	if err != nil || !job.ValidName(fromNode) || req.Owner == "" || !strings.HasPrefix(req.Path, "/v1/jobs/") {
		return refusedRemote(refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "the request is not one that nodes make"))
	}
	who := &caller{owner: req.Owner, scope: min(scope, ScopeSubmit), from: fromNode}
	limit := 0
	for {
		r, err := http.NewRequestWithContext(asRemote(ctx, who), req.Method, "/", bytes.NewReader(req.Body))
		if err != nil {
			return refusedRemote(refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "the request is not one that nodes make"))
		}
		r.URL = &url.URL{Path: req.Path, RawQuery: withLimit(req.Query, limit)}
		for k, v := range req.Header {
			if slices.Contains(remoteHeaders, k) {
				r.Header.Set(k, v)
			}
		}
		a.ServeHTTP(w, r)
		if w.body.Len() <= maxRemoteBody {
			break
		}
		// A page of long paths: a smaller one says the same.
		if limit = smaller(r.URL.Query().Get("limit")); limit == 0 || !strings.HasSuffix(req.Path, "/items") || req.Method != http.MethodGet {
			return refusedRemote(refuse(http.StatusInternalServerError, v1.CodeTooLarge, "the answer is larger than nodes tell each other; ask the node that has the job"))
		}
		w = &remoteWriter{header: http.Header{}}
	}
	out := RemoteResponse{Status: max(w.status, http.StatusOK), Header: map[string]string{}, Body: w.body.Bytes()}
	for _, k := range []string{"Content-Type", "ETag", "Retry-After", "X-Request-Id"} {
		if v := w.header.Get(k); v != "" {
			out.Header[k] = v
		}
	}
	return out
}

// smaller is half of a page's limit, 0 if there is none.
func smaller(limit string) int {
	n, err := strconv.Atoi(limit)
	if err != nil || n < 1 {
		n = defaultPage
	}
	return n / 2
}

func withLimit(query string, limit int) string {
	q, err := url.ParseQuery(query)
	if limit == 0 || err != nil {
		return query // which the handler refuses if it is wrong
	}
	q.Set("limit", strconv.Itoa(limit))
	return q.Encode()
}

func refusedRemote(p *problem) RemoteResponse {
	w := &remoteWriter{header: http.Header{}}
	(&recorder{ResponseWriter: w, id: newRequestID()}).fail(p)
	return RemoteResponse{Status: w.status, Body: w.body.Bytes()}
}

// remoteWriter is an answer in memory. What is larger than may be sent is known
// by its length, and not kept.
type remoteWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *remoteWriter) Header() http.Header { return w.header }

func (w *remoteWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *remoteWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.body.Len() <= maxRemoteBody {
		w.body.Write(p)
	}
	return len(p), nil
}
