package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

// Limits of requests about buffers.
const (
	maxBufferSpecBytes = 64 << 10
	maxBufferBytes     = 1 << 46
	maxBufferNodes     = 256
	// deleteWait is how long a DELETE waits for the buffer's transfers unless
	// it says otherwise with wait.
	deleteWait = 30 * time.Second
)

var (
	pageSizes  = []string{"auto", "4KiB", "2MiB", "1GiB"}
	modeShape  = regexp.MustCompile(`^0?6[0246][0246]$`)
	groupShape = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?$`)
)

// withBuffers makes a handler of one that needs the node's buffers.
func (a *API) withBuffers(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request, who *caller) error {
		if a.cfg.Buffers == nil {
			return absent("buffers")
		}
		return h(w, r, who)
	}
}

// absent is the answer for a part that this node lacks.
func absent(what string) *problem {
	return refuse(http.StatusNotImplemented, v1.CodeUnsupported, "this node has no %s", what)
}

// bufferName is the name in the path; one that no buffer can have is no buffer's.
func bufferName(r *http.Request) (string, error) {
	name := r.PathValue("name")
	if !job.ValidName(name) {
		return "", ErrNoBuffer
	}
	return name, nil
}

// listBuffers is GET /v1/buffers.
func (a *API) listBuffers(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if _, err := query(r); err != nil {
		return err
	}
	list, err := a.cfg.Buffers.List(r.Context())
	if err != nil {
		return err
	}
	out := v1.BufferList{Buffers: filled(list)}
	for i, b := range out.Buffers {
		out.Buffers[i] = wholeBuffer(b)
	}
	return answer(w, http.StatusOK, out)
}

// wholeBuffer has [] where nil would become null.
func wholeBuffer(b v1.Buffer) v1.Buffer {
	b.Read, b.Write, b.Leases = filled(b.Read), filled(b.Write), filled(b.Leases)
	return b
}

// filled is list, or an empty one, which JSON shows as [].
func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// getBuffer is GET /v1/buffers/{name}.
func (a *API) getBuffer(w http.ResponseWriter, r *http.Request, _ *caller) error {
	name, err := bufferName(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	b, err := a.cfg.Buffers.Get(r.Context(), name)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, wholeBuffer(b))
}

// putBuffer is PUT /v1/buffers/{name}.
func (a *API) putBuffer(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := query(r); err != nil {
		return err
	}
	name := r.PathValue("name")
	if !job.ValidName(name) {
		return parameter("name", "must be 1 to 63 of the characters A-Z a-z 0-9 . _ - and begin with a letter or digit")
	}
	body, err := readBody(w, r, maxBufferSpecBytes)
	if err != nil {
		return err
	}
	var spec v1.BufferSpec
	if err := job.DecodeStrict(body, &spec, maxBufferSpecBytes); err != nil {
		return notJob(err)
	}
	if spec, err = normalBuffer(spec); err != nil {
		return notJob(err)
	}
	if !who.mayWrite(a.cfg.NodeName, name) {
		return refuse(http.StatusForbidden, v1.CodeRootNotAllowed,
			"this token does not list a root of this name under write; use another name, or a token made with it")
	}
	b, created, err := a.cfg.Buffers.Create(r.Context(), name, spec, who.owner)
	if err != nil {
		return notJob(err)
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", "/v1/buffers/"+name)
	}
	return answer(w, status, wholeBuffer(b))
}

// normalBuffer returns s with its defaults, or a *job.FieldError.
func normalBuffer(s v1.BufferSpec) (v1.BufferSpec, error) {
	bad := func(field, problem string) (v1.BufferSpec, error) {
		return s, &job.FieldError{Field: field, Problem: problem}
	}
	if s.PageSize == "" {
		s.PageSize = pageSizes[0]
	}
	if s.Mode == "" {
		s.Mode = "0600"
	}
	switch {
	case s.Bytes < 1 || s.Bytes > maxBufferBytes:
		return bad("bytes", "must be from 1 to 64TiB, a number of bytes or a string such as \"256MiB\"")
	case !slices.Contains(pageSizes, s.PageSize):
		return bad("page_size", "must be one of "+strings.Join(pageSizes, ", "))
	case s.NUMANode != nil && (*s.NUMANode < -1 || *s.NUMANode > 1023):
		return bad("numa_node", "must be a NUMA node's number, or -1 for any")
	case !modeShape.MatchString(s.Mode):
		return bad("mode", "must be an octal mode without execute bits that lets its owner read and write, such as \"0660\"")
	case s.Group != "" && !groupShape.MatchString(s.Group):
		return bad("group", "must be a group's name or number")
	}
	if len(s.Mode) == 3 {
		s.Mode = "0" + s.Mode
	}
	if s.NUMANode == nil {
		s.NUMANode = new(-1)
	}
	for _, l := range []struct {
		field string
		list  *[]string
	}{{"read", &s.Read}, {"write", &s.Write}} {
		if len(*l.list) > maxBufferNodes {
			return bad(l.field, fmt.Sprintf("has more than %d nodes", maxBufferNodes))
		}
		for _, n := range *l.list {
			if n != "*" && !job.ValidName(n) {
				return bad(l.field, "must be a list of nodes' names, or of \"*\" for all")
			}
		}
		sorted := slices.Sorted(slices.Values(*l.list))
		*l.list = filled(slices.Compact(sorted))
	}
	return s, nil
}

// deleteBuffer is DELETE /v1/buffers/{name}.
func (a *API) deleteBuffer(w http.ResponseWriter, r *http.Request, who *caller) error {
	name, err := bufferName(r)
	if err != nil {
		return err
	}
	q, err := query(r, "wait")
	if err != nil {
		return err
	}
	wait, err := waitOf(q, deleteWait)
	if err != nil {
		return err
	}
	if err := noBody(w, r); err != nil {
		return err
	}
	b, err := a.cfg.Buffers.Get(r.Context(), name)
	if err != nil {
		return err
	}
	if !who.mayChange(b.Owner) {
		return refuse(http.StatusForbidden, v1.CodeOwnerNotAllowed, "only the buffer's owner, or a token of scope admin, may delete it")
	}
	leave, err := a.place(a.waits, v1.CodeTooManyWaiters, "as many requests wait as may; try again later")
	if err != nil {
		return err
	}
	defer leave()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + writeTimeout))
	ctx, cancel := a.until(r.Context(), wait)
	defer cancel()
	if err := a.cfg.Buffers.Delete(ctx, name); err != nil {
		if errors.Is(err, context.Canceled) && r.Context().Err() == nil {
			err = refuse(http.StatusConflict, v1.CodeBufferBusy,
				"transfers still use the buffer; it is not deleted. Wait for them, cancel their jobs, or try again").retryAfter("5")
		}
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// until returns a context that ends with parent, after d by the API's clock,
// and when the node stops.
func (a *API) until(parent context.Context, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	atStop := context.AfterFunc(a.stopping, cancel)
	timer := a.cfg.Clock.AfterFunc(d, cancel)
	return ctx, func() {
		atStop()
		timer.Stop()
		cancel()
	}
}

// place takes one of the places for requests that last, or refuses.
func (a *API) place(places chan struct{}, code, detail string) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, refuse(http.StatusTooManyRequests, code, "%s", detail).retryAfter("1")
	}
}

// dataTag is the entity tag of a buffer's data.
func dataTag(generation uint64) string { return `"g` + strconv.FormatUint(generation, 10) + `"` }
