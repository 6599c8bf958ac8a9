package fileio

import (
	"io"

	"mover/reason"
)

// ReadAt reads back what WriteAt has written, through the page cache, for a
// comparison before the file is published. It fills p or says why not. Any
// goroutine may call it until Publish or Discard.
func (s *Sink) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.spec.Size || int64(len(p)) > s.spec.Size-off {
		return 0, reason.New(reason.Internal, "read back %d bytes at %d of %q, which has %d", len(p), off, s.spec.Rel, s.spec.Size)
	}
	if !s.h.acquire() {
		return 0, reason.New(reason.Internal, "read back %q after it was published or discarded", s.spec.Rel)
	}
	defer s.h.release()
	n := 0
	for n < len(p) {
		k, err := s.k.pread(s.h.fd, p[n:], off+int64(n))
		if err == nil && k == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, s.fail("read back", err)
		}
		n += k
	}
	return n, nil
}

var _ io.ReaderAt = (*Sink)(nil)
