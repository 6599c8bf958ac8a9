package job

import (
	"bytes"
	"container/list"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mover/reason"
)

// Queue holds a node's own jobs and starts their attempts. Every method may be
// called from any goroutine. Close it.
//
// Jobs that have not ended are in memory, and follow their own clock: the
// database follows them, in order, through the writer. What has ended is in
// the database alone.
type Queue struct {
	cfg    Config
	clock  Clock
	moved  atomic.Uint64 // bytes, of all attempts
	db     *database
	writer *writer
	items  *itemLogs

	mu       sync.Mutex
	live     map[ID]*entry
	keys     map[keyOf]*entry // of live
	removed  uint64           // entries that have left live, ever
	ended    map[State]int    // jobs in the database alone
	small    *class
	large    *class
	linger   map[ID]*run // attempts that outlived their job
	waiting  int         // entries that count for MaxQueued
	attempts map[reason.Code]uint64
	closed   bool
	draining bool
	failure  error         // of the store, nil if it works
	failing  chan struct{} // closed and replaced when failure comes
	recent   []Event       // the last of the events that are durable
	lastSeq  uint64
	news     chan struct{} // closed and replaced when recent grows

	done     chan struct{} // closed by Close
	returned sync.WaitGroup
	closing  sync.Mutex // held while the database is closed
	shut     bool
}

