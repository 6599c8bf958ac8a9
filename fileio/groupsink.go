package fileio

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// groupItem is an entry of a GroupSink.
type groupItem struct {
	draft
	dir    *openDir
	state  EntryState
	err    *reason.Error
	linkOf *groupItem // of a hard link: the file, if it is in the same group
}

// GroupSink is one attempt at receiving one group. WriteAt may be called by any
// number of goroutines, which wait for each other; Publish and Discard by any
// goroutine, and they wait for each other. A failed entry never fails the
// others. Until Publish nothing but directories has a final name.
type GroupSink struct {
	root *Root
	k    kernel
	spec GroupSpec
	base string
	h    *handle // counts writers; it has no descriptor of its own
	ends []int64 // where each entry's bytes end, in the group's
	room *reservation

	mu      sync.Mutex // of what follows
	dirs    *dirs
	items   []groupItem
	written *extents
	mates   map[identity]struct{}
	named   []NameInode // what Naming was told

	end        sync.Mutex // held by Publish and Discard
	ended      bool
	endErr     error
	cleanupErr error
}

// CreateGroup begins to receive a group: it opens or makes the directories,
// decides for every entry by what stands under its name, and reserves space for
// those that are wanted, all at once. The caller must end the GroupSink with
// Publish or Discard.
//
// An entry that cannot be received is EntryFailed in Outcomes and no error
// here: DEST_EXISTS (policy fail, a directory where a file should be or the
// reverse, a symlink where a directory should be), PATH_OUTSIDE_ROOT,
// NAME_TOO_LONG, PERMISSION_DENIED.
//
// Errors: those of opening or making Base, NO_SPACE, QUOTA, CANCELED, DEADLINE,
// INTERNAL for a bad spec.
func (r *Root) CreateGroup(ctx context.Context, spec GroupSpec) (*GroupSink, error) {
	g, err := r.newGroup(ctx, spec)
	if err != nil {
		return nil, err
	}
	baseFD, err := r.openParent(g.base, spec.Durable)
	if err != nil {
		return nil, err
	}
	g.h = newHandle(r.k, -1)
	if g.dirs, err = newDirs(r, baseFD, g.base, reason.DestNotFound, 2*GroupEntriesMax); err == nil {
		g.dirs.durable = spec.Durable
		err = g.begin(ctx)
	}
	if err != nil {
		if g.dirs != nil {
			g.dirs.close()
		}
		return nil, err
	}
	return g, nil
}

// newGroup checks a spec and lays out the group.
func (r *Root) newGroup(ctx context.Context, spec GroupSpec) (*GroupSink, error) {
	base, err := clean(spec.Base)
	if err != nil {
		return nil, err
	}
	switch {
	case len(spec.Entries) > GroupEntriesMax:
		return nil, reason.New(reason.Internal, "a group of %d entries, the limit is %d", len(spec.Entries), GroupEntriesMax)
	case int(spec.Overwrite) >= len(overwriteNames):
		return nil, reason.New(reason.Internal, "create a group in %q with %v", base, spec.Overwrite)
	}
	if err := ctx.Err(); err != nil {
		return nil, r.failure(reason.DestNotFound, "create a group in", base, err)
	}
	g := &GroupSink{root: r, k: r.k, spec: spec, base: base, written: newExtents(),
		ends: make([]int64, len(spec.Entries)), items: make([]groupItem, len(spec.Entries)), mates: map[identity]struct{}{}}
	names := newGroupNames(spec.Job, spec.Group, spec.Attempt)
	end := int64(0)
	for i := range spec.Entries {
		e := &spec.Entries[i]
		size := int64(0)
		if e.Kind == KindFile {
			size = e.Size
		}
		if e.Kind >= KindOther || size < 0 || size > sizeMax-end {
			return nil, reason.New(reason.Internal, "entry %d of a group is a %v of %d bytes", i, e.Kind, e.Size)
		}
		end += size
		g.ends[i] = end
		g.items[i].draft = draft{
			root: r, k: r.k, rel: joinRel(base, e.Rel), kind: e.Kind, size: size, target: e.Target,
			overwrite: spec.Overwrite, sum: spec.Sum, crc: e.CRC, durable: spec.Durable, attempt: spec.Attempt,
			partial: names.partial(i), dirFD: -1, fd: -1, mates: g.mates,
			attrs: attributes{spec.Preserve, uint32(e.Mode.Perm()), e.MTime, e.UID, e.GID, e.Xattrs},
		}
	}
	return g, nil
}

