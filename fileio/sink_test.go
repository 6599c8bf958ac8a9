package fileio

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// TestSinkEverySize receives each size in random order from several goroutines,
// some chunks twice.
func TestSinkEverySize(t *testing.T) {
	for _, policy := range []DirectPolicy{DirectAuto, DirectOn} {
		t.Run(policy.String(), func(t *testing.T) {
			r := newRoot(t, func(c *RootConfig) { c.Direct = policy })
			for i, size := range sizes {
				want := noise(t, size, uint64(size))
				ctx := context.Background()
				s := create(t, r, CreateSpec{Rel: "f", Size: int64(size), Job: "j", Item: uint64(i), Overwrite: OverwriteAlways, Durable: i%2 == 0})
				var offs []int
				for off := 0; off < size; off += chunkBytes {
					offs = append(offs, off, off)
				}
				rng := rand.New(rand.NewPCG(1, uint64(size)))
				rng.Shuffle(len(offs), func(a, b int) { offs[a], offs[b] = offs[b], offs[a] })
				var wg sync.WaitGroup
				for w := range 3 {
					wg.Go(func() {
						for k := w; k < len(offs); k += 3 {
							p := want[offs[k]:min(size, offs[k]+chunkBytes)]
							if n, err := s.WriteAt(p, int64(offs[k])); n != len(p) || err != nil {
								t.Errorf("WriteAt: %d, %v", n, err)
							}
						}
					})
				}
				wg.Wait()
				if s.Written() != int64(size) {
					t.Errorf("size %d: Written() = %d", size, s.Written())
				}
				if err := s.Publish(ctx); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(filepath.Join(r.Path(), "f"))
				if err != nil || len(got) != size || sha256.Sum256(got) != sha256.Sum256(want) {
					t.Fatalf("size %d (%s): %d bytes, %v", size, s.Travelled(), len(got), err)
				}
				wantNames(t, r, "f")
			}
		})
	}
}

func TestSinkUnaligned(t *testing.T) {
	r := newRoot(t, directOn)
	want := noise(t, 3*chunkBytes, 1)
	s := create(t, r, CreateSpec{Rel: "f", Size: int64(len(want))})
	for off, n := 0, 1; off < len(want); off, n = off+n, n*3+1 {
		n = min(n, len(want)-off)
		write(t, s, want[off:off+n], int64(off))
	}
	if err := s.Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "f", want)
}

func TestSparseHugeFile(t *testing.T) {
	// Apparent size beyond 4 GiB without its blocks: offsets must not wrap.
	r := newRoot(t)
	failOp(r, "fallocate", 1, unix.EOPNOTSUPP)
	const size = 4<<30 + 1
	s := create(t, r, CreateSpec{Rel: "f", Size: size})
	p := noise(t, 4097, 1)
	for _, off := range []int64{2<<30 - 1, 4<<30 - 4096} {
		write(t, s, p, off)
	}
	if s.Written() != 2*4097 {
		t.Errorf("Written() = %d", s.Written())
	}
	err := s.Publish(context.Background())
	wantCode(t, err, reason.Internal)
	wantNames(t, r)
}

func TestMissingBytesAreNotPublished(t *testing.T) {
	r := newRoot(t)
	p := noise(t, 100, 1)
	cases := map[string]func(*Sink){
		"none":        func(*Sink) {},
		"last byte":   func(s *Sink) { write(t, s, p[:99], 0) },
		"first byte":  func(s *Sink) { write(t, s, p[1:], 1) },
		"hole":        func(s *Sink) { write(t, s, p[:50], 0); write(t, s, p[51:], 51) },
		"enough, but": func(s *Sink) { write(t, s, p[:60], 0); write(t, s, p[20:80], 20) },
	}
	for name, fill := range cases {
		t.Run(name, func(t *testing.T) {
			s := create(t, r, CreateSpec{Rel: "f", Size: 100, Durable: true})
			fill(s)
			wantCode(t, s.Publish(context.Background()), reason.Internal)
			wantCode(t, s.Publish(context.Background()), reason.Internal)
			wantNames(t, r)
		})
	}
}

func TestWriteOutside(t *testing.T) {
	r := newRoot(t)
	s := create(t, r, CreateSpec{Rel: "f", Size: 10})
	for _, c := range []struct {
		n   int
		off int64
	}{{1, -1}, {11, 0}, {1, 10}, {2, 9}, {1, 1 << 62}} {
		_, err := s.WriteAt(make([]byte, c.n), c.off)
		wantCode(t, err, reason.Internal)
	}
	if n, err := s.WriteAt(nil, 10); n != 0 || err != nil {
		t.Errorf("nothing at the end: %d, %v", n, err)
	}
	write(t, s, []byte("0123456789"), 0)
	if err := s.Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err := s.WriteAt([]byte("x"), 0)
	wantCode(t, err, reason.Internal)
	wantFile(t, r, "f", []byte("0123456789"))
}

