package fileio

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"mover/reason"
)

// groupSyncers is how many files or directories of a group are synced at once.
//
// Measured on ext4 on a virtual disk, 512 files of 4 KiB: fsync one by one
// 150-260 ms, after starting write-back of all 65-110, by 16 threads after
// starting write-back of all 15-18 (and 25 for that start), syncfs 11-26. Every
// fsync asks the disk to flush its cache, and requests that wait for the same
// flush share it; the first commits the journal's transaction, in which all the
// other files are. syncfs would also write what every other transfer has in
// memory on that file system, and it cannot say which file failed.
const groupSyncers = 16

// Publish gives every wanted entry its name: attributes, sync of all (if
// durable), rename of all, sync of each directory once (if durable). It waits
// for writes in progress, as long as ctx allows; after the first rename ctx is not
// looked at any more. Entries fail each for itself, see Outcomes. An error here
// means that the group as a whole ended before the first name: CANCELED,
// DEADLINE, or what Naming returned. Calling it again returns the same.
func (g *GroupSink) Publish(ctx context.Context) error {
	g.end.Lock()
	defer g.end.Unlock()
	if g.ended {
		return g.endErr
	}
	err := g.publish(ctx)
	g.ended, g.endErr = true, err
	g.finish()
	return err
}

// Discard gives the attempt up and removes its own partial files. Directories
// that were made stay, because others may use them by now. After Publish it
// does nothing. It does not wait for writes in progress: then the last of them
// cleans up. The error says that a partial file could not be removed.
func (g *GroupSink) Discard() error {
	g.end.Lock()
	defer g.end.Unlock()
	if g.ended {
		return nil
	}
	g.ended, g.endErr = true, reason.New(reason.Canceled, "the group in %q of root %s was discarded", g.base, g.root.cfg.Name)
	return g.finish()
}

// finish cleans up once no write is in progress any more, and returns what
// went wrong if that is now. end is held.
func (g *GroupSink) finish() error {
	why := g.endErr
	if g.h.shutWith(func() { g.cleanup(why) }) {
		return g.cleanupErr
	}
	return nil
}

// cleanup removes what has no name and releases everything. The flocks go with
// the descriptors.
func (g *GroupSink) cleanup(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := int64(0)
	for i := range g.items {
		it := &g.items[i]
		switch {
		case it.state == EntryPending:
			it.state, it.err = EntryFailed, it.failure("publish", why)
			if err := it.drop(); err != nil && g.cleanupErr == nil {
				g.cleanupErr = err
			}
		case it.state == EntryPublished && !g.spec.Entries[i].Published:
			kept += it.size
		}
		it.close()
	}
	g.room.end(kept)
	g.dirs.close()
}

func (g *GroupSink) publish(ctx context.Context) error {
	select {
	case <-g.h.seal():
	case <-ctx.Done():
		return g.root.failure(reason.DestNotFound, "publish the group in", g.base, ctx.Err())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.complete(ctx)
	if err := g.stop(ctx); err != nil {
		return err
	}
	g.settle()
	g.checkPlaces(EntryPending, func(it *groupItem, why *reason.Error) { it.fail(why) })
	if err := g.stop(ctx); err != nil {
		return err
	}
	g.named = g.inodes()
	if err := g.tellNames(); err != nil {
		return g.root.failure(reason.Internal, "publish the group in", g.base, err)
	}
	// From here on the names appear, and ctx must not leave half of them: what is
	// looked at once more is small.
	ctx = context.WithoutCancel(ctx)
	for it := range g.pending() {
		if it.kind != KindHardLink {
			g.name(ctx, it)
		}
	}
	// After the files that they are names of.
	for it := range g.pending() {
		g.name(ctx, it)
	}
	if g.spec.Durable {
		g.syncDirs()
	}
	g.checkPlaces(EntryPublished, func(it *groupItem, why *reason.Error) { it.err = why })
	return nil
}

// name gives one entry its name.
func (g *GroupSink) name(ctx context.Context, it *groupItem) {
	if of := it.linkOf; of != nil && of.state != EntryPublished {
		// Its content proved bad, or it was refused, since the link was made.
		it.fail(it.failure("link to "+quoteRel(of.rel)+" for", of.err))
		return
	}
	if err := g.giveName(ctx, it); err != nil {
		it.refuse(err)
		return
	}
	it.state = EntryPublished
	g.mates[it.id] = struct{}{}
}

// pending goes through the entries that are still to be published.
func (g *GroupSink) pending() iter.Seq[*groupItem] {
	return func(yield func(*groupItem) bool) {
		for i := range g.items {
			if it := &g.items[i]; it.state == EntryPending && !yield(it) {
				return
			}
		}
	}
}

func (g *GroupSink) stop(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return g.root.failure(reason.DestNotFound, "publish the group in", g.base, err)
	}
	return nil
}

