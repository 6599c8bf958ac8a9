package buffer

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"mover/reason"
)

// newBootableHost is a host that can be restarted: it forgets its memory, and has another boot_id.
func newBootableHost(t testing.TB) *host {
	h := newHost(t)
	h.procRoot = t.TempDir()
	h.proc(t, "sys/kernel/random/boot_id", "boot 1\n")
	return h
}

// proc writes a file of the host's /proc.
func (h *host) proc(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join(h.procRoot, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// fill makes buffer "a" with content and closes the registry.
func (h *host) fill(t testing.TB) Info {
	t.Helper()
	r, _ := h.open(t)
	create(t, r, small("a"))
	l := lease(t, r, "a", 0, 1<<20, true)
	if _, err := l.WriteAt([]byte("content"), 1000); err != nil {
		t.Fatal(err)
	}
	l.Release()
	info, err := r.Get("a")
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return info
}

func wantProblem(t testing.TB, problems []Problem, kind ProblemKind, text string) {
	t.Helper()
	if len(problems) != 1 || problems[0].Kind != kind || !strings.Contains(problems[0].Err.Error(), text) {
		t.Errorf("problems %v, want %s %q", problems, kind, text)
	}
}

func content(t testing.TB, r *Registry) []byte {
	t.Helper()
	p := make([]byte, 1<<20)
	l := lease(t, r, "a", 0, 1<<20, false)
	if _, err := l.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	l.Release()
	return p
}

func TestReopen(t *testing.T) {
	h := newBootableHost(t)
	before := h.fill(t)
	if err := os.Chmod(before.Path, 0o644); err != nil {
		t.Fatal(err)
	}
	r, problems := h.open(t)
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	after, err := r.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if string(content(t, r)[1000:1007]) != "content" {
		t.Error("the content is another")
	}
	if st, err := os.Stat(after.Path); err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, created, err := r.Create(t.Context(), small("a")); created || err != nil {
		t.Error(created, err)
	}
}

// TestMemoryLost: every way in which the memory can be gone ends with a zeroed buffer and another generation.
func TestMemoryLost(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(*host, Info) error
		want string
	}{
		"restart": {func(h *host, i Info) error {
			h.proc(t, "sys/kernel/random/boot_id", "boot 2\n")
			return os.Remove(i.Path)
		}, "restarted"},
		"removed":   {func(_ *host, i Info) error { return os.Remove(i.Path) }, "was removed"},
		"truncated": {func(_ *host, i Info) error { return os.Truncate(i.Path, 4096) }, "had 4096 of 1048576 bytes"},
		"longer":    {func(_ *host, i Info) error { return os.Truncate(i.Path, 2<<20) }, "had 2097152 of 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newBootableHost(t)
			before := h.fill(t)
			if err := c.lose(h, before); err != nil {
				t.Fatal(err)
			}
			r, problems := h.open(t)
			wantProblem(t, problems, Recreated, c.want)
			after, err := r.Get("a")
			if err != nil || after.Generation <= before.Generation || !after.CreatedAt.Equal(before.CreatedAt) || !strings.Contains(after.PageReason, c.want) {
				t.Errorf("%+v, %v", after, err)
			}
			if !zeroed(content(t, r)) {
				t.Error("not zeroed")
			}
			h.wantFiles(t, "a")
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if _, problems = h.open(t); len(problems) != 0 {
				t.Errorf("the next time: %v", problems)
			}
		})
	}
}