func TestOverwritePolicies(t *testing.T) {
	old, new := time.Unix(1e9, 7), time.Unix(1e9+10, 7)
	cases := []struct {
		policy  Overwrite
		theirs  time.Time // of the existing file, which has 3 bytes
		ours    time.Time
		content string
		code    reason.Code
		skipped bool
	}{
		{OverwriteFail, old, new, "new!", reason.DestExists, false},
		{OverwriteSkip, old, new, "new!", reason.DestExists, true},
		{OverwriteAlways, new, old, "new!", "", false},
		{OverwriteIfNewer, old, new, "new!", "", false},
		{OverwriteIfNewer, new, old, "new!", reason.DestExists, true},
		{OverwriteIfNewer, old, old, "new!", reason.DestExists, true},
		{OverwriteIfNewer, time.Unix(1e9, 0), old, "new!", reason.DestExists, true}, // whole seconds only
		{OverwriteIfDifferent, old, old, "new!", "", false},
		{OverwriteIfDifferent, old, new, "new", "", false},
		{OverwriteIfDifferent, old, old, "new", reason.DestExists, true},
	}
	for _, c := range cases {
		t.Run(c.policy.String(), func(t *testing.T) {
			r := newRoot(t)
			put(t, r, "f", []byte("old"))
			if err := os.Chtimes(filepath.Join(r.Path(), "f"), c.theirs, c.theirs); err != nil {
				t.Fatal(err)
			}
			err := publish(r, CreateSpec{Rel: "f", Overwrite: c.policy, MTime: c.ours, Preserve: PreserveMTime}, []byte(c.content))
			wantCode(t, err, c.code)
			if errors.Is(err, ErrSkipped) != c.skipped {
				t.Errorf("%v: skipped is not %v", err, c.skipped)
			}
			if c.code == "" {
				wantFile(t, r, "f", []byte(c.content))
			} else {
				wantFile(t, r, "f", []byte("old"))
			}
			wantNames(t, r, "f")
		})
	}
	for _, o := range []Overwrite{OverwriteFail, OverwriteSkip, OverwriteAlways, OverwriteIfNewer, OverwriteIfDifferent} {
		if got, err := ParseOverwrite(o.String()); got != o || err != nil {
			t.Errorf("ParseOverwrite(%s) = %v, %v", o, got, err)
		}
	}
	if _, err := ParseOverwrite("Fail"); err == nil {
		t.Error("an unknown policy is accepted")
	}
}

// TestDestinationAppearsMeanwhile: what was free at Create is taken at Publish.
func TestDestinationAppearsMeanwhile(t *testing.T) {
	for _, c := range []struct {
		policy  Overwrite
		code    reason.Code
		skipped bool
		want    string
	}{
		{OverwriteFail, reason.DestExists, false, "theirs"},
		{OverwriteSkip, reason.DestExists, true, "theirs"},
		{OverwriteIfNewer, reason.DestExists, true, "theirs"},
		{OverwriteAlways, "", false, "ours"},
	} {
		r := newRoot(t)
		s := create(t, r, CreateSpec{Rel: "f", Size: 4, Overwrite: c.policy, MTime: time.Unix(1, 0), Durable: true})
		write(t, s, []byte("ours"), 0)
		put(t, r, "f", []byte("theirs"))
		err := s.Publish(context.Background())
		wantCode(t, err, c.code)
		if errors.Is(err, ErrSkipped) != c.skipped {
			t.Errorf("%v: %v", c.policy, err)
		}
		wantFile(t, r, "f", []byte(c.want))
		wantNames(t, r, "f")
	}
	r := newRoot(t)
	s := create(t, r, CreateSpec{Rel: "f", Overwrite: OverwriteAlways})
	put(t, r, "f/x", nil)
	wantCode(t, s.Publish(context.Background()), reason.DestExists)
	wantNames(t, r, "f")
}

