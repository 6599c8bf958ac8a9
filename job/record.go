package job

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// record is what is kept of a job: everything, but what belongs to an attempt
// under way. It is a value.
type record struct {
	snap     Snapshot
	key      keyOf             // of the submit, if it had one
	body     [sha256.Size]byte // fingerprint of the Spec as it was submitted
	failures int               // retryable failures; an attempt cut short by Close is none
}

// keyOf is an idempotency key with the identity that used it: keys of
// different submitters never meet.
type keyOf struct{ submitter, key string }

// Filter selects jobs. Its zero value selects all.
type Filter struct {
	States       []State // any of them; none is all
	Owner        string
	LabelKey     string // has this label; "" is no condition
	LabelValue   string // with this value
	CreatedAfter time.Time
}

func (f Filter) match(s Snapshot) bool {
	if len(f.States) > 0 && !slices.Contains(f.States, s.State) {
		return false
	}
	if f.Owner != "" && s.Owner != f.Owner {
		return false
	}
	if f.LabelKey != "" {
		if v, ok := s.Spec.Labels[f.LabelKey]; !ok || v != f.LabelValue {
			return false
		}
	}
	return f.CreatedAfter.IsZero() || s.CreatedAt.After(f.CreatedAfter)
}

const recordColumns = "id, submitter, key, body, failures, spec, data"

// scanRecord reads a row of recordColumns.
func scanRecord(row interface{ Scan(...any) error }) (record, error) {
	var r record
	var id, body []byte
	var submitter, key sql.NullString
	var spec, data string
	if err := row.Scan(&id, &submitter, &key, &body, &r.failures, &spec, &data); err != nil {
		return r, err
	}
	r.key = keyOf{submitter.String, key.String}
	if len(id) != len(r.snap.ID) || copy(r.body[:], body) != len(r.body) {
		return r, errors.New("a row of jobs.db is damaged")
	}
	if err := json.Unmarshal([]byte(data), &r.snap); err != nil {
		return r, fmt.Errorf("a row of jobs.db is damaged: %w", err)
	}
	r.snap.Spec = Spec{}
	if err := json.Unmarshal([]byte(spec), &r.snap.Spec); err != nil {
		return r, fmt.Errorf("a row of jobs.db is damaged: %w", err)
	}
	copy(r.snap.ID[:], id)
	return r, nil
}

// encodeSnapshot returns the columns spec, data and labels.
func encodeSnapshot(s Snapshot) (spec, data string, labels any, err error) {
	sp, err := json.Marshal(s.Spec)
	if err != nil {
		return "", "", nil, err
	}
	if len(s.Spec.Labels) > 0 {
		l, err := json.Marshal(s.Spec.Labels)
		if err != nil {
			return "", "", nil, err
		}
		labels = string(l)
	}
	s.Spec = Spec{}
	d, err := json.Marshal(s)
	return string(sp), string(d), labels, err
}

// get returns a job's row; ok is false if there is none.
func (d *database) get(id ID) (r record, ok bool, err error) {
	return d.one("SELECT "+recordColumns+" FROM jobs WHERE id = ?", id[:])
}

// byKey returns the job that was submitted with a key.
func (d *database) byKey(k keyOf) (r record, ok bool, err error) {
	return d.one("SELECT "+recordColumns+" FROM jobs WHERE submitter = ? AND key = ?", k.submitter, k.key)
}

func (d *database) one(query string, args ...any) (record, bool, error) {
	r, err := scanRecord(d.read.QueryRow(query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return record{}, false, nil
	}
	return r, err == nil, err
}

// list returns up to limit ended jobs that match, newest first, older than
// before if that is not the zero ID.
func (d *database) list(f Filter, before ID, limit int) ([]record, error) {
	where := []string{"ended IS NOT NULL"}
	var args []any
	add := func(condition string, values ...any) {
		where = append(where, condition)
		args = append(args, values...)
	}
	if before != (ID{}) {
		add("id < ?", before[:])
	}
	if len(f.States) > 0 {
		states := make([]any, len(f.States))
		for i, s := range f.States {
			states[i] = string(s)
		}
		add("state IN (?"+strings.Repeat(",?", len(states)-1)+")", states...)
	}
	if f.Owner != "" {
		add("owner = ?", f.Owner)
	}
	if f.LabelKey != "" {
		add("labels IS NOT NULL AND EXISTS (SELECT 1 FROM json_each(labels) AS l WHERE l.key = ? AND l.value = ?)", f.LabelKey, f.LabelValue)
	}
	if !f.CreatedAfter.IsZero() {
		add("created > ?", f.CreatedAfter.UnixNano())
	}
	return d.many("SELECT "+recordColumns+" FROM jobs WHERE "+strings.Join(where, " AND ")+" ORDER BY id DESC LIMIT ?", append(args, limit)...)
}

// unended returns the jobs that have not ended, oldest first.
func (d *database) unended() ([]record, error) {
	return d.many("SELECT " + recordColumns + " FROM jobs WHERE ended IS NULL ORDER BY id")
}

func (d *database) many(query string, args ...any) (out []record, err error) {
	rows, err := d.read.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// endedCounts returns how many ended jobs are in each state.
func (d *database) endedCounts() (map[State]int, error) {
	rows, err := d.read.Query("SELECT state, count(*) FROM jobs WHERE ended IS NOT NULL GROUP BY state")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	counts := map[State]int{}
	for rows.Next() {
		var s string
		var n int
		if err := rows.Scan(&s, &n); err != nil {
			return nil, err
		}
		counts[State(s)] = n
	}
	return counts, rows.Err()
}

// lastSeq returns the Seq of the last event there ever was.
func (d *database) lastSeq() (seq uint64, err error) {
	err = d.read.QueryRow("SELECT seq FROM sqlite_sequence WHERE name = 'events'").Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return seq, err
}

// events returns up to limit events that match, oldest first.
func (d *database) events(ctx context.Context, f EventFilter, limit int) ([]Event, error) {
	query, args := "SELECT seq, at, job, type, state, reason, owner, version FROM events WHERE seq > ?", []any{int64(min(f.After, math.MaxInt64))}
	if f.Job != nil {
		query, args = query+" AND job = ?", append(args, f.Job[:])
	}
	if f.Owner != "" {
		query, args = query+" AND owner = ?", append(args, f.Owner)
	}
	rows, err := d.read.QueryContext(ctx, query+" ORDER BY seq LIMIT ?", append(args, limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	page := []Event{}
	for rows.Next() {
		var e Event
		var at int64
		var id []byte
		var why sql.NullString
		if err := rows.Scan(&e.Seq, &at, &id, &e.Type, &e.State, &why, &e.Owner, &e.Version); err != nil {
			return nil, err
		}
		e.At = time.Unix(0, at).UTC()
		copy(e.Job[:], id)
		if why.Valid {
			e.Reason = &Reason{}
			if err := json.Unmarshal([]byte(why.String), e.Reason); err != nil {
				return nil, err
			}
		}
		page = append(page, e)
	}
	return page, rows.Err()
}
