package job

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	maxBatch   = 1024            // writes in one transaction
	retryAfter = 2 * time.Second // when the disk is full or fails
	pruneEvery = time.Minute
	maxPrune   = 500     // ended jobs dropped in one transaction
	maxEvents  = 1000000 // kept, of all jobs
)

// write is a change of one row of jobs, or its end, with what is told of it.
type write struct {
	what  writeKind
	rec   record
	event Event // without Seq; no Type is none
	must  bool  // tried until it succeeds; else a failure is final
	// done is called in the order of the writes with the queue's lock held,
	// when the write is durable or has failed for good.
	done func(error)
	// settled is closed after done.
	settled chan struct{}
}

type writeKind uint8

const (
	writeState writeKind = iota // the columns that a state changes
	writeAll                    // the whole row, new or not
	writeDelete
)

// writer commits writes in the order in which they come: whatever has come in
// while a transaction was synced goes into the next one together, so that many
// submitters share a sync. Its goroutine is the only one that writes to the
// database.
type writer struct {
	db    *database
	clock Clock
	cfg   Config
	// after is called behind a commit, or a failure, with what became of it.
	after func(commit)
	items *itemLogs

	mu      sync.Mutex
	pending []*write
	closing bool
	wake    chan struct{} // of capacity 1
	stopped chan struct{}

	seq      uint64 // of the last event
	ended    int    // ended jobs in the database
	pruned   time.Time
	lost     error // why writes were given up when it was closed
	put, upd *sql.Stmt
	del, evt *sql.Stmt
}

// commit is a batch that is durable, or that failed.
type commit struct {
	writes []*write
	events []Event
	counts map[State]int // change of the numbers of ended jobs
	err    error
}

