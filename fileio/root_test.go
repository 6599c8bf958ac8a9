package fileio

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mover/reason"
)

func TestOpenRootRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		cfg  RootConfig
		code reason.Code
	}{
		{"no name", RootConfig{Path: dir}, reason.Internal},
		{"name with a slash", RootConfig{Name: "a/b", Path: dir}, reason.Internal},
		{"relative", RootConfig{Name: "a", Path: "x"}, reason.Internal},
		{"missing", RootConfig{Name: "a", Path: dir + "/none"}, reason.DestNotFound},
		{"a file", RootConfig{Name: "a", Path: file}, reason.Internal},
		{"negative quota", RootConfig{Name: "a", Path: dir, QuotaBytes: -1}, reason.Internal},
		{"setuid", RootConfig{Name: "a", Path: dir, FileMode: os.ModeSetuid | 0o644}, reason.Internal},
		{"policy", RootConfig{Name: "a", Path: dir, Direct: 9}, reason.Internal},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := OpenRoot(c.cfg)
			if r != nil {
				r.Close()
			}
			wantCode(t, err, c.code)
		})
	}
}

// TestConfinement tries every way out, for reading and for writing.
func TestConfinement(t *testing.T) {
	r := newRoot(t)
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/secret", []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, r, "in/file", []byte("f"))
	for name, target := range map[string]string{
		"abs-dir": outside, "abs-file": outside + "/secret",
		"abs-inside": filepath.Join(r.Path(), "in"), // os.Root refuses absolute targets altogether
		"up-dir":     "../" + filepath.Base(outside), "up": "..",
		"in/up2": "../../" + filepath.Base(outside) + "/secret",
		"loop":   "loop", "loop-a": "loop-b", "loop-b": "loop-a",
		"good": "in", "good-file": "in/file", "dangling": "in/none",
	} {
		if err := os.Symlink(target, filepath.Join(r.Path(), name)); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("n", 256)
	cases := []struct {
		rel           string
		source, write reason.Code
	}{
		{"../x", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"in/../../x", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{outside + "/secret", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"/", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"in/a\x00b", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"abs-dir/secret", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"abs-inside/file", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"up-dir/secret", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"up/x", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"loop/x", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"loop-a/x", reason.PathOutsideRoot, reason.PathOutsideRoot},
		{"good/" + long, reason.NameTooLong, reason.NameTooLong},
		{"in/none", reason.SourceNotFound, ""},
		{"in/file/x", reason.SourceNotFound, reason.DestExists},
		{"dangling/x", reason.SourceNotFound, reason.DestNotFound},
		// At the end a source's symlink is followed inside the root only, and a
		// destination's is an existing name.
		{"abs-file", reason.PathOutsideRoot, reason.DestExists},
		{"in/up2", reason.PathOutsideRoot, reason.DestExists},
		{"loop", reason.PathOutsideRoot, reason.DestExists},
		{"good-file", "", reason.DestExists},
		{"good/file", "", reason.DestExists},
		{"in", reason.UnsupportedFileType, reason.DestExists},
		{".", reason.UnsupportedFileType, reason.DestExists},
	}
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.rel, "/", "|")[:min(len(c.rel), 20)], func(t *testing.T) {
			src, err := r.OpenSource(c.rel)
			if src != nil {
				src.Close()
			}
			wantCode(t, err, c.source)
			s, err := r.Create(context.Background(), CreateSpec{Rel: c.rel, Size: 1})
			if s != nil {
				s.Discard()
			}
			wantCode(t, err, c.write)
		})
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside the root: %v, %v", entries, err)
	}
}

// TestOverwriteReplacesTheLinkItself: a symlink planted under the final name
// must not redirect the write.
func TestOverwriteReplacesTheLinkItself(t *testing.T) {
	r := newRoot(t)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(r.Path(), "f")); err != nil {
		t.Fatal(err)
	}
	if err := publish(r, CreateSpec{Rel: "f", Overwrite: OverwriteAlways}, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(filepath.Join(r.Path(), "f")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the name is still a link: %v, %v", info, err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
		t.Errorf("the link's target: %q, %v", got, err)
	}
}

func TestRel(t *testing.T) {
	r := newRoot(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(r.Path(), link); err != nil {
		t.Fatal(err)
	}
	via := newRoot(t, func(c *RootConfig) { c.Path = link })
	for _, c := range []struct {
		root *Root
		abs  string
		rel  string
		ok   bool
	}{
		{r, r.Path(), ".", true},
		{r, r.Path() + "/a/../b", "b", true},
		{r, r.Path() + "x/a", "", false},
		{r, filepath.Dir(r.Path()), "", false},
		{r, "a", "", false},
		{via, link + "/a", "a", true},
		{via, r.Path() + "/a", "a", true},
	} {
		if rel, ok := c.root.Rel(c.abs); rel != c.rel || ok != c.ok {
			t.Errorf("Rel(%s) = %q, %v, want %q, %v", c.abs, rel, ok, c.rel, c.ok)
		}
	}
	whole, err := OpenRoot(RootConfig{Name: "all", Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	if rel, ok := whole.Rel("/etc/x"); rel != "etc/x" || !ok {
		t.Errorf("root /: %q, %v", rel, ok)
	}
}

// TestPathsAreQuoted: control characters in a name must not reach a log raw.
func TestPathsAreQuoted(t *testing.T) {
	r := newRoot(t)
	_, err := r.OpenSource("a\n\x1b[31mb")
	wantCode(t, err, reason.SourceNotFound)
	if strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Errorf("raw control characters in %q", err)
	}
}

func TestSourceTypes(t *testing.T) {
	r := newRoot(t)
	at := func(n string) string { return filepath.Join(r.Path(), n) }
	if err := unix.Mkfifo(at("fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: at("socket")}); err != nil {
		t.Fatal(err)
	}
	names := []string{"fifo", "socket"}
	if err := unix.Mknod(at("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err == nil {
		names = append(names, "null")
	} else {
		t.Logf("no device node: %v", err)
	}
	for _, n := range names {
		_, err := r.OpenSource(n) // a FIFO that blocks hangs the test
		wantCode(t, err, reason.UnsupportedFileType)
		_, err = r.Create(context.Background(), CreateSpec{Rel: n, Overwrite: OverwriteAlways})
		wantCode(t, err, reason.DestExists)
	}
	_, err = r.OpenSource(".")
	wantCode(t, err, reason.UnsupportedFileType)
	if !strings.Contains(err.Error(), "recursive") {
		t.Errorf("a directory: %v", err)
	}
}
