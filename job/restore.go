package job

import (
	"fmt"

	"mover/reason"
)

// NewQueue opens the queue of Config.StateDir with the jobs that are in it.
// Attempts that were under way when the process ended are over, and no failure:
// their jobs are queued; what was being canceled is canceled, what was being
// paused is paused.
func NewQueue(cfg Config) (*Queue, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	items, err := openItemLogs(cfg.StateDir, cfg.Logger)
	if err != nil {
		return nil, err
	}
	db, err := openDatabase(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	q := &Queue{
		cfg: cfg, clock: cfg.Clock, db: db, items: items,
		live: map[ID]*entry{}, keys: map[keyOf]*entry{}, linger: map[ID]*run{},
		small: &class{ready: newReady()}, large: &class{ready: newReady()},
		attempts: map[reason.Code]uint64{},
		failing:  make(chan struct{}), news: make(chan struct{}), done: make(chan struct{}),
	}
	if err := q.restore(); err != nil {
		db.close()
		return nil, fmt.Errorf("read the database of jobs: %w", err)
	}
	return q, nil
}

func (q *Queue) restore() (err error) {
	if q.ended, err = q.db.endedCounts(); err != nil {
		return err
	}
	if q.lastSeq, err = q.db.lastSeq(); err != nil {
		return err
	}
	recs, err := q.db.unended()
	if err != nil {
		return err
	}
	if q.writer, err = newWriter(q.db, q.cfg, q.items, q.committed); err != nil {
		return err
	}
	q.writer.seq = q.lastSeq
	for _, n := range q.ended {
		q.writer.ended += n
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, rec := range recs {
		e := q.adopt(rec)
		e.known = true
		if e.waits() {
			q.waiting++
		}
		q.resumeLife(e)
	}
	if len(recs) > 0 {
		q.cfg.Logger.Info("jobs are back after a restart", "jobs", len(recs))
	}
	q.schedule()
	go q.writer.run()
	return nil
}

// resumeLife lets a job go on that was read from the database.
func (q *Queue) resumeLife(e *entry) {
	s := &e.rec.snap
	switch {
	case s.Forwarded != nil:
		if !s.Forwarded.Accepted {
			q.armDeadline(e)
		}
		return
	case s.State == Canceling:
		s.LastReason = canceledReason("the job was canceled; its attempt ended with the process")
		q.change(e, Canceled)
		return
	case s.State.Active() && s.Pausing:
		q.change(e, Paused)
	case s.State.Active():
		q.change(e, Queued)
		q.enqueue(e)
	case s.State == Queued && s.NextAttemptAt != nil:
		q.backOff(e, max(s.NextAttemptAt.Sub(q.clock.Now()), 0))
	case s.State == Queued:
		q.enqueue(e)
	}
	q.armDeadline(e)
}
