package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mover/reason"
)

// TestMain fails the run if a test leaves a file of a buffer open or mapped, or a goroutine. A process that
// MOVER_BUFFER_CHILD names is not a test run but a registry to be killed.
func TestMain(m *testing.M) {
	if what := os.Getenv("MOVER_BUFFER_CHILD"); what != "" {
		child(what)
		os.Exit(0)
	}
	code := m.Run()
	if left := leftovers(); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "left open or mapped: %q\n", left)
		code = 1
	}
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// leftovers lists the descriptors and mappings of buffers' files.
func leftovers() (left []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(target, "/mover.") {
			left = append(left, target)
		}
	}
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "/mover.") {
			left = append(left, strings.TrimSpace(line))
		}
	}
	return left
}

// host is where a registry lives in tests: its directories, and the clock.
type host struct {
	Config
	log bytes.Buffer
}

func newHost(t testing.TB) *host {
	t.Helper()
	shm, err := os.MkdirTemp("/dev/shm", "mover-buffer-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(shm) })
	h := &host{}
	h.Config = Config{Dir: t.TempDir(), Node: "host-a", Logger: slog.New(slog.NewTextHandler(&h.log, nil)), shmDir: shm}
	return h
}

// open opens the registry; it is closed at the end unless the test did.
func (h *host) open(t testing.TB) (*Registry, []Problem) {
	t.Helper()
	r, problems, err := Open(t.Context(), h.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, problems
}

func newRegistry(t testing.TB) (*Registry, *host) {
	t.Helper()
	h := newHost(t)
	r, problems := h.open(t)
	if len(problems) != 0 {
		t.Fatalf("a new registry has problems: %v", problems)
	}
	return r, h
}

// small is a buffer of the size that most tests need.
func small(name string) Spec {
	return Spec{Name: name, Bytes: 1 << 20, PageSize: PageBase, NUMANode: AnyNode}
}

func create(t testing.TB, r *Registry, spec Spec) Info {
	t.Helper()
	info, created, err := r.Create(t.Context(), spec)
	if err != nil || !created {
		t.Fatalf("Create: created %v, %v", created, err)
	}
	return info
}

// lease leases a range or fails the test.
func lease(t testing.TB, r *Registry, name string, offset, length int64, exclusive bool) *Lease {
	t.Helper()
	l, err := r.Lease(LeaseRequest{Name: name, Offset: offset, Length: length, Exclusive: exclusive, Holder: "job of " + t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Release)
	return l
}

func wantError(t testing.TB, err error, code reason.Code, sentinel error) {
	t.Helper()
	var typed *reason.Error
	if errors.As(err, &typed) != (code != "") || code != "" && typed.Code != code {
		t.Errorf("reason of %v, want %q", err, code)
	}
	if !errors.Is(err, sentinel) {
		t.Errorf("%v is not %v", err, sentinel)
	}
}

// wantFiles fails unless the memory's directory has exactly these names, and the state directory exactly these records.
func (h *host) wantFiles(t testing.TB, names ...string) {
	t.Helper()
	for dir, suffix := range map[string]string{h.shmDir: "", filepath.Join(h.Dir, "buffers"): ".json"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, want := []string{}, []string{}
		for _, e := range entries {
			got = append(got, e.Name())
		}
		for _, n := range names {
			if suffix == "" {
				n = "mover.host-a." + n
			}
			want = append(want, n+suffix)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s has %q, want %q", dir, got, want)
		}
	}
}

func zeroed(p []byte) bool { return len(bytes.Trim(p, "\x00")) == 0 }

// ended is a context whose deadline has passed.
func ended(t testing.TB) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	t.Cleanup(cancel)
	return ctx
}
