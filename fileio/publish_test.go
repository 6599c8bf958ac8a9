package fileio

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// TestFaults lets each system call fail and looks at what is left: never a
// final name that was not there, never a changed one, never a partial file.
func TestFaults(t *testing.T) {
	size := chunkBytes * 9 // past one early write-back
	cases := []struct {
		op    string
		nth   int
		errno unix.Errno
		code  reason.Code
	}{
		{"openat", 1, unix.EROFS, reason.PermissionDenied},
		{"openat", 1, unix.ENOSPC, reason.NoSpace}, // out of inodes
		{"openat", 1, unix.EDQUOT, reason.Quota},
		{"openat", 1, unix.EMFILE, reason.Internal},
		{"fallocate", 1, unix.ENOSPC, reason.NoSpace},
		{"fallocate", 1, unix.EDQUOT, reason.Quota},
		{"fallocate", 1, unix.EFBIG, reason.UnsupportedFilesystem},
		{"pwrite", 1, unix.ENOSPC, reason.NoSpace},
		{"pwrite", 5, unix.ENOSPC, reason.NoSpace},
		{"pwrite", 5, unix.EDQUOT, reason.Quota},
		{"pwrite", 9, unix.EIO, reason.IOError},
		{"pwrite", 9, unix.ESTALE, reason.IOError},
		{"sync_file_range", 1, unix.EIO, reason.IOError},
		{"sync_file_range", 1, unix.ENOSPC, reason.NoSpace},
		{"fchmod", 1, unix.EPERM, reason.PermissionDenied},
		{"utimensat", 1, unix.EIO, reason.IOError},
		{"fsync", 1, unix.EIO, reason.IOError},
		{"fsync", 1, unix.ENOSPC, reason.NoSpace},
		{"fsync", 1, unix.EDQUOT, reason.Quota},
		{"renameat2", 1, unix.EIO, reason.IOError},
		{"renameat2", 1, unix.EACCES, reason.PermissionDenied},
		{"renameat2", 1, unix.ENOSPC, reason.NoSpace},
	}
	for _, existing := range []bool{false, true} {
		for _, c := range cases {
			t.Run(c.op+" "+unix.ErrnoName(c.errno), func(t *testing.T) {
				r := newRoot(t)
				spec := CreateSpec{Rel: "f", Durable: true, Preserve: PreserveMTime}
				var before []string
				if existing {
					spec.Overwrite = OverwriteAlways
					put(t, r, "f", []byte("precious"))
					before = []string{"f"}
				}
				if c.op == "sync_file_range" && skipWriteback(t, r) {
					t.Skip("no early write-back on this file system")
				}
				if c.op == "fallocate" && skipWriteback(t, r) {
					t.Skip("no preallocation on this file system")
				}
				failOp(r, c.op, c.nth, c.errno)
				err := publishChunks(r, spec, noise(t, size, 1))
				wantCode(t, err, c.code)
				wantNames(t, r, before...)
				if existing {
					wantFile(t, r, "f", []byte("precious"))
				}
				if n := r.space.receiving + r.space.unwritten.Load(); n != 0 {
					t.Errorf("%d bytes stay reserved", n)
				}
			})
		}
	}
}

// skipWriteback reports whether the root is on a memory file system.
func skipWriteback(t *testing.T, r *Root) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(r.Path(), &st); err != nil {
		t.Fatal(err)
	}
	return !filesystemOf(st).writeback
}

// publishChunks is publish, a chunk at a time.
func publishChunks(r *Root, spec CreateSpec, content []byte) error {
	ctx := context.Background()
	spec.Size = int64(len(content))
	s, err := r.Create(ctx, spec)
	if err != nil {
		return err
	}
	defer s.Discard()
	for off := 0; off < len(content); off += chunkBytes {
		if _, err := s.WriteAt(content[off:min(off+chunkBytes, len(content))], int64(off)); err != nil {
			return err
		}
	}
	return s.Publish(ctx)
}

// TestFailureIsSticky: one failed write, then the disk recovers. Nothing may
// call the file good afterwards.
func TestFailureIsSticky(t *testing.T) {
	r := newRoot(t)
	seen := 0
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "pwrite" {
			if seen++; seen == 2 {
				return unix.EIO
			}
		}
		if c.op == "fsync" || c.op == "renameat2" {
			t.Errorf("%s after a failed write", c.op)
		}
		return nil
	}}
	s := create(t, r, CreateSpec{Rel: "f", Size: 20, Durable: true})
	p := make([]byte, 10)
	write(t, s, p, 0)
	_, err := s.WriteAt(p, 10)
	wantCode(t, err, reason.IOError)
	_, err = s.WriteAt(p, 10)
	wantCode(t, err, reason.IOError)
	if seen != 2 {
		t.Errorf("%d writes: the failed one was repeated", seen)
	}
	wantCode(t, s.Publish(context.Background()), reason.IOError)
	wantNames(t, r)
}

// TestFsyncIsNotRepeated: the second fsync of a descriptor reports success.
func TestFsyncIsNotRepeated(t *testing.T) {
	r := newRoot(t)
	seen := 0
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "fsync" {
			if seen++; seen == 1 {
				return unix.EIO
			}
		}
		return nil
	}}
	s := create(t, r, CreateSpec{Rel: "f", Size: 1, Durable: true})
	write(t, s, []byte("x"), 0)
	for range 2 {
		wantCode(t, s.Publish(context.Background()), reason.IOError)
	}
	if seen != 1 || s.Published() {
		t.Errorf("%d fsyncs, published %v", seen, s.Published())
	}
	wantNames(t, r)
}

