package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

const (
	maxWait     = 60 * time.Second
	defaultPage = 100
	maxKeyBytes = 255
)

// submitJob is POST /v1/jobs.
func (a *API) submitJob(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := query(r); err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	spec, _, err := a.readSpec(w, r, who)
	if err != nil {
		return err
	}
	s, replay, err := a.cfg.Queue.Submit(r.Context(), spec, who.owner, key)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/jobs/"+s.ID.String())
	if replay {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	return a.show(w, r, http.StatusAccepted, s)
}

// readSpec reads the body of a job that who may submit, and says whose it is.
func (a *API) readSpec(w http.ResponseWriter, r *http.Request, who *caller) (job.Spec, string, error) {
	body, err := readBody(w, r, job.MaxSpecBytes)
	if err != nil {
		return job.Spec{}, "", err
	}
	spec, err := job.ParseSpec(body)
	if err != nil {
		return job.Spec{}, "", err
	}
	if spec, err = spec.Normalize(a.cfg.NodeName); err != nil {
		return job.Spec{}, "", err
	}
	if err := a.mayMove(who, spec); err != nil {
		return job.Spec{}, "", err
	}
	if err := a.known(spec); err != nil {
		return job.Spec{}, "", err
	}
	owner := who.owner
	if spec.Owner != "" {
		owner = spec.Owner
	}
	return spec, owner, nil
}

// known refuses a node that this one has to talk to and cannot: the source's,
// which gets the job, or else the destination's.
func (a *API) known(s job.Spec) error {
	field, node := "destination.node", s.Destination.Node
	if s.Source.Node != a.cfg.NodeName {
		field, node = "source.node", s.Source.Node
	}
	if node == a.cfg.NodeName || a.cfg.KnownPeer == nil || a.cfg.KnownPeer(node) {
		return nil
	}
	p := refuse(http.StatusBadRequest, v1.CodeInvalidJob,
		"%s: this node has no peer of that name; check the spelling, or add it under peers in this node's configuration", field)
	p.field = field
	return p
}

// placeName is what a side of a job takes from or brings to: a root or a buffer.
func placeName(p job.Place) string {
	if p.Buffer != "" {
		return p.Buffer
	}
	return p.Root()
}

// mayMove is the token's share of who may move what; the nodes check theirs.
func (a *API) mayMove(who *caller, s job.Spec) error {
	if s.Owner != "" && s.Owner != who.owner && who.scope < ScopeAdmin {
		p := refuse(http.StatusForbidden, v1.CodeOwnerNotAllowed, "owner: only a token of scope admin may name another owner; leave it out")
		p.field = "owner"
		return p
	}
	for _, side := range []struct {
		field, list string
		ok          bool
	}{
		{"source", "read", who.mayRead(s.Source.Node, placeName(s.Source))},
		{"destination", "write", who.mayWrite(s.Destination.Node, placeName(s.Destination))},
	} {
		if !side.ok {
			p := refuse(http.StatusForbidden, v1.CodeRootNotAllowed,
				"%s: this token does not list the root or buffer under %s; use another root, or a token made with it", side.field, side.list)
			p.field = side.field
			return p
		}
	}
	return nil
}

// getJob is GET /v1/jobs/{id}.
func (a *API) getJob(w http.ResponseWriter, r *http.Request, who *caller) error {
	q, err := query(r, "wait")
	if err != nil {
		return err
	}
	wait, err := waitOf(q, 0)
	if err != nil {
		return err
	}
	s, err := a.find(r, who)
	if err != nil {
		return err
	}
	if s.Forwarded != nil && s.Forwarded.Accepted {
		// If the owner does not answer, the job is shown as last heard of; it
		// says itself when that was.
		s, _, _ = a.refresh(r.Context(), s)
	}
	if q.Has("wait") {
		since := s.Version
		if v, ok := versionOf(r.Header.Get("If-None-Match")); ok {
			since = v
		}
		if s, err = a.wait(w, r, s, since, wait); err != nil {
			return err
		}
	}
	return a.show(w, r, http.StatusOK, s)
}

// wait is the long poll: until the job is not as it was, the time is up, the
// client leaves or the node stops.
func (a *API) wait(w http.ResponseWriter, r *http.Request, s job.Snapshot, since uint64, d time.Duration) (job.Snapshot, error) {
	if s.Version != since || s.State.Terminal() || d == 0 {
		return s, nil
	}
	leave, err := a.place(a.waits, v1.CodeTooManyWaiters, "as many requests wait as may; try again, or poll without wait")
	if err != nil {
		return s, err
	}
	defer leave()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + writeTimeout))
	ctx, cancel := a.until(r.Context(), d)
	defer cancel()
	if s.Forwarded != nil {
		defer a.follow(ctx, &s)() // what the owner says ends the Wait below
	}
	now, err := a.cfg.Queue.Wait(ctx, s.ID, since)
	if errors.Is(err, context.Canceled) || errors.Is(err, job.ErrClosed) {
		err = nil // as it is now
	}
	return now, err
}