func TestAttributes(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	r := newRoot(t, func(c *RootConfig) { c.FileMode, c.DirMode = 0o664, 0o775 })
	mtime := time.Unix(1e9, 123456789)
	if err := publish(r, CreateSpec{Rel: "a/b/own", Durable: true, Preserve: PreserveMode | PreserveMTime, Mode: os.ModeSetuid | 0o751, MTime: mtime}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := publish(r, CreateSpec{Rel: "a/b/root", Mode: 0o777, MTime: mtime}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"a/b/own": 0o751, "a/b/root": 0o664, "a": os.ModeDir | 0o775, "a/b": os.ModeDir | 0o775} {
		info, err := os.Stat(filepath.Join(r.Path(), name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), mode)
		}
		if kept := info.ModTime().Equal(mtime); kept != (name == "a/b/own") {
			t.Errorf("%s has time %v", name, info.ModTime())
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("owners need root")
	}
	if err := publish(r, CreateSpec{Rel: "mine", Preserve: PreserveOwner, UID: 12, GID: 34}, nil); err != nil {
		t.Fatal(err)
	}
	chown := newRoot(t, func(c *RootConfig) { c.Chown, c.UID, c.GID = true, 56, -1 })
	if err := publish(chown, CreateSpec{Rel: "d/mine"}, nil); err != nil {
		t.Fatal(err)
	}
	for full, want := range map[string][2]uint32{filepath.Join(r.Path(), "mine"): {12, 34}, filepath.Join(chown.Path(), "d"): {56, 0}, filepath.Join(chown.Path(), "d/mine"): {56, 0}} {
		var st unix.Stat_t
		if err := unix.Stat(full, &st); err != nil || st.Uid != want[0] || st.Gid != want[1] {
			t.Errorf("%s belongs to %d:%d, %v", full, st.Uid, st.Gid, err)
		}
	}
}

func TestPartialIsPrivateAndFits(t *testing.T) {
	r := newRoot(t)
	name := strings.Repeat("n", 255)
	s := create(t, r, CreateSpec{Rel: name, Size: 1})
	info, err := os.Stat(filepath.Join(r.Path(), s.partial))
	if err != nil || info.Mode() != 0o600 || info.Size() != 1 {
		t.Errorf("partial: %v, %v", info, err)
	}
	write(t, s, []byte("x"), 0)
	if err := s.Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantNames(t, r, name)
	_, err = r.Create(context.Background(), CreateSpec{Rel: "d/" + partialName("x", 0, 0)})
	wantCode(t, err, reason.PermissionDenied)
	_, err = r.Create(context.Background(), CreateSpec{Rel: "f/"})
	wantCode(t, err, reason.DestExists)
	_, err = r.Create(context.Background(), CreateSpec{Rel: "f", Size: -1})
	wantCode(t, err, reason.Internal)
	_, err = r.Create(context.Background(), CreateSpec{Rel: "f", Size: sizeMax + 1})
	wantCode(t, err, reason.UnsupportedFilesystem)
}

func TestDiscard(t *testing.T) {
	r := newRoot(t)
	s := create(t, r, CreateSpec{Rel: "f", Size: 3})
	write(t, s, []byte("abc"), 0)
	for range 2 {
		if err := s.Discard(); err != nil {
			t.Fatal(err)
		}
	}
	wantNames(t, r)
	wantCode(t, s.Publish(context.Background()), reason.Canceled)

	// After publishing it does nothing, whatever stands there by then.
	s = create(t, r, CreateSpec{Rel: "f"})
	if err := s.Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	put(t, r, s.partial, []byte("somebody's"))
	if err := s.Discard(); err != nil {
		t.Fatal(err)
	}
	wantNames(t, r, s.partial, "f")
}

// TestDiscardSparesOthers: late cleaning up must not delete a file that has
// taken the partial's name.
func TestDiscardSparesOthers(t *testing.T) {
	r := newRoot(t)
	for _, end := range []func(*Sink) error{
		func(s *Sink) error { return s.Discard() },
		func(s *Sink) error {
			if reason.Of(s.Publish(context.Background())) != reason.IOError {
				return errors.New("published somebody else's file")
			}
			return nil
		},
	} {
		s := create(t, r, CreateSpec{Rel: "f"})
		full := filepath.Join(r.Path(), s.partial)
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		put(t, r, s.partial, []byte("theirs"))
		if err := end(s); err != nil {
			t.Fatal(err)
		}
		wantFile(t, r, s.partial, []byte("theirs"))
		wantNames(t, r, s.partial)
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContext(t *testing.T) {
	r := newRoot(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.Create(gone, CreateSpec{Rel: "d/f"})
	wantCode(t, err, reason.Canceled)
	late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	s := create(t, r, CreateSpec{Rel: "f"})
	wantCode(t, s.Publish(late), reason.Deadline)
	wantNames(t, r)
}

// TestPublishWaitsForWriters: a repeated chunk still being written must not
// reach the file after it was synced and named.
func TestPublishWaitsForWriters(t *testing.T) {
	r := newRoot(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	first := true
	order := make(chan string, 16)
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		switch {
		case c.op == "pwrite" && !first:
			close(entered)
			<-leave
			order <- c.op
		case c.op == "pwrite":
			first = false
		case c.op == "renameat2":
			order <- c.op
		}
		return nil
	}}
	s := create(t, r, CreateSpec{Rel: "f", Size: 3})
	write(t, s, []byte("abc"), 0)
	wrote, done := make(chan error), make(chan error)
	go func() { _, err := s.WriteAt([]byte("abc"), 0); wrote <- err }()
	<-entered
	go func() { done <- s.Publish(context.Background()) }()
	close(leave)
	if err := errors.Join(<-wrote, <-done); err != nil {
		t.Fatal(err)
	}
	if a, b := <-order, <-order; a != "pwrite" || b != "renameat2" {
		t.Errorf("%s before %s", a, b)
	}
}

// TestHungWriterDoesNotHoldPublish: with a write that never returns, Publish
// ends with its context and nothing is named.
func TestHungWriterDoesNotHoldPublish(t *testing.T) {
	r := newRoot(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "pwrite" {
			close(entered)
			<-leave
		}
		return nil
	}}
	s := create(t, r, CreateSpec{Rel: "f", Size: 3})
	wrote := make(chan error)
	go func() { _, err := s.WriteAt([]byte("abc"), 0); wrote <- err }()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantCode(t, s.Publish(ctx), reason.Canceled)
	wantNames(t, r)
	close(leave)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	wantNames(t, r)
}
