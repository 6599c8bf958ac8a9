package fileio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mover/reason"
)

// walked is what a walk told: "visit d", "leave d" and "CODE rel".
func walked(t *testing.T, r *Root, rel string, change ...func(*WalkConfig)) []string {
	t.Helper()
	var got []string
	cfg := WalkConfig{
		Visit: func(e Entry) error { got = append(got, fmt.Sprintf("%v %q", e.Kind, e.Rel)); return nil },
		Leave: func(e Entry) error { got = append(got, fmt.Sprintf("leave %q", e.Rel)); return nil },
		Problem: func(rel string, err *reason.Error) error {
			got = append(got, fmt.Sprintf("%s %q", err.Code, rel))
			return nil
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	if err := r.Walk(context.Background(), rel, cfg); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWalk(t *testing.T) {
	r := newRoot(t)
	outside := t.TempDir()
	put(t, r, "top/d/f", []byte("abc"))
	put(t, r, "top/skipped/f", nil)
	put(t, r, "top/"+partialName("j", 1, 1), nil)
	odd := []string{"bad\xff\xfeutf8", "ctl\x01\x1b[2J\n", "Twin", "twin", strings.Repeat("n", 255)}
	for _, name := range odd {
		put(t, r, "top/"+name, []byte("x"))
	}
	if err := errors.Join(os.Mkdir(filepath.Join(r.Path(), "top/empty"), 0o755),
		os.Symlink(outside, filepath.Join(r.Path(), "top/link-out")), os.Symlink("d", filepath.Join(r.Path(), "top/link-in")),
		unix.Mkfifo(filepath.Join(r.Path(), "top/fifo"), 0o644)); err != nil {
		t.Fatal(err)
	}
	got := walked(t, r, "top", func(c *WalkConfig) { c.Skip = func(rel string, dir bool) bool { return rel == "skipped" && dir } })
	want := []string{`directory "."`, `directory "d"`, `file "d/f"`, `leave "d"`, `directory "empty"`, `leave "empty"`,
		`symlink "link-in"`, `symlink "link-out"`, `UNSUPPORTED_FILE_TYPE "fifo"`, `leave "."`}
	for _, name := range odd {
		want = append(want, fmt.Sprintf("file %q", name))
	}
	// A directory stands before its content and is left after it; the rest is
	// in the file system's order.
	at := func(s string) int { return slices.Index(got, s) }
	if at(`directory "."`) != 0 || at(`leave "."`) != len(got)-1 || !(at(`directory "d"`) < at(`file "d/f"`) && at(`file "d/f"`) < at(`leave "d"`)) {
		t.Errorf("order %q", got)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWalkTells(t *testing.T) {
	r := newRoot(t)
	put(t, r, "t/f", []byte("abc"))
	full := filepath.Join(r.Path(), "t/f")
	if err := errors.Join(os.Chmod(full, 0o4751), os.Link(full, full+"2"), os.Symlink("../x", filepath.Join(r.Path(), "t/l"))); err != nil {
		t.Fatal(err)
	}
	xattrs := unix.Setxattr(full, "user.a", []byte("1"), 0) == nil
	found := map[string]Entry{}
	if err := r.Walk(context.Background(), "t", WalkConfig{Xattrs: true, Visit: func(e Entry) error { found[e.Rel] = e; return nil }}); err != nil {
		t.Fatal(err)
	}
	f := found["f"]
	if f.Size != 3 || f.Mode != 0o751 || f.NLink != 2 || f.Inode != found["f2"].Inode || found["l"].Target != "../x" {
		t.Errorf("%+v", found)
	}
	if xattrs && (len(f.Xattrs) != 1 || f.Xattrs[0].Name != "user.a" || string(f.Xattrs[0].Value) != "1") {
		t.Errorf("attributes %+v", f.Xattrs)
	}
	stop := errors.New("stop")
	if err := r.Walk(context.Background(), "t", WalkConfig{Visit: func(Entry) error { return stop }}); err != stop {
		t.Errorf("%v", err)
	}
	wantCode(t, r.Walk(context.Background(), "none", WalkConfig{Visit: func(Entry) error { return nil }}), reason.SourceNotFound)
	wantCode(t, r.Walk(context.Background(), "t/f", WalkConfig{Visit: func(Entry) error { return nil }}), reason.SourceNotFound)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantCode(t, r.Walk(ctx, "t", WalkConfig{Visit: func(Entry) error { return nil }}), reason.Canceled)
}

// TestWalkDeep goes below what a path can name, with few descriptors.
func TestWalkDeep(t *testing.T) {
	r := newRoot(t)
	fd, err := unix.Open(r.Path(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const levels = 2100
	for range levels {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		// A second name on each level is found only if its reading goes on.
		if err := unix.Mkdirat(fd, "e", 0o755); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	before, most := len(descriptors()), 0
	visited, left, long, second := 0, 0, 0, 0
	err = r.Walk(context.Background(), ".", WalkConfig{
		Visit: func(e Entry) error {
			if visited++; visited%100 == 0 {
				most = max(most, len(descriptors())-before)
			}
			if strings.HasSuffix(e.Rel, "e") {
				second++
			}
			return nil
		},
		Leave: func(Entry) error { left++; return nil },
		Problem: func(_ string, err *reason.Error) error {
			wantCode(t, err, reason.NameTooLong)
			if len(err.Error()) > 1000 {
				t.Errorf("a message of %d bytes", len(err.Error()))
			}
			long++
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// "./" counts as the top's path, so 2047 levels have one.
	if second != 2047 || visited != 1+2*2047 || left != visited || long != 2 || most > walkOpenMax+1 {
		t.Errorf("visited %d, %d of them second, left %d, %d too long, %d descriptors", visited, second, left, long, most)
	}
}

// TestWalkVanishing: what goes before it is looked at was never there; a
// directory that goes while it is read has been changed.
func TestWalkVanishing(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		r := newRoot(t)
		put(t, r, "a", nil)
		failOp(r, "lstatat", 1, unix.ENOENT)
		if diff := cmp.Diff([]string{`directory "."`, `leave "."`}, walked(t, r, ".")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("directory", func(t *testing.T) {
		r := newRoot(t)
		put(t, r, "d/f", nil)
		got := walked(t, r, ".", func(c *WalkConfig) {
			visit := c.Visit
			c.Visit = func(e Entry) error {
				if e.Rel == "d" {
					if err := os.RemoveAll(filepath.Join(r.Path(), "d")); err != nil {
						t.Error(err)
					}
				}
				return visit(e)
			}
		})
		if diff := cmp.Diff([]string{`directory "."`, `directory "d"`, `SOURCE_CHANGED "d"`, `leave "d"`, `leave "."`}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("unreadable", func(t *testing.T) {
		r := newRoot(t)
		put(t, r, "d/f", nil)
		r.k = &faulty{kernel: r.k, before: func(c call) error {
			if c.op == "openat" && c.name == "d" {
				return unix.EACCES
			}
			return nil
		}}
		if diff := cmp.Diff([]string{`directory "."`, `PERMISSION_DENIED "d"`, `leave "."`}, walked(t, r, ".")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("disk", func(t *testing.T) {
		r := newRoot(t)
		failOp(r, "getdents", 1, unix.EIO)
		wantCode(t, r.Walk(context.Background(), ".", WalkConfig{Visit: func(Entry) error { return nil }}), reason.IOError)
	})
}

// TestWalkNeverFollows lets a directory be swapped for a symlink to the outside
// between being looked at and opened.
func TestWalkNeverFollows(t *testing.T) {
	r := newRoot(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, r, "d/f", nil)
	full := filepath.Join(r.Path(), "d")
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op == "openat" && c.name == "d" {
			if err := errors.Join(os.RemoveAll(full), os.Symlink(outside, full)); err != nil {
				t.Error(err)
			}
		}
		return nil
	}}
	if diff := cmp.Diff([]string{`directory "."`, `SOURCE_CHANGED "d"`, `leave "."`}, walked(t, r, ".")); diff != "" {
		t.Error(diff)
	}
}

// TestWalkWide reads a directory of many entries in constant memory.
func TestWalkWide(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "mover-wide-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(dir)
	const files = 50_000
	for i := range files {
		fd, err := unix.Open(fmt.Sprintf("%s/%d", dir, i), unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	r := newRoot(t, func(c *RootConfig) { c.Path = dir })
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, seen := heap(), uint64(0), 0
	err = r.Walk(context.Background(), ".", WalkConfig{Visit: func(e Entry) error {
		if seen++; seen%10_000 == 0 {
			most = max(most, heap())
		}
		return nil
	}})
	if err != nil || seen != files+1 {
		t.Fatalf("%d entries, %v", seen, err)
	}
	if most > before+1<<20 {
		t.Errorf("%d bytes more on the heap", most-before)
	}
}
