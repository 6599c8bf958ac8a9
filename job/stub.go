package job

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"mover/reason"
)

// A stub is a job that was submitted here and whose source is on another node,
// which owns it. Submit keeps it and never starts an attempt: the forwarder
// offers what Stubs returns to the owner until it takes it, and tells with
// UpdateStub what the owner says.

// Accept puts a job into the queue that was submitted at the node from, whose
// source is here. id is the stub's; the same id, spec and owner give the job
// that exists, and replay is true; another spec or owner gives ErrKeyConflict.
// What a Patch can change does not make another spec: the stub may have been
// patched between two offers of which the first was taken and its answer lost.
// The job that exists then stays as it is. Errors as of Submit.
func (q *Queue) Accept(ctx context.Context, id ID, spec Spec, owner, from string) (s Snapshot, replay bool, err error) {
	if err := ctx.Err(); err != nil {
		return Snapshot{}, false, fmt.Errorf("accept: %w", err)
	}
	if id.Version() != 7 {
		return Snapshot{}, false, refuse("id", "must be a UUID of version 7")
	}
	if !ownerShape.MatchString(owner) {
		return Snapshot{}, false, refuse("owner", "must be node/name")
	}
	if !ValidName(from) {
		return Snapshot{}, false, refuse("from", nameRule)
	}
	if spec, err = spec.Normalize(q.cfg.NodeName); err != nil {
		return Snapshot{}, false, err
	}
	if spec.Source.Node != q.cfg.NodeName {
		return Snapshot{}, false, refuse("source.node", "is not this node, which therefore cannot own the job")
	}
	lasting := spec
	lasting.Priority, lasting.BandwidthLimit, lasting.Deadline, lasting.Labels = 0, 0, 0, nil
	rec := record{body: lasting.fingerprint(), snap: Snapshot{ID: id, Owner: owner, Origin: from, Spec: spec}}
	return q.admit(ctx, rec)
}

// Stubs returns the stubs that have not ended, oldest first. At most
// Config.MaxQueued jobs wait, so the list is bounded.
func (q *Queue) Stubs() []Snapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stubs()
}

// UpdateStub tells what the owner says of the job: its state, attempts,
// reasons, progress, result and what a Patch changed are shown here from now
// on; id, owner, times of submission and version stay this node's. It also
// records the contact. It returns the stub as it is then: a stub that ended
// here (canceled before it was accepted) stays as it is, and the caller tells
// the owner. A stub whose job was retried at its owner comes back. Errors:
// ErrNotFound; *FieldError for what no owner can say, or if id is no stub.
func (q *Queue) UpdateStub(id ID, owner Snapshot) (Snapshot, error) {
	if !owner.State.Valid() || owner.Attempts < 0 {
		return Snapshot{}, refuse("state", "is not one that a job can have")
	}
	return q.stub(id, func(e *entry) {
		f := e.rec.snap.Forwarded
		if e.rec.snap.State.Terminal() && (!f.Accepted || overtaken(&e.rec.snap, &owner)) {
			return
		}
		q.mirror(e, owner)
	})
}

// overtaken reports whether the owner said o before what ended s: several ask
// it at a time, and an older answer may come last. Only a retry, which counts,
// brings back what has ended.
func overtaken(s, o *Snapshot) bool {
	return !o.State.Terminal() && o.Retries <= s.Retries
}

// UnreachableStub records why the owner could not be asked; the text is for a
// person. Errors as of UpdateStub.
func (q *Queue) UnreachableStub(id ID, cause error) (Snapshot, error) {
	return q.stub(id, func(e *entry) {
		s := &e.rec.snap
		text := cleanDetail(cause.Error())
		if s.State.Terminal() || s.Forwarded.Error == text {
			return
		}
		f := *s.Forwarded
		f.Error = text
		s.Forwarded = &f
		q.touch(e, "", false)
	})
}

// RefuseStub ends a stub that its owner does not take: it becomes failed, with
// why's code. Errors as of UpdateStub.
func (q *Queue) RefuseStub(id ID, why *reason.Error) (Snapshot, error) {
	return q.stub(id, func(e *entry) {
		s := &e.rec.snap
		if s.State.Terminal() {
			return
		}
		r := NewReason(why)
		s.LastReason = &r
		q.move(e, Failed)
	})
}

// stub calls f with a stub.
func (q *Queue) stub(id ID, f func(*entry)) (Snapshot, error) {
	e, err := q.claim(id)
	if err != nil {
		return Snapshot{}, err
	}
	defer q.mu.Unlock()
	defer q.release(e)
	if e.rec.snap.Forwarded == nil {
		return Snapshot{}, refuse("id", "is that of a job of this node, not of a stub")
	}
	f(e)
	return q.view(e), nil
}

func (q *Queue) stubs() []Snapshot {
	var out []Snapshot
	for _, e := range q.live {
		if e.known && e.rec.snap.Forwarded != nil && !e.rec.snap.State.Terminal() {
			out = append(out, q.view(e))
		}
	}
	slices.SortFunc(out, func(a, b Snapshot) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return out
}

// mirror takes over what the owner says.
func (q *Queue) mirror(e *entry, o Snapshot) {
	s := &e.rec.snap
	was := *s
	now := timePtr(q.clock.Now())
	s.Forwarded = &Forward{Node: was.Forwarded.Node, Accepted: true, LastContact: now}
	s.Attempts, s.StartedAt, s.NextAttemptAt = o.Attempts, o.StartedAt, o.NextAttemptAt
	s.LastReason, s.Progress, s.Result = o.LastReason, o.Progress, o.Result
	s.Pausing, s.Retries, s.DeadlineAt = o.Pausing, o.Retries, o.DeadlineAt
	s.Spec.Priority, s.Spec.Labels = o.Spec.Priority, o.Spec.Labels
	s.Spec.BandwidthLimit, s.Spec.Deadline = o.Spec.BandwidthLimit, o.Spec.Deadline
	stop(e.deadline) // the owner's business from now on
	switch {
	case o.State != was.State:
		if was.State.Terminal() {
			s.FinishedAt = nil
		}
		q.move(e, o.State)
		s.Pausing = o.Pausing
	case s.State.Terminal():
		// It ended there as it is known here.
		*s = was
	case o.Version != e.ownerVersion || !was.Forwarded.Accepted || was.Forwarded.Error != "":
		q.touch(e, "", true)
	default:
		q.show(e) // progress and the contact alone: nobody is woken for that
	}
	e.ownerVersion = o.Version
}
