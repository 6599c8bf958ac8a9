package fileio

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// Publish gives the file its final name, once every byte is there: attributes,
// fsync (if durable), the one rename, fsync of the directory (if durable). It
// waits for writes in progress, as long as ctx allows; after the rename ctx is
// not looked at any more. Calling it again returns the same answer.
//
// When it fails the partial file is removed and the final name is as it was,
// with one exception that Published tells: the rename happened and the
// directory could not be synced.
//
// Errors: the sticky one of a failed write; INTERNAL if bytes are missing;
// DEST_EXISTS, also wrapping ErrSkipped; NO_SPACE, QUOTA, IO_ERROR;
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
		s.room.end(s.published.Load())
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
		return err
	}
	if err := ctx.Err(); err != nil {
		return s.failure("publish", err)
	}
	if err := s.giveName(); err != nil {
		return err
	}
	s.published.Store(true)
	if s.spec.Durable {
		if err := s.k.fsync(s.dirFD); err != nil {
			return s.fail("sync the directory of", err)
		}
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
	st, err := s.k.fstat(s.h.fd)
	if err != nil {
		return s.fail("stat", err)
	}
	if st.Size != s.spec.Size {
		return reason.New(reason.IOError, "%q in root %s has %d bytes, not %d: another process changed the partial file; find out which", s.spec.Rel, s.root.cfg.Name, st.Size, s.spec.Size)
	}
	return nil
}

// setAttributes comes after the last write, which would change the time, and
// before the sync, which makes the attributes durable with the data. The owner
// comes before the mode, because chown(2) may clear mode bits.
func (s *Sink) setAttributes() error {
	cfg, spec, fd := &s.root.cfg, &s.spec, s.h.fd
	switch {
	case spec.Preserve&PreserveOwner != 0:
		if err := s.k.fchown(fd, spec.UID, spec.GID); err != nil {
			return s.failure("set the owner of", err)
		}
	case cfg.Chown:
		if err := s.k.fchown(fd, cfg.UID, cfg.GID); err != nil {
			return s.failure("set the owner of", err)
		}
	}
	mode := cfg.FileMode
	if spec.Preserve&PreserveMode != 0 {
		mode = spec.Mode.Perm()
	}
	if err := s.k.fchmod(fd, uint32(mode)); err != nil {
		return s.failure("set the mode of", err)
	}
	if spec.Preserve&PreserveMTime != 0 {
		if err := s.k.setMTime(fd, spec.MTime); err != nil {
			return s.failure("set the time of", err)
		}
	}
	return nil
}

// settle makes the content durable, or at least hears of writes that a network
// file system accepted and then refused.
func (s *Sink) settle() error {
	if !s.spec.Durable {
		if err := s.k.flush(s.h.fd); err != nil {
			return s.fail("flush", err)
		}
		return nil
	}
	if err := s.k.fsync(s.h.fd); err != nil {
		return s.fail("sync", err)
	}
	return nil
}

// giveName makes the final name appear, in one step.
func (s *Sink) giveName() error {
	// The partial's name is ours by flock and convention, but a rename acts on
	// whatever has it.
	if !s.leadsHere(s.partial) {
		return reason.New(reason.IOError, "the partial file of %q in root %s was removed or replaced by another process; find out which", s.spec.Rel, s.root.cfg.Name)
	}
	if s.spec.Overwrite.replaces() {
		// What is there may have changed since Create; the last look is as late
		// as it can be.
		if err := s.lookAtFinal(); err != nil {
			return err
		}
		return s.named("rename", s.k.rename(s.dirFD, s.partial, s.name, 0))
	}
	err := s.k.rename(s.dirFD, s.partial, s.name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		// NFS, Lustre and others refuse the flag (rename(2)).
		return s.linkName(err)
	}
	return s.named("rename", err)
}

// linkName publishes with link(2), which fails if the name exists, on file
// systems without RENAME_NOREPLACE.
func (s *Sink) linkName(refused error) error {
	err := s.k.link(s.dirFD, s.partial, s.name)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EMLINK) {
		return reason.New(reason.UnsupportedFilesystem, "publish %q in root %s: neither renameat2 with RENAME_NOREPLACE (%w) nor link (%w) works there, so an existing file could be lost; %s",
			s.spec.Rel, s.root.cfg.Name, refused, err, advice[reason.UnsupportedFilesystem])
	}
	if err := s.named("link", err); err != nil {
		return err
	}
	// The file has its name; a leftover second one is swept later.
	if s.leadsHere(s.partial) {
		_ = s.k.unlink(s.dirFD, s.partial)
	}
	return nil
}

// named turns the result of a rename or link into Publish's. An NFS server may
// have done it, lost the answer, and called the repetition a failure: what
// counts is whether the name leads to our inode.
func (s *Sink) named(op string, err error) error {
	if err == nil {
		return nil
	}
	if (errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT)) && s.leadsHere(s.name) {
		return nil
	}
	if errors.Is(err, unix.EEXIST) {
		if s.spec.Overwrite == OverwriteSkip {
			return s.skipped()
		}
		return s.exists()
	}
	return s.failure(op, err)
}

// leadsHere reports whether name in the directory is the inode this Sink holds.
func (s *Sink) leadsHere(name string) bool {
	st, err := s.k.lstatat(s.dirFD, name)
	return err == nil && identityOf(st) == s.id
}

// remove unlinks this attempt's partial file: only while it is held, so that
// its inode number cannot mean another file, and only if the name leads to it.
func (s *Sink) remove() error {
	if s.h == nil || !s.leadsHere(s.partial) {
		return nil
	}
	if err := s.k.unlink(s.dirFD, s.partial); err != nil && !errors.Is(err, unix.ENOENT) {
		return s.failure("remove the partial file of", err)
	}
	return nil
}
