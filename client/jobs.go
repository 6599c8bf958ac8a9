package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	v1 "mover/api/v1"
	"mover/job"
)

// Submit submits a job and returns it as kept. key is the idempotency key; ""
// makes a random one. Either way the request is repeated, a few times, when no
// answer came: the server then knows that it is the same job. A caller that
// may itself be started again gives a key of its own.
func (c *Client) Submit(ctx context.Context, spec job.Spec, key string) (job.Snapshot, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return job.Snapshot{}, fmt.Errorf("submit: %w", err)
	}
	if key == "" {
		random, err := uuid.NewRandom()
		if err != nil {
			return job.Snapshot{}, fmt.Errorf("submit: make an idempotency key: %w", err)
		}
		key = random.String()
	}
	var s job.Snapshot
	_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/jobs", body: body,
		header: map[string]string{"Idempotency-Key": key}}, &s)
	return s, wrap("submit the job", err)
}

// Get returns a job.
func (c *Client) Get(ctx context.Context, id job.ID) (job.Snapshot, error) {
	var s job.Snapshot
	_, err := c.call(ctx, request{method: http.MethodGet, path: "/v1/jobs/" + id.String()}, &s)
	return s, wrap("get the job", err)
}

const (
	// watchPeriod is how often a caller who wants to see progress sees it.
	watchPeriod = time.Second
	// longPoll is how long the server may keep a request of one who does not.
	longPoll = 30 * time.Second
	// outage is how long Wait puts up with a server that does not answer, as
	// while it is started again.
	outage = 60 * time.Second
)

// Wait follows a job to its end and returns it as it ended: that the job
// failed is no error of Wait's. show, if not nil, is called in the caller's
// goroutine with each new view, at the latest a second after progress and at
// once after a change of state, the last one included. A server that does not
// answer is asked again for a minute.
func (c *Client) Wait(ctx context.Context, id job.ID, show func(job.Snapshot)) (job.Snapshot, error) {
	wait := longPoll
	if show != nil {
		wait = watchPeriod
	}
	path := "/v1/jobs/" + id.String()
	var last job.Snapshot
	var silent time.Time // since when
	for {
		r := request{method: http.MethodGet, path: path}
		if last.Version > 0 {
			// The version alone, with a hash that no answer has: a change of
			// state is answered at once, the end of the wait with the
			// progress there is.
			r.header = map[string]string{"If-None-Match": `"` + strconv.FormatUint(last.Version, 10) + `-"`}
			r.path += "?wait=" + wait.String()
			r.wait = wait
		}
		var s job.Snapshot
		fresh, err := c.call(ctx, r, &s)
		var unreachable *UnreachableError
		var refused *Error
		switch {
		case err == nil:
			silent = time.Time{}
		case ctx.Err() != nil:
			return last, wrap("wait for the job", ctx.Err())
		case errors.As(err, &unreachable), errors.As(err, &refused) && worthAnother(err):
			if silent.IsZero() {
				silent = time.Now()
			}
			if time.Since(silent) > outage || last.Version == 0 {
				return last, wrap("wait for the job", err)
			}
			continue // call has paused between its tries
		default:
			return last, wrap("wait for the job", err)
		}
		if !fresh {
			continue
		}
		last = s
		if show != nil {
			show(s)
		}
		if s.State.Terminal() {
			return s, nil
		}
	}
}

// ListOptions selects jobs; the zero value selects all.
type ListOptions struct {
	States    []job.State
	Owner     string
	Label     string // "key=value"
	Limit     int    // of a page, 1..job.MaxPage; 0 is the server's default
	PageToken string
}

func (o ListOptions) query() string {
	q := url.Values{}
	states := ""
	for i, s := range o.States {
		if i > 0 {
			states += ","
		}
		states += string(s)
	}
	for k, v := range map[string]string{"state": states, "owner": o.Owner, "label": o.Label, "page_token": o.PageToken} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return q.Encode()
}

// List returns a page of the node's own jobs, newest first.
func (c *Client) List(ctx context.Context, o ListOptions) (v1.JobList, error) {
	var l v1.JobList
	_, err := c.call(ctx, request{method: http.MethodGet, path: "/v1/jobs?" + o.query()}, &l)
	return l, wrap("list jobs", err)
}

// Receiving returns a page of what other nodes' jobs bring to the node.
func (c *Client) Receiving(ctx context.Context, o ListOptions) (v1.ReceivingList, error) {
	var l v1.ReceivingList
	_, err := c.call(ctx, request{method: http.MethodGet, path: "/v1/jobs?role=receiving&" + o.query()}, &l)
	return l, wrap("list what is received", err)
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var v T
	_, err := c.call(ctx, request{method: http.MethodGet, path: path}, &v)
	return v, wrap("ask the node", err)
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
