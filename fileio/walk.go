package fileio

import (
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"mover/reason"
)

const (
	// walkOpenMax bounds the directories a walk has open. Levels deeper than
	// that are closed while one below them is read, and opened again after.
	walkOpenMax = 64
	// walkBatchBytes is what is read of a directory at a time, some 800 entries;
	// walkDeepBatchBytes is the same for the levels beyond walkOpenMax, of which
	// there can be 2000.
	walkBatchBytes     = 32 << 10
	walkDeepBatchBytes = 2 << 10
)

// WalkConfig says what a walk tells to whom. All functions are called by the
// goroutine that called Walk, one at a time.
type WalkConfig struct {
	// Visit gets every directory, regular file and symlink, a directory before
	// its content and the top first, as ".". An error ends the walk, and Walk
	// returns it.
	Visit func(Entry) error
	// Leave, unless nil, gets each visited directory once more after the last
	// of its content, with what Visit got but Xattrs, so that modes and times
	// can be set when nothing in it changes any more. Errors as Visit's.
	Leave func(Entry) error
	// Problem gets what cannot be moved, and the walk goes on: a directory that
	// cannot be read (PERMISSION_DENIED, IO_ERROR), one that was removed or
	// replaced while it was read (SOURCE_CHANGED; it was visited and will be
	// left), a FIFO, socket, device or a directory mounted inside itself
	// (UNSUPPORTED_FILE_TYPE), a name or path that is too long (NAME_TOO_LONG).
	// What vanishes before it is looked at is no problem: it was never there.
	// nil makes the first problem the walk's end, as does an error it returns.
	Problem func(rel string, err *reason.Error) error
	// Skip, unless nil, leaves out rel, and all below it if it is a directory.
	// The top is not asked about.
	Skip func(rel string, dir bool) bool
	// Xattrs: read the user.* attributes, which costs an open of every file.
	Xattrs bool
}