// begin decides for each entry and reserves the space.
func (g *GroupSink) begin(ctx context.Context) error {
	wanted := int64(0)
	for i := range g.items {
		if err := ctx.Err(); err != nil {
			return g.root.failure(reason.DestNotFound, "create a group in", g.base, err)
		}
		g.decide(ctx, i)
		if it := &g.items[i]; it.state == EntryPending {
			wanted += it.size
		}
	}
	base := g.dirs.open["."]
	fsys := base.fsys
	// Small files are not preallocated: their blocks are better chosen when all
	// are written. So what is free is looked at instead.
	fsys.reserve = false
	var err error
	g.room, err = g.root.reserve(ctx, g.base, wanted, base.fd, fsys)
	return err
}

// decide looks at what stands under entry i's name, and makes its directories.
func (g *GroupSink) decide(ctx context.Context, i int) {
	e, it := &g.spec.Entries[i], &g.items[i]
	if e.Published {
		it.state = EntryPublished
		return
	}
	if err := g.check(e); err != nil {
		it.fail(err)
		return
	}
	if e.Kind == KindDir {
		g.makeDir(e.Rel, it)
		return
	}
	dir, name, err := g.dirs.parent(e.Rel, true)
	if err != nil {
		it.fail(it.failure("open the directory of", err))
		return
	}
	it.dir, it.dirFD, it.name = dir, dir.fd, name
	if dir.made && !it.overwrite.replaces() {
		return // and what appears meanwhile is found by the rename
	}
	_, err = it.lookAtFinal(ctx)
	it.refuse(err)
}

// check refuses an entry that cannot be carried out.
func (g *GroupSink) check(e *GroupEntry) *reason.Error {
	if err := g.root.cleanEntry(g.base, e.Rel); err != nil {
		return err
	}
	whole := joinRel(g.base, e.Rel)
	switch {
	case e.Rel == "." && e.Kind != KindDir:
		return reason.New(reason.DestExists, "%s in root %s is a directory; give the %v another name", quoteRel(whole), g.root.cfg.Name, e.Kind)
	case e.Kind == KindSymlink && (e.Target == "" || len(e.Target) > pathMaxBytes):
		return reason.New(reason.NameTooLong, "the target of symlink %s in root %s has %d bytes, the limits are 1 and %d", quoteRel(whole), g.root.cfg.Name, len(e.Target), pathMaxBytes)
	case e.Kind == KindHardLink:
		if err := g.root.cleanEntry(g.base, e.Target); err != nil {
			return err
		}
	}
	if err := checkXattrs(e.Xattrs); err != nil {
		return g.root.failure(reason.DestNotFound, "create", whole, err)
	}
	return nil
}

// makeDir is decide for a directory: there is nothing to wait for.
func (g *GroupSink) makeDir(rel string, it *groupItem) {
	if rel == "." {
		it.state = EntryMerged
		return
	}
	dir, name, err := g.dirs.parent(rel, true)
	if err != nil {
		it.fail(it.failure("open the directory of", err))
		return
	}
	it.dir, it.dirFD, it.name = dir, dir.fd, name
	fd, err := g.root.makeDirAt(dir.fd, name)
	if err == nil {
		st, err := g.k.fstat(fd)
		if err != nil {
			_ = g.k.close(fd)
			it.fail(it.failure("stat", err))
			return
		}
		it.id, it.state = identityOf(st), EntryPublished
		if g.dirs.open[rel] != nil {
			// Somebody removed the one that is held; its entries will fail.
			_ = g.k.close(fd)
			return
		}
		// The next entries are likely to be in it.
		if made, err := g.dirs.hold(rel, fd); err == nil {
			made.made = true
		}
		return
	}
	if !errors.Is(err, unix.EEXIST) {
		it.fail(it.failure("make directory", err))
		return
	}
	switch there := g.lookAtDir(it); there.Verdict {
	case VerdictMerge:
		it.state = EntryMerged
	case VerdictFail:
		it.fail(there.Err)
	default:
		it.fail(it.failure("make directory", unix.EEXIST)) // gone again
	}
}