// entry is a job in memory. The queue's lock guards it.
type entry struct {
	rec record
	// shown is what readers see: rec.snap, but an end and a beginning only
	// when they are durable.
	shown Snapshot
	known bool // false until the submit is durable
	// pending is closed when a submit, an end or a deletion is durable, or has
	// failed; nil if none is under way. Nothing else happens to the job before.
	pending chan struct{}
	last    *write // handed to the writer

	class    *class        // where it runs or waits to
	place    *list.Element // in class.ready
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

// Get returns a job. Errors: ErrNotFound, a *StoreError, or ErrClosed for a
// job that had ended when the queue was closed.
func (q *Queue) Get(id ID) (Snapshot, error) {
	q.mu.Lock()
	if e := q.live[id]; e != nil {
		defer q.mu.Unlock()
		if !e.known {
			return Snapshot{}, ErrNotFound
		}
		return q.view(e), nil
	}
	q.mu.Unlock()
	rec, ok, err := q.db.get(id)
	if err != nil {
		return Snapshot{}, q.readError(err)
	}
	if !ok {
		return Snapshot{}, ErrNotFound
	}
	return rec.snap, nil
}

// readError says what a failed read means.
func (q *Queue) readError(err error) error {
	q.closing.Lock()
	defer q.closing.Unlock()
	if q.shut {
		return ErrClosed
	}
	q.cfg.Logger.Error("the database of jobs cannot be read", "err", err)
	return &StoreError{err}
}

// view returns e as it is shown, with the progress of this moment.
func (q *Queue) view(e *entry) Snapshot {
	s := e.shown
	if e.progress != nil {
		s.Progress = e.progress.View(s.State.Active())
	}
	return s
}

// Wait returns a job as soon as its version is another than sinceVersion, and
// at once if it has ended. When ctx ends first it returns the job as it is,
// with ctx's error; when the queue closes, likewise with ErrClosed. Other
// errors as of Get.
func (q *Queue) Wait(ctx context.Context, id ID, sinceVersion uint64) (Snapshot, error) {
	for {
		q.mu.Lock()
		e := q.live[id]
		if e == nil || !e.known {
			q.mu.Unlock()
			return q.Get(id)
		}
		s := q.view(e)
		if s.Version != sinceVersion || s.State.Terminal() {
			q.mu.Unlock()
			return s, nil
		}
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
		s, err := q.Get(id)
		if err != nil {
			return s, err
		}
		return s, stop
	}
}

// MaxPage is the largest page of List.
const MaxPage = 500

// List returns up to limit (1..MaxPage) jobs that match, newest first, and the
// token of the next page, "" when there is none. Pages stay consistent while
// jobs are submitted: no job appears twice. Errors: ErrPageToken, a
// *StoreError, ErrClosed.
func (q *Queue) List(f Filter, pageToken string, limit int) (page []Snapshot, next string, err error) {
	before, err := parsePageToken(pageToken)
	if err != nil {
		return nil, "", err
	}
	limit = min(max(limit, 1), MaxPage)
	page, living := q.listLive(f, before, limit+1)
	ended, err := q.db.list(f, before, limit+1)
	if err != nil {
		return nil, "", q.readError(err)
	}
	for _, rec := range ended {
		// One that ended between the two looks is shown as it was in the first.
		if !living[rec.snap.ID] {
			page = append(page, rec.snap)
		}
	}
	slices.SortFunc(page, func(a, b Snapshot) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	if len(page) > limit {
		last := page[limit-1].ID
		page, next = page[:limit], base64.RawURLEncoding.EncodeToString(last[:])
	}
	return page, next, nil
}

// listLive is List of what is in memory; living is what of it matches, on this
// page or a later one.
func (q *Queue) listLive(f Filter, before ID, limit int) (page []Snapshot, living map[ID]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	living = map[ID]bool{}
	var match []*entry
	for id, e := range q.live {
		// An ended one that is only being looked at is in the database too.
		if e.known && !e.shown.State.Terminal() && (before == ID{} || bytes.Compare(id[:], before[:]) < 0) && f.match(e.shown) {
			match = append(match, e)
			living[id] = true
		}
	}
	slices.SortFunc(match, func(a, b *entry) int { return bytes.Compare(b.shown.ID[:], a.shown.ID[:]) })
	page = make([]Snapshot, 0, min(len(match), limit))
	for _, e := range match[:min(len(match), limit)] {
		page = append(page, q.view(e))
	}
	return page, living
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
	s := Stats{Jobs: q.counts(), Running: q.small.running + q.large.running, Attempts: map[reason.Code]uint64{},
		Bytes: q.moved.Load(), Draining: q.draining, Store: q.failure}
	for _, e := range q.live {
		j := &e.shown
		if e.known && j.State == Queued && j.StartedAt == nil && (s.OldestQueued.IsZero() || j.CreatedAt.Before(s.OldestQueued)) {
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
	return q.counts()
}

func (q *Queue) counts() map[State]int {
	out := make(map[State]int, len(moves))
	for _, s := range States() {
		out[s] = q.ended[s]
	}
	for _, e := range q.live {
		if e.known && !e.shown.State.Terminal() {
			out[e.shown.State]++
		}
	}
	return out
}

// Close stops the queue: no attempt starts any more, those under way are ended
// and waited for until ctx ends, and their jobs return to queued, except those
// being canceled, which end. Then what is left to write is written and the
// database closed; of what has not ended, reading stays possible. After an
// error Close may be called again.
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
	if !waitFor(ctx, q.returned.Wait) {
		return fmt.Errorf("close the job queue: %d attempts have not returned: %w", q.Stats().Running, ctx.Err())
	}
	return q.closeStore(ctx)
}

func (q *Queue) closeStore(ctx context.Context) error {
	q.closing.Lock()
	defer q.closing.Unlock()
	if q.shut {
		return nil
	}
	q.writer.close()
	if !waitFor(ctx, func() { <-q.writer.stopped }) {
		return fmt.Errorf("close the job queue: its last changes are not written: %w", ctx.Err())
	}
	q.shut = true
	var err error
	if lost := q.writer.lost; lost != nil {
		err = fmt.Errorf("close the job queue: its last changes are lost, and what they were about will be done again: %w", lost)
	}
	return errors.Join(err, q.db.close())
}

// waitFor reports whether f returns before ctx ends.
func waitFor(ctx context.Context, f func()) bool {
	all := make(chan struct{})
	go func() {
		f()
		close(all)
	}()
	select {
	case <-all:
		return true
	case <-ctx.Done():
		return false
	}
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
