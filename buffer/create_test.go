package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mover/reason"
)

func TestCreate(t *testing.T) {
	r, h := newRegistry(t)
	spec := Spec{Name: "ckpt", Bytes: 1<<20 + 1, PageSize: PageBase, NUMANode: 0, Mode: 0o660, Group: fmt.Sprint(os.Getegid()),
		Read: []string{"host-c", "host-b", "host-b"}, Write: []string{"*"}, Owner: "host-a/ann"}
	info := create(t, r, spec)
	page := int64(os.Getpagesize())
	want := Info{Name: "ckpt", Path: h.shmDir + "/mover.host-a.ckpt", Bytes: 1<<20 + 1, MappedBytes: 1<<20 + page, PageSize: PageBase,
		PageBytes: page, PageReason: info.PageReason, NUMANode: info.NUMANode, Generation: info.Generation, Mode: 0o660,
		Group: spec.Group, Owner: "host-a/ann", Read: []string{"host-b", "host-c"}, Write: []string{"*"}, CreatedAt: info.CreatedAt,
		Leases: []LeaseInfo{}}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(info.PageReason, "base pages, as asked for") || info.Generation == 0 || info.Generation >= 1<<53 || info.CreatedAt.IsZero() {
		t.Errorf("%+v", info)
	}
	var st unix.Stat_t
	if err := unix.Stat(info.Path, &st); err != nil || st.Mode != unix.S_IFREG|0o660 || st.Size != info.MappedBytes || st.Blocks*512 != st.Size {
		t.Errorf("%v: mode %o, %d bytes, %d of them populated", err, st.Mode, st.Size, st.Blocks*512)
	}
	l := lease(t, r, "ckpt", 0, info.Bytes, true)
	if !zeroed(l.Memory()) || int64(len(l.Memory())) != info.Bytes || cap(l.Memory()) != len(l.Memory()) {
		t.Errorf("%d bytes, capacity %d", len(l.Memory()), cap(l.Memory()))
	}
	// What a program writes to the file is in the buffer, and the reverse.
	f, err := os.OpenFile(info.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("program"), 4090); err != nil {
		t.Fatal(err)
	}
	if got := string(l.Memory()[4090:4097]); got != "program" {
		t.Errorf("the buffer has %q", got)
	}
	copy(l.Memory()[1<<20:], "m")
	got := make([]byte, 1)
	if _, err := f.ReadAt(got, 1<<20); err != nil || got[0] != 'm' {
		t.Errorf("the file has %q, %v", got, err)
	}
	h.wantFiles(t, "ckpt")
}

