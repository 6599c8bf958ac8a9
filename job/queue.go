package job

import (
	"container/list"
	"context"
	"encoding/base64"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"mover/reason"
)

// Queue holds a node's own jobs and starts their attempts. Every method may be
// called from any goroutine. Close it.
type Queue struct {
	cfg   Config
	clock Clock
	moved atomic.Uint64 // bytes, of all attempts

	mu       sync.Mutex
	store    store
	live     map[ID]*entry // jobs that have not ended
	ready    *ready
	waiting  int // live jobs without an attempt
	running  int // attempts whose Run has not returned
	attempts map[reason.Code]uint64
	closed   bool
	draining bool
	events   []Event
	seq      uint64
	news     chan struct{}
	items    map[ID][]ItemRecord

	done     chan struct{} // closed by Close
	returned sync.WaitGroup
}

// entry is a job that has not ended, or whose attempt has not returned yet.
type entry struct {
	rec      record
	place    *list.Element // in ready
	attempt  *run          // nil when none is under way
	progress *Progress     // of the last attempt
	changed  chan struct{} // closed at the next change; nil when nobody waits
	backoff  Stopper
	deadline Stopper
	limit    atomic.Int64 // bits a second

	ownerVersion uint64 // of a stub: the owner's snapshot that was seen last
}

// waits reports whether e counts for Config.MaxQueued.
func (e *entry) waits() bool {
	s := &e.rec.snap
	return s.State == Queued || s.State == Paused || s.Forwarded != nil && !s.State.Terminal()
}

// NewQueue returns an empty queue.
func NewQueue(cfg Config) (*Queue, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Queue{
		cfg: cfg, clock: cfg.Clock, store: newMemory(cfg.KeepMax),
		live: map[ID]*entry{}, ready: newReady(), attempts: map[reason.Code]uint64{},
		news: make(chan struct{}), items: map[ID][]ItemRecord{},
		done: make(chan struct{}),
	}, nil
}

// Submit puts a job into the queue and returns when that is as durable as the
// store makes it. submitter is "node/token-name"; spec.Owner, if set, becomes
// the job's owner instead, and the caller has checked that it may. key is the
// idempotency key, "" for none: the same submitter, key and Spec give the job
// that exists, and replay is true; another Spec gives ErrKeyConflict. A key is
// known as long as its job is kept.
//
// Other errors: *FieldError, ErrQueueFull, ErrClosed.
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
	rec := record{key: keyOf{submitter, key}, body: spec.fingerprint()}

	q.mu.Lock()
	defer q.mu.Unlock()
	if key != "" {
		if old, ok := q.store.byKey(rec.key); ok {
			if old.body != rec.body {
				return Snapshot{}, false, ErrKeyConflict
			}
			return q.view(old), true, nil
		}
	}
	if err := q.admits(); err != nil {
		return Snapshot{}, false, err
	}
	rec.snap = Snapshot{ID: id, Owner: owner, Spec: spec}
	s, err = q.enter(rec)
	return s, false, err
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

// enter adds a new job. Callers hold q.mu.
func (q *Queue) enter(rec record) (Snapshot, error) {
	s := &rec.snap
	s.State, s.Version, s.CreatedAt = Queued, 1, q.clock.Now().UTC()
	if node := s.Spec.Source.Node; node != q.cfg.NodeName {
		s.Forwarded = &Forward{Node: node}
	}
	q.setDeadline(s)
	if err := q.store.insert(rec); err != nil {
		return Snapshot{}, &StoreError{err}
	}
	e := &entry{rec: rec}
	e.limit.Store(int64(s.Spec.BandwidthLimit))
	q.live[s.ID] = e
	q.waiting++
	q.logSubmitted(&e.rec.snap)
	q.emit(&e.rec.snap, EventSubmitted)
	q.armDeadline(e)
	q.enqueue(e)
	q.schedule()
	return q.view(e.rec), nil
}

// enqueue lets e start when its turn comes. A stub has none here.
func (q *Queue) enqueue(e *entry) {
	if e.rec.snap.Forwarded == nil {
		q.ready.push(e)
	}
}

// act is an action of a person on a job.
func (q *Queue) act(id ID, f func(*entry) error) (Snapshot, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rec, ok := q.store.get(id)
	if !ok {
		return Snapshot{}, ErrNotFound
	}
	e := q.live[id]
	if e == nil {
		e = &entry{rec: rec}
	}
	if f := e.rec.snap.Forwarded; f != nil && f.Accepted {
		return q.view(e.rec), ErrStub
	}
	err := f(e)
	q.schedule()
	return q.view(e.rec), err
}

// revive brings a job back that has ended.
func (q *Queue) revive(e *entry) {
	s := &e.rec.snap
	q.live[s.ID] = e
	e.rec.failures = 0
	s.Retries++
	s.FinishedAt, s.Result = nil, nil
	q.setDeadline(s)
	q.armDeadline(e)
	q.change(e, Queued)
}

// touch keeps a change of e that is not one of state.
func (q *Queue) touch(e *entry, what EventType) {
	e.rec.snap.Version++
	q.keep(e, what)
}

