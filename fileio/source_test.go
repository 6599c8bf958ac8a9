package fileio

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

const chunkBytes = 1 << 20

// sizes are the boundaries of sectors, pages, blocks and chunks, each +-1.
var sizes = []int{0, 1, 511, 512, 513, 4095, 4096, 4097, chunkBytes - 1, chunkBytes, chunkBytes + 1, 2*chunkBytes + 4096, 3*chunkBytes + 4097}

func TestReadAtEverySize(t *testing.T) {
	for _, policy := range []DirectPolicy{DirectAuto, DirectOn, DirectOff} {
		t.Run(policy.String(), func(t *testing.T) {
			r := newRoot(t, func(c *RootConfig) { c.Direct = policy })
			for _, size := range sizes {
				want := noise(t, size, uint64(size))
				put(t, r, "f", want)
				src, err := r.OpenSource("f")
				if err != nil {
					t.Fatal(err)
				}
				got := alignedBytes(t, size+2*alignBytes)
				for off := 0; off < size; off += chunkBytes {
					n := min(chunkBytes, size-off)
					// What stands behind the chunk in the slot must survive.
					got[off+n] = 0xa5
					if k, err := src.ReadAt(got[off:off+n], int64(off)); k != n || err != nil {
						t.Fatalf("size %d: ReadAt(%d, %d) = %d, %v", size, n, off, k, err)
					}
					if got[off+n] != 0xa5 {
						t.Fatalf("size %d: a read of %d bytes at %d wrote behind them", size, n, off)
					}
				}
				if !bytes.Equal(got[:size], want) {
					t.Fatalf("size %d (%s): wrong bytes", size, src.Travelled())
				}
				// Odd offsets and memory.
				if size > 9 {
					if _, err := src.ReadAt(got[1:size-6], 7); err != nil || !bytes.Equal(got[1:size-6], want[7:]) {
						t.Fatalf("size %d: unaligned read: %v", size, err)
					}
				}
				if err := src.Verify(); err != nil {
					t.Error(err)
				}
				src.Close()
			}
		})
	}
}

// TestDirectReadsCold makes auto go direct on a file system that has O_DIRECT.
func TestDirectReadsCold(t *testing.T) {
	r := newRoot(t)
	want := noise(t, 4*chunkBytes+5, 1)
	put(t, r, "f", want)
	src, err := r.OpenSource("f")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if src.Travelled() != "direct" {
		t.Skipf("no O_DIRECT here: %s", src.Travelled())
	}
	if err := unix.Fsync(src.h.fd); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(src.h.fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	var direct int
	src.root.k = &faulty{kernel: src.root.k, before: func(c call) error {
		if c.op == "pread" && c.fd == src.h.directFD {
			direct++
		}
		return nil
	}}
	got := alignedBytes(t, chunkBytes)
	for off := 0; off < len(want); off += chunkBytes {
		p := got[:min(chunkBytes, len(want)-off)]
		if _, err := src.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, want[off:off+len(p)]) {
			t.Fatalf("at %d: %v", off, err)
		}
	}
	if direct == 0 {
		t.Skip("the pages stayed in the cache")
	}
}

func TestDirectReadRefused(t *testing.T) {
	r := newRoot(t, directOn)
	want := noise(t, 2*chunkBytes, 1)
	put(t, r, "f", want)
	src, err := r.OpenSource("f")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if src.h.directFD < 0 {
		t.Skipf("no O_DIRECT here: %s", src.Travelled())
	}
	refused := 0
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "pread" && c.fd == src.h.directFD {
			refused++
			return unix.EINVAL
		}
		return nil
	}}
	got := alignedBytes(t, len(want))
	for off := 0; off < len(want); off += chunkBytes {
		if _, err := src.ReadAt(got[off:off+chunkBytes], int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) || refused != 1 || src.Travelled() == "direct" {
		t.Errorf("refused %d times, now %q; want once and a note", refused, src.Travelled())
	}
}

