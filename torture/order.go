//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"mover/job"
)

// order is a job to come: what is asked of whom, what has to be there
// afterwards, and what its customer does to it meanwhile.
type order struct {
	number int
	key    string // of idempotency
	at     *node  // the node asked
	spec   job.Spec
	to     *node  // where it arrives
	want   survey // what arrives
	bytes  int64
	shared *shared // its destination, if others share it
	span   *span   // its destination, if it is a range of a buffer
	small  bool    // the destination is on the small disk
	plan   plan
}

// plan is what the customer does, at which time after the job was accepted; 0
// is not at all.
type plan struct {
	cancel, pause, patch, again time.Duration
	paused                      time.Duration // how long it stays paused
	retry                       bool          // once it has ended badly
	forget                      bool          // once it has ended
	patience                    time.Duration // for the answer to a submit
}

const (
	sourceBuffer      = "torture-source"
	sourceBufferBytes = 32 << 20
	targetBuffer      = "torture-target"
	spanBytes         = 4 << 20
	spans             = 24
)

// span is a range of a node's target buffer, of one job at a time.
type span struct {
	node   *node
	number int
}

func (s *span) offset() int64 { return int64(s.number) * spanBytes }

// nextOrder draws a job. calm ones have no plan, and share nothing.
func (t *run) nextOrder(r *rand.Rand, calm bool) *order {
	o := &order{number: int(t.orders.Add(1))}
	o.key = fmt.Sprintf("torture-%d-%d", t.seed, o.number)
	from := t.nodes[r.IntN(2)]
	o.to = t.other(from)
	if r.IntN(6) == 0 {
		o.to = from // within a node
	}
	o.at = from
	if r.IntN(3) == 0 {
		o.at = t.other(from) // a pull, or a job for two others
	}
	o.spec.Labels = map[string]string{"torture": o.label()}
	o.spec.Source.Node, o.spec.Destination.Node = from.name, o.to.name
	kind := r.IntN(20)
	switch {
	case kind < 3:
		o.bufferToBuffer(t, r, from)
	case kind < 4:
		o.bufferToFile(t, r, from)
	case kind < 5:
		o.fileToBuffer(t, r, from)
	case kind < 9 && !calm:
		o.overwrite(t, r, from)
	case kind < 13:
		o.move(t.sources[from.name].trees[r.IntN(2)], r)
	default:
		files := t.sources[from.name].files
		o.move(files[r.IntN(len(files))], r)
	}
	if !calm {
		o.draw(r)
	}
	return o
}

func (o *order) label() string { return fmt.Sprint(o.number) }

// draw decides what the customer does, and some of how the job is done.
func (o *order) draw(r *rand.Rand) {
	o.plan.patience = between(r, 20*time.Millisecond, 3*time.Second)
	some := func(one int, d *time.Duration, high time.Duration) {
		if r.IntN(one) == 0 {
			*d = between(r, time.Millisecond, high)
		}
	}
	some(6, &o.plan.cancel, 2*time.Second)
	some(5, &o.plan.pause, time.Second)
	some(6, &o.plan.patch, time.Second)
	some(4, &o.plan.again, 4*time.Second)
	o.plan.paused = between(r, time.Millisecond, 3*time.Second)
	o.plan.retry = r.IntN(2) == 0
	o.plan.forget = r.IntN(2) == 0
	o.spec.Priority = r.IntN(5) - 2
	if r.IntN(12) == 0 {
		o.spec.Deadline = job.Duration(between(r, 2*time.Second, 30*time.Second))
	}
	acts := o.plan.cancel+o.plan.pause+o.plan.patch > 0
	if r.IntN(6) == 0 || acts && r.IntN(2) == 0 {
		// Slow enough to be caught on the way.
		o.spec.BandwidthLimit = job.Rate(between(r, 4<<20, 64<<20)) * 8
	}
	if r.IntN(6) == 0 {
		durable := false
		o.spec.Durable = &durable
	}
}

