package fileio

import (
	"context"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// DirEntry is a directory that gets its attributes.
type DirEntry struct {
	Rel      string      // below the base; "." is the base itself
	Mode     fs.FileMode // with PreserveMode; permission bits
	MTime    time.Time   // with PreserveMTime
	UID, GID int         // with PreserveOwner
	Xattrs   []Xattr     // with PreserveXattrs
}

// FinishDirs gives directories below base their final attributes, once nothing in
// them will be published any more: a new name changes the time, and a mode
// without write permission would refuse it. Give them as Walk's Leave does,
// the content of a directory before itself. With durable each is synced, after which also the names of
// directories made in them survive a power cut.
//
// The list may be as long as the caller likes; a bounded number of directories
// is open at once. A directory that fails is in the result and no error. Errors:
// those of opening base, CANCELED, DEADLINE.
func (r *Root) FinishDirs(ctx context.Context, base string, list []DirEntry, preserve Preserve, durable bool) ([]EntryError, error) {
	base, err := clean(base)
	if err != nil {
		return nil, err
	}
	fd, err := r.openDescriptor(base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, r.failure(reason.DestNotFound, "open directory", base, err)
	}
	d, err := newDirs(r, fd, base, reason.DestNotFound, groupDirsOpen)
	if err != nil {
		return nil, err
	}
	defer d.close()
	var failed []EntryError
	for from := 0; from < len(list); from += groupDirsOpen {
		if err := ctx.Err(); err != nil {
			return failed, r.failure(reason.DestNotFound, "finish directories in", base, err)
		}
		failed = append(failed, d.finish(list[from:min(from+groupDirsOpen, len(list))], from, preserve, durable)...)
		d.trim()
	}
	return failed, nil
}

// finish does a part of FinishDirs, whose first is number first of the list.
func (d *dirs) finish(part []DirEntry, first int, preserve Preserve, durable bool) []EntryError {
	errs := make([]*reason.Error, len(part))
	opened := make([]*openDir, len(part))
	for i := range part {
		o, err := d.check(part[i].Rel)
		if err == nil {
			err = d.dress(o.fd, &part[i], preserve)
		}
		if err != nil {
			errs[i] = d.failure("set the attributes of directory", part[i].Rel, err)
			continue
		}
		opened[i] = o
	}
	if durable {
		inParallel(len(part), func(i int) {
			if opened[i] == nil {
				return
			}
			if err := d.k.fsync(opened[i].fd); err != nil {
				errs[i] = d.failure("sync directory", part[i].Rel, err)
			}
		})
	}
	var failed []EntryError
	for i, err := range errs {
		if err != nil {
			failed = append(failed, EntryError{first + i, err})
		}
	}
	return failed
}

// check opens one directory of a list whose path may be a peer's.
func (d *dirs) check(rel string) (*openDir, error) {
	if err := d.root.cleanEntry(d.baseRel, rel); err != nil {
		return nil, err
	}
	return d.get(rel, false)
}

// dress sets attributes in the order of draft.setAttributes.
func (d *dirs) dress(fd int, e *DirEntry, preserve Preserve) error {
	if preserve&PreserveOwner != 0 {
		if err := d.k.fchown(fd, e.UID, e.GID); err != nil {
			return err
		}
	}
	if preserve&PreserveXattrs != 0 {
		if err := checkXattrs(e.Xattrs); err != nil {
			return err
		}
		if err := writeXattrs(d.k, fd, e.Xattrs); err != nil {
			return err
		}
	}
	if preserve&PreserveMode != 0 {
		// A set-group-ID bit is the destination's own affair, see makeDirAt.
		st, err := d.k.fstat(fd)
		if err != nil {
			return err
		}
		if err := d.k.fchmod(fd, uint32(e.Mode.Perm())|uint32(st.Mode)&unix.S_ISGID); err != nil {
			return err
		}
	}
	if preserve&PreserveMTime != 0 {
		return d.k.setMTime(fd, e.MTime)
	}
	return nil
}
