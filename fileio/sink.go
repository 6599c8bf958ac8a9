package fileio

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// writebackBytes is how much is written between two requests to start
// write-back. At 8 MiB the disk is busy from the start and little is left for
// the final fsync: about 10 ms after 1 GiB on ext4, against 400-500 without.
const writebackBytes = 8 << 20

// Sink is one attempt at receiving one file. WriteAt may be called by any
// number of goroutines at once; Publish and Discard by any goroutine, and they
// wait for each other. Until Publish succeeds the file has no other name than
// the partial's.
type Sink struct {
	draft
	spec    CreateSpec
	fsys    filesystem
	h       *handle // nil until the partial exists
	room    *reservation
	written *extents

	direct         atomic.Bool
	earlyWriteback bool
	sinceWriteback atomic.Int64
	travelled      path

	// failed is the first failed write or fsync. It is the attempt's end:
	// whatever a later call on the descriptor returns proves nothing.
	failed atomic.Pointer[reason.Error]

	end       sync.Mutex // held by Publish and Discard
	ended     bool
	endErr    error // what Publish returned, or why there is nothing to publish
	published atomic.Bool
}

// Size returns the length the file will have, in bytes.
func (s *Sink) Size() int64 { return s.spec.Size }

// Written returns how many distinct bytes were written so far, 0 to Size.
func (s *Sink) Written() int64 { return s.written.bytes() }

// Published reports whether the final name appeared. It can be true although
// Publish failed: then only the sync of the directory did.
func (s *Sink) Published() bool { return s.published.Load() }

// Travelled says how bytes are written, "direct" or "buffered: why", for logs.
func (s *Sink) Travelled() string { return s.travelled.String() }

// fail records the first failure and returns it.
func (s *Sink) fail(op string, err error) *reason.Error {
	s.failed.CompareAndSwap(nil, s.failure(op, err))
	return s.failed.Load()
}

// WriteAt writes all of p at off and returns len(p), or how much it wrote and
// why not all. Ranges may come in any order and more than once. p stays the
// caller's. p and off aligned to 4096 let O_DIRECT be used.
//
// The first failure is sticky: every later call returns it, and so does
// Publish. NO_SPACE, QUOTA and IO_ERROR are what a disk says; a range outside
// the file is INTERNAL, writes nothing and is not sticky. It does not allocate
// while the file arrives in fewer than 256 pieces.
func (s *Sink) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.spec.Size || int64(len(p)) > s.spec.Size-off {
		return 0, reason.New(reason.Internal, "write %d bytes at %d of %q, which has %d", len(p), off, s.spec.Rel, s.spec.Size)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if !s.h.acquire() {
		return 0, reason.New(reason.Internal, "write %q after it was published or discarded", s.spec.Rel)
	}
	defer s.h.release()
	if err := s.failed.Load(); err != nil {
		return 0, err
	}
	n, err := s.write(p, off)
	if err != nil {
		return n, s.fail("write", err)
	}
	fresh, err := s.written.add(off, off+int64(len(p)))
	if err != nil {
		return n, s.fail("write", reason.New(reason.PeerRefused, "%q: %w; the sender must use larger chunks", s.spec.Rel, err))
	}
	s.room.taken(fresh)
	if s.earlyWriteback && s.sinceWriteback.Add(int64(len(p))) >= writebackBytes {
		s.sinceWriteback.Store(0)
		if err := s.k.startWriteback(s.h.fd); err != nil && !advisory(err) {
			return n, s.fail("start write-back of", err)
		}
	}
	return n, nil
}

// advisory reports whether a failed sync_file_range(2) only means that this
// file system does not take the hint.
func advisory(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESPIPE)
}

// write moves p to the file: the aligned part direct if that works, the rest
// through the page cache.
func (s *Sink) write(p []byte, off int64) (int, error) {
	n := 0
	if k := directPrefix(p, off); k > 0 && s.direct.Load() {
		for n < k && n%alignBytes == 0 {
			m, err := s.k.pwrite(s.h.directFD, p[n:k], off+int64(n))
			if err == unix.EINVAL {
				// Refused for its alignment before anything was written
				// (open(2)): not a failed write.
				s.direct.Store(false)
				s.travelled.set("buffered: the file system refused a direct write (EINVAL)")
				break
			}
			if err != nil {
				return n, err
			}
			if m == 0 {
				break
			}
			n += m
		}
	}
	for n < len(p) {
		m, err := s.k.pwrite(s.h.fd, p[n:], off+int64(n))
		if err != nil {
			return n, err
		}
		if m == 0 {
			// write(2) gives no such answer for a regular file; do not spin on it.
			return n, unix.EIO
		}
		n += m
	}
	return n, nil
}
