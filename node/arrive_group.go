package node

import (
	"context"
	"fmt"

	"mover/engine"
	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// groupArrival is a group of small entries of a tree.
type groupArrival struct {
	inbounds *inbounds
	key      itemKey
	group    *job.GroupManifest
	sink     *fileio.GroupSink
	inflow   *job.Inflow
	named    bool // names were about to be given
}

func (r *receiver) arriveGroup(ctx context.Context, in *inbound, o offered) (arrival, []byte, error) {
	root, err := r.node.roots.writable(o.Root, r.peer)
	if err != nil {
		return nil, nil, err
	}
	if o.group.Final {
		meta, err := finishDirs(ctx, root, o.group)
		return nil, meta, err
	}
	spec, err := groupSpec(o.group)
	if err != nil {
		return nil, nil, err
	}
	if err := r.markPublished(root, in.key.jobKey, o.group, &spec); err != nil {
		return nil, nil, err
	}
	a := &groupArrival{inbounds: r.node.inbounds, key: in.key, group: o.group, inflow: in.inflow}
	record := newGroupEntry(in.key, o.group)
	r.node.journal.put(record)
	spec.Naming = func(names []fileio.NameInode) error {
		// As for a file: before the first name appears.
		a.named = true
		record.Names = names
		r.node.journal.put(record)
		r.node.inbounds.naming(in.key, o.Root, string(o.Path), names)
		return nil
	}
	if a.sink, err = root.CreateGroup(ctx, spec); err != nil {
		return nil, nil, err
	}
	if entries, bytes := a.sink.Wanted(); entries > 0 && bytes > 0 {
		return a, nil, nil
	}
	// Nothing of it has bytes: no reason to send any.
	meta, err := a.publish(ctx, 0, false)
	if err != nil {
		_ = a.sink.Discard() // the error that counts is the first
	}
	in.arrival = a // its record may have to stay
	return a, meta, err
}

// markPublished finds the entries that an earlier attempt published, whose
// answer the source may never have had: they are this job's own, and no
// conflict.
func (r *receiver) markPublished(root *fileio.Root, j jobKey, g *job.GroupManifest, spec *fileio.GroupSpec) error {
	known := r.node.inbounds.named(j, g.Root, string(g.Base))
	if len(known) == 0 {
		return nil
	}
	var names []fileio.NameInode
	var index []int
	for i := range spec.Entries {
		if name, ok := known[spec.Entries[i].Rel]; ok {
			names, index = append(names, name), append(index, i)
		}
	}
	if len(names) == 0 {
		return nil
	}
	is, err := root.PublishedGroup(spec.Base, names, g.Durable)
	for k, i := range index {
		e := &spec.Entries[i]
		same := names[k].Size == e.Size
		if e.Kind == fileio.KindHardLink {
			same = names[k].Size < 0
		}
		if err == nil && is[k] && same {
			e.Published = true
		}
	}
	return err
}

func (a *groupArrival) target() engine.Target {
	return engine.Target{Sink: countedSink{a.sink, a.inflow}}
}

func (a *groupArrival) publish(ctx context.Context, _ uint32, verified bool) ([]byte, error) {
	if err := a.sink.Publish(ctx); err != nil {
		return nil, err
	}
	done := job.GroupDone{Durable: a.group.Durable, Verified: verified}
	for i, o := range a.sink.Outcomes() {
		switch {
		case o.State == fileio.EntrySkipped:
			done.Exceptions = append(done.Exceptions, job.GroupException{Index: uint32(i), Outcome: job.EntrySkipped})
		case o.Err != nil, o.State == fileio.EntryPending:
			done.Exceptions = append(done.Exceptions, failedEntry(i, o.Err))
		}
	}
	return done.Encode()
}

func failedEntry(i int, err *reason.Error) job.GroupException {
	if err == nil {
		err = reason.New(reason.Internal, "the destination did not decide about it")
	}
	return job.GroupException{Index: uint32(i), Outcome: job.EntryFailed, Code: err.Code, Detail: err.Detail}
}

func (a *groupArrival) discard() error { return a.sink.Discard() }

func (a *groupArrival) lasting() bool { return a.named }

// finishDirs gives a tree's directories their attributes, after all that is in
// them was published.
func finishDirs(ctx context.Context, root *fileio.Root, g *job.GroupManifest) ([]byte, error) {
	spec, err := groupSpec(g)
	if err != nil {
		return nil, err
	}
	dirs := make([]fileio.DirEntry, len(spec.Entries))
	for i, e := range spec.Entries {
		if e.Kind != fileio.KindDir {
			return nil, reason.New(reason.PeerRefused, "the peer finishes a %v as if it were a directory", e.Kind)
		}
		dirs[i] = fileio.DirEntry{Rel: e.Rel, Mode: e.Mode, MTime: e.MTime, UID: e.UID, GID: e.GID, Xattrs: e.Xattrs}
	}
	failed, err := root.FinishDirs(ctx, spec.Base, dirs, spec.Preserve, g.Durable)
	if err != nil {
		return nil, fmt.Errorf("finish directories: %w", err)
	}
	done := job.GroupDone{Durable: g.Durable}
	for _, f := range failed {
		done.Exceptions = append(done.Exceptions, failedEntry(f.Index, f.Err))
	}
	return done.Encode()
}
