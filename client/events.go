package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

// EventOptions selects events; the zero value selects all that the node keeps.
type EventOptions struct {
	Job    *job.ID       // of this job alone
	Owner  string        // of this owner's jobs; not with Job
	After  uint64        // with a larger Seq
	Latest bool          // only those that come from now on, whatever After says
	Limit  int           // of a page, 1..job.MaxPage; 0 is the server's default
	Wait   time.Duration // of a page without events: how long the server waits for one, at most 60 s
}

func (o EventOptions) path() string {
	path, after := "/v1/events", strconv.FormatUint(o.After, 10)
	if o.Job != nil {
		path = jobPath(*o.Job, "/events")
	}
	if o.Latest {
		after = "latest"
	}
	wait := ""
	if o.Wait > 0 {
		wait = o.Wait.String()
	}
	return path + query("after", after, "owner", o.Owner, "limit", whole(o.Limit), "wait", wait)
}

// Events returns a page of events, oldest first.
func (c *Client) Events(ctx context.Context, o EventOptions) (v1.EventList, error) {
	var l v1.EventList
	_, err := c.call(ctx, request{method: http.MethodGet, path: o.path(), wait: o.Wait}, &l)
	return l, wrap("list events", err)
}

const (
	// silence is how long a stream may bring nothing: three times the server's
	// heartbeat.
	silence = 45 * time.Second
	// maxEventBytes bounds a line of a stream.
	maxEventBytes = 1 << 20
)

// Follow is every event as it comes, until ctx ends, the job is deleted, or the
// node refuses; the last pair then has the error (ctx's own when it ended). A
// stream that is lost is opened again behind the last event, for a minute of
// no answer. Limit and Wait do not apply.
func (c *Client) Follow(ctx context.Context, o EventOptions) iter.Seq2[job.Event, error] {
	o.Limit, o.Wait = 0, 0
	return func(yield func(job.Event, error) bool) {
		f := &follower{c: c, o: o, yield: yield}
		for try := 1; ; try++ {
			began := time.Now()
			err := f.stream(ctx)
			if f.left {
				return
			}
			if ctx.Err() != nil {
				yield(job.Event{}, wrap("follow events", ctx.Err()))
				return
			}
			if f.fresh {
				try, f.silent, f.fresh = 1, began, false
			} else if f.silent.IsZero() {
				f.silent = began
			}
			if err != nil && (!worthAnother(err) || time.Since(f.silent) > outage) {
				yield(job.Event{}, wrap("follow events", err))
				return
			}
			if err == nil && f.deleted {
				return
			}
			c.pause(ctx, min(try, maxTries), 0)
		}
	}
}

// follower is one Follow.
type follower struct {
	c       *Client
	o       EventOptions
	yield   func(job.Event, error) bool
	seen    bool      // o.After is an event that was handed out
	fresh   bool      // something came since the last try
	silent  time.Time // since when nothing has
	left    bool      // the caller has had enough
	deleted bool      // the job is; nothing more comes
}

// stream reads one stream to its end: nil is one that the server ended.
func (f *follower) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(answerTimeout, cancel)
	defer quiet.Stop()
	header := map[string]string{"Accept": "text/event-stream"}
	if f.seen {
		header["Last-Event-ID"] = strconv.FormatUint(f.o.After, 10)
	}
	req, err := f.c.newRequest(ctx, http.MethodGet, f.o.path(), nil, header)
	if err != nil {
		return err
	}
	resp, err := f.c.http.Do(req)
	if err != nil {
		return f.c.lost(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxEventBytes))
		return problemOf(resp, data)
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return fmt.Errorf("%s answered with no stream of events; check --server or MOVER_SERVER", f.c.name)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxEventBytes)
	data := ""
	for lines.Scan() {
		quiet.Reset(silence)
		f.fresh = true
		// An event is whole with the empty line behind it; until then it may
		// be cut. It says its id and type itself.
		line := lines.Text()
		if text, ok := strings.CutPrefix(line, "data:"); ok {
			data = text
		}
		if line != "" || data == "" {
			continue
		}
		var e job.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("an event of %s cannot be read: %w", f.c.name, err)
		}
		data = ""
		if f.seen && e.Seq <= f.o.After {
			continue
		}
		f.o.After, f.o.Latest, f.seen = e.Seq, false, true
		f.deleted = f.o.Job != nil && e.Type == job.EventDeleted
		if !f.yield(e, nil) {
			f.left = true
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return f.c.lost(err)
	}
	return nil
}

// lost is a connection that broke, by the other side or by our own clock: never
// the caller's wish, which Follow looks at first.
func (c *Client) lost(err error) error {
	if errors.Is(err, context.Canceled) {
		err = errors.New("nothing came for too long")
	}
	return &UnreachableError{Server: c.name, Err: err}
}
