package job

import (
	"maps"
	"time"

	"mover/reason"
)

// Pause stops a job until Resume: at once if no attempt is under way, else its
// attempt is ended (the cause is ErrPaused) and the job is paused when Run has
// returned; until then Snapshot.Pausing is set. Repeating it changes nothing.
// Errors: ErrNotFound, ErrStub, *TransitionError.
func (q *Queue) Pause(id ID) (Snapshot, error) {
	return q.act(id, func(e *entry) error {
		s := &e.rec.snap
		switch {
		case s.State == Paused || s.Pausing:
		case s.State == Queued:
			stop(e.backoff)
			q.dequeue(e)
			s.NextAttemptAt = nil
			q.change(e, Paused)
		case e.attempt == nil || s.State == Canceling || !s.State.CanMove(Paused):
			return &TransitionError{s.State, Paused}
		default:
			s.Pausing = true
			q.touch(e, EventState, false)
			e.attempt.end(endPause)
			q.giveUpAfter(e, e.attempt, nil, Paused)
		}
		return nil
	})
}

// Resume queues a paused job again, or takes back a pause that is still under
// way: the attempt ends, and another follows. Repeating it changes nothing.
// Errors as of Pause.
func (q *Queue) Resume(id ID) (Snapshot, error) {
	return q.act(id, func(e *entry) error {
		s := &e.rec.snap
		switch {
		case s.Pausing:
			s.Pausing = false
			q.touch(e, EventState, false)
		case s.State == Paused:
			q.change(e, Queued)
			q.enqueue(e)
		case s.State.Terminal() || s.State == Canceling:
			return &TransitionError{s.State, Queued}
		}
		return nil
	})
}

// Retry queues a job again that ended failed, canceled, expired or partial:
// with the same id, its attempts' budget and its deadline's time fresh. Items
// that were published stay known, see ItemSink. A job that waits for its next
// attempt gets it at once. Repeating it changes nothing. Errors as of Pause.
func (q *Queue) Retry(id ID) (Snapshot, error) {
	return q.act(id, func(e *entry) error {
		s := &e.rec.snap
		switch {
		case s.State == Queued:
			if s.NextAttemptAt != nil {
				stop(e.backoff)
				s.NextAttemptAt = nil
				q.touch(e, EventState, false)
				q.enqueue(e)
			}
		case s.State.Terminal() && s.State.CanMove(Queued):
			q.revive(e)
			q.enqueue(e)
		case s.State.Active() && s.State != Canceling && s.Retries > 0:
			// The retry that is repeated has started already.
		default:
			return &TransitionError{s.State, Queued}
		}
		return nil
	})
}

// Delete forgets a job that has ended, and its items, and returns when that is
// durable. Errors: ErrNotFound, *TransitionError, *StoreError, ErrClosed.
func (q *Queue) Delete(id ID) error {
	e, err := q.claim(id)
	if err != nil {
		return err
	}
	if state := e.rec.snap.State; !state.Terminal() {
		q.mu.Unlock()
		return &TransitionError{state, "deleted"}
	}
	var failed error
	e.pending = make(chan struct{})
	op := &write{what: writeDelete, done: func(err error) {
		failed = err
		q.forget(e)
	}}
	q.write(op, e, EventDeleted)
	q.mu.Unlock()
	<-op.settled
	return failed
}

// claim returns the entry of a job, which for an ended one is made for this
// purpose, with q.mu held. It waits for what is pending. Errors: ErrNotFound,
// *StoreError, ErrClosed.
func (q *Queue) claim(id ID) (*entry, error) {
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return nil, ErrClosed
		}
		e := q.live[id]
		if e != nil && e.pending == nil {
			return e, nil
		}
		failing, failure, seen := q.failing, q.failure, q.removed
		var pending chan struct{}
		if e != nil {
			pending = e.pending
		}
		q.mu.Unlock()
		if e != nil {
			if failure != nil {
				return nil, failure
			}
			select {
			case <-pending:
			case <-failing:
			}
			continue
		}
		rec, ok, err := q.db.get(id)
		if err != nil {
			return nil, q.readError(err)
		}
		if !ok {
			return nil, ErrNotFound
		}
		q.mu.Lock()
		if q.closed || q.removed != seen || q.live[id] != nil {
			q.mu.Unlock()
			continue // it may have changed since it was read
		}
		e = q.adopt(rec)
		e.known = true
		return e, nil
	}
}

// release undoes claim for a job that is still at rest. Callers hold q.mu.
func (q *Queue) release(e *entry) {
	if s := e.rec.snap; s.State.Terminal() && e.pending == nil && q.live[s.ID] == e {
		q.forget(e)
	}
}

// act is an action of a person on a job. It returns when what it changed is
// durable; while the store fails, at once and with its error.
func (q *Queue) act(id ID, f func(*entry) error) (Snapshot, error) {
	e, err := q.claim(id)
	if err != nil {
		return Snapshot{}, err
	}
	defer q.mu.Unlock()
	defer q.release(e)
	if f := e.rec.snap.Forwarded; f != nil && f.Accepted {
		return q.view(e), ErrStub
	}
	before := e.last
	err = f(e)
	q.schedule()
	if op := e.last; op != before {
		q.mu.Unlock()
		werr := q.await(op)
		q.mu.Lock()
		if err == nil {
			err = werr
		}
	}
	return q.view(e), err
}

