package fileio

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// Verdict is what a group would do with an entry.
type Verdict uint8

const (
	VerdictCreate  Verdict = iota // nothing is there
	VerdictReplace                // something is there and would be replaced
	VerdictSkip                   // something is there and would be kept
	VerdictMerge                  // a directory is there
	VerdictFail                   // see Err
)

// EntryLook is the verdict on one entry.
type EntryLook struct {
	Verdict Verdict
	Err     *reason.Error // with VerdictFail
}

// Look tells what CreateGroup and Publish would do with each entry as things stand,
// and changes nothing. Of spec it uses Base, Overwrite, Sum and Entries. A Base
// that is not there is no error. Errors: as CreateGroup's, without NO_SPACE and QUOTA.
func (r *Root) Look(ctx context.Context, spec GroupSpec) ([]EntryLook, error) {
	g, err := r.newGroup(ctx, spec)
	if err != nil {
		return nil, err
	}
	fd, err := r.openDescriptor(g.base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		failed := r.failure(reason.DestNotFound, "open directory", g.base, err)
		if failed.Code != reason.DestNotFound {
			return nil, failed
		}
	} else {
		if g.dirs, err = newDirs(r, fd, g.base, reason.DestNotFound, groupDirsOpen); err != nil {
			return nil, err
		}
		defer g.dirs.close()
	}
	looks := make([]EntryLook, len(g.items))
	for i := range g.items {
		if err := ctx.Err(); err != nil {
			return nil, r.failure(reason.DestNotFound, "look at", g.base, err)
		}
		looks[i] = g.look(ctx, i)
	}
	return looks, nil
}

// look is decide without making anything. dirs is nil if there is no base.
func (g *GroupSink) look(ctx context.Context, i int) EntryLook {
	e, it := &g.spec.Entries[i], &g.items[i]
	if err := g.check(e); err != nil {
		return EntryLook{VerdictFail, err}
	}
	if g.dirs == nil {
		return EntryLook{Verdict: VerdictCreate}
	}
	if e.Rel == "." {
		return EntryLook{Verdict: VerdictMerge}
	}
	g.dirs.trim()
	dir, name, err := g.dirs.parent(e.Rel, false)
	if errors.Is(err, unix.ENOENT) {
		return EntryLook{Verdict: VerdictCreate}
	}
	if err != nil {
		return EntryLook{VerdictFail, it.failure("open the directory of", err)}
	}
	it.dirFD, it.name = dir.fd, name
	if e.Kind == KindDir {
		return g.lookAtDir(it)
	}
	stands, err := it.lookAtFinal(ctx)
	switch {
	case errors.Is(err, ErrSkipped):
		return EntryLook{Verdict: VerdictSkip}
	case err != nil:
		return EntryLook{VerdictFail, it.failure("look at", err)}
	case stands:
		return EntryLook{Verdict: VerdictReplace}
	}
	return EntryLook{Verdict: VerdictCreate}
}

// lookAtDir is what stands where a directory shall be.
func (g *GroupSink) lookAtDir(it *groupItem) EntryLook {
	st, err := g.k.lstatat(it.dirFD, it.name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return EntryLook{Verdict: VerdictCreate}
	case err != nil:
		return EntryLook{VerdictFail, it.failure("look at", err)}
	case kindOf(st) == KindDir:
		return EntryLook{Verdict: VerdictMerge}
	}
	return EntryLook{VerdictFail, it.notDir(kindOf(st))}
}
