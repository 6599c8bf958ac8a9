package fileio

import (
	"io/fs"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// Source is a regular file open for reading, as it was when it was opened: a
// size, a modification time and an inode that must still hold at the end.
// ReadAt may be called by any number of goroutines at once, Close at any time.
type Source struct {
	root  *Root
	rel   string
	h     *handle
	id    identity
	size  int64
	mtime unix.Timespec
	mode  uint32
	uid   int
	gid   int

	direct    atomic.Bool // use h.directFD where it pays
	askCache  atomic.Bool // ask whether pages are cached before going direct
	travelled path
}

// OpenSource opens the regular file rel, following symlinks that stay inside
// the root. Directories, FIFOs, sockets and devices are UNSUPPORTED_FILE_TYPE
// and never block; devices are not even opened, because for some that acts.
func (r *Root) OpenSource(rel string) (*Source, error) {
	rel, err := clean(rel)
	if err != nil {
		return nil, err
	}
	info, err := r.k.statBelow(r.dir, rel)
	if err != nil {
		return nil, r.failure(reason.SourceNotFound, "open", rel, err)
	}
	if err := r.checkType(rel, info.Mode()); err != nil {
		return nil, err
	}
	// O_NONBLOCK: should a FIFO take the file's place now, open returns at
	// once (fifo(7)); it means nothing for a regular file.
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := r.openDescriptor(rel, flags)
	if err != nil {
		return nil, r.failure(reason.SourceNotFound, "open", rel, err)
	}
	s := &Source{root: r, rel: rel, h: newHandle(r.k, fd)}
	st, err := r.k.fstat(fd)
	if err != nil {
		s.Close()
		return nil, r.failure(reason.SourceNotFound, "stat", rel, err)
	}
	if !isRegular(st) {
		s.Close()
		return nil, reason.New(reason.SourceChanged, "open %q in root %s: replaced by something else while it was opened; submit again", rel, r.cfg.Name)
	}
	s.id, s.size, s.mtime = identityOf(st), st.Size, st.Mtim
	s.mode, s.uid, s.gid = st.Mode, int(st.Uid), int(st.Gid)
	_ = r.k.readSequentially(fd) // a wish, not a need
	s.openDirect(flags)
	return s, nil
}

// checkType refuses what is not a regular file, with a word on why.
func (r *Root) checkType(rel string, mode fs.FileMode) error {
	what := ""
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return reason.New(reason.UnsupportedFileType, "%q in root %s is a directory; name a file, or ask for the tree (recursive)", rel, r.cfg.Name)
	case mode&fs.ModeNamedPipe != 0:
		what = "a FIFO"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = "not a regular file"
	}
	return reason.New(reason.UnsupportedFileType, "%q in root %s is %s; only regular files can be moved", rel, r.cfg.Name, what)
}

// openDirect adds a direct descriptor if the policy and the file system want
// one. Without it the file is read through the page cache, which always works.
func (s *Source) openDirect(flags int) {
	switch {
	case s.root.cfg.Direct == DirectOff:
		s.travelled.set("buffered: direct is off")
		return
	case s.size < directMinBytes:
		s.travelled.set("buffered: a small file")
		return
	}
	if s.root.cfg.Direct == DirectAuto {
		st, err := s.root.k.fstatfs(s.h.fd)
		if fsys := filesystemOf(st); err != nil || !fsys.direct {
			s.travelled.set("buffered: " + fsys.name + " gains nothing from O_DIRECT")
			return
		}
		s.askCache.Store(true)
	}
	fd, err := s.root.openDescriptor(s.rel, flags|unix.O_DIRECT)
	if err != nil {
		s.travelled.set("buffered: O_DIRECT: " + s.root.failure(reason.SourceNotFound, "open", s.rel, err).Error())
		return
	}
	// The name may lead elsewhere by now; only the same inode will do.
	if st, err := s.root.k.fstat(fd); err != nil || identityOf(st) != s.id {
		_ = s.root.k.close(fd)
		s.travelled.set("buffered: the file was replaced while it was opened")
		return
	}
	s.h.directFD = fd
	s.direct.Store(true)
	s.travelled.set("direct")
}

// Size returns the size in bytes at open.
func (s *Source) Size() int64 { return s.size }

// MTime returns the modification time at open.
func (s *Source) MTime() time.Time { return time.Unix(s.mtime.Unix()) }

// Mode returns the permission bits at open.
func (s *Source) Mode() fs.FileMode { return fs.FileMode(s.mode & 0o777) }

// Owner returns the numeric owner and group at open.
func (s *Source) Owner() (uid, gid int) { return s.uid, s.gid }

// Xattrs reads the file's extended attributes of the user's namespace. The error
// is that of a walk that was asked for them.
func (s *Source) Xattrs() ([]Xattr, error) {
	if !s.h.acquire() {
		return nil, reason.New(reason.Internal, "read extended attributes of %q after it was closed", s.rel)
	}
	defer s.h.release()
	var r xattrReader
	list, err := r.read(s.root.k, s.h.fd)
	if err != nil {
		return nil, s.root.failure(reason.SourceNotFound, "read extended attributes of", s.rel, err)
	}
	return list, nil
}

