package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

// A job whose source is on another node belongs to that node; this one keeps a
// stub (see package job). What a user asks of the stub is asked of the owner,
// and what the owner says becomes what this node says, under its own version:
// a tag of the job means one thing here, whoever was asked.

const (
	// readTimeout is how long a read waits for the owner before it shows the
	// job as last heard of.
	readTimeout = 3 * time.Second
	// changeTimeout is how long a change waits for the owner's word.
	changeTimeout = 20 * time.Second
	// remoteWait is how long the owner is asked to wait at a time, well within
	// what a question between nodes may last.
	remoteWait = 25 * time.Second
	// remotePause is how long to leave an owner alone that did not answer.
	remotePause = 5 * time.Second
	// remoteWaits is how many requests wait at other nodes at a time: they
	// would all wait at one peer, which takes so many questions.
	remoteWaits = 32
)

// callRemote asks the owner of a stub, for the job's owner: that the user may
// ask was decided here, and this node is trusted with what it forwarded.
func (a *API) callRemote(ctx context.Context, stub job.Snapshot, req RemoteRequest) (RemoteResponse, error) {
	if a.cfg.Remote == nil {
		return RemoteResponse{}, absent("connection to other nodes")
	}
	req.Path = "/v1/jobs/" + stub.ID.String() + req.Path
	req.Owner, req.Scope = stub.Owner, ScopeSubmit.String()
	resp, err := a.cfg.Remote.Call(ctx, stub.Forwarded.Node, req)
	if err != nil {
		return resp, err
	}
	if resp.Status/100 != 2 {
		return resp, problemFrom(resp)
	}
	return resp, nil
}

// problemFrom is the problem that another node answered with.
func problemFrom(resp RemoteResponse) error {
	var p v1.Problem
	if resp.Status < 400 || resp.Status > 599 || json.Unmarshal(resp.Body, &p) != nil || p.Code == "" || len(p.Code) > 64 || len(p.Field) > 255 {
		return errors.New("the node that has the job answered with what is no problem")
	}
	// A peer's words, made fit to be shown.
	detail := job.NewReason(errors.New("the node that has the job: " + p.Detail)).Detail
	out := refuse(resp.Status, p.Code, "%s", detail)
	out.field, out.reason = p.Field, p.Reason
	if resp.Header["Retry-After"] != "" {
		_ = out.retryAfter("5")
	}
	return out
}

// take makes a snapshot that the owner answered with this node's own.
func (a *API) take(ctx context.Context, stub job.Snapshot, resp RemoteResponse) (s, owners job.Snapshot, err error) {
	if err := json.Unmarshal(resp.Body, &owners); err != nil || owners.ID != stub.ID || owners.Version == 0 {
		return stub, owners, fmt.Errorf("the node that has job %s did not answer with it", stub.ID)
	}
	if s, err = a.cfg.Queue.UpdateStub(stub.ID, owners); err != nil {
		return stub, owners, err
	}
	if owners.State.Terminal() && !s.State.Terminal() {
		// An end is shown when it is kept, which is soon.
		if ended, err := a.cfg.Queue.Wait(ctx, s.ID, s.Version); err == nil {
			s = ended
		}
	}
	return s, owners, nil
}

// refresh returns a stub with what its owner says now. On an error the stub is
// as it was.
func (a *API) refresh(ctx context.Context, stub job.Snapshot) (s, owners job.Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	resp, err := a.callRemote(ctx, stub, RemoteRequest{Method: http.MethodGet})
	if err != nil {
		return stub, owners, err
	}
	return a.take(ctx, stub, resp)
}

// poll returns a stub when its owner has news since the version that the owner
// told before, or after d.
func (a *API) poll(ctx context.Context, stub job.Snapshot, since uint64, d time.Duration) (s, owners job.Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, d+changeTimeout)
	defer cancel()
	resp, err := a.callRemote(ctx, stub, RemoteRequest{Method: http.MethodGet,
		Query:  url.Values{"wait": {max(d, time.Millisecond).Round(time.Millisecond).String()}}.Encode(),
		Header: map[string]string{"If-None-Match": versionTag(since)}})
	if err != nil {
		return stub, owners, err
	}
	return a.take(ctx, stub, resp)
}

// changeRemote makes a change of a stub's job at its owner.
func (a *API) changeRemote(ctx context.Context, stub job.Snapshot, method, path string, header map[string]string, body []byte) (job.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	resp, err := a.callRemote(ctx, stub, RemoteRequest{Method: method, Path: path, Header: header, Body: body})
	if err != nil {
		return stub, err
	}
	s, _, err := a.take(ctx, stub, resp)
	return s, err
}

// deleteRemote deletes a stub's job at its owner, where it may be gone already.
func (a *API) deleteRemote(ctx context.Context, stub job.Snapshot) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	_, err := a.callRemote(ctx, stub, RemoteRequest{Method: http.MethodDelete})
	var p *problem
	if errors.As(err, &p) && p.status == http.StatusNotFound {
		return nil
	}
	return err
}

// itemsOfRemote is a page of a stub's items, which its owner keeps.
func (a *API) itemsOfRemote(w http.ResponseWriter, r *http.Request, stub job.Snapshot, q url.Values) error {
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	resp, err := a.callRemote(ctx, stub, RemoteRequest{Method: http.MethodGet, Path: "/items", Query: q.Encode()})
	if err != nil {
		return err
	}
	var list v1.ItemList
	if err := json.Unmarshal(resp.Body, &list); err != nil {
		return fmt.Errorf("items of job %s: the node that has it did not answer with them", stub.ID)
	}
	list.Items = filled(list.Items)
	return answer(w, http.StatusOK, list)
}

// follow keeps a stub up to date, so that its events come, until ctx ends or
// the job does; the result waits for that. Too many of them leave it to what
// the node does by itself. A nil stub needs nothing.
func (a *API) follow(ctx context.Context, stub *job.Snapshot) (wait func()) {
	if stub == nil || a.cfg.Remote == nil {
		return func() {}
	}
	select {
	case a.remotes <- struct{}{}:
	default:
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { <-a.remotes }()
		a.followOn(ctx, *stub)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (a *API) followOn(ctx context.Context, s job.Snapshot) {
	var since uint64 // the owner's version
	for ctx.Err() == nil && !s.State.Terminal() {
		var owners job.Snapshot
		var err error
		if s.Forwarded != nil && s.Forwarded.Accepted {
			if s, owners, err = a.poll(ctx, s, since, remoteWait); err == nil {
				since = owners.Version
				continue
			}
		}
		// Not accepted, or the owner is silent: until something is new here.
		pause, cancel := a.until(ctx, remotePause)
		if fresh, err := a.cfg.Queue.Wait(pause, s.ID, s.Version); err == nil || fresh.Version > 0 {
			s = fresh
		}
		cancel()
	}
}
