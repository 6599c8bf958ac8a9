package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	v1 "mover/api/v1"
	"mover/job"
)

// Cancel asks for the job's end and returns it as it then is, maybe still
// canceling: Wait for its end.
func (c *Client) Cancel(ctx context.Context, id job.ID) (job.Snapshot, error) {
	return c.act(ctx, id, "cancel")
}

// Pause stops the job until Resume, and returns it as it then is, maybe with
// Pausing set.
func (c *Client) Pause(ctx context.Context, id job.ID) (job.Snapshot, error) {
	return c.act(ctx, id, "pause")
}

// Resume lets a paused job go on.
func (c *Client) Resume(ctx context.Context, id job.ID) (job.Snapshot, error) {
	return c.act(ctx, id, "resume")
}

// Retry queues a job again that ended failed, canceled, expired or partial, and
// lets one that backs off try at once.
func (c *Client) Retry(ctx context.Context, id job.ID) (job.Snapshot, error) {
	return c.act(ctx, id, "retry")
}

func (c *Client) act(ctx context.Context, id job.ID, name string) (job.Snapshot, error) {
	var s job.Snapshot
	_, err := c.call(ctx, request{method: http.MethodPost, path: jobPath(id, "/"+name)}, &s)
	return s, wrap(name+" the job", err)
}

// Patch changes a job that has not ended. ifVersion, unless 0, is the
// Snapshot.Version that it must have; else the error is an *Error with status
// 412. Such a change is asked for once: when no answer comes, Get tells.
func (c *Client) Patch(ctx context.Context, id job.ID, p job.Patch, ifVersion uint64) (job.Snapshot, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return job.Snapshot{}, fmt.Errorf("change the job: %w", err)
	}
	r := request{method: http.MethodPatch, path: jobPath(id, ""), body: body}
	if ifVersion != 0 {
		r.header = map[string]string{"If-Match": `"` + strconv.FormatUint(ifVersion, 10) + `-"`}
		r.once = true
	}
	var s job.Snapshot
	_, err = c.call(ctx, r, &s)
	return s, wrap("change the job", err)
}

// Delete makes the node forget a job that has ended, and its items.
func (c *Client) Delete(ctx context.Context, id job.ID) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: jobPath(id, "")}, nil)
	return wrap("delete the job", err)
}

// ItemOptions selects a job's items; the zero value selects all.
type ItemOptions struct {
	State     job.ItemState
	Limit     int // of a page, 1..job.MaxPage; 0 is the server's default
	PageToken string
}

// Items returns a page of what became of a job's items.
func (c *Client) Items(ctx context.Context, id job.ID, o ItemOptions) (v1.ItemList, error) {
	var l v1.ItemList
	q := query("state", string(o.State), "page_token", o.PageToken, "limit", whole(o.Limit))
	_, err := c.call(ctx, request{method: http.MethodGet, path: jobPath(id, "/items") + q}, &l)
	return l, wrap("list the job's items", err)
}

// AllItems is every item of a job, a page at a time; o.PageToken is where it
// begins. It ends with the first error.
func (c *Client) AllItems(ctx context.Context, id job.ID, o ItemOptions) iter.Seq2[job.ItemRecord, error] {
	return pages(func(token string) ([]job.ItemRecord, string, error) {
		o.PageToken = token
		l, err := c.Items(ctx, id, o)
		return l.Items, l.NextPageToken, err
	}, o.PageToken)
}

// All is every job that o selects, newest first, a page at a time. It ends with
// the first error.
func (c *Client) All(ctx context.Context, o ListOptions) iter.Seq2[job.Snapshot, error] {
	return pages(func(token string) ([]job.Snapshot, string, error) {
		o.PageToken = token
		l, err := c.List(ctx, o)
		return l.Jobs, l.NextPageToken, err
	}, o.PageToken)
}

// pages is what the pages have, asked for when they are needed.
func pages[T any](page func(token string) ([]T, string, error), token string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			list, next, err := page(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, v := range list {
				if !yield(v, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// Plan tells what a job would do now, without doing it.
func (c *Client) Plan(ctx context.Context, spec job.Spec) (v1.Plan, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return v1.Plan{}, fmt.Errorf("plan: %w", err)
	}
	var p v1.Plan
	_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/plan", body: body, wait: planWait}, &p)
	return p, wrap("plan the job", err)
}

func jobPath(id job.ID, rest string) string { return "/v1/jobs/" + id.String() + rest }

// query is "?" and the pairs that have a value, or nothing.
func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// whole is a number that 0 leaves out.
func whole(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
