package engine

import (
	"bytes"

	"mover/reason"
)

// simJob is what a node does about an item until it has arrived: an attempt, and
// after a failure that may pass another one, over whatever session there is
// then. It outlives the processes at both ends, as jobs and disks do.
type simJob struct {
	w        *world
	index    int
	from     *simSide
	kind     ItemKind
	data     []byte
	verify   bool
	faults   itemFaults // of the first attempts
	faulty   int        // how many attempts have them
	attempts []*simItem
	waiting  bool // for its next attempt, after a restart
	over     bool
	err      *reason.Error
	named    bool   // published: the destination's name is there
	final    []byte // what it names; of memory nothing, which is its owner's by then
}

// addJob makes a job and begins it at a time from now.
func (w *world) addJob(from *simSide, kind ItemKind, size int64, faults itemFaults, in int64) *simJob {
	j := &simJob{w: w, index: len(w.jobs), from: from, kind: kind, data: w.drawData(size, len(w.jobs)), verify: w.rng.IntN(3) > 0,
		faults: faults, faulty: 1 + w.rng.IntN(2)}
	w.jobs = append(w.jobs, j)
	w.after(in, "job", j.attempt)
	return j
}

// attempt sends the job's item, if there is a session that takes it; else
// later.
func (j *simJob) attempt() {
	w := j.w
	j.waiting = false
	if j.over {
		return
	}
	if j.from.dead || j.from.ended {
		j.waiting = true
		w.after(20*ms+w.rng.Int64N(100*ms), "no session", j.attempt)
		return
	}
	var f itemFaults
	if len(j.attempts) < j.faulty {
		f = j.faults
	}
	i := w.newItem(j.from, j.kind, j.data, j.verify, uint32(len(j.attempts)), f)
	i.job = j
	if j.kind == Staged && w.rng.IntN(4) == 0 {
		i.item.Pace = []*Pacer{w.pacer}
	}
	j.attempts = append(j.attempts, i)
	i.send()
}

// ended takes the end of an attempt.
func (j *simJob) ended(i *simItem) {
	w := j.w
	e := i.result.Err
	switch {
	case e == nil && !j.named:
		w.broken(matching, "job %d: done, and nothing is published", j.index)
	case e == nil:
		j.over = true
	case !w.explains(i, e):
		w.broken(ends, "job %d attempt %d: %v, for which there is no reason in this run", j.index, i.item.Attempt, e)
	case !e.Code.Retryable():
		j.over, j.err = true, e
	case len(j.attempts) > 60:
		w.broken(ends, "job %d: %d attempts, the last: %v", j.index, len(j.attempts), e)
	default:
		w.after(min(20*ms<<min(len(j.attempts), 8), 3*s1)+w.rng.Int64N(20*ms), "again", j.attempt)
	}
}

// open reports whether an attempt before i is still open at the destination.
func (j *simJob) open(i *simItem) bool {
	for _, before := range j.attempts {
		if before == i {
			return false
		}
		if before.opened && !before.ended && !before.gone {
			return true
		}
	}
	return false
}

// publish gives the destination's name to what an attempt has brought.
func (j *simJob) publish(i *simItem) {
	if j.named {
		j.w.broken(ends, "job %d: published a second time, by attempt %d", j.index, i.item.Attempt)
	}
	for _, later := range j.attempts {
		if later.item.Attempt > i.item.Attempt && later.opened && later.dest != nil {
			j.w.broken(ends, "job %d: attempt %d is published after %d has begun", j.index, i.item.Attempt, later.item.Attempt)
		}
	}
	j.named = true
	if j.kind == Staged {
		j.final = i.dest
	}
}

// check is the last look at a job.
func (j *simJob) check() {
	w := j.w
	if !j.over {
		w.broken(ends, "job %d: not over", j.index)
		return
	}
	if j.named && j.kind == Staged && !bytes.Equal(j.final, j.data) && (j.verify || w.f.Stats().Corrupted == 0) {
		w.broken(matching, "job %d: its name has other bytes than the source, the first at %d", j.index, firstDifference(j.final, j.data))
	}
	if j.err != nil && j.faults == (itemFaults{}) {
		w.broken(ends, "job %d: failed for good without a fault of its own: %v", j.index, j.err)
	}
}

// explains reports whether an attempt may end for such a reason: something that
// went wrong in the run says so.
func (w *world) explains(i *simItem, e *reason.Error) bool {
	f := i.faults
	switch e.Code {
	case reason.Canceled:
		return f.cancelAt > 0
	case reason.NoSpace:
		return f.refused || f.writeErr > 0 && i.writes >= f.writeErr
	case reason.IOError:
		return f.publishErr || f.readErr > 0 && i.reads >= f.readErr
	case reason.SourceChanged:
		return f.changed
	case reason.ChecksumMismatch:
		return w.f.Stats().Corrupted > 0
	case reason.Stalled:
		// An attempt before may still be in the way, and a sink that hangs keeps the
		// slots of others: all of a lane's, where it has few.
		return w.stormy || w.hangs
	case reason.PeerUnreachable, reason.PeerRefused, reason.TransportError:
		return w.stormy
	}
	return false
}