// notDir is the refusal to put a directory where something else stands.
func (d *draft) notDir(kind Kind) *reason.Error {
	return reason.New(reason.DestExists, "%s in root %s is a %v, where the tree has a directory; remove it or choose another name", quoteRel(d.rel), d.root.cfg.Name, kind)
}

// Size is the sum of all files' sizes, wanted or not, in bytes.
func (g *GroupSink) Size() int64 {
	if len(g.ends) == 0 {
		return 0
	}
	return g.ends[len(g.ends)-1]
}

// Wanted returns how many entries are still to be published, and the bytes of
// the files among them. With no entries there is nothing to send.
func (g *GroupSink) Wanted() (entries int, bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.items {
		if it := &g.items[i]; it.state == EntryPending {
			entries++
			bytes += it.size
		}
	}
	return entries, bytes
}

// WriteAt writes the bytes p at off of all files in a row, each file's part
// under its own partial name. Ranges may come in any order and more than once.
// Bytes of entries that are not wanted, or have failed, are dropped. A failed
// write is that entry's end, recorded in Outcomes: WriteAt itself fails, with
// INTERNAL, only for a range outside the group and after Publish or Discard.
func (g *GroupSink) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > g.Size() || int64(len(p)) > g.Size()-off {
		return 0, reason.New(reason.Internal, "write %d bytes at %d of a group in %q, which has %d", len(p), off, g.base, g.Size())
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !g.h.acquire() {
		return 0, reason.New(reason.Internal, "write the group in %q after it was published or discarded", g.base)
	}
	defer g.h.release()
	g.mu.Lock()
	defer g.mu.Unlock()
	for n, i := 0, firstAfter(g.ends, off); n < len(p); i++ {
		it := &g.items[i]
		begin := off + int64(n) - (g.ends[i] - g.spec.size(i))
		m := int(min(int64(len(p)-n), g.spec.size(i)-begin))
		if m > 0 && it.state == EntryPending {
			it.write(p[n:n+m], begin)
			g.room.taken(int64(m))
		}
		n += m
	}
	if _, err := g.written.add(off, off+int64(len(p))); err != nil {
		return len(p), reason.New(reason.PeerRefused, "a group in %q: %w; the sender must use larger chunks", g.base, err)
	}
	return len(p), nil
}

// write writes p at off of the entry's own file, which it makes first.
func (it *groupItem) write(p []byte, off int64) {
	if it.fd < 0 {
		if err := it.makePartial(); err != nil {
			it.fail(it.failure("create", err))
			return
		}
	}
	for n := 0; n < len(p); {
		m, err := it.k.pwrite(it.fd, p[n:], off+int64(n))
		if err == nil && m == 0 {
			// write(2) gives no such answer for a regular file; do not spin on it.
			err = unix.EIO
		}
		if err != nil {
			it.fail(it.failure("write", err))
			return
		}
		n += m
	}
}

// Outcomes tells what became of each entry, by index. The slice is the
// caller's.
func (g *GroupSink) Outcomes() []EntryOutcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]EntryOutcome, len(g.items))
	for i := range g.items {
		it := &g.items[i]
		out[i] = EntryOutcome{State: it.state, Err: it.err, Inode: Inode{it.id.dev, it.id.ino}}
		if it.state == EntryPublished {
			out[i].Bytes = it.size
		}
	}
	return out
}

// Entries returns the entries, by the indices of Outcomes. The slice is the
// caller's.
func (g *GroupSink) Entries() []GroupEntry { return slices.Clone(g.spec.Entries) }

// fail ends the entry. What it has on disk is removed, and its descriptor
// closed: after a failed write or sync nothing that it says proves anything.
func (it *groupItem) fail(err *reason.Error) {
	it.state, it.err = EntryFailed, err
	_ = it.drop()
}

// refuse ends the entry with what lookAtFinal or giveName said, if anything.
func (it *groupItem) refuse(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrSkipped):
		it.state, it.err = EntrySkipped, it.failure("publish", err)
		_ = it.drop()
	default:
		it.fail(it.failure("publish", err))
	}
}

// drop removes the partial file, if there is one, and closes its descriptor.
func (it *groupItem) drop() error {
	err := it.remove()
	it.close()
	return err
}

func (it *groupItem) close() {
	if it.fd >= 0 {
		_ = it.k.close(it.fd)
		it.fd = -1
	}
}
