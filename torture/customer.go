//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"mover/client"
	"mover/job"
	"mover/reason"
)

// settleLimit is how long a job may take to end once calm has returned: ten
// attempts, with the back-off between them, on a busy host.
const settleLimit = 15 * time.Minute

// pollPeriod is how often a customer asks after its job.
const pollPeriod = 100 * time.Millisecond

// customer submits one job and stays with it until it has ended.
type customer struct {
	t     *run
	order *order
	r     *rand.Rand
	id    job.ID
	last  job.Snapshot
	// what was asked for, and so may be the end
	canceled bool
	retried  int
}

// serve is a job's whole life.
func (t *run) serve(ctx context.Context, o *order, r *rand.Rand) {
	c := &customer{t: t, order: o, r: r}
	defer func() {
		if o.span != nil {
			t.spans[o.to.name] <- o.span
		}
	}()
	if !c.submit(ctx, true) {
		return
	}
	if !c.follow(ctx) {
		return
	}
	for o.plan.retry && c.last.State != job.Succeeded && c.retried < 3 {
		c.retried++
		if !c.act(ctx, "retry", func(ctx context.Context) error {
			_, err := o.at.client.Retry(ctx, c.id)
			return err
		}) {
			break
		}
		o.plan = plan{retry: o.plan.retry, forget: o.plan.forget, patience: o.plan.patience}
		if !c.follow(ctx) {
			return
		}
	}
	c.alone(ctx)
	c.judge()
	if o.plan.forget {
		c.act(ctx, "delete", func(ctx context.Context) error { return o.at.client.Delete(ctx, c.id) })
	}
}

// submit asks until there is an answer, with the same key always. Impatient
// requests end early, so that some are taken whose answer nobody hears.
func (c *customer) submit(ctx context.Context, first bool) bool {
	o := c.order
	limit := time.Now().Add(settleLimit)
	for try := 0; ; try++ {
		patience := 30 * time.Second
		if o.plan.patience > 0 && try < 3 {
			patience = o.plan.patience
		}
		asking, cancel := context.WithTimeout(ctx, patience)
		s, err := o.at.client.Submit(asking, o.spec, o.key)
		cancel()
		if err == nil {
			if !first && s.ID != c.id {
				c.t.wrong("%v: submitted again with its key, it is %s, not %s", o, s.ID, c.id)
			}
			if first {
				c.t.counts.jobs.Add(1)
			}
			c.id, c.last = s.ID, s
			return true
		}
		if !again(err) {
			c.t.wrong("%v: the submit was refused: %v", o, err)
			return false
		}
		c.t.counts.resubmits.Add(1)
		if time.Now().After(limit) || !pause(ctx, pollPeriod) {
			if ctx.Err() == nil {
				c.t.wrong("%v: could not be submitted within %v: %v", o, settleLimit, err)
			}
			return false
		}
	}
}

// again reports whether a request is worth another try: no answer came, or
// "not now".
func again(err error) bool {
	var refused *client.Error
	if errors.As(err, &refused) {
		return refused.Status >= 500 || refused.Status == http.StatusTooManyRequests
	}
	return true
}

// follow does what the plan says and returns once the job has ended; false
// means that it did not, which has been reported.
func (c *customer) follow(ctx context.Context) bool {
	o, begin := c.order, time.Now()
	plan := &o.plan
	var pausedAt time.Time
	limit := begin.Add(c.t.scheduleLeft() + settleLimit)
	for {
		since := time.Since(begin)
		switch {
		case due(&plan.pause, since):
			pausedAt = time.Now()
			c.act(ctx, "pause", func(ctx context.Context) error { _, err := o.at.client.Pause(ctx, c.id); return err })
		case !pausedAt.IsZero() && time.Since(pausedAt) > plan.paused, c.last.State == job.Paused && c.t.calm():
			pausedAt = time.Time{}
			if !c.act(ctx, "resume", func(ctx context.Context) error { _, err := o.at.client.Resume(ctx, c.id); return err }) {
				pausedAt = time.Now() // later
			}
		case due(&plan.cancel, since):
			c.canceled = true
			c.act(ctx, "cancel", func(ctx context.Context) error { _, err := o.at.client.Cancel(ctx, c.id); return err })
		case due(&plan.patch, since):
			rate := job.Rate(between(c.r, 8<<20, 256<<20)) * 8
			c.act(ctx, "patch", func(ctx context.Context) error {
				_, err := o.at.client.Patch(ctx, c.id, job.Patch{BandwidthLimit: &rate}, 0)
				return err
			})
		case due(&plan.again, since):
			if !c.submit(ctx, false) {
				return false
			}
		}
		if !pause(ctx, pollPeriod) || !c.ask(ctx) {
			return false
		}
		if c.last.State.Terminal() {
			return true
		}
		if time.Now().After(limit) {
			c.t.wrong("%v: has not ended: %s", o, c.told())
			return false
		}
	}
}