// Walk goes through the directory rel and everything below it, depth first, in
// the order the file system has it. rel itself may lead through symlinks that
// stay inside the root, as for OpenSource; below it none is followed. Mount
// points are crossed. Partial files are left out.
//
// Memory and descriptors are bounded: directories are read in batches, at most
// walkOpenMax of them are open at once, and what a level of depth costs is
// limited by the longest path (4095 bytes from the root, see NAME_TOO_LONG).
//
// Errors: what a callback returned, as it is; SOURCE_NOT_FOUND,
// PERMISSION_DENIED, PATH_OUTSIDE_ROOT, IO_ERROR for the top; CANCELED,
// DEADLINE.
func (r *Root) Walk(ctx context.Context, rel string, cfg WalkConfig) error {
	rel, err := clean(rel)
	if err != nil {
		return err
	}
	if cfg.Visit == nil {
		return reason.New(reason.Internal, "walk %q without Visit", rel)
	}
	fd, err := r.openDescriptor(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return r.failure(reason.SourceNotFound, "open directory", rel, err)
	}
	st, err := r.k.fstat(fd)
	if err != nil {
		_ = r.k.close(fd)
		return r.failure(reason.SourceNotFound, "stat", rel, err)
	}
	w := &walker{root: r, k: r.k, ctx: ctx, cfg: &cfg, top: rel}
	defer w.closeAll()
	if err := w.enter(".", fd, st); err != nil {
		return err
	}
	for len(w.stack) > 0 {
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// level is a directory that the walk is in.
type level struct {
	entry Entry // as visited, without Xattrs
	id    identity
	fd    int    // -1 while it is closed to keep within walkOpenMax
	batch []byte // memory of a read
	rest  []byte // of batch: read and not yet looked at
	next  int64  // where the directory's reading goes on after rest
}

// walker is one Walk.
type walker struct {
	root  *Root
	k     kernel
	ctx   context.Context
	cfg   *WalkConfig
	top   string
	stack []*level
	spare [2][][]byte // batches to use again, large and small
	attrs xattrReader
}

// step looks at the next entry of the deepest directory, or leaves it.
func (w *walker) step() error {
	l := w.stack[len(w.stack)-1]
	if len(l.rest) == 0 {
		if err := w.ctx.Err(); err != nil {
			return w.root.failure(reason.SourceNotFound, "walk", w.top, err)
		}
		n, err := w.k.getdents(l.fd, l.batch)
		if errors.Is(err, unix.ENOENT) {
			// Removed while it is open (getdents(2)).
			err = reason.New(reason.SourceChanged, "directory %s in root %s was removed while it was read; %s", w.quote(l.entry.Rel), w.root.cfg.Name, advice[reason.SourceChanged])
		}
		if err != nil {
			if err := w.problem("read directory", l.entry.Rel, err); err != nil {
				return err
			}
		}
		if err != nil || n == 0 {
			return w.leave()
		}
		l.rest = l.batch[:n]
	}
	name := l.take()
	if name == "" || name == "." || name == ".." || IsPartial(name) {
		return nil
	}
	rel := name
	if l.entry.Rel != "." {
		rel = l.entry.Rel + "/" + name
	}
	return w.look(l, name, rel)
}

// take removes the first record from rest and returns its name, "" for a
// record without a file. See getdents64(2) for struct linux_dirent64.
func (l *level) take() string {
	const head = 8 + 8 + 2 + 1
	if len(l.rest) < head {
		l.rest = nil
		return ""
	}
	order := binary.NativeEndian
	ino, length := order.Uint64(l.rest), int(order.Uint16(l.rest[16:]))
	if length < head || length > len(l.rest) {
		l.rest = nil
		return ""
	}
	l.next = int64(order.Uint64(l.rest[8:]))
	name := l.rest[head:length]
	l.rest = l.rest[length:]
	if ino == 0 {
		return ""
	}
	for i, c := range name {
		if c == 0 {
			return string(name[:i])
		}
	}
	return string(name)
}

// look reports one entry, and goes into it if it is a directory.
func (w *walker) look(l *level, name, rel string) error {
	st, err := w.k.lstatat(l.fd, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return w.problem("look at", rel, err)
	}
	kind := kindOf(st)
	if w.cfg.Skip != nil && w.cfg.Skip(rel, kind == KindDir) {
		return nil
	}
	// Names that a clean path cannot have: nobody could open them by it.
	if whole := len(w.top) + 1 + len(rel); len(name) > nameMaxBytes || whole > pathMaxBytes {
		return w.problem("look at", rel, reason.New(reason.NameTooLong, "%s in root %s: its name has %d bytes and its path %d, the limits are %d and %d; move it to a shorter path", w.quote(rel), w.root.cfg.Name, len(name), whole, nameMaxBytes, pathMaxBytes))
	}
	if kind == KindDir {
		return w.descend(l, name, rel)
	}
	e := entryOf(rel, kind, st)
	switch kind {
	case KindSymlink:
		var p [pathMaxBytes + 1]byte
		n, err := w.k.readlink(l.fd, name, p[:])
		if err != nil {
			return w.vanished("read symlink", rel, err)
		}
		e.Target = string(p[:n])
	case KindFile:
		if !w.cfg.Xattrs {
			break
		}
		fd, err := w.k.openat(l.fd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			return w.vanished("open", rel, err)
		}
		e.Xattrs, err = w.attrs.read(w.k, fd)
		_ = w.k.close(fd)
		if err != nil {
			return w.problem("read extended attributes of", rel, err)
		}
	default:
		return w.problem("look at", rel, w.root.checkType(w.full(rel), modeOf(st)))
	}
	return w.cfg.Visit(e)
}

// descend opens the directory name of l and goes into it.
func (w *walker) descend(l *level, name, rel string) error {
	fd, err := w.k.openat(l.fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return w.vanished("open directory", rel, err)
	}
	st, err := w.k.fstat(fd)
	if err != nil {
		_ = w.k.close(fd)
		return w.problem("stat", rel, err)
	}
	// Without symlinks only a mount can lead back up.
	for _, up := range w.stack {
		if up.id == identityOf(st) {
			_ = w.k.close(fd)
			return w.problem("open directory", rel, reason.New(reason.UnsupportedFileType, "%s in root %s is a mount of a directory above it; leave it out of the tree", w.quote(rel), w.root.cfg.Name))
		}
	}
	return w.enter(rel, fd, st)
}

// enter visits the directory behind fd, which it owns, and makes it the
// deepest.
func (w *walker) enter(rel string, fd int, st unix.Stat_t) error {
	e := entryOf(rel, KindDir, st)
	if w.cfg.Xattrs {
		var err error
		if e.Xattrs, err = w.attrs.read(w.k, fd); err != nil {
			_ = w.k.close(fd)
			return w.problem("read extended attributes of", rel, err)
		}
	}
	if err := w.cfg.Visit(e); err != nil {
		_ = w.k.close(fd)
		return err
	}
	e.Xattrs = nil
	depth := len(w.stack)
	if depth >= walkOpenMax {
		// The one above is opened again when it is needed.
		up := w.stack[depth-1]
		_ = w.k.close(up.fd)
		up.fd = -1
	}
	w.stack = append(w.stack, &level{entry: e, id: identityOf(st), fd: fd, batch: w.batch(depth)})
	return nil
}

// batch returns memory to read a directory at a depth into.
func (w *walker) batch(depth int) []byte {
	class, bytes := 0, walkBatchBytes
	if depth >= walkOpenMax {
		class, bytes = 1, walkDeepBatchBytes
	}
	if n := len(w.spare[class]); n > 0 {
		b := w.spare[class][n-1]
		w.spare[class] = w.spare[class][:n-1]
		return b
	}
	return make([]byte, bytes)
}

// leave takes the deepest directory off the stack.
func (w *walker) leave() error {
	depth := len(w.stack) - 1
	l := w.stack[depth]
	w.stack[depth] = nil
	w.stack = w.stack[:depth]
	switch len(l.batch) {
	case walkBatchBytes:
		w.spare[0] = append(w.spare[0], l.batch)
	case walkDeepBatchBytes:
		w.spare[1] = append(w.spare[1], l.batch)
	}
	var err error
	if w.cfg.Leave != nil {
		err = w.cfg.Leave(l.entry)
	}
	if err == nil && depth > 0 && w.stack[depth-1].fd < 0 {
		err = w.reopen(l.fd)
	}
	if l.fd >= 0 {
		_ = w.k.close(l.fd)
	}
	return err
}

// reopen opens the deepest directory again, from the one below it that was
// just read: by "..", or by name from above if somebody moved that one away.
// Whatever is found counts only if it is the same inode.
func (w *walker) reopen(below int) error {
	l := w.stack[len(w.stack)-1]
	fd, err := -1, error(nil)
	if below >= 0 {
		fd, err = w.openSame(below, "..", l.id)
	}
	if fd < 0 {
		fd, err = w.openByName()
	}
	if err == nil {
		if err = w.k.seek(fd, l.next); err == nil {
			l.fd = fd
			return nil
		}
		_ = w.k.close(fd)
	}
	// The rest of it cannot be read: step sees no more entries, and an error
	// that stands for it is told now.
	l.rest, l.batch = nil, nil
	if err := w.problem("open directory", l.entry.Rel, reason.New(reason.SourceChanged, "directory %s in root %s was moved or replaced while it was read (%w); %s", w.quote(l.entry.Rel), w.root.cfg.Name, err, advice[reason.SourceChanged])); err != nil {
		return err
	}
	return w.leave()
}

// openSame opens name in the directory behind dirFD if it is the inode id.
func (w *walker) openSame(dirFD int, name string, id identity) (int, error) {
	fd, err := w.k.openat(dirFD, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	st, err := w.k.fstat(fd)
	if err == nil && identityOf(st) != id {
		err = unix.ESTALE
	}
	if err != nil {
		_ = w.k.close(fd)
		return -1, err
	}
	return fd, nil
}

// openByName opens the deepest directory from the last one above that is open.
func (w *walker) openByName() (int, error) {
	at := len(w.stack) - 1
	for at > 0 && w.stack[at].fd < 0 {
		at--
	}
	fd := w.stack[at].fd
	for i := at + 1; i < len(w.stack); i++ {
		_, name := splitParent(w.stack[i].entry.Rel)
		next, err := w.openSame(fd, name, w.stack[i].id)
		if i > at+1 {
			_ = w.k.close(fd)
		}
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

func (w *walker) closeAll() {
	for _, l := range w.stack {
		if l.fd >= 0 {
			_ = w.k.close(l.fd)
		}
	}
}

// vanished is problem for what was there a moment ago: gone is no problem, and
// another kind of thing in its place is a change.
func (w *walker) vanished(op, rel string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENXIO):
		err = reason.New(reason.SourceChanged, "%s in root %s was replaced while it was looked at (%w); %s", w.quote(rel), w.root.cfg.Name, err, advice[reason.SourceChanged])
	}
	return w.problem(op, rel, err)
}

// problem reports what happened to rel and decides whether the walk goes on.
func (w *walker) problem(op, rel string, err error) error {
	e := w.root.failure(reason.SourceNotFound, op, w.full(rel), err)
	if w.cfg.Problem == nil {
		return e
	}
	return w.cfg.Problem(rel, e)
}

// full is rel as a path below the root.
func (w *walker) full(rel string) string { return joinRel(w.top, rel) }

// quote quotes the path of rel below the root for a message, shortened where
// it is beyond what somebody reads.
func (w *walker) quote(rel string) string { return quoteRel(w.full(rel)) }
