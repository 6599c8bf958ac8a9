package fileio

import (
	"errors"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// Inode identifies a file on this host as long as the file exists: what Sink
// and Root.Published compare.
type Inode struct {
	Dev, Ino uint64
}

// Inode returns the partial file's, which the published file keeps: a rename
// does not change it.
func (s *Sink) Inode() Inode { return Inode{s.id.dev, s.id.ino} }

// Published reports whether rel is the very file of size bytes that a Sink of
// an earlier process held as inode, so that its Publish had got as far as the
// name. It then does what that process may not have done any more: with
// durable it syncs the directory, after which the answer holds over a power
// cut. The content was synced before the name was given.
//
// A missing name or directory, or another file, is false and no error.
func (r *Root) Published(rel string, inode Inode, size int64, durable bool) (bool, error) {
	rel, err := clean(rel)
	if err != nil {
		return false, err
	}
	dirRel, name := splitParent(rel)
	dirFD, err := r.openDescriptor(dirRel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if e := r.failure(reason.DestNotFound, "open directory", dirRel, err); e.Code != reason.DestNotFound {
			return false, e
		}
		return false, nil
	}
	defer r.k.close(dirFD)
	st, err := r.k.lstatat(dirFD, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, r.failure(reason.DestNotFound, "look at", rel, err)
	}
	if (identityOf(st) != identity{inode.Dev, inode.Ino}) || !isRegular(st) || st.Size != size {
		return false, nil
	}
	if durable {
		if err := r.k.fsync(dirFD); err != nil {
			return false, r.failure(reason.DestNotFound, "sync the directory of", rel, err)
		}
	}
	return true, nil
}

// NameInode is a name of a group and the inode that gets it.
type NameInode struct {
	Rel   string // below the group's base
	Inode Inode
	Size  int64 // of a regular file, in bytes; not looked at for a symlink
}

// PublishedGroup reports for each name whether it leads to the very inode that a
// GroupSink of an earlier process gave it, as Published does for one file. With
// durable it syncs the directories of those that do. A name whose directory
// cannot be opened or synced is false.
//
// Errors: those of opening base, except that it is missing: then all are false.
func (r *Root) PublishedGroup(base string, names []NameInode, durable bool) ([]bool, error) {
	return nil, reason.New(reason.Internal, "look for a group in %q: not in this build", base)
}
