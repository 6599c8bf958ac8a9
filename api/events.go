package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

const (
	// heartbeat is how often a stream without events says that it is alive, so
	// that the client, this node and what is between them notice when it is not.
	heartbeat = 15 * time.Second
	// eventTimeout is how long a client may take for what is sent to it. One
	// that is slower is cut off, and resumes with Last-Event-ID: events wait
	// in the store, not in memory.
	eventTimeout = 10 * time.Second
	// streamPage is how many events are sent at a time.
	streamPage = 100
)

// nodeEvents is GET /v1/events.
func (a *API) nodeEvents(w http.ResponseWriter, r *http.Request, who *caller) error {
	q, err := query(r, "after", "limit", "wait", "owner")
	if err != nil {
		return err
	}
	return a.events(w, r, q, job.EventFilter{Owner: q.Get("owner")}, nil)
}

// jobEvents is GET /v1/jobs/{id}/events. Those of a job that another node has
// are what this node learns of it, while it asks.
func (a *API) jobEvents(w http.ResponseWriter, r *http.Request, who *caller) error {
	q, err := query(r, "after", "limit", "wait")
	if err != nil {
		return err
	}
	s, err := a.find(r, who)
	if err != nil {
		return err
	}
	var stub *job.Snapshot
	if s.Forwarded != nil {
		stub = &s
	}
	return a.events(w, r, q, job.EventFilter{Job: &s.ID}, stub)
}

func (a *API) events(w http.ResponseWriter, r *http.Request, q url.Values, f job.EventFilter, stub *job.Snapshot) error {
	limit, err := limitOf(q)
	if err != nil {
		return err
	}
	wait, err := waitOf(q, 0)
	if err != nil {
		return err
	}
	if f.After, err = a.afterOf(q, r.Header.Get("Last-Event-Id")); err != nil {
		return err
	}
	if prefers(r.Header.Values("Accept"), mediaEvents, mediaJSON) && r.Method != http.MethodHead {
		if q.Has("limit") || q.Has("wait") {
			return refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "limit and wait belong to pages of JSON, not to a stream")
		}
		return a.stream(w, r, f, stub)
	}
	if stub != nil && wait == 0 {
		_, _, _ = a.refresh(r.Context(), *stub) // else as last heard of
	}
	page, err := a.cfg.Queue.Events(r.Context(), f, limit)
	if err == nil && len(page) == 0 && wait > 0 {
		page, err = a.waitEvents(w, r, f, limit, wait, stub)
	}
	if err != nil {
		return err
	}
	next := f.After
	if len(page) > 0 {
		next = page[len(page)-1].Seq
	}
	return answer(w, http.StatusOK, v1.EventList{Events: filled(page), NextAfter: next})
}

// afterOf is where a page or stream of events begins. "latest" is only what
// comes from now on. A client that lost its stream tells with Last-Event-ID
// what it has, which is newer than what it once asked for.
func (a *API) afterOf(q url.Values, lastID string) (uint64, error) {
	name, v := "after", q.Get("after")
	if lastID != "" {
		name, v = "Last-Event-ID", lastID
	}
	switch v {
	case "":
		return 0, nil
	case "latest":
		if lastID == "" {
			return a.cfg.Queue.LastEvent(), nil
		}
	}
	n, err := number(v)
	if err != nil {
		return 0, parameter(name, "must be the seq of an event, or latest")
	}
	return uint64(n), nil
}

// waitEvents is the long poll of a page.
func (a *API) waitEvents(w http.ResponseWriter, r *http.Request, f job.EventFilter, limit int, d time.Duration, stub *job.Snapshot) ([]job.Event, error) {
	leave, err := a.place(a.waits, v1.CodeTooManyWaiters, "as many requests wait as may; try again, or poll without wait")
	if err != nil {
		return nil, err
	}
	defer leave()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + writeTimeout))
	ctx, cancel := a.until(r.Context(), d)
	defer cancel()
	defer a.follow(ctx, stub)()
	page, err := a.cfg.Queue.WaitEvents(ctx, f, limit)
	if errors.Is(err, context.Canceled) || errors.Is(err, job.ErrClosed) {
		return nil, nil // none, as it is now
	}
	return page, err
}

// stream sends events as they come (server-sent events, HTML Living Standard
// section 9.2) until the client leaves or is too slow, its token is revoked,
// the job is deleted, or the node stops.
func (a *API) stream(w http.ResponseWriter, r *http.Request, f job.EventFilter, stub *job.Snapshot) error {
	leave, err := a.place(a.streams, v1.CodeTooManyStreams, "as many streams are open as may; try again later, or poll with wait")
	if err != nil {
		return err
	}
	defer leave()
	out := streamWriter{w: w, control: http.NewResponseController(w)}
	// The body's deadline would end what the server reads in the background to
	// notice that the client leaves.
	_ = out.control.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", mediaEvents)
	w.Header().Set("X-Accel-Buffering", "no") // for a proxy that would keep events back
	w.WriteHeader(http.StatusOK)
	out.send([]byte("retry: 2000\n\n"))
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer a.follow(ctx, stub)()
	for out.err == nil {
		page, err := a.nextEvents(ctx, f)
		if _, denied := a.authenticate(r); denied != nil || ctx.Err() != nil || a.stopping.Err() != nil {
			return nil
		}
		switch {
		case errors.Is(err, context.Canceled): // nothing came
			out.send([]byte(": heartbeat\n\n"))
			continue
		case err != nil:
			if !errors.Is(err, job.ErrClosed) {
				a.cfg.Logger.Error("a stream of events failed", "err", err)
			}
			return nil
		}
		var block bytes.Buffer
		for _, e := range page {
			if err := appendEvent(&block, e); err != nil {
				return err
			}
			f.After = e.Seq
		}
		out.send(block.Bytes())
		if f.Job != nil && page[len(page)-1].Type == job.EventDeleted {
			return nil
		}
	}
	return nil
}

// nextEvents waits for events as long as a stream may be silent.
func (a *API) nextEvents(ctx context.Context, f job.EventFilter) ([]job.Event, error) {
	ctx, cancel := a.until(ctx, heartbeat)
	defer cancel()
	return a.cfg.Queue.WaitEvents(ctx, f, streamPage)
}

func appendEvent(b *bytes.Buffer, e job.Event) error {
	data, err := json.Marshal(e) // without a line end
	if err != nil {
		return fmt.Errorf("marshal an event: %w", err)
	}
	b.WriteString("id: " + strconv.FormatUint(e.Seq, 10) + "\nevent: " + string(e.Type) + "\ndata: ")
	b.Write(data)
	b.WriteString("\n\n")
	return nil
}

// streamWriter sends at once, or not at all any more.
type streamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (s *streamWriter) send(data []byte) {
	if s.err != nil {
		return
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(eventTimeout))
	if _, s.err = s.w.Write(data); s.err == nil {
		s.err = s.control.Flush()
	}
}
