package fileio

import (
	"bytes"
	"context"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"mover/reason"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(sum uint32, p []byte) uint32 { return crc32.Update(sum, castagnoli, p) }

// walkEntries lists everything below rel but the top.
func walkEntries(t testing.TB, r *Root, rel string) (list []Entry) {
	t.Helper()
	err := r.Walk(context.Background(), rel, WalkConfig{Visit: func(e Entry) error {
		if e.Rel != "." {
			list = append(list, e)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// openGroup opens everything below t as a group; all is its bytes.
func openGroup(t *testing.T, r *Root) (g *GroupSource, entries []Entry, all []byte) {
	t.Helper()
	for i, size := range []int{0, 1, 100, 4096, 0, 5000} {
		put(t, r, filepath.Join("t", string(rune('a'+i%3)), string(rune('a'+i))), noise(t, size, uint64(i)))
	}
	entries = walkEntries(t, r, "t")
	for _, e := range entries {
		if e.Kind == KindFile {
			p, err := os.ReadFile(filepath.Join(r.Path(), "t", e.Rel))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p...)
		}
	}
	g, err := r.OpenGroup("t", entries, crc32c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, entries, all
}

func TestGroupSource(t *testing.T) {
	for _, piece := range []int{1 << 20, 1000, 1} {
		r := newRoot(t)
		g, entries, all := openGroup(t, r)
		if g.Size() != int64(len(all)) {
			t.Fatalf("size %d, want %d", g.Size(), len(all))
		}
		for range 2 { // the second time after a lost lane
			got := make([]byte, len(all))
			for off := 0; off < len(all); off += piece {
				end := min(off+piece, len(all))
				if n, err := g.ReadAt(got[off:end], int64(off)); n != end-off || err != nil {
					t.Fatal(n, err)
				}
			}
			if !bytes.Equal(got, all) {
				t.Fatalf("pieces of %d: other bytes", piece)
			}
		}
		if err := g.Verify(); err != nil || len(g.Failed()) != 0 {
			t.Fatal(err)
		}
		off := int64(0)
		for i, e := range entries {
			crc, ok := g.CRC(i)
			if ok != (e.Kind == KindFile) || ok && crc != crc32c(0, all[off:off+e.Size]) {
				t.Errorf("%q: CRC %x, %v", e.Rel, crc, ok)
			}
			off += e.Size
		}
		_, err := g.ReadAt(make([]byte, 1), g.Size())
		wantCode(t, err, reason.Internal)
		g.Close()
		_, err = g.ReadAt(nil, 0)
		wantCode(t, err, reason.Internal)
	}
}

// TestGroupSourceChanges: every way a file can be another one than was found,
// before and after it is read; the others stay good.
func TestGroupSourceChanges(t *testing.T) {
	const size = 100
	changes := map[string]func(full string) error{
		"grows":    func(f string) error { return os.WriteFile(f, make([]byte, size+1), 0o644) },
		"shrinks":  func(f string) error { return os.Truncate(f, size-1) },
		"vanishes": os.Remove,
		"FIFO": func(f string) error {
			_ = os.Remove(f)
			return unix.Mkfifo(f, 0o644)
		},
		"symlink": func(f string) error {
			_ = os.Remove(f)
			return os.Symlink("/etc/passwd", f)
		},
		"replaced": func(f string) error {
			if err := os.WriteFile(f+"x", make([]byte, size), 0o644); err != nil {
				return err
			}
			return os.Rename(f+"x", f)
		},
		"directory swapped": func(f string) error {
			d := filepath.Dir(f)
			if err := os.Rename(d, d+"x"); err != nil {
				return err
			}
			return os.Symlink(d+"x", d)
		},
	}
	for name, change := range changes {
		for _, when := range []string{"before", "after"} {
			t.Run(name+" "+when, func(t *testing.T) {
				r := newRoot(t)
				put(t, r, "t/good/f", noise(t, size, 1))
				put(t, r, "t/bad/f", noise(t, size, 2))
				entries := walkEntries(t, r, "t")
				g, err := r.OpenGroup("t", entries, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				p := make([]byte, g.Size())
				if when == "after" {
					if _, err := g.ReadAt(p, 0); err != nil {
						t.Fatal(err)
					}
				}
				if err := change(filepath.Join(r.Path(), "t/bad/f")); err != nil {
					t.Fatal(err)
				}
				if when == "before" {
					n, err := g.ReadAt(p, 0)
					wantCode(t, err, reason.SourceChanged)
					if n%size != 0 || n > size {
						t.Errorf("%d good bytes", n)
					}
				}
				wantCode(t, g.Verify(), reason.SourceChanged)
				failed := g.Failed()
				if len(failed) != 1 || entries[failed[0].Index].Rel != "bad/f" {
					t.Errorf("failed: %v", failed)
				}
			})
		}
	}
}

func TestGroupSourceFaults(t *testing.T) {
	for _, c := range []struct {
		op    string
		errno unix.Errno
		code  reason.Code
	}{{"openat", unix.EACCES, reason.PermissionDenied}, {"pread", unix.EIO, reason.IOError}} {
		r := newRoot(t)
		g, _, all := openGroup(t, r)
		failOp(r, c.op, 1, c.errno)
		_, err := g.ReadAt(make([]byte, len(all)), 0)
		wantCode(t, err, c.code)
		if len(g.Failed()) != 4 { // all with bytes: one failure hides none
			t.Errorf("%s: %v", c.op, g.Failed())
		}
	}
}
