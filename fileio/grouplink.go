package fileio

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// makeSymlink makes the symlink under the partial name. Its target is never
// looked at: it is what it was at the source.
func (d *draft) makeSymlink() error {
	err := d.makeLink(func() error { return d.k.symlink(d.target, d.dirFD, d.partial) })
	if err != nil {
		return d.failure("make symlink", err)
	}
	st, err := d.k.lstatat(d.dirFD, d.partial)
	if err != nil {
		return d.failure("look at the partial symlink of", err)
	}
	if kindOf(st) != KindSymlink {
		return reason.New(reason.IOError, "the partial symlink of %s in root %s was replaced by another process; find out which", quoteRel(d.rel), d.root.cfg.Name)
	}
	d.id = identityOf(st)
	if uid, gid, set := d.owner(); set {
		if err := d.k.chownLink(d.dirFD, d.partial, uid, gid); err != nil {
			return d.failure("set the owner of", err)
		}
	}
	if d.attrs.preserve&PreserveMTime != 0 {
		if err := d.k.setLinkMTime(d.dirFD, d.partial, d.attrs.mtime); err != nil && !advisory(err) {
			return d.failure("set the time of", err)
		}
	}
	return nil
}

// makeLink calls link, and removes what an attempt of the same number, whose
// process died, left in its way.
func (d *draft) makeLink(link func() error) error {
	const tries = 4
	var err error
	for range tries {
		if err = link(); !errors.Is(err, unix.EEXIST) {
			return err
		}
		if _, dead := removeDead(d.k, d.dirFD, d.partial, time.Time{}); errors.Is(dead, errHeld) {
			return dead
		}
	}
	return err
}

// makeHardLink makes entry i's other name under the partial name.
func (g *GroupSink) makeHardLink(i int) error {
	it := &g.items[i]
	fromFD, from, id, err := g.linkTarget(it)
	if err != nil {
		return err
	}
	if it.overwrite.replaces() {
		if st, err := g.k.lstatat(it.dirFD, it.name); err == nil && identityOf(st) == id {
			return it.skipped() // it is what it shall be
		}
	}
	err = it.makeLink(func() error { return g.k.link(fromFD, from, it.dirFD, it.partial) })
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EMLINK), errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP):
		return reason.New(reason.UnsupportedFilesystem, "hard link %s to %s in root %s: %w; leave hardlinks out of preserve", quoteRel(it.rel), quoteRel(joinRel(g.base, it.target)), g.root.cfg.Name, err)
	case err != nil:
		return it.failure("make hard link", err)
	}
	// linkat acts on a name: what counts is what it led to at that moment.
	st, err := g.k.lstatat(it.dirFD, it.partial)
	if err != nil {
		return it.failure("look at the partial link of", err)
	}
	it.id = identityOf(st)
	if it.id != id {
		return reason.New(reason.IOError, "%s in root %s was replaced while a hard link to it was made; find out by whom", quoteRel(joinRel(g.base, it.target)), g.root.cfg.Name)
	}
	return nil
}

// linkTarget finds the file that a hard link is another name of: in the same
// group, under its partial name, or published before.
func (g *GroupSink) linkTarget(it *groupItem) (dirFD int, name string, id identity, err error) {
	for j := range g.items {
		mate := &g.items[j]
		if mate.kind != KindFile || g.spec.Entries[j].Rel != it.target {
			continue
		}
		switch {
		case mate.state == EntryPending && mate.fd >= 0:
			it.linkOf = mate
			return mate.dirFD, mate.partial, mate.id, nil
		case mate.state == EntryFailed, mate.state == EntrySkipped && it.overwrite != OverwriteIfDifferent:
			// What stands under its name, if anything, is other content.
			return -1, "", id, it.failure("link to "+quoteRel(mate.rel)+" for", mate.err)
		}
	}
	dir, name, err := g.dirs.parent(it.target, false)
	if err != nil {
		return -1, "", id, it.failure("open the directory of the file to link", err)
	}
	st, err := g.k.lstatat(dir.fd, name)
	if err != nil {
		return -1, "", id, g.root.failure(reason.DestNotFound, "look for the file to link", joinRel(g.base, it.target), err)
	}
	if !isRegular(st) {
		return -1, "", id, reason.New(reason.DestExists, "%s in root %s is a %v, and a hard link to it was asked for; remove it", quoteRel(joinRel(g.base, it.target)), g.root.cfg.Name, kindOf(st))
	}
	return dir.fd, name, identityOf(st), nil
}

// makeSymlinkAgain makes a symlink whose inode was told already, and tells the
// new one: or nobody could say later whose the name is.
func (g *GroupSink) makeSymlinkAgain(it *groupItem) error {
	if err := it.makeSymlink(); err != nil {
		return err
	}
	for i := range g.named {
		if n := &g.named[i]; joinRel(g.base, n.Rel) == it.rel {
			n.Inode = Inode{it.id.dev, it.id.ino}
		}
	}
	if err := g.tellNames(); err != nil {
		return it.failure("publish", err)
	}
	return nil
}

// giveName is draft.giveName for all kinds.
func (g *GroupSink) giveName(ctx context.Context, it *groupItem) error {
	if it.kind == KindSymlink && !it.leadsHere(it.partial) {
		// Swept by another process, see removeDeadLink.
		if err := g.makeSymlinkAgain(it); err != nil {
			return err
		}
	}
	if err := it.draft.giveName(ctx); err != nil {
		return err
	}
	// A rename of one name of an inode over another does nothing (rename(2)).
	if it.kind == KindHardLink && it.leadsHere(it.partial) {
		_ = g.k.unlink(it.dirFD, it.partial)
	}
	return nil
}