// complete makes everything that has no bytes, and checks and dresses what has;
// hard links after the files that they may be names of.
func (g *GroupSink) complete(ctx context.Context) {
	for _, links := range []bool{false, true} {
		for i := range g.items {
			it := &g.items[i]
			if it.state != EntryPending || links != (it.kind == KindHardLink) {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			switch it.kind {
			case KindSymlink:
				it.refuse(it.makeSymlink())
			case KindHardLink:
				it.refuse(g.makeHardLink(i))
			default:
				it.refuse(g.completeFile(i))
			}
		}
	}
}

// completeFile makes an empty file, or checks that one with bytes is whole.
func (g *GroupSink) completeFile(i int) error {
	it := &g.items[i]
	if it.fd < 0 && it.size == 0 {
		if err := it.makePartial(); err != nil {
			return err
		}
	}
	if it.fd < 0 || !g.written.covers(g.ends[i]-it.size, g.ends[i]) {
		return reason.New(reason.Internal, "publish %s: not all of its %d bytes were written", quoteRel(it.rel), it.size)
	}
	if err := it.checkLength(); err != nil {
		return err
	}
	return it.setAttributes()
}

// settle syncs, or flushes, the files. In memory file systems there is nothing
// to wait for.
func (g *GroupSink) settle() {
	var slow []*groupItem
	for it := range g.pending() {
		switch {
		case it.fd < 0:
			// A link: it is in the directory, which is synced when it has its name.
		case it.dir.fsys.writeback && g.spec.Durable:
			slow = append(slow, it)
		case it.dir.fsys.writeback || g.spec.Durable:
			it.refuse(it.settle())
		}
	}
	// Blocks of all files are chosen before the first fsync, so that one commit
	// of the journal has them all. In a row: by 16 threads it was slower.
	for _, it := range slow {
		if err := it.k.startWriteback(it.fd); err != nil && !advisory(err) {
			it.fail(it.failure("start write-back of", err))
		}
	}
	inParallel(len(slow), func(i int) {
		if it := slow[i]; it.state == EntryPending {
			it.refuse(it.settle())
		}
	})
}

// syncDirs makes the names durable: in the directories they are in and, because
// those may be new, and made by a group beside this one that has not synced
// them yet, in the directories above.
func (g *GroupSink) syncDirs() {
	some := false
	for i := range g.items {
		some = some || g.items[i].state == EntryPublished && !g.spec.Entries[i].Published
	}
	if !some {
		return
	}
	all := make([]*openDir, 0, len(g.dirs.open))
	for _, o := range g.dirs.open {
		all = append(all, o)
	}
	inParallel(len(all), func(i int) { all[i].syncErr = g.k.fsync(all[i].fd) })
	for i := range g.items {
		it := &g.items[i]
		if it.state != EntryPublished || it.dir == nil {
			continue
		}
		if err := g.dirs.syncFailed(it.dir.rel); err != nil {
			it.err = it.failure("sync the directory of", err)
		}
	}
}

// syncFailed returns the first failed sync of a held directory from rel up to the
// base: without the name of a directory what is in it is lost.
func (d *dirs) syncFailed(rel string) error {
	for {
		if o := d.open[rel]; o != nil && o.syncErr != nil {
			return o.syncErr
		}
		if rel == "." {
			return nil
		}
		rel, _ = splitParent(rel)
	}
}

// inParallel calls do for 0 to n-1 on up to groupSyncers goroutines.
func inParallel(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, groupSyncers) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// tellNames calls Naming, if there is one.
func (g *GroupSink) tellNames() error {
	if g.spec.Naming == nil {
		return nil
	}
	return g.spec.Naming(slices.Clone(g.named))
}

// inodes lists the inodes that are about to get their names.
func (g *GroupSink) inodes() []NameInode {
	var list []NameInode
	for i := range g.items {
		if it := &g.items[i]; it.state == EntryPending {
			n := NameInode{Rel: g.spec.Entries[i].Rel, Inode: Inode{it.id.dev, it.id.ino}, Size: it.size}
			if it.kind == KindHardLink {
				n.Size = -1 // the other name's
			}
			list = append(list, n)
		}
	}
	return list
}
