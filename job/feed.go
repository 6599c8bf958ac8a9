package job

import (
	"context"
	"encoding/base64"
	"encoding/binary"
)

// maxEvents is how many events are kept.
const maxEvents = 100000

// emit tells of s. Callers hold q.mu.
func (q *Queue) emit(s *Snapshot, what EventType) {
	q.seq++
	e := Event{Seq: q.seq, At: q.clock.Now().UTC(), Job: s.ID, Type: what, State: s.State, Owner: s.Owner, Version: s.Version}
	if s.State.Terminal() || what == EventAttempt {
		e.Reason = s.LastReason
	}
	q.events = append(q.events, e)
	if len(q.events) > maxEvents {
		q.events = q.events[len(q.events)-maxEvents:]
	}
	close(q.news)
	q.news = make(chan struct{})
}

// Events returns up to limit (1..MaxPage) events that match, oldest first.
func (q *Queue) Events(ctx context.Context, f EventFilter, limit int) ([]Event, error) {
	page, _ := q.eventsNow(f, limit)
	return page, ctx.Err()
}

func (q *Queue) eventsNow(f EventFilter, limit int) (page []Event, news chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	page = []Event{}
	for _, e := range q.events {
		if f.match(e) && len(page) < min(max(limit, 1), MaxPage) {
			page = append(page, e)
		}
	}
	return page, q.news
}

// WaitEvents is Events, but waits until there is an event that matches. When
// ctx ends first it returns ctx's error; when the queue closes, ErrClosed.
func (q *Queue) WaitEvents(ctx context.Context, f EventFilter, limit int) ([]Event, error) {
	for {
		page, news := q.eventsNow(f, limit)
		if len(page) > 0 {
			return page, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-q.done:
			return nil, ErrClosed
		}
	}
}

// LastEvent returns the Seq of the newest event, 0 if there has been none: what
// EventFilter.After is for who wants only what comes.
func (q *Queue) LastEvent() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.seq
}

type memorySink struct {
	q       *Queue
	id      ID
	attempt int
}

func (s *memorySink) Add(r ItemRecord) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	r.Attempt = s.attempt
	r.Path = append([]byte(nil), r.Path...)
	s.q.items[s.id] = append(s.q.items[s.id], r)
}

func (s *memorySink) Done(path []byte) bool {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	for _, r := range s.q.items[s.id] {
		if r.Attempt < s.attempt && r.State == ItemSucceeded && string(r.Path) == string(path) {
			return true
		}
	}
	return false
}

// Items returns up to limit (1..MaxPage) records of a job's items that match,
// in the order in which they came, and the token of the next page, "" when
// there is none; a page before the last may be short. An item that several
// attempts tried has a record of each. Errors: ErrNotFound, ErrPageToken.
func (q *Queue) Items(id ID, f ItemFilter, pageToken string, limit int) (page []ItemRecord, next string, err error) {
	from := uint64(0)
	if pageToken != "" {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(pageToken)
		if err != nil || len(raw) != 8 {
			return nil, "", ErrPageToken
		}
		from = binary.BigEndian.Uint64(raw)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.store.get(id); !ok {
		return nil, "", ErrNotFound
	}
	all := q.items[id]
	if from > uint64(len(all)) {
		return nil, "", ErrPageToken
	}
	page = []ItemRecord{}
	for i := int(from); i < len(all); i++ {
		if f.State != "" && all[i].State != f.State {
			continue
		}
		if len(page) == min(max(limit, 1), MaxPage) {
			return page, base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(i))), nil
		}
		page = append(page, all[i])
	}
	return page, "", nil
}