// Inode returns the device and inode number.
func (s *Source) Inode() (dev, ino uint64) { return s.id.dev, s.id.ino }

// Travelled says how the bytes are read, "direct" or "buffered: why", for logs.
func (s *Source) Travelled() string { return s.travelled.String() }

// ReadAt fills p with the len(p) bytes at off, or returns how many it read and
// why not all. p is the caller's and nothing behind len(p) is touched. p and
// off aligned to 4096 let O_DIRECT be used. A file that ends before the size it
// had at open is SOURCE_CHANGED; a range beyond that size is the caller's
// defect, INTERNAL. It does not allocate.
func (s *Source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.size || int64(len(p)) > s.size-off {
		return 0, reason.New(reason.Internal, "read %d bytes at %d of %q, which has %d", len(p), off, s.rel, s.size)
	}
	if !s.h.acquire() {
		return 0, reason.New(reason.Internal, "read %q after it was closed", s.rel)
	}
	defer s.h.release()
	n := 0
	if k := directPrefix(p, off); k > 0 && s.direct.Load() && !s.cached(off, int64(k)) {
		var err error
		if n, err = s.readDirect(p[:k], off); err != nil {
			return n, err
		}
	}
	for n < len(p) {
		k, err := s.root.k.pread(s.h.fd, p[n:], off+int64(n))
		if err != nil {
			return n, s.root.failure(reason.SourceNotFound, "read", s.rel, err)
		}
		if k == 0 {
			return n, reason.New(reason.SourceChanged, "%q in root %s ends at %d, but had %d bytes when it was opened; submit again when nobody writes it", s.rel, s.root.cfg.Name, off+int64(n), s.size)
		}
		n += k
	}
	return n, nil
}

// cached reports whether [off, off+bytes) is better read through the page
// cache: half of it is there, or some of it is dirty, which a direct read would
// first have to write out.
func (s *Source) cached(off, bytes int64) bool {
	if !s.askCache.Load() {
		return false
	}
	cached, dirty, err := s.root.k.residency(s.h.fd, off, bytes)
	if err != nil {
		// Before Linux 6.5, or for a file of somebody else (EPERM): unknown, and
		// it stays so.
		s.askCache.Store(false)
		return false
	}
	return dirty > 0 || cached*2*uint64(pageBytes) >= uint64(bytes)
}

// readDirect reads what it can of p, whose memory, length and offset are
// aligned. It stops without an error where the page cache has to take over.
func (s *Source) readDirect(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) && n%alignBytes == 0 {
		k, err := s.root.k.pread(s.h.directFD, p[n:], off+int64(n))
		if err == unix.EINVAL {
			// More alignment than 4096 wanted, or none supported (open(2)).
			s.direct.Store(false)
			s.travelled.set("buffered: the file system refused a direct read (EINVAL)")
			return n, nil
		}
		if err != nil {
			return n, s.root.failure(reason.SourceNotFound, "read", s.rel, err)
		}
		if k == 0 {
			return n, nil
		}
		n += k
	}
	return n, nil
}

// Verify looks at the held file again and returns SOURCE_CHANGED if its size,
// modification time or inode are not what they were at open. Call it after the
// last read. It trusts the kernel's time stamps: before Linux 6.13 a write in
// the same clock tick as the open (1 to 10 ms) can go unseen, and so can one by
// a program that sets the time back; the checksum covers what was read.
func (s *Source) Verify() error {
	if !s.h.acquire() {
		return reason.New(reason.Internal, "verify %q after it was closed", s.rel)
	}
	defer s.h.release()
	st, err := s.root.k.fstat(s.h.fd)
	if err != nil {
		return s.root.failure(reason.SourceNotFound, "stat", s.rel, err)
	}
	what := ""
	switch {
	case identityOf(st) != s.id:
		what = "is another file"
	case st.Size != s.size:
		what = "changed its size"
	case st.Mtim != s.mtime:
		what = "was written to"
	default:
		return nil
	}
	return reason.New(reason.SourceChanged, "%q in root %s %s while it was read; submit again when nobody writes it", s.rel, s.root.cfg.Name, what)
}

// Close releases the file once reads in progress have returned, for which it
// does not wait. Closing again does nothing.
func (s *Source) Close() { s.h.shut() }

// SameFile returns SAME_FILE if rel in root, symlinks followed, is the file
// that src reads, by whatever name. Nothing at rel is no error.
func SameFile(src *Source, root *Root, rel string) error {
	rel, err := clean(rel)
	if err != nil {
		return err
	}
	info, err := root.k.statBelow(root.dir, rel)
	if err != nil {
		e := root.failure(reason.DestNotFound, "stat", rel, err)
		if e.Code == reason.DestNotFound {
			return nil
		}
		return e
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && (identity{uint64(st.Dev), st.Ino}) == src.id {
		return reason.New(reason.SameFile, "%q in root %s is the source itself; choose another destination", rel, root.cfg.Name)
	}
	return nil
}
