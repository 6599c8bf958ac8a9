package job

import "context"

// maxRecent is how many events are in memory for those who follow closely.
const maxRecent = 4096

// tell makes events visible that are durable. Callers hold q.mu.
func (q *Queue) tell(events []Event) {
	if len(events) == 0 {
		return
	}
	q.recent = append(q.recent, events...)
	if n := len(q.recent) - maxRecent; n > 0 {
		// Copied now and then, not at every event.
		if n > maxRecent {
			q.recent = append([]Event(nil), q.recent[n:]...)
		}
	}
	q.lastSeq = events[len(events)-1].Seq
	close(q.news)
	q.news = make(chan struct{})
}

// Events returns up to limit (1..MaxPage) events that match, oldest first; the
// oldest are not kept for ever. Errors: ctx's, *StoreError, ErrClosed.
func (q *Queue) Events(ctx context.Context, f EventFilter, limit int) ([]Event, error) {
	page, _, err := q.eventsNow(ctx, f, limit)
	return page, err
}

// eventsNow also returns the channel that is closed at the next event.
func (q *Queue) eventsNow(ctx context.Context, f EventFilter, limit int) (page []Event, news chan struct{}, err error) {
	limit = min(max(limit, 1), MaxPage)
	q.mu.Lock()
	news = q.news
	if f.After >= q.lastSeq || len(q.recent) > 0 && q.recent[0].Seq <= f.After+1 {
		defer q.mu.Unlock()
		page = []Event{}
		for i := q.recentAfter(f.After); i < len(q.recent) && len(page) < limit; i++ {
			if f.match(q.recent[i]) {
				page = append(page, q.recent[i])
			}
		}
		return page, news, nil
	}
	q.mu.Unlock()
	if page, err = q.db.events(ctx, f, limit); err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, q.readError(err)
	}
	return page, news, nil
}

// recentAfter returns the index of the first recent event behind seq. Seqs
// have no gaps while the process runs, but the first may be any.
func (q *Queue) recentAfter(seq uint64) int {
	if len(q.recent) == 0 || seq < q.recent[0].Seq {
		return 0
	}
	return int(min(seq-q.recent[0].Seq+1, uint64(len(q.recent))))
}

// WaitEvents is Events, but waits until there is an event that matches. When
// ctx ends first it returns ctx's error; when the queue closes, ErrClosed.
func (q *Queue) WaitEvents(ctx context.Context, f EventFilter, limit int) ([]Event, error) {
	for {
		page, news, err := q.eventsNow(ctx, f, limit)
		if err != nil || len(page) > 0 {
			return page, err
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
	return q.lastSeq
}
