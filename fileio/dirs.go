package fileio

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// openDir is a directory below a base, held open.
type openDir struct {
	rel  string // below the base
	fd   int
	fsys filesystem
	// nameMax is what the file system takes as a name, in bytes; 0 is unknown.
	nameMax int
	made    bool  // a moment ago, by this group: there was nothing in it
	syncErr error // of the sync at the end
}

// dirs opens the directories below a base, component by component from a held
// descriptor and never through a symlink: whoever may write in the tree can
// swap a directory for a symlink at any moment, and must not lead anybody
// out of the root. Opened ones are kept, so that a hundred files of a directory
// cost one path. It belongs to one goroutine at a time.
type dirs struct {
	root    *Root
	k       kernel
	baseRel string // below the root, for messages
	side    reason.Code
	open    map[string]*openDir
	// keep bounds what is held of directories on the way; a directory that
	// was asked for is held in any case.
	keep int
	// durable: what is made on the way and not held is synced at once.
	durable bool
}

// newDirs takes over baseFD. side is the reason of a name that is not there.
func newDirs(r *Root, baseFD int, baseRel string, side reason.Code, keep int) (*dirs, error) {
	d := &dirs{root: r, k: r.k, baseRel: baseRel, side: side, open: map[string]*openDir{}, keep: keep}
	if _, err := d.hold(".", baseFD); err != nil {
		return nil, err
	}
	return d, nil
}

// hold adds an open directory, which it owns from now on even if it fails.
func (d *dirs) hold(rel string, fd int) (*openDir, error) {
	st, err := d.k.fstatfs(fd)
	if err != nil {
		_ = d.k.close(fd)
		return nil, d.failure("look at the file system of", rel, err)
	}
	o := &openDir{rel: rel, fd: fd, fsys: filesystemOf(st), nameMax: int(min(st.Namelen, nameMaxBytes))}
	d.open[rel] = o
	return o, nil
}

func (d *dirs) failure(op, rel string, err error) *reason.Error {
	return d.root.failure(d.side, op, joinRel(d.baseRel, rel), err)
}

// get returns the directory rel, a cleaned path below the base. With create,
// what is missing of it is made.
func (d *dirs) get(rel string, create bool) (*openDir, error) {
	from := rel
	for d.open[from] == nil {
		from, _ = splitParent(from)
	}
	at := d.open[from]
	rest := rel
	if from == rel {
		return at, nil
	}
	if from != "." {
		rest = rel[len(from)+1:]
	}
	fd, held := at.fd, true // held: not ours to close
	for rest != "" {
		name, more, _ := strings.Cut(rest, "/")
		here := rel[:len(rel)-len(rest)+len(name)]
		next, made, err := d.step(fd, name, create, d.durable && !held)
		if !held {
			_ = d.k.close(fd)
		}
		if err != nil {
			return nil, d.failure("open directory", here, err)
		}
		fd, rest, held = next, more, false
		if rest == "" || len(d.open) < d.keep {
			if at, err = d.hold(here, fd); err != nil {
				return nil, err
			}
			at.made, held = made, true
		}
	}
	return at, nil
}

// step opens one directory below fd, and makes it if it is missing and wanted.
func (d *dirs) step(fd int, name string, create, durable bool) (next int, made bool, err error) {
	next, err = d.k.openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if !create {
		return next, false, err
	}
	if errors.Is(err, unix.ENOENT) {
		next, err = d.root.makeDirAt(fd, name)
		made = err == nil
		if errors.Is(err, unix.EEXIST) {
			// Made by somebody else in between.
			next, err = d.k.openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		}
	}
	if err != nil || !durable {
		return next, made, err
	}
	// Also if it was there: who made it may not have come to the sync.
	if err := d.k.fsync(fd); err != nil {
		_ = d.k.close(next)
		return -1, made, err
	}
	return next, made, nil
}

// parent returns the directory that rel is a name in, and the name.
func (d *dirs) parent(rel string, create bool) (*openDir, string, error) {
	dir, name := splitParent(rel)
	o, err := d.get(dir, create)
	if err != nil {
		return nil, "", err
	}
	if o.nameMax > 0 && len(name) > o.nameMax {
		return nil, "", reason.New(reason.NameTooLong, "%s in root %s: the file system allows names of %d bytes; shorten it", quoteRel(joinRel(d.baseRel, rel)), d.root.cfg.Name, o.nameMax)
	}
	return o, name, nil
}

// trim closes everything but the base if more than keep are open.
func (d *dirs) trim() {
	if len(d.open) <= d.keep {
		return
	}
	for rel, o := range d.open {
		if rel != "." {
			_ = d.k.close(o.fd)
			delete(d.open, rel)
		}
	}
}

// close closes everything, the base too.
func (d *dirs) close() {
	for _, o := range d.open {
		_ = d.k.close(o.fd)
	}
	clear(d.open)
}

// cleanEntry checks an entry's path below base as a peer may have sent it: clean
// already, not a partial file's, and short enough for an ordinary program.
func (r *Root) cleanEntry(base, rel string) *reason.Error {
	whole := joinRel(base, rel)
	got, err := clean(rel)
	if err != nil {
		return r.failure(reason.DestNotFound, "open", whole, err)
	}
	_, name := splitParent(rel)
	switch {
	case got != rel:
		return reason.New(reason.PathOutsideRoot, "%s in root %s is not a clean path: no empty or \".\" component may be in it", quoteRel(whole), r.cfg.Name)
	case IsPartial(name):
		return reason.New(reason.PermissionDenied, "%q is a name of unfinished files, which are removed; choose another name", name)
	case len(whole) > pathMaxBytes:
		return reason.New(reason.NameTooLong, "%s in root %s: the path has %d bytes, the limit is %d; shorten it", quoteRel(whole), r.cfg.Name, len(whole), pathMaxBytes)
	}
	return nil
}
