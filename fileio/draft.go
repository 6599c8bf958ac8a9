package fileio

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// draft is one thing on its way to its name: what it shall be, and the partial
// file it is until then. Sink has one, GroupSink one for each entry. It is not
// safe for concurrent use and owns nothing: its owner closes the descriptors.
type draft struct {
	root *Root
	k    kernel
	rel  string // the final name below the root, for messages
	kind Kind

	size      int64
	target    string // of a symlink
	overwrite Overwrite
	sum       func(sum uint32, p []byte) uint32
	crc       uint32
	attrs     attributes
	durable   bool
	attempt   uint32

	dirFD   int    // the directory of both names, held from beginning to end
	name    string // the final name
	partial string // this attempt's own name
	fd      int    // of the partial file, through the page cache; -1 before it exists, and for links
	id      identity

	compared comparison
	// mates, unless nil, are the inodes that the same group has given names: a
	// name that leads to one of them is one that this file system does not tell
	// apart from the entry's own.
	mates map[identity]struct{}
}

// attributes are what a published name gets besides its content.
type attributes struct {
	preserve Preserve
	mode     uint32 // permission bits
	mtime    time.Time
	uid, gid int
	xattrs   []Xattr
}

// failure wraps an errno with what was done to the final name's file.
func (d *draft) failure(op string, err error) *reason.Error {
	return d.root.failure(reason.DestNotFound, op, d.rel, err)
}

// lookAtFinal decides by what stands under the final name, without following a
// symlink there: a rename replaces the link itself. It reports whether
// something does, which would be replaced if there is no error.
func (d *draft) lookAtFinal(ctx context.Context) (stands bool, err error) {
	st, err := d.k.lstatat(d.dirFD, d.name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, d.failure("look at", err)
	}
	kind := kindOf(st)
	switch {
	case kind == KindDir:
		return true, reason.New(reason.DestExists, "%s in root %s is a directory; give the %v another name", quoteRel(d.rel), d.root.cfg.Name, d.kind)
	case d.overwrite == OverwriteFail:
		return true, d.exists()
	case d.overwrite == OverwriteSkip:
		return true, d.skipped()
	case kind == KindOther:
		return true, reason.New(reason.DestExists, "%s in root %s is a device, FIFO or socket, which is never replaced; choose another name", quoteRel(d.rel), d.root.cfg.Name)
	}
	if _, mate := d.mates[identityOf(st)]; mate {
		return true, reason.New(reason.DestExists, "%s in root %s is the name of another entry of the same tree there, perhaps because its file system ignores case; rename one of the two", quoteRel(d.rel), d.root.cfg.Name)
	}
	keep, err := d.keeps(ctx, kind, st)
	if err != nil {
		return true, err
	}
	if keep {
		return true, d.skipped()
	}
	return true, nil
}

// keeps reports whether a policy that replaces keeps what is there all the same.
func (d *draft) keeps(ctx context.Context, kind Kind, st unix.Stat_t) (bool, error) {
	switch {
	case d.kind == KindSymlink && kind == KindSymlink:
		if d.overwrite != OverwriteIfDifferent {
			return d.overwrite.keeps(st, 0, d.attrs.mtime), nil
		}
		p := make([]byte, pathMaxBytes+1)
		n, err := d.k.readlink(d.dirFD, d.name, p)
		if err != nil {
			return false, d.failure("read symlink", err)
		}
		return string(p[:n]) == d.target, nil
	case kind != KindFile:
		return false, nil
	case d.kind == KindFile && d.overwrite == OverwriteIfDifferent && d.sum != nil:
		return d.compare(ctx, st)
	case d.kind == KindFile, d.overwrite == OverwriteIfNewer:
		return d.overwrite.keeps(st, d.size, d.attrs.mtime), nil
	}
	return false, nil
}

func (d *draft) exists() error {
	return reason.New(reason.DestExists, "%s in root %s exists; %s", quoteRel(d.rel), d.root.cfg.Name, advice[reason.DestExists])
}

func (d *draft) skipped() error {
	return reason.New(reason.DestExists, "%s in root %s: %w (%v)", quoteRel(d.rel), d.root.cfg.Name, ErrSkipped, d.overwrite)
}

// makePartial creates the attempt's own file and takes its flock, which tells
// everybody else that a living process writes it.
func (d *draft) makePartial() error {
	// A leftover of this very attempt, whose process died, is removed first. A
	// sweep may lock the new file between its creation and ours: then it is
	// the sweep's to remove and another is made.
	const tries = 4
	var last error
	for range tries {
		// 0600: nobody reads half a file. The final mode is set before publishing.
		fd, err := d.k.openat(d.dirFD, d.partial, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
		if errors.Is(err, unix.EEXIST) {
			if _, last = removeDead(d.k, d.dirFD, d.partial, time.Time{}); errors.Is(last, errHeld) {
				break
			}
			if last == nil {
				last = err
			}
			continue
		}
		if err != nil {
			return d.failure("create a partial file for", err)
		}
		if last = d.own(fd); last == nil {
			return nil
		}
		if errors.Is(last, errHeld) {
			_ = d.k.close(fd)
			continue
		}
		if st, err := d.k.fstat(fd); err == nil {
			d.id = identityOf(st)
			_ = d.remove()
			d.id = identity{}
		}
		_ = d.k.close(fd)
		return d.failure("lock the partial file of", last)
	}
	return reason.New(reason.Internal, "the partial file of %s in root %s is in use by another writer of the same attempt %d: %w", quoteRel(d.rel), d.root.cfg.Name, d.attempt, last)
}

// own locks the partial file just created and remembers its inode.
func (d *draft) own(fd int) error {
	switch err := d.k.tryLock(fd); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return errHeld
	case err != nil && !errors.Is(err, unix.ENOLCK) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL):
		return err
	}
	st, err := d.k.fstat(fd)
	if err != nil {
		return err
	}
	// A sweep that locked it first has removed it before it let go. (On NFS, where
	// an open file keeps a name, giveName finds out.)
	if st.Nlink == 0 {
		return errHeld
	}
	d.fd, d.id = fd, identityOf(st)
	return nil
}

