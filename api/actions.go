package api

import (
	"errors"
	"net/http"

	v1 "mover/api/v1"
	"mover/job"
)

// find returns the job in the path, as this node knows it. A job that who may
// not see is not there.
func (a *API) find(r *http.Request, who *caller) (job.Snapshot, error) {
	id, err := job.ParseID(r.PathValue("id"))
	if err != nil {
		// A name that no job can have is no job's: the same answer.
		return job.Snapshot{}, job.ErrNotFound
	}
	s, err := a.cfg.Queue.Get(id)
	if err == nil && who.from != "" && (s.Origin != who.from || s.Forwarded != nil) {
		return job.Snapshot{}, job.ErrNotFound
	}
	return s, err
}

// mine is find for a change of the job.
func (a *API) mine(r *http.Request, who *caller) (job.Snapshot, error) {
	s, err := a.find(r, who)
	if err == nil && !who.mayChange(s.Owner) {
		err = refuse(http.StatusForbidden, v1.CodeOwnerNotAllowed, "only the job's owner, or a token of scope admin, may do this")
	}
	return s, err
}

// action makes the handler of POST /v1/jobs/{id}/NAME: what the queue does with
// the id, or, for a job that another node has, what that node does.
func (a *API) action(name string, do func(job.ID) (job.Snapshot, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *caller) error {
		if _, err := query(r); err != nil {
			return err
		}
		if err := noBody(w, r); err != nil {
			return err
		}
		s, err := a.mine(r, who)
		if err != nil {
			return err
		}
		stub := s
		if s, err = do(s.ID); errors.Is(err, job.ErrStub) {
			s, err = a.changeRemote(r.Context(), stub, http.MethodPost, "/"+name, nil, nil)
		}
		if err != nil {
			return err
		}
		return a.show(w, r, http.StatusOK, s)
	}
}

// patchJob is PATCH /v1/jobs/{id}.
func (a *API) patchJob(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := query(r); err != nil {
		return err
	}
	body, err := readBody(w, r, maxActionBytes)
	if err != nil {
		return err
	}
	p, err := job.ParsePatch(body)
	if err != nil {
		return err
	}
	s, err := a.mine(r, who)
	if err != nil {
		return err
	}
	var owners job.Snapshot // as its node has it
	if s.Forwarded != nil && s.Forwarded.Accepted {
		// What the client has seen is this node's version; the change is
		// made to the owner's that it stands for.
		if s, owners, err = a.refresh(r.Context(), s); err != nil {
			return err
		}
	}
	version, err := ifMatch(r, s)
	if err != nil {
		return err
	}
	if owners.Version != 0 {
		header := map[string]string{"Content-Type": mediaJSON}
		if version != 0 {
			header["If-Match"] = versionTag(owners.Version)
		}
		s, err = a.changeRemote(r.Context(), s, http.MethodPatch, "", header, body)
	} else {
		s, err = a.cfg.Queue.Patch(s.ID, p, version)
	}
	if err != nil {
		return err
	}
	return a.show(w, r, http.StatusOK, s)
}

// ifMatch returns the version that a change is for: 0 for any. The hash in our
// tags is of the progress, which no change is about.
func ifMatch(r *http.Request, s job.Snapshot) (version uint64, err error) {
	headers := r.Header.Values("If-Match")
	if len(headers) == 0 {
		return 0, nil
	}
	for _, tag := range tagsOf(headers) {
		if tag == "*" {
			return 0, nil
		}
		// A weak tag never matches (RFC 9110 section 13.1.1).
		if v, ok := versionOf(tag); ok && v == s.Version && tag[0] == '"' {
			return v, nil
		}
	}
	return 0, changedSince()
}

// deleteJob is DELETE /v1/jobs/{id}: of a job that another node has, there and
// here.
func (a *API) deleteJob(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := query(r); err != nil {
		return err
	}
	if err := noBody(w, r); err != nil {
		return err
	}
	s, err := a.mine(r, who)
	if err != nil {
		return err
	}
	if _, err := ifMatch(r, s); err != nil {
		return err
	}
	if !s.State.Terminal() {
		return &job.TransitionError{From: s.State, To: "deleted"}
	}
	if s.Forwarded != nil && s.Forwarded.Accepted {
		if err := a.deleteRemote(r.Context(), s); err != nil {
			return err
		}
	}
	if err := a.cfg.Queue.Delete(s.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listItems is GET /v1/jobs/{id}/items.
func (a *API) listItems(w http.ResponseWriter, r *http.Request, who *caller) error {
	q, err := query(r, "state", "limit", "page_token")
	if err != nil {
		return err
	}
	limit, err := limitOf(q)
	if err != nil {
		return err
	}
	f := job.ItemFilter{State: job.ItemState(q.Get("state"))}
	if f.State != "" && !f.State.Valid() {
		return parameter("state", "must be succeeded, skipped or failed")
	}
	s, err := a.find(r, who)
	if err != nil {
		return err
	}
	if s.Forwarded != nil && s.Forwarded.Accepted {
		return a.itemsOfRemote(w, r, s, q)
	}
	items, next, err := a.cfg.Queue.Items(s.ID, f, q.Get("page_token"), limit)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, v1.ItemList{Items: filled(items), NextPageToken: next})
}