func newWriter(db *database, cfg Config, items *itemLogs, after func(commit)) (*writer, error) {
	w := &writer{db: db, cfg: cfg, clock: cfg.Clock, items: items, after: after,
		wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	for _, s := range []struct {
		into **sql.Stmt
		text string
	}{
		{&w.put, `INSERT INTO jobs (id, submitter, key, body, failures, spec, data, state, created, ended, owner, labels)
			VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET failures=excluded.failures, spec=excluded.spec,
			data=excluded.data, state=excluded.state, ended=excluded.ended, labels=excluded.labels`},
		{&w.upd, "UPDATE jobs SET failures=?, data=?, state=?, ended=? WHERE id=?"},
		{&w.del, "DELETE FROM jobs WHERE id=?"},
		{&w.evt, "INSERT INTO events (seq, at, job, type, state, reason, owner, version) VALUES (?,?,?,?,?,?,?,?)"},
	} {
		var err error
		if *s.into, err = db.write.Prepare(s.text); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// add hands a write over. It never waits, so the queue's lock may be held.
func (w *writer) add(op *write) {
	w.mu.Lock()
	w.pending = append(w.pending, op)
	w.mu.Unlock()
	w.poke()
}

func (w *writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// close makes run return when everything is written, or at once after a
// failure: who closes has waited long enough.
func (w *writer) close() {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.poke()
}

func (w *writer) run() {
	defer close(w.stopped)
	var held []*write // must be written, and could not be
	for {
		w.mu.Lock()
		n := min(len(w.pending), max(maxBatch-len(held), 1))
		batch := append(held, w.pending[:n]...)
		w.pending = w.pending[n:]
		if len(w.pending) == 0 {
			w.pending = nil // let the array go
		}
		closing, more := w.closing, len(w.pending) > 0
		w.mu.Unlock()
		held = nil
		if len(batch) > 0 {
			c := w.commit(batch)
			if c.err != nil {
				held = w.hold(&c)
			}
			w.after(c)
			if more && c.err == nil {
				continue
			}
		}
		if closing && !more {
			w.giveUp(held)
			return
		}
		w.wait(len(held) > 0)
	}
}

// giveUp ends what could not be written until the queue was closed.
func (w *writer) giveUp(held []*write) {
	if len(held) > 0 {
		w.lost = ErrStore
		w.after(commit{writes: held, err: ErrStore})
	}
}

// hold keeps of a failed commit what must be tried again; the rest has failed.
func (w *writer) hold(c *commit) (held []*write) {
	var failed []*write
	for _, op := range c.writes {
		if op.must {
			held = append(held, op)
		} else {
			failed = append(failed, op)
		}
	}
	c.writes = failed
	return held
}

// wait waits for something to write, and not for ever if something is left.
func (w *writer) wait(again bool) {
	if again {
		t := w.clock.AfterFunc(retryAfter, w.poke)
		defer t.Stop()
	}
	<-w.wake
}

// commit carries a batch out in one transaction.
func (w *writer) commit(batch []*write) (c commit) {
	c = commit{writes: batch, counts: map[State]int{}}
	tx, err := w.db.write.BeginTx(context.Background(), nil)
	if err != nil {
		c.err = err
		return c
	}
	t := transaction{w: w, tx: tx, c: &c, seq: w.seq}
	err = t.all(batch)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		// After a failed COMMIT of a full disk the transaction is still open.
		c.events, c.counts, c.err = nil, nil, errors.Join(err, ignoreDone(tx.Rollback()))
		return c
	}
	w.seq = t.seq
	for _, n := range c.counts {
		w.ended += n
	}
	for _, id := range t.gone {
		w.items.remove(id)
	}
	return c
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// transaction is one commit under way.
type transaction struct {
	w    *writer
	tx   *sql.Tx
	c    *commit
	seq  uint64
	gone []ID // jobs whose items go when it is durable
}

func (t *transaction) all(batch []*write) error {
	// Only the last change of a row needs to be written, the whole of it if an
	// earlier one had more to say. The events are all told.
	last := make(map[ID]int, len(batch))
	whole := map[ID]bool{}
	for i, op := range batch {
		id := op.rec.snap.ID
		last[id] = i
		whole[id] = whole[id] || op.what == writeAll
	}
	for i, op := range batch {
		id := op.rec.snap.ID
		if last[id] == i {
			if err := t.row(op, whole[id]); err != nil {
				return fmt.Errorf("write a job: %w", err)
			}
		}
		if op.event.Type != "" {
			if err := t.event(op.event); err != nil {
				return fmt.Errorf("write an event: %w", err)
			}
		}
	}
	return t.prune()
}

func (t *transaction) row(op *write, whole bool) error {
	r := &op.rec
	id := r.snap.ID
	if op.what == writeDelete {
		return t.drop(id)
	}
	spec, data, labels, err := encodeSnapshot(r.snap)
	if err != nil {
		return err
	}
	var ended any
	if r.snap.State.Terminal() {
		ended = r.snap.FinishedAt.UnixNano()
	}
	if whole || ended != nil {
		if err := t.uncount(id); err != nil {
			return err
		}
	}
	if ended != nil {
		t.c.counts[r.snap.State]++
	}
	if !whole {
		_, err := t.tx.Stmt(t.w.upd).Exec(r.failures, data, string(r.snap.State), ended, id[:])
		return err
	}
	var submitter, key any
	if r.key.key != "" {
		submitter, key = r.key.submitter, r.key.key
	}
	_, err = t.tx.Stmt(t.w.put).Exec(id[:], submitter, key, r.body[:], r.failures, spec, data,
		string(r.snap.State), r.snap.CreatedAt.UnixNano(), ended, r.snap.Owner, labels)
	return err
}

// uncount takes the row as it was out of the numbers of ended jobs.
func (t *transaction) uncount(id ID) error {
	var state string
	err := t.tx.QueryRow("SELECT state FROM jobs WHERE id=? AND ended IS NOT NULL", id[:]).Scan(&state)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	t.c.counts[State(state)]--
	return err
}

func (t *transaction) drop(id ID) error {
	if err := t.uncount(id); err != nil {
		return err
	}
	if _, err := t.tx.Exec("DELETE FROM events WHERE job=?", id[:]); err != nil {
		return err
	}
	_, err := t.tx.Stmt(t.w.del).Exec(id[:])
	t.gone = append(t.gone, id)
	return err
}

func (t *transaction) event(e Event) error {
	t.seq++
	e.Seq = t.seq
	var why any
	if e.Reason != nil {
		data, err := json.Marshal(e.Reason)
		if err != nil {
			return err
		}
		why = string(data)
	}
	_, err := t.tx.Stmt(t.w.evt).Exec(int64(e.Seq), e.At.UnixNano(), e.Job[:], string(e.Type), string(e.State), why, e.Owner, int64(e.Version))
	if err == nil && e.Seq%1024 == 0 && e.Seq > maxEvents {
		_, err = t.tx.Exec("DELETE FROM events WHERE seq <= ?", int64(e.Seq-maxEvents))
	}
	t.c.events = append(t.c.events, e)
	return err
}

// prune drops ended jobs that are too many or too old, those that ended first.
func (t *transaction) prune() error {
	w := t.w
	total := w.ended
	for _, n := range t.c.counts {
		total += n
	}
	if n := min(total-w.cfg.KeepMax, maxPrune); n > 0 {
		if err := t.dropEnded("SELECT id FROM jobs WHERE ended IS NOT NULL ORDER BY ended, id LIMIT ?", n); err != nil {
			return err
		}
	}
	now := w.clock.Now()
	if now.Sub(w.pruned) < pruneEvery {
		return nil
	}
	w.pruned = now
	return t.dropEnded("SELECT id FROM jobs WHERE ended < ? ORDER BY ended LIMIT ?", now.Add(-w.cfg.Keep).UnixNano(), maxPrune)
}

func (t *transaction) dropEnded(query string, args ...any) error {
	rows, err := t.tx.Query(query, args...)
	if err != nil {
		return err
	}
	var ids []ID
	for rows.Next() {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			return errors.Join(err, rows.Close())
		}
		var id ID
		copy(id[:], raw)
		ids = append(ids, id)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, id := range ids {
		if err := t.drop(id); err != nil {
			return err
		}
	}
	return nil
}