func TestCreateIsIdempotent(t *testing.T) {
	r, _ := newRegistry(t)
	spec := small("a")
	spec.Read = []string{"x", "y"}
	first := create(t, r, spec)
	same := spec
	same.Read, same.Mode, same.Owner = []string{"y", "x", "y"}, 0o600, "another"
	again, created, err := r.Create(t.Context(), same)
	if err != nil || created {
		t.Fatalf("created %v, %v", created, err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
	for name, change := range map[string]func(*Spec){
		"bytes": func(s *Spec) { s.Bytes++ }, "pages": func(s *Spec) { s.PageSize = PageAuto }, "node": func(s *Spec) { s.NUMANode = 0 },
		"mode": func(s *Spec) { s.Mode = 0o644 }, "group": func(s *Spec) { s.Group = "0" },
		"read": func(s *Spec) { s.Read = []string{"x"} }, "write": func(s *Spec) { s.Write = []string{"*"} },
	} {
		other := spec
		change(&other)
		if _, _, err := r.Create(t.Context(), other); !errors.Is(err, ErrConflict) {
			t.Errorf("other %s: %v", name, err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	r, h := newRegistry(t)
	for _, s := range []Spec{
		{}, {Name: "..", Bytes: 1}, {Name: "-a", Bytes: 1}, {Name: ".a", Bytes: 1}, {Name: "a/b", Bytes: 1}, {Name: "a\x00", Bytes: 1},
		{Name: "é", Bytes: 1}, {Name: strings.Repeat("a", 65), Bytes: 1}, {Name: "a"}, {Name: "a", Bytes: -1}, {Name: "a", Bytes: MaxBytes + 1},
		{Name: "a", Bytes: 1, PageSize: "64KiB"}, {Name: "a", Bytes: 1, NUMANode: -2}, {Name: "a", Bytes: 1, NUMANode: 1024},
		{Name: "a", Bytes: 1, Mode: 0o400}, {Name: "a", Bytes: 1, Mode: 0o700}, {Name: "a", Bytes: 1, Mode: 0o600 | os.ModeSetgid},
		{Name: "a", Bytes: 1, Group: "no such group here"}, {Name: "a", Bytes: 1, Read: []string{"a b"}},
		{Name: "a", Bytes: 1, Write: []string{""}}, {Name: "a", Bytes: 1, Owner: strings.Repeat("o", 257)},
		{Name: "a", Bytes: 1, Read: make([]string, maxNames+1)},
	} {
		if _, _, err := r.Create(t.Context(), s); !errors.Is(err, ErrBadSpec) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	h.wantFiles(t)
}

func TestLimits(t *testing.T) {
	h := newHost(t)
	h.Limits = Limits{MaxBuffers: 3, MaxBytes: 3 << 20, MaxBytesPerOwner: 2 << 20}
	r, _ := h.open(t)
	of := func(name, owner string, bytes int64) error {
		s := small(name)
		s.Owner, s.Bytes = owner, bytes
		_, _, err := r.Create(t.Context(), s)
		return err
	}
	check := func(err error, want string) {
		t.Helper()
		if reason.Of(err) != reason.Quota || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	check(of("a", "ann", 2<<20+1), "buffers of one owner may have 2097152, of which 0 are used")
	if err := of("a", "ann", 2<<20); err != nil {
		t.Fatal(err)
	}
	check(of("b", "ann", 1), "of which 2097152 are used")
	check(of("b", "bob", 1<<20+1), "all buffers of node host-a may have 3145728, of which 2097152 are used")
	for _, name := range []string{"b", "c"} {
		if err := of(name, "bob", 4096); err != nil {
			t.Fatal(err)
		}
	}
	check(of("d", "bob", 1), "limit of 3 buffers")
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := of("d", "ann", 2<<20); err != nil {
		t.Error(err)
	}
	h.wantFiles(t, "b", "c", "d")
}

// TestForeignFile: whatever is at the path already is neither used nor changed.
func TestForeignFile(t *testing.T) {
	r, h := newRegistry(t)
	precious := filepath.Join(t.TempDir(), "precious")
	path := h.shmDir + "/mover.host-a.a"
	for name, plant := range map[string]func() error{
		"file":     func() error { return os.WriteFile(path, []byte("data"), 0o644) },
		"symlink":  func() error { return os.Symlink(precious, path) },
		"dangling": func() error { return os.Symlink(precious+".not", path) },
		"fifo":     func() error { return unix.Mkfifo(path, 0o600) },
		"dir":      func() error { return os.Mkdir(path, 0o700) },
	} {
		if err := os.WriteFile(precious, []byte("data"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		_, _, err := r.Create(t.Context(), small("a"))
		if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%s: %v", name, err)
		}
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) || before.Size() != after.Size() || before.Mode() != after.Mode() {
			t.Errorf("%s: was changed: %v", name, err)
		}
		if text, err := os.ReadFile(precious); err != nil || string(text) != "data" {
			t.Errorf("%s: the target was changed: %q, %v", name, text, err)
		}
		if _, err := os.Lstat(precious + ".not"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the target was made", name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		h.wantFiles(t)
		if _, err := r.Get("a"); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: Get: %v", name, err)
		}
	}
	create(t, r, small("a"))
}

func TestNoSpace(t *testing.T) {
	r, h := newRegistry(t)
	s := small("a")
	s.Bytes = 1 << 44
	_, _, err := r.Create(t.Context(), s)
	var space *SpaceError
	if reason.Of(err) != reason.NoSpace || !errors.As(err, &space) || space.Need != 1<<44 || space.Free <= 0 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"16777216 MiB are needed", "are available", "make it smaller"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q misses %q", err, want)
		}
	}
	h.wantFiles(t)
}

func TestCreateEndsWithContext(t *testing.T) {
	r, h := newRegistry(t)
	if _, _, err := r.Create(ended(t), small("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	h.wantFiles(t)
	create(t, r, small("a"))
}

// TestCreateAtOnce: of many Creates of one name one makes it, and the others find it whole.
func TestCreateAtOnce(t *testing.T) {
	r, h := newRegistry(t)
	var made, failed atomic.Int64
	var all sync.WaitGroup
	for k := range 16 {
		all.Go(func() {
			s := small("a")
			if k%4 == 3 {
				s.Bytes /= 2 // the wrong one, if it comes later
			}
			info, created, err := r.Create(t.Context(), s)
			switch {
			case errors.Is(err, ErrConflict):
				failed.Add(1)
			case err != nil || info.PageBytes == 0 || info.Bytes != s.Bytes:
				t.Errorf("%+v, %v", info, err)
			case created:
				made.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 || failed.Load() != 4 && failed.Load() != 12 {
		t.Errorf("%d made, %d failed", made.Load(), failed.Load())
	}
	h.wantFiles(t, "a")
}

func TestAccess(t *testing.T) {
	r, h := newRegistry(t)
	s := small("a")
	s.Read, s.Write = []string{"host-b"}, []string{"host-c"}
	create(t, r, s)
	check := func(node string, read, write reason.Code) {
		t.Helper()
		readErr, writeErr := r.Readable("a", node), r.Writable("a", node)
		if reason.Of(readErr) != read || reason.Of(writeErr) != write {
			t.Errorf("%s: read %v, write %v", node, readErr, writeErr)
		}
	}
	check("host-b", "", reason.NotAuthorized)
	check("host-c", reason.NotAuthorized, "")
	check("*", reason.NotAuthorized, reason.NotAuthorized)
	wantError(t, r.Readable("no", "host-b"), reason.SourceNotFound, ErrNotFound)
	wantError(t, r.Writable("no", "host-b"), reason.DestNotFound, ErrNotFound)

	all := small("all")
	all.Read = []string{"*"}
	create(t, r, all)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r, _ = h.open(t)
	check("host-b", "", reason.NotAuthorized)
	if err := r.Readable("all", "host-x"); err != nil {
		t.Error(err)
	}
	if err := r.Writable("all", "host-x"); reason.Of(err) != reason.NotAuthorized {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	r, _ := newRegistry(t)
	for _, name := range []string{"b", "a", "c"} {
		create(t, r, small(name))
	}
	l := lease(t, r, "b", 10, 20, true)
	var names []string
	for _, i := range r.List() {
		names = append(names, i.Name)
		if i.Name == "b" {
			if diff := cmp.Diff([]LeaseInfo{l.Info()}, i.Leases); diff != "" {
				t.Error(diff)
			}
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestClosed(t *testing.T) {
	r, h := newRegistry(t)
	create(t, r, small("a"))
	l := lease(t, r, "a", 0, 4096, true)
	if err := r.Close(); !errors.Is(err, ErrLeased) || !strings.Contains(err.Error(), "job of TestClosed") {
		t.Fatal(err)
	}
	if _, err := l.WriteAt(bytes.Repeat([]byte{7}, 4096), 0); err != nil {
		t.Error(err)
	}
	if _, _, err := r.Create(t.Context(), small("b")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := r.Delete(t.Context(), "a"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	_, err := r.Lease(LeaseRequest{Name: "a"})
	wantError(t, err, reason.Internal, ErrClosed)
	l.Release()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	h.wantFiles(t, "a")
	if left := leftovers(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"node":   func(c *Config) { c.Node = "a/b" },
		"limits": func(c *Config) { c.Limits.MaxBytes = -1 },
		"dir":    func(c *Config) { c.Dir = "/proc/none" },
	} {
		h := newHost(t)
		change(&h.Config)
		if _, _, err := Open(t.Context(), h.Config); err == nil || name == "dir" && !errors.Is(err, ErrBadState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
