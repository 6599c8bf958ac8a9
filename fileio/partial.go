package fileio

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// A partial file is named ".mover." + 24 hex digits for job and item + 8 for
// the attempt + ".partial": 47 bytes whatever the final name's length, so it
// fits beside a name of 255. The attempt stands apart so that a later one can
// find an earlier one's leftover by name, without reading the directory.
const (
	partialPrefix    = ".mover."
	partialSuffix    = ".partial"
	partialHexDigits = 32
	// staleProbes bounds how many earlier attempts are looked for. Attempts are
	// few (max_attempts is 10 by default) and each cleans up behind the last.
	staleProbes = 32
	// sweepBatchBytes is how much of a directory a sweep reads at a time, some
	// 500 entries of usual length.
	sweepBatchBytes = 32 << 10
)

// partialName is the name that the attempt at the job's item writes under.
func partialName(job string, item uint64, attempt uint32) string {
	// The job's length keeps ("a", 1) and ("a1", ...) apart.
	sum := sha256.New()
	var head [16]byte
	binary.BigEndian.PutUint64(head[:8], uint64(len(job)))
	binary.BigEndian.PutUint64(head[8:], item)
	sum.Write(head[:])
	io.WriteString(sum, job)
	return fmt.Sprintf("%s%s%08x%s", partialPrefix, hex.EncodeToString(sum.Sum(nil)[:12]), attempt, partialSuffix)
}

// groupNames are the names that the entries of a group are written under: of
// the 32 digits, 16 are for job and group, 8 for the entry, 8 for the attempt.
type groupNames struct{ head, tail string }

func newGroupNames(job string, group uint64, attempt uint32) groupNames {
	sum := sha256.New()
	// Not what partialName begins with, whatever the length of a job's name.
	io.WriteString(sum, "group of entries")
	var head [16]byte
	binary.BigEndian.PutUint64(head[:8], uint64(len(job)))
	binary.BigEndian.PutUint64(head[8:], group)
	sum.Write(head[:])
	io.WriteString(sum, job)
	return groupNames{
		head: partialPrefix + hex.EncodeToString(sum.Sum(nil)[:8]),
		tail: fmt.Sprintf("%08x%s", attempt, partialSuffix),
	}
}

// partial is entry i's name.
func (n groupNames) partial(i int) string {
	var digits [4]byte
	binary.BigEndian.PutUint32(digits[:], uint32(i))
	return n.head + hex.EncodeToString(digits[:]) + n.tail
}

// IsPartial reports whether name, a single component, is one that partial files
// have. Such names cannot be published, and tree walks leave them out.
func IsPartial(name string) bool {
	digits, ok := strings.CutPrefix(name, partialPrefix)
	if !ok {
		return false
	}
	digits, ok = strings.CutSuffix(digits, partialSuffix)
	return ok && len(digits) == partialHexDigits && strings.Trim(digits, "0123456789abcdef") == ""
}

// errHeld says that a partial file belongs to a living writer.
var errHeld = errors.New("held by a living writer")

// removeDead removes the partial file name in the directory dirFD if no living
// process holds it: its flock can be had, and the name still leads to the inode
// that was locked. before, unless zero, spares files modified at or after it.
// It reports whether it removed something; a name that is gone is no error.
func removeDead(k kernel, dirFD int, name string, before time.Time) (bool, error) {
	// Writable, because NFS emulates flock with POSIX locks, which want that.
	fd, err := k.openat(dirFD, name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if errors.Is(err, unix.ELOOP) {
		return removeDeadLink(k, dirFD, name, before)
	}
	if err != nil {
		return false, err
	}
	defer k.close(fd)
	if err := k.tryLock(fd); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, errHeld
		}
		// Without locks nobody can tell: leave it.
		return false, err
	}
	held, err := k.fstat(fd)
	if err != nil {
		return false, err
	}
	if !isRegular(held) {
		return false, fmt.Errorf("not a regular file")
	}
	if !before.IsZero() && !time.Unix(held.Mtim.Unix()).Before(before) {
		return false, nil
	}
	named, err := k.lstatat(dirFD, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if identityOf(named) != identityOf(held) {
		return false, errHeld // replaced since: somebody is at work here
	}
	if err := k.unlink(dirFD, name); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	return true, nil
}

// removeDeadLink is removeDead for a symlink, which cannot be locked. A living
// writer has one for the moment between making and renaming it, has lost no data
// with it, and makes it again.
func removeDeadLink(k kernel, dirFD int, name string, before time.Time) (bool, error) {
	st, err := k.lstatat(dirFD, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if kindOf(st) != KindSymlink {
		return false, errHeld // replaced since: somebody is at work here
	}
	if !before.IsZero() && !time.Unix(st.Ctim.Unix()).Before(before) {
		return false, nil
	}
	if err := k.unlink(dirFD, name); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	return true, nil
}

// removeStale removes what earlier attempts at the same item left behind. It is
// best effort: what it cannot remove is in nobody's way, and a later Sweep
// finds it.
func removeStale(k kernel, dirFD int, job string, item uint64, attempt uint32) {
	first := uint32(0)
	if attempt > staleProbes {
		first = attempt - staleProbes
	}
	for a := first; a < attempt; a++ {
		_, _ = removeDead(k, dirFD, partialName(job, item, a), time.Time{})
	}
}

// Swept is what a Sweep found.
type Swept struct {
	Removed int // partial files removed
	Held    int // partial files of living writers, left alone
	Left    int // partial files that could not be examined or removed, or are too new
}

// Sweep removes the partial files in the one directory rel that no living
// process holds and that were last written before the time given (pass the
// process's start; zero removes regardless of age). It never touches anything
// else. On file systems without flock it removes nothing.
func (r *Root) Sweep(ctx context.Context, rel string, before time.Time) (Swept, error) {
	var swept Swept
	rel, err := clean(rel)
	if err != nil {
		return swept, err
	}
	dirFD, err := r.openDescriptor(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return swept, r.failure(reason.DestNotFound, "sweep", rel, err)
	}
	defer r.k.close(dirFD)
	dir := level{batch: make([]byte, sweepBatchBytes)}
	for {
		if err := ctx.Err(); err != nil {
			return swept, r.failure(reason.DestNotFound, "sweep", rel, err)
		}
		n, err := r.k.getdents(dirFD, dir.batch)
		if err != nil {
			return swept, r.failure(reason.DestNotFound, "sweep", rel, err)
		}
		if n == 0 {
			return swept, nil
		}
		for dir.rest = dir.batch[:n]; len(dir.rest) > 0; {
			name := dir.take()
			if !IsPartial(name) {
				continue
			}
			removed, err := removeDead(r.k, dirFD, name, before)
			switch {
			case removed:
				swept.Removed++
			case errors.Is(err, errHeld):
				swept.Held++
			default:
				swept.Left++
			}
		}
	}
}
