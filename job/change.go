package job

// change moves e to another state of the table, and keeps and tells it. What
// else changes in e.rec.snap is set before. Callers hold q.mu and have asked
// CanMove where the move is not theirs to choose.
func (q *Queue) change(e *entry, to State) {
	if from := e.rec.snap.State; !from.CanMove(to) {
		// Every caller is in this package: a defect, and not one to carry on with.
		panic((&TransitionError{from, to}).Error())
	}
	q.move(e, to)
}

// move is change without the table, which does not bind what a stub's owner
// says.
func (q *Queue) move(e *entry, to State) {
	s := &e.rec.snap
	from, waited := s.State, e.waits()
	s.State = to
	s.Version++
	s.Pausing = false
	if e.progress != nil {
		s.Progress = e.progress.View(false)
	}
	if waited {
		q.waiting--
	}
	if e.waits() {
		q.waiting++
	}
	what := EventState
	if to == Queued && from.Active() {
		what = EventAttempt
	}
	if !to.Terminal() {
		q.write(&write{what: writeState, must: true}, e, what)
		q.show(e)
		q.logChange(&e.rec.snap, from)
		return
	}
	s.FinishedAt = timePtr(q.clock.Now())
	s.NextAttemptAt = nil
	q.dequeue(e)
	stop(e.backoff, e.deadline)
	e.pending = make(chan struct{})
	q.write(&write{what: writeState, must: true, done: func(err error) {
		if err != nil {
			return // the queue was closed without it: it is not shown as ended
		}
		q.show(e)
		q.forget(e)
		q.logChange(&e.rec.snap, from)
	}}, e, what)
}

// write hands a change of e to the writer, with an event unless what is "".
func (q *Queue) write(op *write, e *entry, what EventType) {
	op.rec = e.rec
	op.settled = make(chan struct{})
	if what != "" {
		s := &e.rec.snap
		op.event = Event{At: q.clock.Now().UTC(), Job: s.ID, Type: what, State: s.State, Owner: s.Owner, Version: s.Version}
		if s.State.Terminal() || what == EventAttempt {
			op.event.Reason = s.LastReason
		}
	}
	e.last = op
	q.writer.add(op)
}

// touch keeps a change of e that is not one of state. whole is whether the Spec
// has changed.
func (q *Queue) touch(e *entry, what EventType, whole bool) {
	e.rec.snap.Version++
	kind := writeState
	if whole {
		kind = writeAll
	}
	q.write(&write{what: kind, must: true}, e, what)
	q.show(e)
}

// show lets readers see e as it is, and wakes who waits.
func (q *Queue) show(e *entry) {
	e.shown = e.rec.snap
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// forget takes e out of memory.
func (q *Queue) forget(e *entry) {
	delete(q.live, e.rec.snap.ID)
	if q.keys[e.rec.key] == e {
		delete(q.keys, e.rec.key)
	}
	q.removed++
	q.settle(e)
}

// settle lets go who waits for what is pending.
func (q *Queue) settle(e *entry) {
	if e.pending != nil {
		close(e.pending)
		e.pending = nil
	}
}

// committed is the writer's word that a batch is durable or has failed.
func (q *Queue) committed(c commit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.err != nil {
		if q.failure == nil {
			q.cfg.Logger.Error("jobs cannot be kept; look at the disk of the state directory", "err", c.err)
		}
		q.failure = &StoreError{c.err}
		close(q.failing)
		q.failing = make(chan struct{})
	} else if q.failure != nil {
		q.cfg.Logger.Info("jobs are kept again")
		q.failure = nil
	}
	for s, n := range c.counts {
		q.ended[s] += n
	}
	for _, op := range c.writes {
		if op.done != nil {
			var err error
			if c.err != nil {
				err = &StoreError{c.err}
			}
			op.done(err)
		}
		close(op.settled)
	}
	q.tell(c.events)
	q.schedule()
}

// await waits until op is durable. While the store fails it does not wait, and
// returns why.
func (q *Queue) await(op *write) error {
	for {
		q.mu.Lock()
		failing, err := q.failing, q.failure
		q.mu.Unlock()
		select {
		case <-op.settled:
			return nil
		default:
		}
		if err != nil {
			return err
		}
		select {
		case <-op.settled:
			return nil
		case <-failing:
		}
	}
}
