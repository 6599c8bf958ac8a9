package fileio

import (
	"golang.org/x/sys/unix"

	"mover/reason"
)

// inPlace reports whether dirRel still leads to the directory held as dirFD.
// Names are given in the held one, wherever it is by then: after somebody moved
// it, or put another in its place, a file would have its name and yet not be
// where the job said.
func (r *Root) inPlace(dirRel string, dirFD int) *reason.Error {
	held, err := r.k.fstat(dirFD)
	if err != nil {
		return r.failure(reason.DestNotFound, "look at directory", dirRel, err)
	}
	fd, err := r.openDescriptor(dirRel, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		var st unix.Stat_t
		st, err = r.k.fstat(fd)
		_ = r.k.close(fd)
		if err == nil && identityOf(st) == identityOf(held) {
			return nil
		}
	}
	moved := reason.New(reason.DestNotFound, "directory %s in root %s was moved or replaced while files for it arrived; find out by whom, then submit the job again",
		quoteRel(dirRel), r.cfg.Name)
	moved.Err = err
	return moved
}

// checkPlaces looks for entries in one of the states whose directory is not in
// its place any more, and gives each its error.
func (g *GroupSink) checkPlaces(state EntryState, failed func(*groupItem, *reason.Error)) {
	moved := map[*openDir]*reason.Error{}
	for i := range g.items {
		it := &g.items[i]
		if it.state != state || it.dir == nil || g.spec.Entries[i].Published {
			continue
		}
		why, known := moved[it.dir]
		if !known {
			why = g.root.inPlace(joinRel(g.base, it.dir.rel), it.dir.fd)
			moved[it.dir] = why
		}
		if why != nil {
			failed(it, why)
		}
	}
}
