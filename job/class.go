package job

// class is a half of the node's places. A job is small until its total is known
// to be more than Config.SmallBytes. Small jobs have Config.MaxRunning places
// and large ones as many of their own, so however many huge jobs there are, a
// small one waits for small ones alone. A job that turns out large during an
// attempt moves to a place for large ones if there is one; else that attempt
// ends (ErrYield), which is no failure, and the next waits for such a place:
// this happens once to a job, and mostly before its bytes move.
type class struct {
	ready   *ready
	running int // attempts whose Run has not returned
}

// isLarge reports whether a job is known to be large before it runs.
func (q *Queue) isLarge(s *Snapshot) bool {
	total := s.Progress.BytesTotal
	for _, p := range []Place{s.Spec.Source, s.Spec.Destination} {
		if p.Length != nil {
			total = max(total, int64(*p.Length))
		}
	}
	return total > q.cfg.SmallBytes
}

// enqueue lets e start when its turn comes. A stub has none here; and a job
// that was retried waits until the attempt that outlived it has returned.
func (q *Queue) enqueue(e *entry) {
	if e.rec.snap.Forwarded == nil && q.linger[e.rec.snap.ID] == nil && e.place == nil {
		e.class.ready.push(e)
	}
}

// dequeue takes e out if it waits for its turn.
func (q *Queue) dequeue(e *entry) { e.class.ready.remove(e) }

// schedule starts attempts while there is room. Callers hold q.mu.
func (q *Queue) schedule() {
	for _, c := range []*class{q.small, q.large} {
		for !q.closed && !q.draining && c.running < q.cfg.MaxRunning {
			e := c.ready.pop()
			if e == nil {
				break
			}
			q.start(e)
		}
	}
}

// grow is called when the total of r's attempt is known to be large.
func (q *Queue) grow(e *entry, r *run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.attempt != r || e.class == q.large {
		return
	}
	e.class = q.large
	if q.large.running >= q.cfg.MaxRunning {
		r.end(endYield)
		return
	}
	owner := e.rec.snap.Owner
	r.class.leave(owner)
	r.class = q.large
	r.class.enter(owner)
	q.schedule()
}

// enter counts an attempt of owner that did not come through the line.
func (c *class) enter(owner string) {
	c.running++
	c.ready.share(owner).running++
}

// leave says that an attempt of owner holds no place here any more.
func (c *class) leave(owner string) {
	c.running--
	c.ready.done(owner)
}