// due reports, once, that it is time.
func due(at *time.Duration, since time.Duration) bool {
	if *at == 0 || since < *at {
		return false
	}
	*at = 0
	return true
}

// ask gets the job. A node that does not answer is asked again later; one that
// does not know the job has lost it.
func (c *customer) ask(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s, err := c.order.at.client.Get(asking, c.id)
	if err == nil {
		c.last = s
		c.suspect()
		return true
	}
	var refused *client.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		c.t.wrong("%v: %s was accepted and is not known any more", c.order, c.id)
		return false
	}
	return ctx.Err() == nil
}

// act has something done to the job and reports whether it was. A conflict
// with what the job is by now is an answer like any.
func (c *customer) act(ctx context.Context, what string, do func(ctx context.Context) error) bool {
	for try := 0; try < 40; try++ {
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := do(asking)
		cancel()
		if err == nil {
			c.t.counts.act(what)
			return true
		}
		var refused *client.Error
		if errors.As(err, &refused) && (refused.Status == http.StatusConflict || refused.Status == http.StatusNotFound && what == "delete") {
			return false
		}
		if !again(err) {
			c.t.wrong("%v: %s was refused: %v", c.order, what, err)
			return false
		}
		if !pause(ctx, 5*pollPeriod) {
			return false
		}
	}
	return false
}

// alone makes sure that the job is there once, however often it was submitted.
// Which node is asked does not matter: both have it if both should.
func (c *customer) alone(ctx context.Context) {
	for try := 0; try < 40; try++ {
		asking, cancel := context.WithTimeout(ctx, 10*time.Second)
		list, err := c.order.at.client.List(asking, client.ListOptions{Label: "torture=" + c.order.label()})
		cancel()
		if err == nil {
			if len(list.Jobs) != 1 {
				c.t.wrong("%v: is there %d times", c.order, len(list.Jobs))
			}
			return
		}
		if !pause(ctx, 5*pollPeriod) {
			return
		}
	}
}

// told is the job's state and reason, for messages.
func (c *customer) told() string {
	text := c.id.String() + " is " + string(c.last.State)
	if why := c.last.LastReason; why != nil {
		text += ", " + string(why.Code) + ": " + why.Detail
	}
	return text
}

// suspect reports a reason that nothing here can cause, even if the job goes
// on: sources do not change, disks do not fail, wires do not flip bits.
func (c *customer) suspect() {
	why := c.last.LastReason
	if why == nil || c.mayEnd(why.Code) {
		return
	}
	c.t.wrongOnce(c.id.String()+string(why.Code), "%v: %s", c.order, c.told())
}

// mayEnd reports whether an attempt of the job may end for this reason.
func (c *customer) mayEnd(code reason.Code) bool {
	o := c.order
	switch code {
	case reason.PeerUnreachable, reason.PeerRefused, reason.TransportError, reason.Stalled:
		return true
	case reason.BufferBusy:
		// An attempt whose node was killed may hold the range for a while.
		return o.span != nil || o.spec.Source.Buffer != ""
	case reason.Canceled:
		return c.canceled
	case reason.Deadline:
		return o.spec.Deadline > 0
	case reason.NoSpace:
		return o.small
	case reason.DestExists:
		return o.shared != nil && o.spec.Overwrite == job.OverwriteFail
	}
	return false
}
