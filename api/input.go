package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

func idempotencyKey(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	ok := len(keys) == 1 && len(keys[0]) > 0 && len(keys[0]) <= maxKeyBytes
	if !ok || strings.ContainsFunc(keys[0], func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", refuse(http.StatusBadRequest, v1.CodeInvalidRequest,
			"Idempotency-Key: must be given once, with 1 to %d visible ASCII characters, such as a UUID", maxKeyBytes)
	}
	return keys[0], nil
}

// readBody returns a JSON body of at most limit bytes; an empty one has no type.
func readBody(w http.ResponseWriter, r *http.Request, limit int) ([]byte, error) {
	if ct := r.Header.Get("Content-Type"); ct != "" && r.ContentLength != 0 {
		if kind, _, err := mime.ParseMediaType(ct); err != nil || kind != mediaJSON {
			return nil, refuse(http.StatusUnsupportedMediaType, v1.CodeMediaType,
				"the body must be JSON: send the header Content-Type: %s", mediaJSON)
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, refuse(http.StatusRequestEntityTooLarge, v1.CodeTooLarge, "the body is larger than %d bytes", limit)
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "the body did not arrive whole within %v; send it again", bodyTimeout)
	}
	// The body's deadline has done its work. Behind the body the server reads
	// on, to notice a client that leaves; to it the deadline would look like
	// that, and end what takes longer.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return body, nil
}

// maxActionBytes bounds the body of a request that changes a little.
const maxActionBytes = 64 << 10

// noBody refuses what would be ignored: a body with something in it.
func noBody(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, maxActionBytes)
	if err != nil || len(body) == 0 {
		return err
	}
	if job.DecodeStrict(body, new(struct{}), maxActionBytes) != nil {
		return refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "this takes no body")
	}
	return nil
}

// query returns the parameters of a request, each of which is one of names and
// given once: a misspelt filter must not select everything.
func query(r *http.Request, names ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "the query is malformed; escape its values")
	}
	for name, values := range q {
		if !slices.Contains(names, name) {
			if len(names) == 0 {
				return nil, refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "this takes no query parameters")
			}
			return nil, refuse(http.StatusBadRequest, v1.CodeInvalidRequest,
				"unknown query parameter; this takes %s", strings.Join(names, ", "))
		}
		if len(values) != 1 || values[0] == "" {
			return nil, parameter(name, "give it once, with a value")
		}
	}
	return q, nil
}

// waitOf is the parameter wait, or what it is by default.
func waitOf(q url.Values, def time.Duration) (time.Duration, error) {
	if !q.Has("wait") {
		return def, nil
	}
	d, err := job.ParseDuration(q.Get("wait"))
	if err != nil || time.Duration(d) > maxWait {
		return 0, parameter("wait", "must be a duration from 0s to 60s, such as 30s")
	}
	return time.Duration(d), nil
}

// limitOf is the parameter limit: how much a page has.
func limitOf(q url.Values) (int, error) {
	v := q.Get("limit")
	if v == "" {
		return defaultPage, nil
	}
	n, err := number(v)
	if err != nil || n < 1 || n > job.MaxPage {
		return 0, parameter("limit", fmt.Sprintf("must be a number from 1 to %d", job.MaxPage))
	}
	return int(n), nil
}

// parameter is a wrong value; name is one of ours.
func parameter(name, rule string) *problem {
	p := refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "%s: %s", name, rule)
	p.field = name
	return p
}

// accepts reports whether a client that sent these Accept headers takes one of
// the media types (RFC 9110 section 12.5.1). None, and one that cannot be read,
// take everything. The most specific range that matches a type decides about it.
func accepts(headers, types []string) bool {
	if len(headers) == 0 {
		return true
	}
	ranges := acceptRanges(headers)
	return len(ranges) == 0 || slices.ContainsFunc(types, func(t string) bool { return quality(ranges, t) > 0 })
}

// prefers reports whether a client asks for the media type a by name, and
// rather than b.
func prefers(headers []string, a, b string) bool {
	ranges := acceptRanges(headers)
	_, named := ranges[a]
	return named && quality(ranges, a) >= quality(ranges, b) && quality(ranges, a) > 0
}

// acceptRanges is each media range with its weight.
func acceptRanges(headers []string) map[string]float64 {
	ranges := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		kind, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil || !strings.Contains(kind, "/") {
			continue
		}
		q, err := strconv.ParseFloat(params["q"], 64)
		if params["q"] == "" || err != nil {
			q = 1
		}
		ranges[kind] = q
	}
	return ranges
}

func quality(ranges map[string]float64, kind string) float64 {
	main, _, _ := strings.Cut(kind, "/")
	for _, r := range []string{kind, main + "/*", "*/*"} {
		if q, ok := ranges[r]; ok {
			return q
		}
	}
	return 0
}
