package job

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"mover/reason"
)

// ending is why the queue ends an attempt before it is over.
type ending uint8

const (
	endNone     ending = iota
	endCancel          // someone canceled the job
	endDeadline        // its deadline passed
	endClose           // the node stops
	endPause           // someone paused the job
	endYield           // it turned out large, and there is no place for it
)

// Causes of the context that Run gets, for context.Cause.
var (
	errCanceled = &reason.Error{Code: reason.Canceled, Detail: "the job was canceled"}
	errDeadline = &reason.Error{Code: reason.Deadline, Detail: "the job's deadline passed; submit it again with a later one"}
)

// run is one call of Router.Run.
type run struct {
	number   int
	class    *class // where it holds a place
	progress *Progress
	items    *itemSink
	cancel   context.CancelCauseFunc
	why      ending  // the first to come
	grace    Stopper // ends the job if Run does not return
}

// end asks Run to return. Callers hold the queue's lock.
func (r *run) end(why ending) {
	if r.why != endNone {
		return
	}
	r.why = why
	switch why {
	case endCancel:
		r.cancel(errCanceled)
	case endDeadline:
		r.cancel(errDeadline)
	case endPause:
		r.cancel(ErrPaused)
	case endYield:
		r.cancel(ErrYield)
	default:
		r.cancel(ErrClosed)
	}
}

// start begins an attempt of a job that was popped from its class's line.
func (q *Queue) start(e *entry) {
	s := &e.rec.snap
	s.Attempts++
	s.NextAttemptAt = nil
	if s.StartedAt == nil {
		s.StartedAt = timePtr(q.clock.Now())
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &run{number: s.Attempts, cancel: cancel, class: e.class}
	r.progress = newProgress(q.clock, &q.moved)
	r.progress.large, r.progress.grow = q.cfg.SmallBytes, func() { q.grow(e, r) }
	r.items = q.items.sink(s.ID, s.Attempts)
	e.attempt, e.progress = r, r.progress
	q.change(e, Preparing)
	r.class.running++
	q.returned.Add(1)
	go q.carryOut(ctx, e, r, q.view(e), e.last)
}

// carryOut is the goroutine of one attempt, which begins when begun is durable:
// no number of an attempt must be given again after a crash, for what a late
// writer of the first one does is told by its number.
func (q *Queue) carryOut(ctx context.Context, e *entry, r *run, s Snapshot, begun *write) {
	defer q.returned.Done()
	defer r.cancel(nil)
	var res Result
	var err error
	select {
	case <-begun.settled:
	case <-ctx.Done():
	}
	select {
	case <-begun.settled: // Run hears of ctx itself
		res, err = q.call(ctx, &Attempt{
			Job: s, Number: r.number, Progress: r.progress, Items: r.items,
			Phase: func(to State) { q.phase(e, r, to) },
			Limit: func() Rate { return Rate(e.limit.Load()) },
		})
	default:
		err = context.Cause(ctx)
	}
	r.items.close()
	q.mu.Lock()
	defer q.mu.Unlock()
	stop(r.grace)
	code := reason.Of(err)
	q.attempts[code]++
	r.class.leave(s.Owner)
	res.Seconds = max(q.clock.Now().Sub(r.progress.start), 0).Seconds()
	if e.attempt != r {
		// The job ended without waiting for this attempt any longer.
		q.cfg.Logger.Warn("an attempt returned after its job had ended", "job", s.ID, "attempt", r.number, "code", code)
		q.outlived(s.ID, r)
	} else if e.attempt = nil; err == nil {
		q.succeed(e, r, res)
	} else {
		q.fail(e, r, err)
	}
	q.schedule()
}

// outlived lets the job go on, if it was retried meanwhile.
func (q *Queue) outlived(id ID, r *run) {
	if q.linger[id] != r {
		return
	}
	delete(q.linger, id)
	if e := q.live[id]; e != nil && e.known && e.attempt == nil && e.rec.snap.State == Queued && e.rec.snap.NextAttemptAt == nil && !q.closed {
		q.enqueue(e)
	}
}

// call runs the Router. A panic fails the job, not the node: it would come
// back with the job at every restart.
func (q *Queue) call(ctx context.Context, a *Attempt) (res Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			q.cfg.Logger.Error("an attempt panicked", "job", a.Job.ID, "attempt", a.Number,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = reason.New(reason.Internal, "the attempt failed by a defect of this program; report it with the details that the node's log has")
		}
	}()
	return q.cfg.Router.Run(ctx, a)
}

// phase is Attempt.Phase.
func (q *Queue) phase(e *entry, r *run, to State) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := e.rec.snap.State
	if e.attempt != r || from == Canceling || from == to {
		return // late, or nothing new
	}
	if (to != Running && to != Verifying && to != Publishing) || !from.CanMove(to) {
		q.cfg.Logger.Error("an attempt reported a phase that cannot follow",
			"job", e.rec.snap.ID, "err", &TransitionError{from, to})
		return
	}
	q.change(e, to)
}

