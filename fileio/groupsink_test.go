package fileio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mover/reason"
)

func createGroup(t testing.TB, r *Root, spec GroupSpec) *GroupSink {
	t.Helper()
	g, err := r.CreateGroup(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Discard() })
	return g
}

// receive writes the content of a group in pieces and publishes it; a piece of
// 0 is all at once.
func receive(t testing.TB, g *GroupSink, content []byte, piece int) []EntryOutcome {
	t.Helper()
	if piece == 0 {
		piece = max(len(content), 1)
	}
	for off := 0; off < len(content); off += piece {
		end := min(off+piece, len(content))
		if n, err := g.WriteAt(content[off:end], int64(off)); n != end-off || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := g.Publish(context.Background()); err != nil {
		t.Fatal(err)
	}
	return g.Outcomes()
}

func codes(outcomes []EntryOutcome) (list []string) {
	names := [...]string{"pending", "published", "skipped", "merged", "failed"}
	for _, o := range outcomes {
		text := names[o.State]
		if o.State == EntryFailed {
			text = string(o.Err.Code)
		}
		list = append(list, text)
	}
	return list
}

// partials lists the partial names below the root.
func partials(t testing.TB, r *Root) (list []string) {
	t.Helper()
	err := filepath.WalkDir(r.Path(), func(p string, d fs.DirEntry, err error) error {
		if err == nil && IsPartial(d.Name()) {
			list = append(list, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func wantTidy(t testing.TB, r *Root) {
	t.Helper()
	if list := partials(t, r); len(list) > 0 {
		t.Errorf("partial files are left: %q", list)
	}
	if n := r.space.receiving + r.space.unwritten.Load(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}

func TestGroupSink(t *testing.T) {
	content := noise(t, 100+5000, 1)
	mtime := time.Unix(1_500_000_000, 7)
	for _, durable := range []bool{false, true} {
		for _, piece := range []int{0, 1000, 33} {
			r := newRoot(t)
			long := strings.Repeat("n", 255)
			spec := GroupSpec{Base: "in/base", Job: "j", Durable: durable, Preserve: PreserveMode | PreserveMTime, Entries: []GroupEntry{
				{Rel: "d", Kind: KindDir}, {Rel: "d/a", Size: 100, Mode: 0o4751, MTime: mtime}, {Rel: "empty", MTime: mtime},
				{Rel: "hard", Kind: KindHardLink, Target: "d/a"}, {Rel: "deep/er/" + long, Size: 5000, MTime: mtime},
				{Rel: "d/link", Kind: KindSymlink, Target: "/etc/passwd", MTime: mtime}, {Rel: "bad\xffctl\x01\n", MTime: mtime}, {Rel: ".", Kind: KindDir},
			}}
			var named []NameInode
			spec.Naming = func(n []NameInode) error {
				named = n
				if _, err := os.Lstat(filepath.Join(r.Path(), "in/base/d/a")); err == nil {
					t.Error("a name appeared before Naming")
				}
				return nil
			}
			g := createGroup(t, r, spec)
			if n, bytes := g.Wanted(); n != 6 || bytes != 5100 {
				t.Errorf("wanted %d, %d", n, bytes)
			}
			got := codes(receive(t, g, content, piece))
			p := "published"
			if diff := cmp.Diff([]string{p, p, p, p, p, p, p, "merged"}, got); diff != "" {
				t.Fatal(diff)
			}
			wantFile(t, r, "in/base/d/a", content[:100])
			wantFile(t, r, "in/base/deep/er/"+long, content[100:])
			wantFile(t, r, "in/base/empty", nil)
			a, err := os.Stat(filepath.Join(r.Path(), "in/base/d/a"))
			if err != nil || a.Mode() != 0o751 || !a.ModTime().Equal(mtime) {
				t.Errorf("%v %v %v", a.Mode(), a.ModTime(), err)
			}
			hard, err := os.Stat(filepath.Join(r.Path(), "in/base/hard"))
			if err != nil || !os.SameFile(a, hard) {
				t.Errorf("the hard link is another file: %v", err)
			}
			link, err := os.Lstat(filepath.Join(r.Path(), "in/base/d/link"))
			if err != nil || !link.ModTime().Equal(mtime) {
				t.Errorf("%v %v", link, err)
			}
			if to, _ := os.Readlink(filepath.Join(r.Path(), "in/base/d/link")); to != "/etc/passwd" {
				t.Errorf("link to %q", to)
			}
			there, err := r.PublishedGroup("in/base", append(named, NameInode{Rel: "d/a", Inode: Inode{1, 1}}, NameInode{Rel: "../x"}, NameInode{Rel: "none/x"}), durable)
			if diff := cmp.Diff([]bool{true, true, true, true, true, true, false, false, false}, there); diff != "" || err != nil {
				t.Error(diff, err)
			}
			wantTidy(t, r)
		}
	}
}

func TestGroupPolicies(t *testing.T) {
	old := time.Unix(1_600_000_000, 0)
	entries := []GroupEntry{{Rel: "new", Size: 1}, {Rel: "same", Size: 1, MTime: old}, {Rel: "older", Size: 1, MTime: old.Add(time.Hour)}, {Rel: "longer", Size: 1, MTime: old},
		{Rel: "dir", Size: 1}, {Rel: "file", Kind: KindDir}, {Rel: "file/below", Size: 1}, {Rel: "link", Kind: KindDir}, {Rel: "to", Kind: KindSymlink, Target: "t"}}
	ex, sk, pu := "DEST_EXISTS", "skipped", "published"
	for _, c := range []struct {
		policy Overwrite
		sum    bool
		want   []string
	}{
		{OverwriteFail, false, []string{pu, ex, ex, ex, ex, ex, ex, ex, ex}},
		{OverwriteSkip, false, []string{pu, sk, sk, sk, ex, ex, ex, ex, sk}},
		{OverwriteAlways, false, []string{pu, pu, pu, pu, ex, ex, ex, ex, pu}},
		{OverwriteIfNewer, false, []string{pu, sk, pu, sk, ex, ex, ex, ex, sk}},
		{OverwriteIfDifferent, false, []string{pu, sk, pu, pu, ex, ex, ex, ex, sk}},
		{OverwriteIfDifferent, true, []string{pu, sk, sk, pu, ex, ex, ex, ex, sk}},
	} {
		t.Run(fmt.Sprint(c.policy, c.sum), func(t *testing.T) {
			r := newRoot(t)
			outside := t.TempDir()
			for rel, content := range map[string]string{"same": "x", "older": "x", "longer": "xx", "dir/f": "f", "file": "f"} {
				put(t, r, rel, []byte(content))
				if err := os.Chtimes(filepath.Join(r.Path(), rel), old, old); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Symlink(outside, filepath.Join(r.Path(), "link")), os.Symlink("t", filepath.Join(r.Path(), "to"))); err != nil {
				t.Fatal(err)
			}
			spec := GroupSpec{Base: ".", Overwrite: c.policy, Entries: append([]GroupEntry{}, entries...)}
			if c.sum {
				spec.Sum = crc32c
				for i := range spec.Entries {
					spec.Entries[i].CRC = crc32c(0, []byte("x"))
				}
			}
			looks, err := r.Look(context.Background(), spec)
			if err != nil {
				t.Fatal(err)
			}
			got := codes(receive(t, createGroup(t, r, spec), []byte("xxxxxx"), 0))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			for i, l := range looks {
				want := map[string][]Verdict{ex: {VerdictFail}, sk: {VerdictSkip}, pu: {VerdictCreate, VerdictReplace}}[got[i]]
				if l.Verdict != want[0] && l.Verdict != want[len(want)-1] {
					t.Errorf("%q: verdict %v, then %v", entries[i].Rel, l.Verdict, got[i])
				}
			}
			wantFile(t, r, "dir/f", []byte("f"))
			wantFile(t, r, "file", []byte("f"))
			wantTidy(t, r)
		})
	}
}

// TestGroupRefuses: a peer may send anything as a path.
func TestGroupRefuses(t *testing.T) {
	r := newRoot(t)
	paths := []string{"../x", "/x", "a//b", "./a", "a/.", "a/", "", "nul\x00", "a/" + partialName("j", 1, 1), strings.Repeat("n", 256), strings.Repeat("d/", 2047) + "dd"}
	spec := GroupSpec{Base: "b"}
	for _, p := range paths {
		spec.Entries = append(spec.Entries, GroupEntry{Rel: p})
	}
	spec.Entries = append(spec.Entries, GroupEntry{Rel: "l", Kind: KindSymlink}, GroupEntry{Rel: "h", Kind: KindHardLink, Target: "../x"},
		GroupEntry{Rel: "x", Xattrs: []Xattr{{Name: "security.capability"}}}, GroupEntry{Rel: "."}, GroupEntry{Rel: "h2", Kind: KindHardLink, Target: "none"})
	got := codes(receive(t, createGroup(t, r, spec), nil, 0))
	out, long, no := "PATH_OUTSIDE_ROOT", "NAME_TOO_LONG", "PERMISSION_DENIED"
	if diff := cmp.Diff([]string{out, out, out, out, out, out, out, out, no, long, long, long, out, no, "DEST_EXISTS", "DEST_NOT_FOUND"}, got); diff != "" {
		t.Error(diff)
	}
	wantTidy(t, r)
	for _, bad := range []GroupSpec{{Entries: make([]GroupEntry, GroupEntriesMax+1)}, {Overwrite: 9}, {Entries: []GroupEntry{{Rel: "a", Size: -1}}}, {Entries: []GroupEntry{{Rel: "a", Kind: KindOther}}},
		{Entries: []GroupEntry{{Rel: "a", Size: sizeMax}, {Rel: "b", Size: sizeMax}}}} {
		_, err := r.CreateGroup(context.Background(), bad)
		wantCode(t, err, reason.Internal)
	}
	_, err := r.CreateGroup(context.Background(), GroupSpec{Base: "../x"})
	wantCode(t, err, reason.PathOutsideRoot)
}

// TestGroupFaults lets one call fail for one entry: its mates are published, it
// is not, and nothing is written to or synced again.
func TestGroupFaults(t *testing.T) {
	for _, c := range []struct {
		op    string
		errno unix.Errno
		code  reason.Code
	}{
		{"pwrite", unix.ENOSPC, reason.NoSpace}, {"pwrite", unix.EIO, reason.IOError}, {"fsync", unix.EIO, reason.IOError},
		{"fchmod", unix.EPERM, reason.PermissionDenied}, {"renameat2", unix.EIO, reason.IOError}, {"flock", unix.EIO, reason.IOError},
		{"utimensat", unix.EIO, reason.IOError}, {"symlinkat", unix.EACCES, reason.PermissionDenied}, {"fsetxattr", unix.EOPNOTSUPP, reason.UnsupportedFilesystem},
	} {
		t.Run(c.op+" "+unix.ErrnoName(c.errno), func(t *testing.T) {
			r := newRoot(t)
			spec := GroupSpec{Base: "b", Durable: true, Preserve: PreserveMTime | PreserveXattrs, Entries: []GroupEntry{
				{Rel: "a", Size: 10, Xattrs: []Xattr{{Name: "user.a", Value: []byte("1")}}}, {Rel: "b", Size: 10}, {Rel: "l", Kind: KindSymlink, Target: "x"}}}
			g := createGroup(t, r, spec)
			var seen atomic.Int32
			r.k = &faulty{kernel: r.k, before: func(call call) error {
				if call.op == c.op && seen.Add(1) == 1 {
					return c.errno
				}
				return nil
			}}
			g.k = r.k
			for i := range g.items {
				g.items[i].k = r.k
			}
			bad, published := 0, 0
			for _, got := range codes(receive(t, g, noise(t, 20, 1), 0)) {
				switch got {
				case "published":
					published++
				case string(c.code):
					bad++
				}
			}
			if bad != 1 || published != 2 {
				t.Errorf("%d failed, %d published: %v", bad, published, codes(g.Outcomes()))
			}
			wantTidy(t, r)
		})
	}
}

// TestGroupEnds: nothing of a group that is given up or canceled has a name.
func TestGroupEnds(t *testing.T) {
	spec := GroupSpec{Base: "b", Entries: []GroupEntry{{Rel: "a", Size: 10}, {Rel: "l", Kind: KindSymlink, Target: "x"}, {Rel: "e"}}}
	ends := map[string]func(*testing.T, *GroupSink){
		"discard": func(t *testing.T, g *GroupSink) {
			if err := g.Discard(); err != nil {
				t.Error(err)
			}
			wantCode(t, g.Publish(context.Background()), reason.Canceled)
			_, err := g.WriteAt([]byte("x"), 0)
			wantCode(t, err, reason.Internal)
		},
		"cancel": func(t *testing.T, g *GroupSink) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			wantCode(t, g.Publish(ctx), reason.Canceled)
		},
		"naming": func(t *testing.T, g *GroupSink) {
			g.spec.Naming = func([]NameInode) error { return reason.New(reason.Canceled, "no") }
			wantCode(t, g.Publish(context.Background()), reason.Canceled)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			r := newRoot(t)
			g := createGroup(t, r, spec)
			if _, err := g.WriteAt(noise(t, 10, 1), 0); err != nil {
				t.Fatal(err)
			}
			end(t, g)
			left, err := os.ReadDir(filepath.Join(r.Path(), "b"))
			if err != nil || len(left) != 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			wantTidy(t, r)
		})
	}
	t.Run("short", func(t *testing.T) {
		r := newRoot(t)
		g := createGroup(t, r, spec)
		got := codes(receive(t, g, noise(t, 9, 1), 0))
		if diff := cmp.Diff([]string{"INTERNAL", "published", "published"}, got); diff != "" {
			t.Error(diff)
		}
		wantTidy(t, r)
	})
	t.Run("twice the same name", func(t *testing.T) {
		r := newRoot(t)
		g := createGroup(t, r, GroupSpec{Base: ".", Overwrite: OverwriteAlways, Entries: []GroupEntry{{Rel: "a", Size: 1}, {Rel: "a", Size: 1}}})
		if diff := cmp.Diff([]string{"published", "DEST_EXISTS"}, codes(receive(t, g, []byte("xy"), 0))); diff != "" {
			t.Error(diff)
		}
		wantFile(t, r, "a", []byte("x"))
	})
}

// TestGroupSpace: a group is reserved at once, and a full disk fails entries.
func TestGroupSpace(t *testing.T) {
	r := mountTmpfs(t, "size=1m")
	big := GroupSpec{Base: "b", Entries: []GroupEntry{{Rel: "a", Size: 600 << 10}, {Rel: "b", Size: 600 << 10}}}
	_, err := r.CreateGroup(context.Background(), big)
	wantCode(t, err, reason.NoSpace)
	big.Entries[1].Size = 300 << 10
	g := createGroup(t, r, big)
	put(t, r, "hog", make([]byte, 300<<10))
	if diff := cmp.Diff([]string{"published", "NO_SPACE"}, codes(receive(t, g, noise(t, 900<<10, 1), 0))); diff != "" {
		t.Error(diff)
	}
	wantTidy(t, r)
	q := newRoot(t, func(c *RootConfig) { c.QuotaBytes = 10 })
	_, err = q.CreateGroup(context.Background(), GroupSpec{Base: "b", Entries: []GroupEntry{{Rel: "a", Size: 11}}})
	wantCode(t, err, reason.Quota)
}

// TestGroupRace: somebody swaps a directory for a symlink to the outside all
// the while. Nothing may ever appear there.
func TestGroupRace(t *testing.T) {
	r := newRoot(t)
	outside := t.TempDir()
	d := filepath.Join(r.Path(), "b/d")
	if err := errors.Join(os.MkdirAll(d, 0o755), os.Symlink(outside, filepath.Join(r.Path(), "planted"))); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, d, unix.AT_FDCWD, filepath.Join(r.Path(), "planted"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	for round := range 200 {
		g, err := r.CreateGroup(context.Background(), GroupSpec{Base: "b", Job: fmt.Sprint(round), Overwrite: OverwriteAlways, Entries: []GroupEntry{
			{Rel: "d/e", Kind: KindDir}, {Rel: "d/f", Size: 1}, {Rel: "d/s/f", Size: 1}, {Rel: "d/l", Kind: KindSymlink, Target: "x"}, {Rel: "d/h", Kind: KindHardLink, Target: "d/f"}}})
		if err != nil {
			t.Fatal(err)
		}
		_ = receive(t, g, []byte("xy"), 0)
		_, _ = r.FinishDirs(context.Background(), "b", []DirEntry{{Rel: "d", Mode: 0o700}}, PreserveMode, false)
	}
	close(stop)
	<-done
	left, err := os.ReadDir(outside)
	info, statErr := os.Stat(outside)
	if err != nil || statErr != nil || len(left) != 0 || info.Mode().Perm() != 0o755 {
		t.Errorf("outside the root: %v, %v", left, info.Mode())
	}
}

func TestFinishDirs(t *testing.T) {
	r := newRoot(t)
	put(t, r, "b/d/e/f", nil)
	put(t, r, "b/file", nil)
	if err := os.Symlink("d", filepath.Join(r.Path(), "b/l")); err != nil {
		t.Fatal(err)
	}
	mtime := time.Unix(1_400_000_000, 5)
	list := []DirEntry{{Rel: "d/e", Mode: 0o4750, MTime: mtime}, {Rel: "d", Mode: 0o700, MTime: mtime}, {Rel: "none"}, {Rel: "file"}, {Rel: "l"}, {Rel: "../x"}, {Rel: ".", Mode: 0o711, MTime: mtime}}
	failed, err := r.FinishDirs(context.Background(), "b", list, PreserveMode|PreserveMTime, true)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]reason.Code{}
	for _, f := range failed {
		got[f.Index] = f.Err.Code
	}
	if diff := cmp.Diff(map[int]reason.Code{2: reason.DestNotFound, 3: reason.DestExists, 4: reason.DestExists, 5: reason.PathOutsideRoot}, got); diff != "" {
		t.Error(diff)
	}
	for rel, mode := range map[string]fs.FileMode{"b/d/e": 0o750, "b/d": 0o700, "b": 0o711} {
		info, err := os.Stat(filepath.Join(r.Path(), rel))
		if err != nil || info.Mode() != fs.ModeDir|mode || !info.ModTime().Equal(mtime) {
			t.Errorf("%s: %v %v %v", rel, info.Mode(), info.ModTime(), err)
		}
	}
}

// TestCompareByChecksum is if_different for a single file with Sum.
func TestCompareByChecksum(t *testing.T) {
	r := newRoot(t)
	put(t, r, "f", []byte("same"))
	spec := CreateSpec{Rel: "f", Overwrite: OverwriteIfDifferent, MTime: time.Unix(1, 0), Sum: crc32c, CRC: crc32c(0, []byte("same"))}
	if err := publish(r, spec, []byte("same")); !errors.Is(err, ErrSkipped) {
		t.Errorf("%v", err)
	}
	spec.CRC = crc32c(0, []byte("diff"))
	if err := publish(r, spec, []byte("diff")); err != nil {
		t.Fatal(err)
	}
	wantFile(t, r, "f", []byte("diff"))
}

// stutter is a kernel that reads and writes a few bytes at a time.
type stutter struct{ kernel }

func (s stutter) pread(fd int, p []byte, off int64) (int, error) {
	return s.kernel.pread(fd, p[:min(len(p), 7)], off)
}

func (s stutter) pwrite(fd int, p []byte, off int64) (int, error) {
	return s.kernel.pwrite(fd, p[:min(len(p), 7)], off)
}

// TestGroupShortCounts moves a tree through short reads and writes.
func TestGroupShortCounts(t *testing.T) {
	r := newRoot(t)
	r.k = stutter{r.k}
	src, entries, all := openGroup(t, r)
	p := make([]byte, len(all))
	if n, err := src.ReadAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	spec := GroupSpec{Base: "copy"}
	for _, e := range entries {
		spec.Entries = append(spec.Entries, GroupEntry{Rel: e.Rel, Kind: e.Kind, Size: e.Size})
	}
	receive(t, createGroup(t, r, spec), p, 0)
	for _, e := range entries {
		if e.Kind == KindFile {
			want, err := os.ReadFile(filepath.Join(r.Path(), "t", e.Rel))
			if err != nil {
				t.Fatal(err)
			}
			wantFile(t, r, "copy/"+e.Rel, want)
		}
	}
	wantTidy(t, r)
}

// TestXattrsAndOwner: those of the user's namespace arrive, for a single file and in a
// group, with the owner.
func TestXattrsAndOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another owner needs root")
	}
	r := newRoot(t)
	put(t, r, "probe", nil)
	if err := unix.Setxattr(filepath.Join(r.Path(), "probe"), "user.a", nil, 0); err != nil {
		t.Skipf("no user.* attributes on this file system: %v", err)
	}
	list := []Xattr{{Name: "user.a", Value: []byte("1\x00\xff")}, {Name: "user.empty", Value: []byte{}}}
	preserve := PreserveXattrs | PreserveOwner
	if err := publish(r, CreateSpec{Rel: "in/single", Preserve: preserve, UID: 12345, GID: 54321, Xattrs: list}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	receive(t, createGroup(t, r, GroupSpec{Base: "in", Preserve: preserve, Entries: []GroupEntry{
		{Rel: "one", UID: 12345, GID: 54321, Xattrs: list}, {Rel: "link", Kind: KindSymlink, Target: "x", UID: 12345, GID: 54321}}}), nil, 0)
	seen := 0
	err := r.Walk(context.Background(), "in", WalkConfig{Xattrs: true, Visit: func(e Entry) error {
		if e.Kind == KindDir {
			return nil
		}
		seen++
		if e.UID != 12345 || e.GID != 54321 {
			t.Errorf("%q is %d:%d", e.Rel, e.UID, e.GID)
		}
		if e.Kind == KindFile {
			if diff := cmp.Diff(map[string]string{"user.a": "1\x00\xff", "user.empty": ""}, func() map[string]string {
				m := map[string]string{}
				for _, x := range e.Xattrs {
					m[x.Name] = string(x.Value)
				}
				return m
			}()); diff != "" {
				t.Error(e.Rel, diff)
			}
		}
		return nil
	}})
	if err != nil || seen != 3 {
		t.Errorf("%d entries, %v", seen, err)
	}
	wantCode(t, publish(r, CreateSpec{Rel: "x", Xattrs: []Xattr{{Name: "trusted.x"}}}, nil), reason.PermissionDenied)
}
