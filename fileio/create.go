package fileio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// Preserve says which of the source's attributes a published file gets.
type Preserve uint8

const (
	PreserveMode   Preserve = 1 << iota // permission bits; never setuid, setgid or sticky
	PreserveMTime                       // modification time
	PreserveOwner                       // numeric owner and group; needs CAP_CHOWN
	PreserveXattrs                      // extended attributes of the user's namespace
)

// sizeMax is the largest file, 256 PiB: more than file systems hold, and sums
// of some dozens do not wrap.
const sizeMax = 1 << 58

// CreateSpec describes a file to be received.
type CreateSpec struct {
	Rel  string // the final name, relative to the root; missing directories are made
	Size int64  // exact, in bytes, 0 to 2^58

	// Job, Item and Attempt name the partial file. Two attempts that can be
	// alive at once must differ in one of them.
	Job     string
	Item    uint64
	Attempt uint32

	Overwrite Overwrite
	// Durable: Publish returns only when file and name survive a power cut.
	Durable bool

	Preserve Preserve
	Mode     fs.FileMode // with PreserveMode
	MTime    time.Time   // with PreserveMTime, and what if_newer and if_different compare
	UID, GID int         // with PreserveOwner
	Xattrs   []Xattr     // with PreserveXattrs

	// Sum, unless nil, makes if_different compare size and checksum instead of
	// size and time, which reads the existing file. It continues a checksum over
	// more bytes, beginning with 0, as hash/crc32.Update does; CRC is what it
	// says of the whole source.
	Sum func(sum uint32, p []byte) uint32
	CRC uint32
}

// check refuses a spec that cannot be carried out, and cleans Rel.
func (c *CreateSpec) check(r *Root) error {
	rel, err := clean(c.Rel)
	if err != nil {
		return err
	}
	slash := strings.HasSuffix(c.Rel, "/")
	c.Rel = rel
	_, name := splitParent(rel)
	switch {
	case rel == ".":
		return reason.New(reason.DestExists, "root %s itself is a directory; give the file a name", r.cfg.Name)
	case slash:
		return reason.New(reason.DestExists, "%q in root %s ends in a slash, which names a directory; give the file a name", rel, r.cfg.Name)
	case IsPartial(name):
		return reason.New(reason.PermissionDenied, "%q is a name of unfinished files, which are removed; choose another name", name)
	case c.Size < 0:
		return reason.New(reason.Internal, "create %q with a size of %d", rel, c.Size)
	case c.Size > sizeMax:
		return reason.New(reason.UnsupportedFilesystem, "%q would have %d bytes, the limit is %d; check the source", rel, c.Size, int64(sizeMax))
	case int(c.Overwrite) >= len(overwriteNames):
		return reason.New(reason.Internal, "create %q with %v", rel, c.Overwrite)
	}
	if err := checkXattrs(c.Xattrs); err != nil {
		return r.failure(reason.DestNotFound, "create", rel, err)
	}
	return nil
}

// Create begins to receive a file: it opens the directory through the root,
// makes the attempt's partial file there, and reserves its space. Nothing under
// the final name is touched. The caller must end the Sink with Publish or
// Discard.
//
// Errors: DEST_EXISTS (a directory stands there, or a file and the policy is
// fail), the same wrapping ErrSkipped (the policy keeps the file), NO_SPACE,
// QUOTA, PATH_OUTSIDE_ROOT, NAME_TOO_LONG, PERMISSION_DENIED, DEST_NOT_FOUND,
// UNSUPPORTED_FILESYSTEM, CANCELED, DEADLINE, IO_ERROR, and INTERNAL for a bad
// spec or an attempt that is alive already.
func (r *Root) Create(ctx context.Context, spec CreateSpec) (*Sink, error) {
	if err := spec.check(r); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, r.failure(reason.DestNotFound, "create", spec.Rel, err)
	}
	dirRel, name := splitParent(spec.Rel)
	dirFD, err := r.openParent(dirRel, spec.Durable)
	if err != nil {
		return nil, err
	}
	s := &Sink{spec: spec, written: newExtents(), draft: draft{
		root: r, k: r.k, rel: spec.Rel, size: spec.Size, overwrite: spec.Overwrite, sum: spec.Sum, crc: spec.CRC,
		durable: spec.Durable, attempt: spec.Attempt, dirFD: dirFD, name: name, fd: -1,
		partial: partialName(spec.Job, spec.Item, spec.Attempt),
		attrs:   attributes{spec.Preserve, uint32(spec.Mode.Perm()), spec.MTime, spec.UID, spec.GID, spec.Xattrs},
	}}
	if err := s.begin(ctx); err != nil {
		return nil, also(err, s.abandon())
	}
	return s, nil
}

// begin does what Create promises, on the open directory. When it fails, what
// it made is recorded in s for abandon.
func (s *Sink) begin(ctx context.Context) error {
	if _, err := s.lookAtFinal(ctx); err != nil {
		return err
	}
	// The name the partial must fit beside is checked by the kernel only at the
	// rename, after everything was moved: ask now.
	stfs, err := s.k.fstatfs(s.dirFD)
	if err != nil {
		return s.failure("create", err)
	}
	if most := int64(stfs.Namelen); most > 0 && int64(len(s.name)) > most {
		return reason.New(reason.NameTooLong, "%q in root %s: the file system allows names of %d bytes; shorten it", s.spec.Rel, s.root.cfg.Name, most)
	}
	s.fsys = filesystemOf(stfs)
	removeStale(s.k, s.dirFD, s.spec.Job, s.spec.Item, s.spec.Attempt)
	if s.room, err = s.root.reserve(ctx, s.spec.Rel, s.spec.Size, s.dirFD, s.fsys); err != nil {
		return err
	}
	if err := s.makePartial(); err != nil {
		return err
	}
	s.h = newHandle(s.k, s.fd)
	if err := s.allocate(ctx); err != nil {
		return err
	}
	s.openDirect()
	return nil
}