// move is a job whose destination is its own.
func (o *order) move(s *source, r *rand.Rand) {
	o.spec.Source.Path, o.spec.Recursive = "data/"+s.name, s.tree
	o.want, o.bytes = s.has, s.bytes
	root := "incoming/"
	if s.bytes < smallBytes/4 && r.IntN(3) == 0 {
		root, o.small = "small/", true
	}
	o.spec.Destination.Path = root + "own" + o.label()
}

// overwrite is a job whose destination is there, and others'.
func (o *order) overwrite(t *run, r *rand.Rand, from *node) {
	all := t.shared[o.to.name]
	o.shared = all[r.IntN(len(all))]
	versions := t.sources[from.name].versions
	if o.shared.tree {
		versions = t.sources[from.name].treeVersions
	}
	s := versions[r.IntN(len(versions))]
	o.spec.Source.Path, o.spec.Recursive = "data/"+s.name, s.tree
	o.spec.Destination.Path = "incoming/" + o.shared.name
	o.want, o.bytes = s.has, s.bytes
	policies := []string{job.OverwriteAlways, job.OverwriteAlways, job.OverwriteIfNewer,
		job.OverwriteIfDifferent, job.OverwriteSkip, job.OverwriteFail}
	o.spec.Overwrite = policies[r.IntN(len(policies))]
	if o.spec.Overwrite == job.OverwriteIfDifferent && r.IntN(2) == 0 {
		o.spec.Compare = job.CompareCRC
	}
	if s.tree && r.IntN(2) == 0 {
		o.spec.OnError = job.OnErrorContinue
	}
	if o.replaces() {
		o.shared.allow(s.has)
	}
}

// replaces reports whether the policy lets a job change what is there.
func (o *order) replaces() bool {
	return o.spec.Overwrite != job.OverwriteSkip && o.spec.Overwrite != job.OverwriteFail
}

// fromBuffer takes a range of from's source buffer.
func (o *order) fromBuffer(t *run, r *rand.Rand, from *node) {
	length := r.Int64N(spanBytes) + 1
	if r.IntN(2) == 0 {
		length = max(length&^4095, 4096) // whole pages, which are written directly
	}
	offset := r.Int64N(sourceBufferBytes-length) &^ 4095
	o.spec.Source.Buffer, o.spec.Source.Offset, o.spec.Source.Length = sourceBuffer, size(offset), size(length)
	o.bytes = length
	o.want = surveyOf(t.sources[from.name].buffer[offset : offset+length])
}

func (o *order) bufferToBuffer(t *run, r *rand.Rand, from *node) {
	o.fromBuffer(t, r, from)
	o.toBuffer(t)
}

func (o *order) bufferToFile(t *run, r *rand.Rand, from *node) {
	o.fromBuffer(t, r, from)
	o.spec.Destination.Path = "incoming/own" + o.label()
}

func (o *order) fileToBuffer(t *run, r *rand.Rand, from *node) {
	var fits []*source
	for _, f := range t.sources[from.name].files {
		if f.bytes > 0 && f.bytes <= spanBytes {
			fits = append(fits, f)
		}
	}
	f := fits[r.IntN(len(fits))]
	o.spec.Source.Path = "data/" + f.name
	o.want, o.bytes = f.has, f.bytes
	o.toBuffer(t)
}

// toBuffer takes a free range of the destination's buffer. There is always
// one: fewer jobs than ranges are under way.
func (o *order) toBuffer(t *run) {
	o.span = <-t.spans[o.to.name]
	o.spec.Destination.Buffer, o.spec.Destination.Offset = targetBuffer, size(o.span.offset())
	if o.spec.Source.Length == nil {
		o.spec.Destination.Length = size(o.bytes)
	}
}

func size(n int64) *job.Bytes { b := job.Bytes(n); return &b }

// String names the order in messages.
func (o *order) String() string {
	place := func(p job.Place) string {
		if p.Buffer != "" {
			return fmt.Sprintf("%s:%s@%d", p.Node, p.Buffer, *p.Offset)
		}
		return p.Node + ":" + p.Path
	}
	text := fmt.Sprintf("job %d (asked at %s: %s -> %s", o.number, o.at.name, place(o.spec.Source), place(o.spec.Destination))
	if o.shared != nil {
		text += ", overwrite " + o.spec.Overwrite
	}
	return text + ")"
}