// TestRestoreForeign: another file at the path is not touched; the buffer waits until it is gone.
func TestRestoreForeign(t *testing.T) {
	for name, plant := range map[string]func(string) error{
		"file": func(p string) error { return os.WriteFile(p, make([]byte, 1<<20), 0o600) },
		"symlink": func(p string) error {
			return errors.Join(os.WriteFile(p+".other", make([]byte, 1<<20), 0o600), os.Symlink(p+".other", p))
		},
		"fifo": func(p string) error { return unix.Mkfifo(p, 0o600) },
		"dir":  func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		for _, boot := range []string{"boot 1", "boot 2"} {
			t.Run(name+" "+boot, func(t *testing.T) {
				h := newBootableHost(t)
				info := h.fill(t)
				// The inode must live on, or its number could be the new file's.
				if err := errors.Join(os.Rename(info.Path, info.Path+".kept"), plant(info.Path)); err != nil {
					t.Fatal(err)
				}
				h.proc(t, "sys/kernel/random/boot_id", boot+"\n")
				before, _ := os.Lstat(info.Path)
				r, problems := h.open(t)
				wantProblem(t, problems, Unavailable, "not this node's")
				got, err := r.Get("a")
				if err != nil || !strings.Contains(got.Problem, "not this node's") || got.Generation != info.Generation {
					t.Errorf("%+v, %v", got, err)
				}
				_, err = r.Lease(LeaseRequest{Name: "a"})
				wantError(t, err, reason.IOError, ErrUnavailable)
				if _, created, err := r.Create(t.Context(), small("a")); created || !errors.Is(err, ErrForeign) {
					t.Errorf("created %v, %v", created, err)
				}
				other := small("a")
				other.Bytes++
				if _, _, err := r.Create(t.Context(), other); !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
				if after, err := os.Lstat(info.Path); err != nil || !os.SameFile(before, after) {
					t.Errorf("the file was touched: %v", err)
				}
				if err := os.Remove(info.Path); err != nil {
					t.Fatal(err)
				}
				again, created, err := r.Create(t.Context(), small("a"))
				if err != nil || !created || again.Problem != "" || again.Generation <= info.Generation {
					t.Errorf("%+v, created %v, %v", again, created, err)
				}
				if err := r.Delete(t.Context(), "a"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDeleteUnavailable gives up a buffer without memory, and leaves what is not its own.
func TestDeleteUnavailable(t *testing.T) {
	h := newBootableHost(t)
	info := h.fill(t)
	if err := errors.Join(os.Rename(info.Path, info.Path+".kept"), os.WriteFile(info.Path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r, _ := h.open(t)
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(info.Path); err != nil {
		t.Error(err)
	}
	if len(r.List()) != 0 {
		t.Error("still listed")
	}
}

// TestUnfinished: the records of every step of a Create, Delete or Restore that did not end.
func TestUnfinished(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*record)
		empty  bool // the file is
		want   ProblemKind
		file   bool // stays
	}{
		"before its inode was known": {change: func(r *record) { r.Inode = inode{} }, empty: true},
		"populating":                 {change: func(*record) {}},
		"with content of others":     {change: func(r *record) { r.Inode = inode{} }, file: true},
		"before the restart":         {change: func(r *record) { r.Boot = "boot 0" }, file: true},
		"made again":                 {change: func(r *record) { r.Again = true }, want: Recreated, file: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newBootableHost(t)
			info := h.fill(t)
			path := filepath.Join(h.Dir, "buffers", "a.json")
			rec, err := readRecord(path)
			if err != nil {
				t.Fatal(err)
			}
			rec.Whole = false
			c.change(&rec)
			text, err := json.Marshal(rec)
			if err := errors.Join(err, os.WriteFile(path, text, 0o600), os.WriteFile(path+newSuffix, []byte("{"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if c.empty {
				if err := os.Truncate(info.Path, 0); err != nil {
					t.Fatal(err)
				}
			}
			r, problems := h.open(t)
			if c.want == "" && (len(problems) != 0 || len(r.List()) != 0) {
				t.Errorf("%v, %+v", problems, r.List())
			}
			if c.want != "" {
				wantProblem(t, problems, c.want, "")
				if !zeroed(content(t, r)) {
					t.Error("not zeroed")
				}
			}
			if _, err := os.Stat(info.Path); (err == nil) != c.file {
				t.Errorf("the file: %v", err)
			}
			if _, err := os.Stat(path + newSuffix); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the new record: %v", err)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	h := newBootableHost(t)
	info := h.fill(t)
	path := filepath.Join(h.Dir, "buffers", "a.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "not JSON": "{", "newer": strings.Replace(string(good), `"v":1`, `"v":2`, 1),
		"of another": strings.Replace(string(good), `"name":"a"`, `"name":"b"`, 1),
		"unknown":    strings.Replace(string(good), `"v":1`, `"v":1,"more":1`, 1),
		"path":       strings.Replace(string(good), info.Path, "x/../y", 1), "bytes": strings.Replace(string(good), `"bytes":1048576`, `"bytes":-1`, 1),
		"large": string(good) + strings.Repeat(" ", maxRecordBytes),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, problems := h.open(t)
		wantProblem(t, problems, Unreadable, path)
		if len(r.List()) != 0 || problems[0].Buffer != "a.json" {
			t.Errorf("%s: %+v", name, problems)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if kept, err := os.ReadFile(path); err != nil || string(kept) != text {
			t.Errorf("%s: the record was touched", name)
		}
	}
	if err := errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)); err != nil {
		t.Fatal(err)
	}
	_, problems := h.open(t)
	wantProblem(t, problems, Unreadable, "not a file of this program")
	if _, err := os.Stat(info.Path); err != nil {
		t.Error(err)
	}
}

func TestRecordsAreClosed(t *testing.T) {
	h := newHost(t)
	h.fill(t)
	for path, mode := range map[string]os.FileMode{"buffers": os.ModeDir | 0o700, "buffers/a.json": 0o600} {
		if st, err := os.Stat(filepath.Join(h.Dir, path)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

func TestOpenEndsWithContext(t *testing.T) {
	h := newHost(t)
	info := h.fill(t)
	if _, _, err := Open(ended(t), h.Config); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	r, problems := h.open(t)
	if got, err := r.Get("a"); err != nil || got.Generation != info.Generation || len(problems) != 0 {
		t.Errorf("%+v, %v, %v", got, problems, err)
	}
}

// FuzzRecord: no record, however damaged, is more than an error, and a good one is written as it was read.
func FuzzRecord(f *testing.F) {
	// No host: its directories would stay behind in workers, which are killed.
	rec := newRecord(small("a"))
	rec.Mode, rec.Whole, rec.Path, rec.Inode, rec.Boot = 0o600, true, "/dev/shm/mover.host-a.a", inode{1, 2}, "boot 1"
	rec.FileBytes, rec.Generation, rec.CreatedAt = rec.Bytes, 5, time.Unix(1_700_000_000, 0).UTC()
	good, err := json.Marshal(rec)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := parseRecord(good); err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"v":1,"name":"a","bytes":1,"page_size":"auto","mode":384,"path":"/a","file_bytes":4096}`))
	f.Add([]byte(`{"v":1,"name":"../a"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := parseRecord(text)
		if err != nil {
			return
		}
		if _, err := rec.spec().normal(); err != nil {
			t.Fatalf("a bad spec was taken: %v", err)
		}
		again, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := parseRecord(again); err != nil || cmp.Diff(rec, same, cmpopts.EquateEmpty()) != "" {
			t.Fatalf("%s\nis read as %s\n%v", text, again, err)
		}
	})
}
