package fileio

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"mover/reason"
)

// How old the measured usage of a root may be when a file is refused for its
// quota: others delete files without telling, so the root is measured again
// before it says no. A small root is measured in no time, and who has made room
// in it is not told that there is none; a large one is not walked all the time.
const (
	usageMaxAge = 10 * time.Second
	usageRests  = 20 // for so many times what measuring took
)

// space is a root's account of room: what files being received will still
// take, and what the files below the root have. It decides early; the file
// system has the last word.
type space struct {
	// unwritten is what open sinks without preallocation will still take from
	// the file system. Writers lower it without the lock.
	unwritten atomic.Int64

	mu         sync.Mutex
	receiving  int64 // sizes of open sinks, for the quota
	used       int64 // sizes of the files below the root, when last measured, plus published since
	measuredAt time.Time
	measuring  time.Duration // what it took
}

// reservation is one sink's share of a root's space.
type reservation struct {
	root      *Root
	size      int64
	unwritten atomic.Int64 // this sink's part of space.unwritten
	ended     atomic.Bool
}

// reserve accounts for a file of size bytes in the directory behind dirFD, or
// says NO_SPACE or QUOTA. It may walk the root to measure its usage.
func (r *Root) reserve(ctx context.Context, rel string, size int64, dirFD int, fsys filesystem) (*reservation, error) {
	s := &r.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if quota := r.cfg.QuotaBytes; quota > 0 {
		over := func() bool { return size > quota-s.used-s.receiving }
		if s.measuredAt.IsZero() || over() && time.Since(s.measuredAt) > min(usageMaxAge, usageRests*s.measuring) {
			begun := time.Now()
			used, err := r.measure(ctx)
			if err != nil {
				return nil, r.failure(reason.DestNotFound, "measure usage for", rel, err)
			}
			s.used, s.measuredAt = used, time.Now()
			s.measuring = s.measuredAt.Sub(begun)
		}
		if over() {
			return nil, reason.New(reason.Quota, "%q needs %d bytes; root %s has a quota of %d, of which %d are used and %d promised to files being received; %s",
				rel, size, r.cfg.Name, quota, s.used, s.receiving, advice[reason.Quota])
		}
	}
	// Where fallocate asks the file system itself, only min_free needs a look.
	if r.cfg.MinFreeBytes > 0 || !fsys.reserve {
		if err := r.checkFree(rel, size, dirFD); err != nil {
			return nil, err
		}
	}
	s.receiving += size
	s.unwritten.Add(size)
	res := &reservation{root: r, size: size}
	res.unwritten.Store(size)
	return res, nil
}

// checkFree compares the space that is free and not promised with what size and
// min_free need. A tmpfs without a limit reports no blocks at all: no check.
func (r *Root) checkFree(rel string, size int64, dirFD int) error {
	st, err := r.k.fstatfs(dirFD)
	if err != nil {
		return r.failure(reason.DestNotFound, "look for free space for", rel, err)
	}
	if st.Blocks == 0 || st.Bsize <= 0 {
		return nil
	}
	unit := int64(st.Frsize)
	if unit <= 0 {
		unit = int64(st.Bsize)
	}
	// Bavail, not Bfree: the file system's own reserve is not for bulk data.
	const most = int64(1) << 62
	free := most
	if blocks := st.Bavail; blocks < uint64(most/unit) {
		free = int64(blocks) * unit
	}
	promised := r.space.unwritten.Load()
	if size > free-promised-r.cfg.MinFreeBytes {
		return reason.New(reason.NoSpace, "%q needs %d bytes; root %s has %d free, of which %d are promised to files being received and %d must stay free (min_free); %s",
			rel, size, r.cfg.Name, free, promised, r.cfg.MinFreeBytes, advice[reason.NoSpace])
	}
	return nil
}

// measure adds up the sizes of the regular files below the root, a name at a
// time (a file with two names counts twice), partial files aside: those being
// received are counted by their sinks. Directories that vanish or cannot be
// read are left out.
func (r *Root) measure(ctx context.Context) (int64, error) {
	var used int64
	err := r.k.walkBelow(r.dir, func(_ string, d fs.DirEntry, err error) error {
		if ctxErr := ctx.Err(); ctxErr != nil {
			return ctxErr
		}
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return nil
			}
			return err
		}
		if !d.Type().IsRegular() || IsPartial(d.Name()) {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		used += info.Size()
		return nil
	})
	return used, err
}

// taken records that n of the reserved bytes are now taken from what the file
// system calls free. More than the rest is clipped: bytes can be sent twice.
func (v *reservation) taken(n int64) {
	for {
		rest := v.unwritten.Load()
		n = min(n, rest)
		if v.unwritten.CompareAndSwap(rest, rest-n) {
			v.root.space.unwritten.Add(-n)
			return
		}
	}
}

// end gives the reservation back, once; kept is how many of its bytes stay, as
// published files.
func (v *reservation) end(kept int64) {
	if v.ended.Swap(true) {
		return
	}
	v.taken(v.size)
	s := &v.root.space
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiving -= v.size
	s.used += kept
}