// keep keeps e, tells of it unless what is "", and wakes who waits.
func (q *Queue) keep(e *entry, what EventType) {
	if err := q.store.update(e.rec); err != nil {
		q.cfg.Logger.Error("a job could not be kept", "job", e.rec.snap.ID, "err", err)
	}
	if what != "" {
		q.emit(&e.rec.snap, what)
	}
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// Get returns a job, or ErrNotFound.
func (q *Queue) Get(id ID) (Snapshot, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rec, ok := q.store.get(id)
	if !ok {
		return Snapshot{}, ErrNotFound
	}
	return q.view(rec), nil
}

// Wait returns a job as soon as its version is another than sinceVersion, and
// at once if it has ended. When ctx ends first it returns the job as it is,
// with ctx's error; when the queue closes, likewise with ErrClosed.
func (q *Queue) Wait(ctx context.Context, id ID, sinceVersion uint64) (Snapshot, error) {
	for {
		q.mu.Lock()
		rec, ok := q.store.get(id)
		if !ok {
			q.mu.Unlock()
			return Snapshot{}, ErrNotFound
		}
		s := q.view(rec)
		if s.Version != sinceVersion || s.State.Terminal() {
			q.mu.Unlock()
			return s, nil
		}
		e := q.live[id]
		if e.changed == nil {
			e.changed = make(chan struct{})
		}
		changed := e.changed
		q.mu.Unlock()

		var stop error
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			stop = ctx.Err()
		case <-q.done:
			stop = ErrClosed
		}
		if s, err := q.Get(id); err == nil {
			return s, stop
		}
		return Snapshot{}, ErrNotFound
	}
}

// MaxPage is the largest page of List.
const MaxPage = 500

// List returns up to limit (1..MaxPage) jobs that match, newest first, and the
// token of the next page, "" when there is none. Pages stay consistent while
// jobs are submitted: no job appears twice. The error is ErrPageToken.
func (q *Queue) List(f Filter, pageToken string, limit int) (page []Snapshot, next string, err error) {
	after, err := parsePageToken(pageToken)
	if err != nil {
		return nil, "", err
	}
	limit = min(max(limit, 1), MaxPage)
	q.mu.Lock()
	defer q.mu.Unlock()
	recs := q.store.list(f, after, limit+1)
	page = make([]Snapshot, 0, min(len(recs), limit))
	for i, rec := range recs {
		if i == limit {
			last := page[limit-1].ID
			next = base64.RawURLEncoding.EncodeToString(last[:])
			break
		}
		page = append(page, q.view(rec))
	}
	return page, next, nil
}

func parsePageToken(token string) (ID, error) {
	var id ID
	if token == "" {
		return id, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) != len(id) || [16]byte(raw) == [16]byte{} {
		return id, ErrPageToken
	}
	copy(id[:], raw)
	return id, nil
}

// Stats is what there is and what has been, for metrics.
type Stats struct {
	Jobs     map[State]int          // now, ended ones as long as they are kept
	Running  int                    // attempts whose Run has not returned
	Attempts map[reason.Code]uint64 // ended since the start, by reason; "" is success
	Bytes    uint64                 // moved since the start, by all attempts
	Draining bool
	// OldestQueued is when the job was submitted that has been queued longest
	// without ever having run; zero if there is none.
	OldestQueued time.Time
	// Store is why jobs cannot be kept at the moment, nil if they can.
	Store error
}

// Stats returns the figures now.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{Jobs: q.store.counts(), Running: q.running, Attempts: map[reason.Code]uint64{}, Bytes: q.moved.Load(), Draining: q.draining}
	for _, e := range q.live {
		j := &e.rec.snap
		if j.State == Queued && j.StartedAt == nil && (s.OldestQueued.IsZero() || j.CreatedAt.Before(s.OldestQueued)) {
			s.OldestQueued = j.CreatedAt
		}
	}
	for code, n := range q.attempts {
		s.Attempts[code] = n
	}
	return s
}

// Counts returns how many jobs are in each state; every state has an entry.
func (q *Queue) Counts() map[State]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.store.counts()
}

// Close stops the queue: no attempt starts any more, those under way are ended
// and waited for until ctx ends, and their jobs return to queued, except those
// being canceled, which end. Reading stays possible. Close may be called again.
func (q *Queue) Close(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.done)
		for _, e := range q.live {
			stop(e.backoff, e.deadline)
			if e.attempt != nil {
				e.attempt.end(endClose)
			}
		}
	}
	q.mu.Unlock()

	all := make(chan struct{})
	go func() {
		q.returned.Wait()
		close(all)
	}()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		return fmt.Errorf("close the job queue: %d attempts have not returned: %w", q.running, ctx.Err())
	}
}

// view returns the snapshot of rec with the progress of this moment.
func (q *Queue) view(rec record) Snapshot {
	s := rec.snap
	if e := q.live[s.ID]; e != nil && e.progress != nil {
		s.Progress = e.progress.View(s.State.Active())
	}
	return s
}

// change moves e to another state of the table, keeps it, and wakes who waits.
// What else changes in e.rec.snap is set before. Callers hold q.mu and have
// asked CanMove where the move is not theirs to choose.
func (q *Queue) change(e *entry, to State) {
	from := e.rec.snap.State
	if !from.CanMove(to) {
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
	if to.Terminal() {
		s.FinishedAt = timePtr(q.clock.Now())
		s.NextAttemptAt = nil
		q.ready.remove(e)
		stop(e.backoff, e.deadline)
		delete(q.live, s.ID)
	}
	what := EventState
	if to == Queued && from.Active() {
		what = EventAttempt
	}
	q.keep(e, what)
	q.logChange(s, from)
}

func timePtr(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

func stop(timers ...Stopper) {
	for _, t := range timers {
		if t != nil {
			t.Stop()
		}
	}
}
