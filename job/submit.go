package job

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// Submit puts a job into the queue and returns when it is durable. submitter is
// "node/token-name"; spec.Owner, if set, becomes the job's owner instead, and
// the caller has checked that it may. key is the idempotency key, "" for none:
// the same submitter, key and Spec give the job that exists, and replay is
// true; another Spec gives ErrKeyConflict. A key is known as long as its job is
// kept. When ctx ends first, the job may have been taken or not: repeat it with
// its key.
//
// A job whose source is on another node is kept as a stub, see Accept.
//
// Other errors: *FieldError, ErrQueueFull, ErrDraining, ErrClosed, *StoreError.
func (q *Queue) Submit(ctx context.Context, spec Spec, submitter, key string) (s Snapshot, replay bool, err error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, false, fmt.Errorf("submit: %w", err)
	}
	if spec, err = spec.Normalize(q.cfg.NodeName); err != nil {
		return Snapshot{}, false, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Snapshot{}, false, fmt.Errorf("submit: make an id: %w", err)
	}
	owner := submitter
	if spec.Owner != "" {
		owner = spec.Owner
	}
	return q.admit(ctx, record{key: keyOf{submitter, key}, body: spec.fingerprint(), snap: Snapshot{ID: id, Owner: owner, Spec: spec}})
}

// admit enters a new job, or finds the one that it repeats.
func (q *Queue) admit(ctx context.Context, rec record) (Snapshot, bool, error) {
	for {
		q.mu.Lock()
		old := q.twin(rec)
		if old == nil && (rec.key.key != "" || rec.snap.Origin != "") {
			seen := q.removed
			q.mu.Unlock()
			kept, ok, err := q.keptTwin(rec)
			if err != nil {
				return Snapshot{}, false, q.readError(err)
			}
			if ok {
				return replayOf(rec, kept, kept.snap)
			}
			q.mu.Lock()
			if q.removed != seen || q.twin(rec) != nil {
				q.mu.Unlock()
				continue // one may have come and gone
			}
		}
		if old != nil && old.known {
			defer q.mu.Unlock()
			return replayOf(rec, old.rec, q.view(old))
		}
		if old == nil {
			return q.enter(ctx, rec)
		}
		pending := old.pending
		q.mu.Unlock()
		select {
		case <-pending:
		case <-ctx.Done():
			return Snapshot{}, false, fmt.Errorf("submit: %w", ctx.Err())
		}
	}
}

// twin returns the job in memory with rec's key or id, nil if there is none.
func (q *Queue) twin(rec record) *entry {
	if rec.key.key != "" {
		return q.keys[rec.key]
	}
	return q.live[rec.snap.ID]
}

func (q *Queue) keptTwin(rec record) (record, bool, error) {
	if rec.key.key != "" {
		return q.db.byKey(rec.key)
	}
	return q.db.get(rec.snap.ID)
}

// replayOf is the answer to rec if there is old, shown as s.
func replayOf(rec, old record, s Snapshot) (Snapshot, bool, error) {
	if old.body != rec.body || rec.snap.Origin != "" && old.snap.Owner != rec.snap.Owner {
		return Snapshot{}, false, ErrKeyConflict
	}
	return s, true, nil
}

// enter adds a job, and returns when it is durable. It gives q.mu back.
func (q *Queue) enter(ctx context.Context, rec record) (Snapshot, bool, error) {
	if err := q.admits(); err != nil {
		q.mu.Unlock()
		return Snapshot{}, false, err
	}
	s := &rec.snap
	s.State, s.Version, s.CreatedAt = Queued, 1, q.clock.Now().UTC()
	if node := s.Spec.Source.Node; node != q.cfg.NodeName {
		s.Forwarded = &Forward{Node: node}
	}
	q.setDeadline(s)
	e := q.adopt(rec)
	e.pending = make(chan struct{})
	q.waiting++
	var failed error
	op := &write{what: writeAll, done: func(err error) {
		if failed = err; err != nil {
			q.waiting--
			q.forget(e)
			return
		}
		e.known = true
		q.settle(e)
		q.show(e)
		q.logSubmitted(&e.shown)
		if !q.closed {
			q.armDeadline(e)
		}
		q.enqueue(e)
	}}
	q.write(op, e, EventSubmitted)
	q.mu.Unlock()

	select {
	case <-op.settled:
	case <-ctx.Done():
		return Snapshot{}, false, fmt.Errorf("submit: the job may have been taken or not: %w", ctx.Err())
	}
	if failed != nil {
		return Snapshot{}, false, failed
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.view(e), false, nil
}

// adopt makes the entry of rec.
func (q *Queue) adopt(rec record) *entry {
	e := &entry{rec: rec, shown: rec.snap, class: q.small}
	if q.isLarge(&rec.snap) {
		e.class = q.large
	}
	e.limit.Store(int64(rec.snap.Spec.BandwidthLimit))
	q.live[rec.snap.ID] = e
	if rec.key.key != "" {
		q.keys[rec.key] = e
	}
	return e
}

// admits reports why no new job is taken now, if so. Callers hold q.mu.
func (q *Queue) admits() error {
	switch {
	case q.closed:
		return ErrClosed
	case q.draining:
		return ErrDraining
	case q.waiting >= q.cfg.MaxQueued:
		return ErrQueueFull
	}
	return nil
}