// etag is the entity tag of a snapshot: its version, by which a wait knows what
// the client has seen, and a hash, because progress changes without a version.
// When a stub's owner was last heard of is not a change.
func etag(s job.Snapshot) (string, error) {
	if s.Forwarded != nil {
		f := *s.Forwarded
		f.LastContact = nil
		s.Forwarded = &f
	}
	body, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("marshal job %s: %w", s.ID, err)
	}
	h := fnv.New64a()
	h.Write(body)
	return fmt.Sprintf(`"%d-%016x"`, s.Version, h.Sum64()), nil
}

// versionTag is a tag that has a version and matches no progress.
func versionTag(version uint64) string { return fmt.Sprintf(`"%d-"`, version) }

// versionOf reads the version out of a tag that etag made.
func versionOf(tag string) (uint64, bool) {
	tag, ok := strings.CutPrefix(strings.TrimPrefix(tag, "W/"), `"`)
	version, _, found := strings.Cut(tag, "-")
	n, err := strconv.ParseUint(version, 10, 64)
	return n, ok && found && err == nil
}

// show writes a job with its tag, or 304 if the client has it.
func (a *API) show(w http.ResponseWriter, r *http.Request, status int, s job.Snapshot) error {
	tag, err := etag(s)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if seen := r.Header.Get("If-None-Match"); reads && seen != "" &&
		(seen == "*" || strings.TrimPrefix(seen, "W/") == tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return answer(w, status, s)
}

// listJobs is GET /v1/jobs.
func (a *API) listJobs(w http.ResponseWriter, r *http.Request, _ *caller) error {
	q, err := query(r, "state", "role", "owner", "label", "created_after", "limit", "page_token")
	if err != nil {
		return err
	}
	f, err := filterOf(q)
	if err != nil {
		return err
	}
	limit, err := limitOf(q)
	if err != nil {
		return err
	}
	switch q.Get("role") {
	case "", "sending":
		jobs, next, err := a.cfg.Queue.List(f, q.Get("page_token"), limit)
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, v1.JobList{Jobs: jobs, NextPageToken: next})
	case "receiving":
		list := v1.ReceivingList{Jobs: []job.Inbound{}}
		if a.cfg.Receiving != nil {
			if list.Jobs, list.NextPageToken, err = a.cfg.Receiving.List(f, q.Get("page_token"), limit); err != nil {
				return err
			}
		}
		return answer(w, http.StatusOK, list)
	}
	return parameter("role", "must be sending (the default) or receiving")
}

func filterOf(q url.Values) (f job.Filter, err error) {
	f.Owner = q.Get("owner")
	if v := q.Get("state"); v != "" {
		for name := range strings.SplitSeq(v, ",") {
			s := job.State(name)
			if !s.Valid() || len(f.States) >= len(job.States()) {
				return f, parameter("state", fmt.Sprintf("must be one or more of %v, with commas between", job.States()))
			}
			f.States = append(f.States, s)
		}
	}
	if v := q.Get("label"); v != "" {
		var ok bool
		if f.LabelKey, f.LabelValue, ok = strings.Cut(v, "="); !ok || f.LabelKey == "" {
			return f, parameter("label", "must be key=value")
		}
	}
	if v := q.Get("created_after"); v != "" {
		if f.CreatedAfter, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return f, parameter("created_after", "must be a time such as 2026-03-01T12:00:00Z")
		}
	}
	return f, nil
}
