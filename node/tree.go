package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"mover/fileio"
	"mover/job"
	"mover/reason"
)

const (
	// treeWindow is how many items of a tree are under way at a time: enough to
	// hide the round trips of groups of small files, few enough for what the
	// destination keeps open of each.
	treeWindow = 16
	// smallBytes is the largest file that travels in a group.
	smallBytes = 256 << 10
)

// tree carries out an attempt at a directory and everything below it, in
// memory that does not depend on its size. A goroutine walks and sends; the
// attempt's own takes what comes back.
type tree struct {
	*shipping
	root      *fileio.Root
	base      string // of the walk, below root
	selection job.Selection
	dest      treePlace

	ctx    context.Context // ends with the attempt, or with its failure
	stop   context.CancelCauseFunc
	window chan struct{}
	landed chan landing

	// The goroutine that walks.
	pack  pack
	links *links
	dirs  *spool // directories, the deepest first

	mu     sync.Mutex // of what follows, and of the maps in links
	flying map[*shipment]struct{}
	number uint32 // of the next item
	total  struct{ bytes, items int64 }
	count  struct{ bytes, done, skipped, failed int64 }
	first  *job.Reason // of the entries that failed

	failure *reason.Error // the attempt's goroutine
}

// treePlace is where a tree goes.
type treePlace struct{ root, base string }

// path is where an entry goes, below the destination's root.
func (p treePlace) path(rel string) string {
	switch {
	case p.base == "":
		return rel
	case rel == ".":
		return p.base
	}
	return p.base + "/" + rel
}

// tree carries out an attempt at a directory.
func (sh *shipping) tree(ctx context.Context, root *fileio.Root) (_ job.Result, err error) {
	t := &tree{
		shipping: sh, root: root, base: sh.spec.Source.Sub(),
		dest:   treePlace{sh.spec.Destination.Root(), sh.spec.Destination.Sub()},
		window: make(chan struct{}, treeWindow), landed: make(chan landing, treeWindow),
		flying: map[*shipment]struct{}{},
	}
	if t.selection, err = job.ParseSelection(sh.spec.Include, sh.spec.Exclude); err != nil {
		return job.Result{}, reason.New(reason.Internal, "%w", err)
	}
	if err := t.notIntoItself(); err != nil {
		return job.Result{}, err
	}
	if t.links, err = newLinks(sh.cfg.Node.StateDir); err != nil {
		return job.Result{}, err
	}
	defer t.links.close()
	if t.dirs, err = newSpool(sh.cfg.Node.StateDir); err != nil {
		return job.Result{}, err
	}
	defer t.dirs.close()
	t.ctx, t.stop = context.WithCancelCause(ctx)
	defer t.stop(nil)
	t.attempt.Phase(job.Running)
	// A hard link needs its file, and a directory gets its time and mode when
	// nothing is put into it any more.
	for _, send := range []func() error{t.walk, t.sendLinks, t.sendRestOfLinks, t.sendDirs} {
		if t.run(ctx, send); t.failure != nil {
			return job.Result{}, t.failure
		}
	}
	return job.Result{
		Bytes: t.count.bytes, Items: t.count.done, ItemsSkipped: t.count.skipped, ItemsFailed: t.count.failed,
		Verified: t.verify(), Durable: t.durable(), Providers: t.providers(), FirstFailure: t.first,
	}, nil
}

// notIntoItself refuses a local copy of a directory onto itself or into what is
// below it, by whatever name.
func (t *tree) notIntoItself() error {
	if !t.local {
		return nil
	}
	to, err := t.roots.writable(t.dest.root, t.cfg.Node.Name)
	if err != nil {
		return err
	}
	return notInside(t.root, t.base, to, t.dest.base)
}

// run runs send in a goroutine of its own until all that it sent has come back.
func (t *tree) run(ctx context.Context, send func() error) {
	sent := make(chan error, 1)
	go func() { sent <- send() }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	ended := ctx.Done()
	for sending := true; sending || t.inFlight() > 0; {
		select {
		case l := <-t.landed:
			t.land(l)
		case err := <-sent:
			sending = false
			if err != nil {
				t.fail(asReason(err))
			}
		case <-ended:
			ended = nil
			t.fail(whyEnded(ctx))
		case <-tick.C:
			t.tick()
			t.progress()
		}
	}
}

// fail ends the attempt: what is under way is canceled, and comes back.
func (t *tree) fail(why *reason.Error) {
	if t.failure != nil {
		return
	}
	t.failure = why
	t.stop(why)
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.flying {
		t.to.Cancel(s.item, why)
	}
}

func (t *tree) inFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.flying)
}

// walk sends everything but hard links and the directories' attributes.
func (t *tree) walk() error {
	cfg := fileio.WalkConfig{
		Visit: t.visit, Leave: t.leave,
		Problem: func(rel string, err *reason.Error) error { return t.problem(rel, job.EntryFile, 0, err) },
		Xattrs:  t.spec.Preserves(job.PreserveXattrs),
	}
	if !t.selection.All() {
		cfg.Skip = func(rel string, dir bool) bool {
			take, descend := t.selection.Take(rel, dir)
			return !take && !descend
		}
	}
	if err := t.root.Walk(t.ctx, t.base, cfg); err != nil {
		return t.because(err)
	}
	return t.flush()
}

