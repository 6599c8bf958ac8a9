package fileio

import (
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// groupDirsOpen bounds the directories that a GroupSource, FinishDirs and the
// like hold between two names.
const groupDirsOpen = 64

// GroupSource presents the bytes of many small files one after the other, as
// one engine item reads them. Between calls it holds one descriptor, of the
// base directory; files are opened inside ReadAt and closed at once. ReadAt and
// Verify may be called by several goroutines, which wait for each other, Close
// at any time.
type GroupSource struct {
	root    *Root
	base    string
	h       *handle // of the base directory
	entries []Entry
	ends    []int64 // where each entry's bytes end, in the group's
	sum     func(sum uint32, p []byte) uint32

	mu    sync.Mutex
	state []sourceEntry
}

// sourceEntry is what is known of an entry after reading.
type sourceEntry struct {
	err    *reason.Error
	sum    uint32
	summed int64 // bytes from the beginning that sum is of
}

// OpenGroup takes the entries of a group as a walk of base found them. Entries
// that are no files have no bytes: they may be in the list, so that its indices
// are those of the group's description. sum, unless nil, continues a checksum
// over more bytes, beginning with 0 (as hash/crc32.Update does), and is called
// on each file's bytes while they are in the cache; see CRC.
//
// Nothing but base is opened here. entries is kept. Errors: those of opening a
// directory, INTERNAL for a malformed entry.
func (r *Root) OpenGroup(base string, entries []Entry, sum func(sum uint32, p []byte) uint32) (*GroupSource, error) {
	base, err := clean(base)
	if err != nil {
		return nil, err
	}
	g := &GroupSource{root: r, base: base, entries: entries, ends: make([]int64, len(entries)), sum: sum, state: make([]sourceEntry, len(entries))}
	end := int64(0)
	for i, e := range entries {
		if got, err := clean(e.Rel); err != nil || got != e.Rel || e.Size < 0 || e.Size > sizeMax-end {
			return nil, reason.New(reason.Internal, "entry %d of a group has the path %.300q and %d bytes", i, e.Rel, e.Size)
		}
		end += g.bytes(i)
		g.ends[i] = end
	}
	fd, err := r.openDescriptor(base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, r.failure(reason.SourceNotFound, "open directory", base, err)
	}
	g.h = newHandle(r.k, fd)
	return g, nil
}

// bytes is how many of the group's bytes are entry i's.
func (g *GroupSource) bytes(i int) int64 {
	if g.entries[i].Kind != KindFile {
		return 0
	}
	return g.entries[i].Size
}

// Size is the sum of the files' sizes, in bytes.
func (g *GroupSource) Size() int64 {
	if len(g.ends) == 0 {
		return 0
	}
	return g.ends[len(g.ends)-1]
}

// begin lets the caller use the directories below base until done is called.
func (g *GroupSource) begin() (d *dirs, done func(), err error) {
	if !g.h.acquire() {
		return nil, nil, reason.New(reason.Internal, "read the group in %q after it was closed", g.base)
	}
	g.mu.Lock()
	d = &dirs{root: g.root, k: g.root.k, baseRel: g.base, side: reason.SourceChanged, keep: groupDirsOpen,
		open: map[string]*openDir{".": {rel: ".", fd: g.h.fd}}}
	return d, func() {
		delete(d.open, ".") // the handle's
		d.close()
		g.mu.Unlock()
		g.h.release()
	}, nil
}

// ReadAt fills p with the bytes at off of all files in a row. A file that is
// not what the entry says any more (SOURCE_CHANGED) or cannot be read fails.
// ReadAt goes on with the others in the range, so that Failed knows them all,
// and then returns how many bytes before the first failed one are good, and its
// error. A failed file stays failed. Ranges may be read again.
func (g *GroupSource) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > g.Size() || int64(len(p)) > g.Size()-off {
		return 0, reason.New(reason.Internal, "read %d bytes at %d of a group in %q, which has %d", len(p), off, g.base, g.Size())
	}
	d, done, err := g.begin()
	if err != nil {
		return 0, err
	}
	defer done()
	good, failed := len(p), error(nil)
	for n, i := 0, firstAfter(g.ends, off); n < len(p); i++ {
		size := g.bytes(i)
		begin := off + int64(n) - (g.ends[i] - size) // within the file
		m := int(min(int64(len(p)-n), size-begin))
		if m == 0 {
			continue
		}
		st := &g.state[i]
		if st.err == nil {
			st.err = g.readFile(d, i, p[n:n+m], begin)
		}
		if st.err != nil && failed == nil {
			good, failed = n, st.err
		}
		n += m
	}
	return good, failed
}

// firstAfter returns the first index whose end is after off.
func firstAfter(ends []int64, off int64) int {
	return sort.Search(len(ends), func(i int) bool { return ends[i] > off })
}

