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
	Size  int64 // of a regular file, in bytes; -1 is not compared
}

// PublishedGroup reports for each name whether it leads to the very inode that a
// GroupSink of an earlier process gave it, as Published does for one file. With
// durable it syncs the directories of those that do, and those above. A name
// whose directory cannot be opened or synced is false.
//
// Errors: those of opening base, except that it is missing: then all are false.
func (r *Root) PublishedGroup(base string, names []NameInode, durable bool) ([]bool, error) {
	there := make([]bool, len(names))
	base, err := clean(base)
	if err != nil {
		return there, err
	}
	fd, err := r.openDescriptor(base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if e := r.failure(reason.DestNotFound, "open directory", base, err); e.Code != reason.DestNotFound {
			return there, e
		}
		return there, nil
	}
	if durable {
		if err := r.syncAbove(base); err != nil {
			_ = r.k.close(fd)
			return there, r.failure(reason.DestNotFound, "sync the directories above", base, err)
		}
	}
	d, err := newDirs(r, fd, base, reason.DestNotFound, groupDirsOpen)
	if err != nil {
		return there, err
	}
	defer d.close()
	synced := map[string]bool{} // whether the sync of a directory worked
	for i, n := range names {
		d.trim()
		if got, err := clean(n.Rel); err != nil || got != n.Rel || n.Rel == "." {
			continue
		}
		dir, name, err := d.parent(n.Rel, false)
		if err != nil {
			continue
		}
		st, err := r.k.lstatat(dir.fd, name)
		if err != nil || (identityOf(st) != identity{n.Inode.Dev, n.Inode.Ino}) {
			continue
		}
		if kind := kindOf(st); kind != KindSymlink && (kind != KindFile || n.Size >= 0 && st.Size != n.Size) {
			continue
		}
		there[i] = !durable || d.syncUp(dir.rel, synced)
	}
	return there, nil
}

// syncUp syncs the directory rel and all above it up to the base, each once:
// done has how it went. The process that made them may not have come to it.
func (d *dirs) syncUp(rel string, done map[string]bool) bool {
	for {
		ok, known := done[rel]
		if !known {
			o, err := d.get(rel, false)
			ok = err == nil && d.k.fsync(o.fd) == nil
			done[rel] = ok
		}
		if !ok || rel == "." {
			return ok
		}
		rel, _ = splitParent(rel)
	}
}