func TestSourceChanges(t *testing.T) {
	old := time.Unix(1e9, 5)
	cases := []struct {
		name   string
		change func(full string) error
		verify reason.Code
	}{
		{"nothing", func(string) error { return nil }, ""},
		{"mode", func(f string) error { return os.Chmod(f, 0o600) }, ""},
		{"renamed", func(f string) error { return os.Rename(f, f+"2") }, ""},
		{"replaced by name", func(f string) error { _ = os.Remove(f); return os.WriteFile(f, []byte("x"), 0o644) }, ""},
		{"grown", func(f string) error {
			_ = os.Truncate(f, 9000)
			return os.Chtimes(f, old, old)
		}, reason.SourceChanged},
		{"shrunk", func(f string) error {
			_ = os.Truncate(f, 10)
			return os.Chtimes(f, old, old)
		}, reason.SourceChanged},
		{"rewritten", func(f string) error { return os.WriteFile(f, make([]byte, 5000), 0o644) }, reason.SourceChanged},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRoot(t)
			put(t, r, "f", make([]byte, 5000))
			full := filepath.Join(r.Path(), "f")
			if err := os.Chtimes(full, old, old); err != nil {
				t.Fatal(err)
			}
			src, err := r.OpenSource("f")
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if src.Size() != 5000 || !src.MTime().Equal(old) || src.Mode() != 0o644 {
				t.Errorf("recorded %d, %v, %v", src.Size(), src.MTime(), src.Mode())
			}
			if err := c.change(full); err != nil {
				t.Fatal(err)
			}
			wantCode(t, src.Verify(), c.verify)
		})
	}
}

func TestShortSource(t *testing.T) {
	for _, policy := range []DirectPolicy{DirectOn, DirectOff} {
		r := newRoot(t, func(c *RootConfig) { c.Direct = policy })
		put(t, r, "f", make([]byte, 2*chunkBytes))
		src, err := r.OpenSource("f")
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		for _, left := range []int64{chunkBytes + 4096, chunkBytes + 100, 0} {
			if err := os.Truncate(filepath.Join(r.Path(), "f"), left); err != nil {
				t.Fatal(err)
			}
			n, err := src.ReadAt(alignedBytes(t, chunkBytes), chunkBytes)
			wantCode(t, err, reason.SourceChanged)
			if int64(n) != max(0, left-chunkBytes) {
				t.Errorf("read %d of a file cut to %d", n, left)
			}
		}
	}
}

func TestSourceMisuse(t *testing.T) {
	r := newRoot(t)
	put(t, r, "f", make([]byte, 10))
	src, err := r.OpenSource("f")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n   int
		off int64
	}{{1, -1}, {11, 0}, {1, 10}, {1, 1 << 62}} {
		_, err := src.ReadAt(make([]byte, c.n), c.off)
		wantCode(t, err, reason.Internal)
	}
	src.Close()
	src.Close()
	_, err = src.ReadAt(make([]byte, 1), 0)
	wantCode(t, err, reason.Internal)
	wantCode(t, src.Verify(), reason.Internal)
}

// TestCloseWaitsForReaders: the descriptor must not be closed, and its number
// given to another file, while a read is under way.
func TestCloseWaitsForReaders(t *testing.T) {
	r := newRoot(t)
	put(t, r, "f", []byte("abc"))
	entered, leave := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	closed := false
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		switch c.op {
		case "pread":
			close(entered)
			<-leave
		case "close":
			mu.Lock()
			closed = true
			mu.Unlock()
		}
		return nil
	}}
	src, err := r.OpenSource("f")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		p := make([]byte, 3)
		_, err := src.ReadAt(p, 0)
		if err == nil && string(p) != "abc" {
			err = unix.EIO
		}
		done <- err
	}()
	<-entered
	src.Close()
	mu.Lock()
	early := closed
	mu.Unlock()
	close(leave)
	if err := <-done; err != nil || early {
		t.Errorf("read: %v; closed early: %v", err, early)
	}
	if !closed {
		t.Error("never closed")
	}
}

func TestSameFile(t *testing.T) {
	r := newRoot(t)
	put(t, r, "d/f", []byte("x"))
	put(t, r, "other", []byte("x"))
	at := func(n string) string { return filepath.Join(r.Path(), n) }
	if err := os.Link(at("d/f"), at("hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("d/f", at("soft")); err != nil {
		t.Fatal(err)
	}
	src, err := r.OpenSource("d/f")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	// The same directory under another root's name.
	twin := newRoot(t, func(c *RootConfig) { c.Name, c.Path = "twin", at("d") })
	for _, c := range []struct {
		root *Root
		rel  string
		code reason.Code
	}{
		{r, "d/f", reason.SameFile}, {r, "hard", reason.SameFile}, {r, "soft", reason.SameFile}, {twin, "f", reason.SameFile},
		{r, "other", ""}, {r, "none", ""}, {r, "none/none", ""}, {r, "d", ""}, {r, "../x", reason.PathOutsideRoot},
	} {
		wantCode(t, SameFile(src, c.root, c.rel), c.code)
	}
}
