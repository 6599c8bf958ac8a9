package fileio

import (
	"context"

	"mover/reason"
)

// Publish gives the file its final name, once every byte is there: attributes,
// fsync (if durable), the one rename, fsync of the directory (if durable). It
// waits for writes in progress, as long as ctx allows; after the rename ctx is
// not looked at any more. Calling it again returns the same answer.
//
// When it fails the partial file is removed and the final name is as it was,
// with an exception that Published tells: the rename happened, and then the
// directory could not be synced, or was found to have been moved.
//
// Errors: the sticky one of a failed write; INTERNAL if bytes are missing;
// DEST_EXISTS, also wrapping ErrSkipped; DEST_NOT_FOUND when somebody has moved
// or replaced the directory; NO_SPACE, QUOTA, IO_ERROR;
// UNSUPPORTED_FILESYSTEM; CANCELED, DEADLINE.
func (s *Sink) Publish(ctx context.Context) error {
	s.end.Lock()
	defer s.end.Unlock()
	if s.ended {
		return s.endErr
	}
	err := s.publish(ctx)
	if err != nil && !s.published.Load() {
		err = also(err, s.remove())
	}
	s.finish(err)
	return err
}

// Discard gives the attempt up and removes its own partial file, if the name
// still leads to the inode that is held. After Publish, whatever its answer, it
// does nothing, so it can be deferred. It does not wait for writes in progress:
// they end in a file without a name. The error says that the partial file
// could not be removed.
func (s *Sink) Discard() error {
	s.end.Lock()
	defer s.end.Unlock()
	if s.ended {
		return nil
	}
	err := s.remove()
	s.finish(reason.New(reason.Canceled, "%q in root %s was discarded", s.spec.Rel, s.root.cfg.Name))
	return err
}

// abandon undoes what begin did before it failed.
func (s *Sink) abandon() error {
	s.end.Lock()
	defer s.end.Unlock()
	err := s.remove()
	s.finish(nil)
	return err
}

// finish releases everything. The flock goes with the last descriptor. end is
// held.
func (s *Sink) finish(err error) {
	s.ended, s.endErr = true, err
	if s.h != nil {
		s.h.shut()
	}
	if s.room != nil {
		kept := int64(0)
		if s.published.Load() {
			kept = s.spec.Size
		}
		s.room.end(kept)
	}
	_ = s.k.close(s.dirFD)
}

// publish is Publish up to the cleaning up.
func (s *Sink) publish(ctx context.Context) error {
	select {
	case <-s.h.seal():
	case <-ctx.Done():
		return s.failure("publish", ctx.Err())
	}
	if err := ctx.Err(); err != nil {
		return s.failure("publish", err)
	}
	if err := s.checkWhole(); err != nil {
		return err
	}
	if err := s.setAttributes(); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return s.fail("settle", err)
	}
	if err := ctx.Err(); err != nil {
		return s.failure("publish", err)
	}
	dirRel, _ := splitParent(s.spec.Rel)
	if err := s.root.inPlace(dirRel, s.dirFD); err != nil {
		return err
	}
	if err := s.giveName(ctx); err != nil {
		return err
	}
	s.published.Store(true)
	if s.spec.Durable {
		if err := s.k.fsync(s.dirFD); err != nil {
			return s.fail("sync the directory of", err)
		}
	}
	if err := s.root.inPlace(dirRel, s.dirFD); err != nil {
		return err
	}
	return nil
}

// checkWhole looks for a failed write, a missing byte, or a length that is not
// the sender's.
func (s *Sink) checkWhole() error {
	if err := s.failed.Load(); err != nil {
		return err
	}
	if got := s.Written(); got != s.spec.Size {
		return reason.New(reason.Internal, "publish %q: %d of %d bytes were written", s.spec.Rel, got, s.spec.Size)
	}
	return s.checkLength()
}
