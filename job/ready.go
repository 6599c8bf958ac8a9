package job

import "container/list"

// ready holds the jobs that may start now, and chooses the next: of the
// highest priority; there, of the owner with the fewest attempts under way,
// then of the one that started one longest ago; there, the first submitted or
// first back from its back-off. With one attempt at a time that is round robin.
// It is not safe for concurrent use: the queue's lock guards it.
type ready struct {
	levels map[int]map[string]*list.List // priority, owner
	owners map[string]*share
	starts uint64
	size   int
}

// share is what an owner has of the node.
type share struct {
	running   int
	lastStart uint64 // 0 is never
	waiting   int
}

func newReady() *ready {
	return &ready{levels: map[int]map[string]*list.List{}, owners: map[string]*share{}}
}

func (r *ready) share(owner string) *share {
	s := r.owners[owner]
	if s == nil {
		s = &share{}
		r.owners[owner] = s
	}
	return s
}

// forget keeps the memory of owners bounded by their live jobs.
func (r *ready) forget(owner string) {
	if s := r.owners[owner]; s != nil && s.running == 0 && s.waiting == 0 {
		delete(r.owners, owner)
	}
}

func (r *ready) push(e *entry) {
	level := r.levels[e.rec.snap.Spec.Priority]
	if level == nil {
		level = map[string]*list.List{}
		r.levels[e.rec.snap.Spec.Priority] = level
	}
	line := level[e.rec.snap.Owner]
	if line == nil {
		line = list.New()
		level[e.rec.snap.Owner] = line
	}
	e.place = line.PushBack(e)
	r.share(e.rec.snap.Owner).waiting++
	r.size++
}

// remove takes e out if it is in.
func (r *ready) remove(e *entry) {
	if e.place == nil {
		return
	}
	owner, priority := e.rec.snap.Owner, e.rec.snap.Spec.Priority
	level := r.levels[priority]
	line := level[owner]
	line.Remove(e.place)
	e.place = nil
	r.size--
	if line.Len() == 0 {
		delete(level, owner)
	}
	if len(level) == 0 {
		delete(r.levels, priority)
	}
	r.share(owner).waiting--
	r.forget(owner)
}

// pop takes the next job out and counts it as running; nil if there is none.
func (r *ready) pop() *entry {
	if r.size == 0 {
		return nil
	}
	top, first := 0, true
	for priority := range r.levels {
		if first || priority > top {
			top, first = priority, false
		}
	}
	var owner string
	var best *share
	for name := range r.levels[top] {
		s := r.owners[name]
		// The name decides last, so that the order of a map decides nothing.
		if best == nil || s.running < best.running ||
			s.running == best.running && (s.lastStart < best.lastStart ||
				s.lastStart == best.lastStart && name < owner) {
			owner, best = name, s
		}
	}
	e := r.levels[top][owner].Front().Value.(*entry)
	best.running++ // before remove, which forgets owners without any job
	r.starts++
	best.lastStart = r.starts
	r.remove(e)
	return e
}

// done says that an attempt of owner, counted by pop, is over.
func (r *ready) done(owner string) {
	r.share(owner).running--
	r.forget(owner)
}