// readFile reads p at off of entry i, which must be unchanged before and after.
func (g *GroupSource) readFile(d *dirs, i int, p []byte, off int64) *reason.Error {
	k, e := g.root.k, &g.entries[i]
	d.trim()
	dir, name, err := d.parent(e.Rel, false)
	if err != nil {
		return g.changed(i, "open", err)
	}
	// O_NONBLOCK: should a FIFO have the name now, open returns at once.
	fd, err := k.openat(dir.fd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return g.changed(i, "open", err)
	}
	defer k.close(fd)
	if err := g.same(i, fd); err != nil {
		return err
	}
	for n := 0; n < len(p); {
		m, err := k.pread(fd, p[n:], off+int64(n))
		if err != nil {
			return g.changed(i, "read", err)
		}
		if m == 0 {
			return g.differs(i, "changed its size")
		}
		n += m
	}
	if err := g.same(i, fd); err != nil {
		return err
	}
	st := &g.state[i]
	if g.sum == nil || off != st.summed && off != 0 {
		return nil
	}
	if off == 0 {
		st.sum, st.summed = 0, 0
	}
	st.sum, st.summed = g.sum(st.sum, p), st.summed+int64(len(p))
	return nil
}

// same compares the open file with the entry.
func (g *GroupSource) same(i, fd int) *reason.Error {
	st, err := g.root.k.fstat(fd)
	if err != nil {
		return g.changed(i, "stat", err)
	}
	return g.match(i, st)
}

// match compares st with what the walk found.
func (g *GroupSource) match(i int, st unix.Stat_t) *reason.Error {
	e := &g.entries[i]
	switch {
	case kindOf(st) != KindFile || identityOf(st) != identity{e.Inode.Dev, e.Inode.Ino}:
		return g.differs(i, "is another file")
	case st.Size != e.Size:
		return g.differs(i, "changed its size")
	case !time.Unix(st.Mtim.Unix()).Equal(e.MTime):
		return g.differs(i, "was written to")
	}
	return nil
}

func (g *GroupSource) differs(i int, what string) *reason.Error {
	return reason.New(reason.SourceChanged, "%s in root %s %s since it was found; %s", quoteRel(joinRel(g.base, g.entries[i].Rel)), g.root.cfg.Name, what, advice[reason.SourceChanged])
}

// changed is the failure of a file that was there: gone, or no file, or behind
// something that is no directory any more, it has changed.
func (g *GroupSource) changed(i int, op string, err error) *reason.Error {
	for _, errno := range []unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENXIO, unix.ENODEV} {
		if errors.Is(err, errno) {
			return reason.New(reason.SourceChanged, "%s %s in root %s: %w; %s", op, quoteRel(joinRel(g.base, g.entries[i].Rel)), g.root.cfg.Name, errno, advice[reason.SourceChanged])
		}
	}
	return g.root.failure(reason.SourceChanged, op, joinRel(g.base, g.entries[i].Rel), err)
}

// Verify looks at every file again by its name, after the last read, and
// returns the first error of those that failed now or before: SOURCE_CHANGED
// for another size, modification time or inode, or none at all.
func (g *GroupSource) Verify() error {
	d, done, err := g.begin()
	if err != nil {
		return err
	}
	defer done()
	var first *reason.Error
	for i, e := range g.entries {
		if e.Kind != KindFile {
			continue
		}
		if g.state[i].err == nil {
			g.state[i].err = g.verifyFile(d, i)
		}
		if first == nil {
			first = g.state[i].err
		}
	}
	if first != nil {
		return first
	}
	return nil
}

func (g *GroupSource) verifyFile(d *dirs, i int) *reason.Error {
	d.trim()
	dir, name, err := d.parent(g.entries[i].Rel, false)
	if err != nil {
		return g.changed(i, "look at", err)
	}
	st, err := g.root.k.lstatat(dir.fd, name)
	if err != nil {
		return g.changed(i, "look at", err)
	}
	return g.match(i, st)
}

// Failed lists the entries that failed so far, by index.
func (g *GroupSource) Failed() []EntryError {
	g.mu.Lock()
	defer g.mu.Unlock()
	var failed []EntryError
	for i, st := range g.state {
		if st.err != nil {
			failed = append(failed, EntryError{i, st.err})
		}
	}
	return failed
}

// CRC returns the checksum of entry i, and false if it was not read whole, in
// ascending pieces, or there is no sum.
func (g *GroupSource) CRC(i int) (uint32, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.state[i]
	return st.sum, g.sum != nil && st.err == nil && g.entries[i].Kind == KindFile && st.summed == g.entries[i].Size
}

// Entries returns the entries, for the caller who forms the group again without
// those that failed. The slice is the caller's.
func (g *GroupSource) Entries() []Entry { return slices.Clone(g.entries) }

// Close releases the base directory once reads in progress have returned, for
// which it does not wait. Closing again does nothing.
func (g *GroupSource) Close() { g.h.shut() }