// revive brings a job back that has ended.
func (q *Queue) revive(e *entry) {
	s := &e.rec.snap
	e.rec.failures = 0
	s.Retries++
	s.FinishedAt, s.Result = nil, nil
	s.State = Queued
	s.Version++
	q.waiting++
	q.setDeadline(s)
	q.armDeadline(e)
	q.write(&write{what: writeAll, must: true}, e, EventState)
	q.show(e)
}

// Patch is a change of a job. What is nil stays.
type Patch struct {
	Priority       *int              `json:"priority,omitempty"`
	BandwidthLimit *Rate             `json:"bandwidth_limit,omitempty"` // 0 is none; in JSON "0bit/s"
	Deadline       *Duration         `json:"deadline,omitempty"`        // from now; 0 is none
	Labels         map[string]string `json:"labels,omitempty"`          // all of them; empty is none
}

// ParsePatch reads the JSON of a Patch, strictly. The error is a *FieldError.
func ParsePatch(data []byte) (Patch, error) {
	var wire struct {
		Priority       *int              `json:"priority,omitempty"`
		BandwidthLimit *rateOrNone       `json:"bandwidth_limit,omitempty"`
		Deadline       *Duration         `json:"deadline,omitempty"`
		Labels         map[string]string `json:"labels,omitempty"`
	}
	if err := decodeStrict(data, &wire, MaxSpecBytes); err != nil {
		return Patch{}, err
	}
	return Patch{wire.Priority, (*Rate)(wire.BandwidthLimit), wire.Deadline, wire.Labels}, nil
}

// Patch changes a job that has not ended. ifVersion, unless 0, is the version
// it must have: else ErrVersion. A new limit holds at once, a new priority
// from the next choice on. Other errors: *FieldError, and as of Pause.
func (q *Queue) Patch(id ID, p Patch, ifVersion uint64) (Snapshot, error) {
	return q.act(id, func(e *entry) error {
		s := &e.rec.snap
		if ifVersion != 0 && ifVersion != s.Version {
			return ErrVersion
		}
		if s.State.Terminal() {
			return &TransitionError{s.State, s.State}
		}
		return q.patch(e, p)
	})
}

func (q *Queue) patch(e *entry, p Patch) error {
	s := &e.rec.snap
	spec := s.Spec
	if p.Priority != nil {
		spec.Priority = *p.Priority
	}
	if p.BandwidthLimit != nil {
		spec.BandwidthLimit = *p.BandwidthLimit
	}
	if p.Deadline != nil {
		spec.Deadline = *p.Deadline
	}
	if p.Labels != nil {
		spec.Labels = maps.Clone(p.Labels)
	}
	if err := spec.handling(); err != nil {
		return err
	}
	waits := e.place != nil
	q.dequeue(e) // while its place can still be found by the old priority
	s.Spec = spec
	if waits {
		q.enqueue(e)
	}
	if p.Deadline != nil {
		stop(e.deadline)
		q.setDeadline(s)
		q.armDeadline(e)
	}
	e.limit.Store(int64(spec.BandwidthLimit))
	q.touch(e, EventPatched, true)
	return nil
}

// setDeadline counts the deadline from now.
func (q *Queue) setDeadline(s *Snapshot) {
	s.DeadlineAt = nil
	if s.Spec.Deadline > 0 {
		s.DeadlineAt = timePtr(q.clock.Now().Add(time.Duration(s.Spec.Deadline)))
	}
}

// armDeadline starts the timer, which may be due already.
func (q *Queue) armDeadline(e *entry) {
	if at := e.rec.snap.DeadlineAt; at != nil {
		e.deadline = q.clock.AfterFunc(max(at.Sub(q.clock.Now()), 0), func() { q.expire(e) })
	}
}

// Drain makes the queue refuse new jobs with ErrDraining, and start no attempt
// of those that it has, which stay queued; attempts under way go on, see
// Stats.Running. It is undone by false and by a restart.
func (q *Queue) Drain(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = on
	q.schedule()
}

// Draining reports whether Drain holds.
func (q *Queue) Draining() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.draining
}

// Cancel ends a job: at once if no attempt is under way, else it becomes
// Canceling and ends Canceled within Config.CancelTimeout. Repeating it changes
// nothing. Errors: ErrNotFound; ErrStub once the owner has accepted the job;
// *TransitionError with the current snapshot if the job ended otherwise.
func (q *Queue) Cancel(id ID) (Snapshot, error) {
	return q.act(id, func(e *entry) error {
		s := &e.rec.snap
		switch {
		case s.State == Canceling || s.State == Canceled:
		case s.State.Terminal():
			return &TransitionError{s.State, Canceled}
		case e.attempt == nil:
			s.LastReason = canceledReason("the job was canceled before it ran")
			q.change(e, Canceled)
		default:
			s.Pausing = false
			q.change(e, Canceling)
			e.attempt.end(endCancel)
			q.giveUpAfter(e, e.attempt, canceledReason("the job was canceled; its attempt has not returned yet"), Canceled)
		}
		return nil
	})
}

func canceledReason(detail string) *Reason {
	return &Reason{Code: reason.Canceled, Detail: detail + "; retry it to run it after all"}
}
