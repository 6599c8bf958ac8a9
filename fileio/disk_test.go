package fileio

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// mountTmpfs mounts a small tmpfs, which only root may, and opens a root there.
func mountTmpfs(t *testing.T, options string, change ...func(*RootConfig)) *Root {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a tmpfs needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("mover-test", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v (something is still open)", err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return newRoot(t, append([]func(*RootConfig){func(c *RootConfig) { c.Path = dir }}, change...)...)
}

// TestDiskFull fills a real file system before, between and during the writes.
func TestDiskFull(t *testing.T) {
	t.Run("at create", func(t *testing.T) {
		r := mountTmpfs(t, "size=8m")
		wantCode(t, publish(r, CreateSpec{Rel: "f"}, noise(t, 9<<20, 1)), reason.NoSpace)
		wantNames(t, r)
	})
	t.Run("two that fit one by one", func(t *testing.T) {
		r := mountTmpfs(t, "size=8m")
		a := create(t, r, CreateSpec{Rel: "a", Size: 5 << 20, Job: "a"})
		_, err := r.Create(context.Background(), CreateSpec{Rel: "b", Size: 5 << 20, Job: "b"})
		wantCode(t, err, reason.NoSpace)
		write(t, a, noise(t, 5<<20, 1), 0)
		// Written bytes are no longer promised: they count once.
		b := create(t, r, CreateSpec{Rel: "b", Size: 2 << 20, Job: "b"})
		if err := a.Publish(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := b.Discard(); err != nil {
			t.Fatal(err)
		}
		wantNames(t, r, "a")
	})
	t.Run("at write", func(t *testing.T) {
		r := mountTmpfs(t, "size=8m")
		s := create(t, r, CreateSpec{Rel: "f", Size: 6 << 20, Durable: true})
		p := noise(t, 6<<20, 1)
		write(t, s, p[:1<<20], 0)
		put(t, r, "hog", make([]byte, 5<<20))
		n, err := s.WriteAt(p[1<<20:], 1<<20)
		wantCode(t, err, reason.NoSpace)
		if n >= 5<<20 {
			t.Errorf("wrote %d bytes into a full file system", n)
		}
		if err := os.Remove(filepath.Join(r.Path(), "hog")); err != nil {
			t.Fatal(err)
		}
		// There is room again, and the attempt is lost all the same.
		_, err = s.WriteAt(p[1<<20:], 1<<20)
		wantCode(t, err, reason.NoSpace)
		wantCode(t, s.Publish(context.Background()), reason.NoSpace)
		wantNames(t, r)
	})
	t.Run("at overwrite", func(t *testing.T) {
		r := mountTmpfs(t, "size=8m")
		put(t, r, "f", make([]byte, 5<<20))
		wantCode(t, publish(r, CreateSpec{Rel: "f", Overwrite: OverwriteAlways}, noise(t, 5<<20, 1)), reason.NoSpace)
		wantFile(t, r, "f", make([]byte, 5<<20))
		wantNames(t, r, "f")
	})
	t.Run("out of inodes", func(t *testing.T) {
		r := mountTmpfs(t, "size=8m,nr_inodes=2")
		if err := publish(r, CreateSpec{Rel: "a"}, nil); err != nil {
			t.Fatal(err)
		}
		wantCode(t, publish(r, CreateSpec{Rel: "b"}, nil), reason.NoSpace)
		wantCode(t, publish(r, CreateSpec{Rel: "d/b"}, nil), reason.NoSpace)
		wantNames(t, r, "a")
	})
	t.Run("empty file on a full disk", func(t *testing.T) {
		r := mountTmpfs(t, "size=1m")
		put(t, r, "hog", make([]byte, 1<<20))
		if err := publish(r, CreateSpec{Rel: "f"}, nil); err != nil {
			t.Fatal(err)
		}
		wantNames(t, r, "f", "hog")
	})
	t.Run("without a limit", func(t *testing.T) {
		r := mountTmpfs(t, "size=0")
		if err := publish(r, CreateSpec{Rel: "f", Durable: true}, noise(t, 5<<20, 1)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReadOnlyDestination(t *testing.T) {
	r := mountTmpfs(t, "size=8m")
	put(t, r, "old", []byte("x"))
	if err := unix.Mount("", r.Path(), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, spec := range []CreateSpec{{Rel: "new"}, {Rel: "d/new"}, {Rel: "old", Overwrite: OverwriteAlways}} {
		wantCode(t, publish(r, spec, []byte("y")), reason.PermissionDenied)
	}
	wantFile(t, r, "old", []byte("x"))
	src, err := r.OpenSource("old")
	if err != nil {
		t.Fatal(err)
	}
	src.Close()
}

func TestTmpfsGoesThroughThePageCache(t *testing.T) {
	r := mountTmpfs(t, "size=8m")
	want := noise(t, 3*chunkBytes+1, 1)
	put(t, r, "a", want)
	src, err := r.OpenSource("a")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if src.Travelled() != "buffered: tmpfs gains nothing from O_DIRECT" {
		t.Errorf("%s", src.Travelled())
	}
	if err := publishChunks(r, CreateSpec{Rel: "b", Durable: true}, want); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "b", want)
}

func TestMinFree(t *testing.T) {
	r := mountTmpfs(t, "size=8m", func(c *RootConfig) { c.MinFreeBytes = 4 << 20 })
	if err := publish(r, CreateSpec{Rel: "a"}, noise(t, 3<<20, 1)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, publish(r, CreateSpec{Rel: "b"}, noise(t, 2<<20, 1)), reason.NoSpace)
	wantNames(t, r, "a")
	// Beyond anything: the arithmetic must not wrap.
	full := newRoot(t, func(c *RootConfig) { c.MinFreeBytes = 1<<63 - 1 })
	wantCode(t, publish(full, CreateSpec{Rel: "a"}, []byte("x")), reason.NoSpace)
	_, err := r.Create(context.Background(), CreateSpec{Rel: "b", Size: sizeMax})
	wantCode(t, err, reason.NoSpace)
}

func TestQuota(t *testing.T) {
	r := newRoot(t, func(c *RootConfig) { c.QuotaBytes = 1000 })
	put(t, r, "d/old", make([]byte, 400))
	put(t, r, partialName("gone", 0, 0), make([]byte, 10000)) // not counted
	ctx := context.Background()
	a := create(t, r, CreateSpec{Rel: "a", Size: 500, Job: "a"})
	_, err := r.Create(ctx, CreateSpec{Rel: "b", Size: 101, Job: "b"})
	wantCode(t, err, reason.Quota)
	_, err = r.Create(ctx, CreateSpec{Rel: "b", Size: sizeMax, Job: "b"})
	wantCode(t, err, reason.Quota)
	if err := publish(r, CreateSpec{Rel: "b", Job: "b"}, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := a.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := publish(r, CreateSpec{Rel: "c", Job: "c"}, make([]byte, 500)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, publish(r, CreateSpec{Rel: "e", Job: "e"}, []byte("x")), reason.Quota)
	// What others deleted is seen once the measurement is old: of a root that
	// takes long to measure after usageMaxAge, else sooner.
	if err := os.Remove(filepath.Join(r.Path(), "d/old")); err != nil {
		t.Fatal(err)
	}
	r.space.measuredAt, r.space.measuring = time.Now(), time.Hour
	wantCode(t, publish(r, CreateSpec{Rel: "e", Job: "e"}, []byte("x")), reason.Quota)
	r.space.measuredAt = r.space.measuredAt.Add(-2 * usageMaxAge)
	if err := publish(r, CreateSpec{Rel: "e", Job: "e"}, make([]byte, 400)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.Path(), "e")); err != nil {
		t.Fatal(err)
	}
	r.space.measuredAt, r.space.measuring = time.Now().Add(-time.Second), time.Millisecond
	if err := publish(r, CreateSpec{Rel: "e", Job: "e2"}, make([]byte, 400)); err != nil {
		t.Fatal(err)
	}
}