// because is the attempt's own reason where a walk only saw that it ended.
func (t *tree) because(err error) error {
	if t.ctx.Err() != nil {
		return asReason(context.Cause(t.ctx))
	}
	return err
}

// visit sends one entry, or puts it into the group that is being packed.
func (t *tree) visit(e fileio.Entry) error {
	if e.Rel != "." && !t.selection.All() {
		if take, _ := t.selection.Take(e.Rel, e.Kind == fileio.KindDir); !take {
			return nil // a directory that only leads to what is taken
		}
	}
	t.expect(e.Size, 1)
	first, linked := "", false
	if t.several(&e) { // also one that is there already: the others are links to it
		first, linked = t.firstName(&e)
	}
	if e.Kind != fileio.KindDir && t.attempt.Number > 1 && t.attempt.Items.Done([]byte(e.Rel)) {
		t.attempt.Progress.Add(e.Size)
		t.counted(e.Size, 1, 0)
		return nil
	}
	if err := tooLong(t.dest.base, e.Rel); err != nil {
		return t.problem(e.Rel, entryKinds[e.Kind], e.Size, err)
	}
	if err := xattrsTravel(e.Xattrs); err != nil {
		t.unpublished(&e, false)
		return t.problem(e.Rel, entryKinds[e.Kind], e.Size, err)
	}
	if linked {
		t.expect(-e.Size, 0)
		return t.links.waits.put(t.waiting(&e, first))
	}
	return t.sendContent(e)
}

// sendContent sends an entry that is no hard link.
func (t *tree) sendContent(e fileio.Entry) error {
	if e.Kind == fileio.KindFile && e.Size > smallBytes {
		return t.sendFile(e)
	}
	return t.add(e)
}

// leave remembers a directory's attributes.
func (t *tree) leave(e fileio.Entry) error {
	if e.Rel != "." && !t.selection.All() {
		if take, _ := t.selection.Take(e.Rel, true); !take {
			return nil
		}
	}
	if preserved(t.spec.Preserve) == 0 || tooLong(t.dest.base, e.Rel) != nil {
		return nil
	}
	return t.dirs.put(spooled{GroupEntry: t.describe(e)})
}

// expect adds to what there is to do.
func (t *tree) expect(bytes, items int64) {
	t.mu.Lock()
	t.total.bytes += bytes
	t.total.items += items
	total := t.total
	t.mu.Unlock()
	t.attempt.Progress.SetTotal(total.bytes, total.items)
}

// counted adds to what came out well.
func (t *tree) counted(bytes, done, skipped int64) {
	t.mu.Lock()
	t.count.bytes += bytes
	t.count.done += done
	t.count.skipped += skipped
	t.mu.Unlock()
	t.attempt.Progress.AddItems(done + skipped)
}

// problem is an entry that cannot be moved. It ends the attempt unless the job
// goes on without it, or it is one that concerns every entry.
func (t *tree) problem(rel string, kind job.EntryKind, bytes int64, err *reason.Error) error {
	if t.ctx.Err() != nil {
		return asReason(context.Cause(t.ctx))
	}
	if t.spec.OnError != job.OnErrorContinue || !ofEntry(err.Code) {
		return err
	}
	why := job.NewReason(err)
	t.attempt.Items.Add(job.ItemRecord{Path: []byte(rel), Kind: kind, State: job.ItemFailed, Reason: &why})
	t.mu.Lock()
	if t.count.failed++; t.first == nil {
		t.first = &why
	}
	t.mu.Unlock()
	t.expect(-bytes, -1)
	return nil
}

// ofEntry reports whether a reason is about one entry, so that the others may
// still be moved.
func ofEntry(c reason.Code) bool {
	switch c {
	case reason.SourceNotFound, reason.SourceChanged, reason.PermissionDenied, reason.DestExists, reason.PathOutsideRoot,
		reason.UnsupportedFileType, reason.NameTooLong, reason.SameFile, reason.IOError:
		return true
	}
	return false
}

// xattrsTravel refuses attributes that do not fit a description.
func xattrsTravel(list []fileio.Xattr) *reason.Error {
	bytes := 0
	for _, x := range list {
		bytes += len(x.Name) + len(x.Value)
	}
	if len(list) > job.MaxXattrs || bytes > job.MaxXattrBytes {
		return reason.New(reason.UnsupportedFileType, "it has %d extended attributes of %d bytes, and %d of %d bytes can be moved; leave them out of preserve",
			len(list), bytes, job.MaxXattrs, job.MaxXattrBytes)
	}
	return nil
}

// progress counts what has arrived of the files under way.
func (t *tree) progress() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.flying {
		t.arrived(s)
	}
}

// arrived counts what is new of a file. mu is held.
func (t *tree) arrived(s *shipment) {
	if s.group != nil {
		return // counted when it is published
	}
	if acked := s.item.Acked(); acked > s.seen {
		t.attempt.Progress.Add(acked - s.seen)
		s.seen = acked
	}
}

// sendDirs gives the directories their attributes.
func (t *tree) sendDirs() error {
	t.reached(true, true)
	t.pack.final = true
	err := t.dirs.each(func(e spooled) error {
		return t.addDescribed(e.GroupEntry, fileio.Entry{Rel: string(e.Path), Kind: fileio.KindDir})
	})
	return errors.Join(err, t.flush())
}