// TestDirectorySyncFails: the name is there and whole, and stays.
func TestDirectorySyncFails(t *testing.T) {
	r := newRoot(t)
	failOp(r, "fsync", 2, unix.EIO)
	s := create(t, r, CreateSpec{Rel: "f", Size: 1, Durable: true})
	write(t, s, []byte("x"), 0)
	wantCode(t, s.Publish(context.Background()), reason.IOError)
	if !s.Published() {
		t.Error("Published() denies it")
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
	wantNames(t, r, "f")
}

// TestNotDurable: no fsync at all, but a refused write-behind is heard of.
func TestNotDurable(t *testing.T) {
	r := newRoot(t)
	failOp(r, "fsync", 1, unix.EIO)
	if err := publish(r, CreateSpec{Rel: "d/f"}, []byte("x")); err != nil {
		t.Errorf("a file that need not be durable was synced: %v", err)
	}
	r = newRoot(t)
	failOp(r, "flush", 1, unix.EDQUOT)
	wantCode(t, publish(r, CreateSpec{Rel: "f"}, []byte("x")), reason.Quota)
	wantNames(t, r)
}

// TestNewDirectoriesAreSynced counts: each new directory's parent, the file,
// its directory.
func TestNewDirectoriesAreSynced(t *testing.T) {
	r := newRoot(t)
	syncs := 0
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "fsync" {
			syncs++
		}
		return nil
	}}
	if err := publish(r, CreateSpec{Rel: "a/b/c/f", Durable: true}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if syncs != 3+2 {
		t.Errorf("%d syncs, want 5", syncs)
	}
}

// TestWithoutNoReplace is NFS and Lustre, which refuse the flag.
func TestWithoutNoReplace(t *testing.T) {
	// refuse answers a flagged rename with EINVAL, and link as told.
	refuse := func(r *Root, link func(real func() error) error) {
		inner := r.k
		r.k = &faulty{kernel: inner, before: func(c call) error {
			switch {
			case c.op == "renameat2" && c.flags != 0:
				return unix.EINVAL
			case c.op == "linkat" && link != nil:
				return link(func() error { return inner.link(c.fd, partialName("", 0, 0), c.fd, c.name) })
			}
			return nil
		}}
	}
	t.Run("link works", func(t *testing.T) {
		r := newRoot(t)
		refuse(r, nil)
		if err := publish(r, CreateSpec{Rel: "f", Durable: true}, []byte("x")); err != nil {
			t.Fatal(err)
		}
		wantFile(t, r, "f", []byte("x"))
		wantNames(t, r, "f")
	})
	t.Run("link finds the name taken", func(t *testing.T) {
		r := newRoot(t)
		refuse(r, nil)
		s := create(t, r, CreateSpec{Rel: "f"})
		put(t, r, "f", []byte("theirs"))
		wantCode(t, s.Publish(context.Background()), reason.DestExists)
		wantFile(t, r, "f", []byte("theirs"))
		wantNames(t, r, "f")
	})
	t.Run("link done, answer lost", func(t *testing.T) {
		r := newRoot(t)
		refuse(r, func(real func() error) error {
			if err := real(); err != nil {
				return err
			}
			return unix.EEXIST
		})
		if err := publish(r, CreateSpec{Rel: "f"}, []byte("x")); err != nil {
			t.Fatal(err)
		}
		wantNames(t, r, "f")
	})
	for _, errno := range []unix.Errno{unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS} {
		t.Run("no link "+unix.ErrnoName(errno), func(t *testing.T) {
			r := newRoot(t)
			refuse(r, func(func() error) error { return errno })
			wantCode(t, publish(r, CreateSpec{Rel: "f"}, []byte("x")), reason.UnsupportedFilesystem)
			wantNames(t, r)
			// An overwriting policy needs no flag.
			if err := publish(r, CreateSpec{Rel: "f", Overwrite: OverwriteAlways}, []byte("x")); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("link fails", func(t *testing.T) {
		r := newRoot(t)
		refuse(r, func(func() error) error { return unix.EIO })
		wantCode(t, publish(r, CreateSpec{Rel: "f"}, []byte("x")), reason.IOError)
		wantNames(t, r)
	})
}

func TestFallocateUnsupported(t *testing.T) {
	r := newRoot(t)
	failOp(r, "fallocate", 1, unix.EOPNOTSUPP)
	want := noise(t, 5000, 1)
	if err := publish(r, CreateSpec{Rel: "f", Durable: true}, want); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "f", want)
}

func TestDirectWriteRefused(t *testing.T) {
	r := newRoot(t, directOn)
	want := noise(t, 3*chunkBytes, 1)
	s := create(t, r, CreateSpec{Rel: "f", Size: int64(len(want)), Durable: true})
	if s.Travelled() != "direct" {
		t.Skipf("no O_DIRECT here: %s", s.Travelled())
	}
	refused := 0
	s.k = &faulty{kernel: s.k, before: func(c call) error {
		if c.op == "pwrite" && c.fd == s.h.directFD {
			refused++
			return unix.EINVAL
		}
		return nil
	}}
	for off := 0; off < len(want); off += chunkBytes {
		write(t, s, want[off:off+chunkBytes], int64(off))
	}
	if refused != 1 || s.Travelled() == "direct" {
		t.Errorf("refused %d times, now %q; want once and a note", refused, s.Travelled())
	}
	if err := s.Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "f", want)
}

// TestTruncatedPartial: somebody else shortens the partial file.
func TestTruncatedPartial(t *testing.T) {
	r := newRoot(t)
	s := create(t, r, CreateSpec{Rel: "f", Size: 3})
	write(t, s, []byte("abc"), 0)
	if err := os.Truncate(filepath.Join(r.Path(), s.partial), 2); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Publish(context.Background()), reason.IOError)
	wantNames(t, r)
}