// openParent opens the directory dirRel inside the root, making what is missing
// of it. With durable, the entries of all directories on the way are synced,
// because a rename in a directory that a power cut takes away published
// nothing.
func (r *Root) openParent(dirRel string, durable bool) (int, error) {
	fd, err := r.makeParent(dirRel)
	if err != nil || !durable {
		return fd, err
	}
	if err := r.syncAbove(dirRel); err != nil {
		_ = r.k.close(fd)
		return -1, r.failure(reason.DestNotFound, "sync the directories above", dirRel, err)
	}
	return fd, nil
}

// makeParent is openParent without a sync.
func (r *Root) makeParent(dirRel string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	fd, err := r.openDescriptor(dirRel, flags)
	if err == nil {
		return fd, nil
	}
	if !errors.Is(err, fs.ErrNotExist) || dirRel == "." {
		return -1, r.failure(reason.DestNotFound, "open directory", dirRel, err)
	}
	for end := 0; end < len(dirRel); {
		if next := strings.IndexByte(dirRel[end+1:], '/'); next >= 0 {
			end += 1 + next
		} else {
			end = len(dirRel)
		}
		if err := r.makeDir(dirRel[:end]); err != nil {
			return -1, r.failure(reason.DestNotFound, "make directory", dirRel[:end], err)
		}
	}
	fd, err = r.openDescriptor(dirRel, flags)
	if err != nil {
		return -1, r.failure(reason.DestNotFound, "open directory", dirRel, err)
	}
	return fd, nil
}

// makeDir makes one directory unless something has its name already.
func (r *Root) makeDir(rel string) error {
	parent, name := splitParent(rel)
	parentFD, err := r.openDescriptor(parent, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer r.k.close(parentFD)
	fd, err := r.makeDirAt(parentFD, name)
	if errors.Is(err, unix.EEXIST) {
		return nil // a directory, or opening it will say what else
	}
	if err != nil {
		return err
	}
	_ = r.k.close(fd)
	return nil
}

// makeDirAt makes the directory name and returns a descriptor of it, which the
// caller closes. EEXIST is returned as it is.
func (r *Root) makeDirAt(parentFD int, name string) (int, error) {
	r.lasting.forget(name)
	if err := r.k.mkdir(parentFD, name, uint32(r.cfg.DirMode)); err != nil {
		return -1, err
	}
	fd, err := r.k.openat(parentFD, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return -1, err
	}
	if r.cfg.Chown {
		err = r.k.fchown(fd, r.cfg.UID, r.cfg.GID)
	}
	if err == nil {
		// Again, because mkdir applies the umask; a set-group-ID bit that came
		// from the parent (mkdir(2)) stays, because shared directories live by it.
		var st unix.Stat_t
		if st, err = r.k.fstat(fd); err == nil {
			err = r.k.fchmod(fd, uint32(r.cfg.DirMode)|uint32(st.Mode)&unix.S_ISGID)
		}
	}
	if err != nil {
		_ = r.k.close(fd)
		return -1, err
	}
	return fd, nil
}

// allocate gives the partial file its length, and its blocks where that costs
// only metadata: a full disk is then found before anything was moved, and
// write-back need not allocate.
func (s *Sink) allocate(ctx context.Context) error {
	if s.spec.Size == 0 {
		return nil
	}
	if s.fsys.reserve {
		err := s.k.fallocate(s.h.fd, s.spec.Size)
		if err == nil {
			s.room.taken(s.spec.Size)
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
			return s.failure(fmt.Sprintf("reserve %d bytes for", s.spec.Size), err)
		}
		// The file system does not preallocate; then look at what is free.
		s.room.end(0)
		cautious := s.fsys
		cautious.reserve = false
		if s.room, err = s.root.reserve(ctx, s.spec.Rel, s.spec.Size, s.dirFD, cautious); err != nil {
			return err
		}
	}
	if err := s.k.ftruncate(s.h.fd, s.spec.Size); err != nil {
		return s.failure("set the length of", err)
	}
	return nil
}

// openDirect adds a direct descriptor on the partial file if the policy says
// so. See DirectPolicy for why auto does not.
func (s *Sink) openDirect() {
	if s.root.cfg.Direct != DirectOn || s.spec.Size < directMinBytes {
		s.earlyWriteback = s.spec.Durable && s.fsys.writeback
		return
	}
	fd, err := s.k.openat(s.dirFD, s.partial, unix.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		s.travelled.set("buffered: O_DIRECT: " + err.Error())
		s.earlyWriteback = s.spec.Durable && s.fsys.writeback
		return
	}
	if st, err := s.k.fstat(fd); err != nil || identityOf(st) != s.id {
		_ = s.k.close(fd)
		s.travelled.set("buffered: the partial file was replaced")
		return
	}
	s.h.directFD = fd
	s.direct.Store(true)
	s.travelled.set("direct")
}