// succeed ends a job whose attempt published everything.
func (q *Queue) succeed(e *entry, r *run, res Result) {
	s := &e.rec.snap
	s.Result = &res
	if s.State == Canceling {
		// Someone was told that the job will be canceled. The result still
		// says what was published.
		s.LastReason = canceledReason("the job was canceled when its items were already published")
		q.change(e, Canceled)
		return
	}
	// An attempt that succeeded has been through every phase, whether it
	// said so or not; the table stays the only way.
	for s.State != Publishing && !(s.State == Preparing && res.Skipped) {
		next := map[State]State{Preparing: Running, Running: Verifying, Verifying: Publishing}[s.State]
		q.change(e, next)
	}
	s.LastReason = nil
	if res.ItemsFailed > 0 {
		s.LastReason = res.FirstFailure
		q.change(e, Partial)
		return
	}
	q.change(e, Succeeded)
}

// fail decides what a failed attempt means for its job.
func (q *Queue) fail(e *entry, r *run, err error) {
	s := &e.rec.snap
	why := NewReason(err)
	// An attempt that was told to end has no better word than that it ended;
	// only a reason that would have ended the job anyway outranks it.
	interrupted := why.Retryable || why.Code == reason.Canceled || why.Code == reason.Deadline ||
		why.Code == reason.Internal && (errors.Is(err, context.Canceled) || errors.Is(err, ErrClosed) || errors.Is(err, ErrPaused) || errors.Is(err, ErrYield))
	switch {
	case s.State == Canceling:
		s.LastReason = canceledReason("the job was canceled")
		q.change(e, Canceled)
	case r.why == endDeadline && interrupted, r.why == endNone && why.Code == reason.Deadline:
		expired := NewReason(errDeadline)
		s.LastReason = &expired
		q.change(e, Expired)
	case r.why == endClose && interrupted:
		q.change(e, Queued)
	case r.why == endPause && interrupted && s.Pausing && s.DeadlineAt != nil && !s.DeadlineAt.After(q.clock.Now()):
		// Its timer came while the attempt was ending.
		expired := NewReason(errDeadline)
		s.LastReason = &expired
		q.change(e, Expired)
	case r.why == endPause && interrupted && s.Pausing:
		q.change(e, Paused)
	case r.why == endPause && interrupted: // resumed meanwhile
		q.change(e, Queued)
		q.enqueue(e)
	case r.why == endYield && interrupted:
		q.change(e, Queued)
		q.enqueue(e)
	case why.Code == reason.Canceled:
		// Canceled by the other side: through the table like any cancel.
		s.LastReason = &why
		q.change(e, Canceling)
		q.change(e, Canceled)
	case !why.Retryable:
		s.LastReason = &why
		q.change(e, Failed)
	default:
		s.LastReason = &why
		e.rec.failures++
		q.retry(e)
	}
}

// retry puts a job with a retryable failure back, or ends it when its attempts
// or its time are used up.
func (q *Queue) retry(e *entry) {
	s := &e.rec.snap
	if e.rec.failures >= q.cfg.MaxAttempts {
		q.change(e, Failed)
		return
	}
	wait := q.cfg.backoff(e.rec.failures)
	next := q.clock.Now().Add(wait)
	if s.DeadlineAt != nil && !next.Before(*s.DeadlineAt) {
		// No attempt can begin before the deadline. The last reason says
		// more than DEADLINE would.
		q.change(e, Failed)
		return
	}
	s.NextAttemptAt = timePtr(next)
	q.change(e, Queued)
	q.backOff(e, wait)
}

// backOff lets a queued job wait for its next attempt.
func (q *Queue) backOff(e *entry, wait time.Duration) {
	e.backoff = q.clock.AfterFunc(wait, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		// A canceled job, or one whose timer was stopped too late.
		at := e.rec.snap.NextAttemptAt
		if q.closed || e.rec.snap.State != Queued || e.place != nil || at == nil || at.After(q.clock.Now()) {
			return
		}
		q.enqueue(e)
		q.schedule()
	})
}

// expire is the deadline's timer.
func (q *Queue) expire(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &e.rec.snap
	why := NewReason(errDeadline)
	switch {
	case q.closed || s.State.Terminal() || s.State == Canceling:
	case s.DeadlineAt == nil || s.DeadlineAt.After(q.clock.Now()): // put off meanwhile
	case e.attempt != nil:
		e.attempt.end(endDeadline)
		why.Detail = "the job's deadline passed; its attempt has not returned yet"
		q.giveUpAfter(e, e.attempt, &why, Expired)
	case s.State == Queued && e.rec.failures > 0:
		// It waited for its turn after a failure, whose reason says more.
		q.change(e, Failed)
	default:
		s.LastReason = &why
		q.change(e, Expired)
	}
}

// giveUpAfter ends the job when r does not return in time: nobody waits for
// ever. The attempt keeps its place among those running until it returns, so
// that what it holds is not counted as free.
func (q *Queue) giveUpAfter(e *entry, r *run, why *Reason, to State) {
	stop(r.grace)
	r.grace = q.clock.AfterFunc(q.cfg.CancelTimeout, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		// The table decides between two timers that were due at once.
		if e.attempt != r || !e.rec.snap.State.CanMove(to) {
			return
		}
		q.cfg.Logger.Error("an attempt did not return after it was told to end",
			"job", e.rec.snap.ID, "attempt", r.number, "after", q.cfg.CancelTimeout)
		if why != nil {
			e.rec.snap.LastReason = why
		}
		e.attempt = nil
		q.linger[e.rec.snap.ID] = r
		q.change(e, to)
	})
}
