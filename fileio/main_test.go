package fileio

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// TestMain fails the run if a test leaves a descriptor open: a leaked one is a
// file that can no longer be unmounted, and a flock that never goes away.
func TestMain(m *testing.M) {
	before := descriptors()
	code := m.Run()
	if after := descriptors(); code == 0 && len(after) > len(before) {
		fmt.Fprintf(os.Stderr, "descriptors leaked: %d before, %d after: %v\n", len(before), len(after), after)
		code = 1
	}
	os.Exit(code)
}

// descriptors lists the regular files and directories this process has open.
func descriptors() (open []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && filepath.IsAbs(target) && filepath.Dir(target) != "/dev" && filepath.Dir(target) != "/proc" {
			open = append(open, target)
		}
	}
	return open
}

// alignedBytes returns n bytes as a slot payload is: page aligned, off the heap.
func alignedBytes(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, max(n, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b[:n:n]
}

// noise returns n aligned bytes that depend on the seed.
func noise(t testing.TB, n int, seed uint64) []byte {
	b := alignedBytes(t, n)
	src := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = src.Read(b)
	return b
}

// newRoot opens a root on a new directory, with changes to its configuration.
func newRoot(t testing.TB, change ...func(*RootConfig)) *Root {
	t.Helper()
	cfg := RootConfig{Name: "data", Path: t.TempDir()}
	for _, c := range change {
		c(&cfg)
	}
	r, err := OpenRoot(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func directOn(c *RootConfig) { c.Direct = DirectOn }

// put writes a file below the root by ordinary means.
func put(t testing.TB, r *Root, rel string, content []byte) {
	t.Helper()
	full := filepath.Join(r.Path(), rel)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// wantFile fails unless rel has exactly content.
func wantFile(t testing.TB, r *Root, rel string, content []byte) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(r.Path(), rel))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		t.Fatalf("%s has %d bytes that differ from the %d expected", rel, len(got), len(content))
	}
}

// wantNames fails unless the root's top directory has exactly these names.
func wantNames(t testing.TB, r *Root, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(r.Path())
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("directory has %q, want %q", got, want)
	}
}

func wantCode(t testing.TB, err error, want reason.Code) {
	t.Helper()
	if got := reason.Of(err); got != want {
		t.Fatalf("reason %q (%v), want %q", got, err, want)
	}
}

// create begins a file or fails the test; what is left of it is discarded.
func create(t testing.TB, r *Root, spec CreateSpec) *Sink {
	t.Helper()
	s, err := r.Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Discard() })
	return s
}

// write writes all of p at off or fails the test.
func write(t testing.TB, s *Sink, p []byte, off int64) {
	t.Helper()
	if n, err := s.WriteAt(p, off); n != len(p) || err != nil {
		t.Fatalf("WriteAt(%d bytes, %d) = %d, %v", len(p), off, n, err)
	}
}

// publish writes content in one piece and publishes it.
func publish(r *Root, spec CreateSpec, content []byte) error {
	ctx := context.Background()
	spec.Size = int64(len(content))
	s, err := r.Create(ctx, spec)
	if err != nil {
		return err
	}
	defer s.Discard()
	if _, err := s.WriteAt(content, 0); err != nil {
		return err
	}
	return s.Publish(ctx)
}