// checkLength compares the partial file's length with the sender's.
func (d *draft) checkLength() error {
	st, err := d.k.fstat(d.fd)
	if err != nil {
		return d.failure("stat", err)
	}
	if st.Size != d.size {
		return reason.New(reason.IOError, "%s in root %s has %d bytes, not %d: another process changed the partial file; find out which", quoteRel(d.rel), d.root.cfg.Name, st.Size, d.size)
	}
	return nil
}

// setAttributes comes after the last write, which would change the time, and
// before the sync, which makes the attributes durable with the data. The owner
// comes before the mode, because chown(2) may clear mode bits.
func (d *draft) setAttributes() error {
	cfg, fd := &d.root.cfg, d.fd
	if uid, gid, set := d.owner(); set {
		if err := d.k.fchown(fd, uid, gid); err != nil {
			return d.failure("set the owner of", err)
		}
	}
	if d.attrs.preserve&PreserveXattrs != 0 {
		if err := writeXattrs(d.k, fd, d.attrs.xattrs); err != nil {
			return d.failure("set the extended attributes of", err)
		}
	}
	mode := uint32(cfg.FileMode)
	if d.attrs.preserve&PreserveMode != 0 {
		mode = d.attrs.mode
	}
	if err := d.k.fchmod(fd, mode); err != nil {
		return d.failure("set the mode of", err)
	}
	if d.attrs.preserve&PreserveMTime != 0 {
		if err := d.k.setMTime(fd, d.attrs.mtime); err != nil {
			return d.failure("set the time of", err)
		}
	}
	return nil
}

// owner returns whom the name is given to, and false to leave it as it is made.
func (d *draft) owner() (uid, gid int, set bool) {
	if d.attrs.preserve&PreserveOwner != 0 {
		return d.attrs.uid, d.attrs.gid, true
	}
	return d.root.cfg.UID, d.root.cfg.GID, d.root.cfg.Chown
}

// settle makes the content durable, or at least hears of writes that a network
// file system accepted and then refused.
func (d *draft) settle() error {
	if !d.durable {
		if err := d.k.flush(d.fd); err != nil {
			return d.failure("flush", err)
		}
		return nil
	}
	if err := d.k.fsync(d.fd); err != nil {
		return d.failure("sync", err)
	}
	return nil
}

// giveName makes the final name appear, in one step.
func (d *draft) giveName(ctx context.Context) error {
	// The partial's name is ours by flock and convention, but a rename acts on
	// whatever has it.
	if !d.leadsHere(d.partial) {
		return reason.New(reason.IOError, "the partial file of %s in root %s was removed or replaced by another process; find out which", quoteRel(d.rel), d.root.cfg.Name)
	}
	if d.overwrite.replaces() {
		// What is there may have changed since the beginning; the last look is
		// as late as it can be.
		if _, err := d.lookAtFinal(ctx); err != nil {
			return err
		}
		return d.named("rename", d.k.rename(d.dirFD, d.partial, d.name, 0))
	}
	err := d.k.rename(d.dirFD, d.partial, d.name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		// NFS, Lustre and others refuse the flag (rename(2)).
		return d.linkName(err)
	}
	return d.named("rename", err)
}

// linkName publishes with link(2), which fails if the name exists, on file
// systems without RENAME_NOREPLACE.
func (d *draft) linkName(refused error) error {
	err := d.k.link(d.dirFD, d.partial, d.dirFD, d.name)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMLINK) {
		return reason.New(reason.UnsupportedFilesystem, "publish %s in root %s: neither renameat2 with RENAME_NOREPLACE (%w) nor link (%w) works there, so an existing file could be lost; %s",
			quoteRel(d.rel), d.root.cfg.Name, refused, err, advice[reason.UnsupportedFilesystem])
	}
	if err := d.named("link", err); err != nil {
		return err
	}
	// The file has its name; a leftover second one is swept later.
	if d.leadsHere(d.partial) {
		_ = d.k.unlink(d.dirFD, d.partial)
	}
	return nil
}

// named turns the result of a rename or link into Publish's. A server may have
// done it, lost the answer, and called the repetition a failure: what counts is
// whether the name leads to our inode. To call that failed would leave a file
// that the next attempt finds in its way.
func (d *draft) named(op string, err error) error {
	if err == nil {
		return nil
	}
	if d.leadsHere(d.name) {
		return nil
	}
	if errors.Is(err, unix.EEXIST) {
		if d.overwrite == OverwriteSkip {
			return d.skipped()
		}
		return d.exists()
	}
	return d.failure(op, err)
}

// leadsHere reports whether name in the directory is the draft's inode.
func (d *draft) leadsHere(name string) bool {
	st, err := d.k.lstatat(d.dirFD, name)
	return err == nil && identityOf(st) == d.id
}

// remove unlinks the partial name: only while its inode is held, so that the
// number cannot mean another file, and only if the name leads to it.
func (d *draft) remove() error {
	if (d.id == identity{}) || !d.leadsHere(d.partial) {
		return nil
	}
	if err := d.k.unlink(d.dirFD, d.partial); err != nil && !errors.Is(err, unix.ENOENT) {
		return d.failure("remove the partial file of", err)
	}
	return nil
}
