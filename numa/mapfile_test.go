package numa

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// faultyFile is a faultyKernel that maps files.
type faultyFile struct {
	faultyKernel
	mapErr, allocateErr, lookErr error
}

func (k *faultyFile) mapFile(_ int, bytes int64) (mapping, error) {
	k.call("mmap %d", bytes>>20)
	if k.mapErr != nil {
		return mapping{}, k.mapErr
	}
	return k.mapMemory(bytes), nil
}

func (k *faultyFile) allocate(_ int, offset, bytes int64) error {
	k.call("allocate %d+%d", offset>>20, bytes>>20)
	return k.allocateErr
}

func (k *faultyFile) look([]byte) error {
	k.call("look")
	return k.lookErr
}

func TestMapFileSteps(t *testing.T) {
	sys := fixture(t, "two")
	small := backing{kernelPageBytes: 4096}
	for name, c := range map[string]struct {
		kernel faultyFile
		page   int64
		node   int
		calls  string
		steps  string // joined
		short  string // part of the error
		got    int
	}{
		"tmpfs, node before memory": {kernel: faultyFile{faultyKernel: faultyKernel{huge: small, node: 1}}, node: 1, got: 1,
			calls: "mmap 4, bind 1, allocate 0+4, advise populate, advise dontfork, advise dontdump"},
		"any node": {kernel: faultyFile{faultyKernel: faultyKernel{huge: small}}, node: -1,
			calls: "mmap 4, allocate 0+4, advise populate, advise dontfork"},
		"on another node": {kernel: faultyFile{faultyKernel: faultyKernel{huge: small}}, node: 1, calls: "bind 1",
			steps: "0 of 2 pages looked at are on node 1"},
		"bind not permitted": {kernel: faultyFile{faultyKernel: faultyKernel{huge: small, bindErr: unix.EPERM, node: 1}}, node: 1,
			calls: "bind 1, allocate", steps: "bind to node 1: operation not permitted (a seccomp filter?", got: 1},
		"old kernel reads": {kernel: faultyFile{faultyKernel: faultyKernel{huge: small, populateErr: unix.EINVAL}}, node: -1,
			calls: "advise populate, look, advise dontfork"},
		"old hugetlbfs": {kernel: faultyFile{faultyKernel: faultyKernel{huge: backing{kernelPageBytes: 2 * mib}},
			allocateErr: unix.EOPNOTSUPP}, page: 2 * mib, node: -1, calls: "allocate 0+4, advise populate"},
		"signals": {kernel: faultyFile{faultyKernel: faultyKernel{huge: small, interrupts: 2}}, node: -1,
			calls: "advise populate, advise populate, advise populate, advise dontfork"},
		"tmpfs full": {kernel: faultyFile{allocateErr: unix.ENOSPC}, node: -1, calls: "allocate 0+4, munmap",
			short: "small pages: allocate: 4 MiB are needed: no space left on device"},
		"no huge pages": {kernel: faultyFile{mapErr: unix.ENOMEM}, page: 2 * mib, node: 0, calls: "mmap 4",
			short: "hugetlb 2MiB: mmap: 4 MiB are needed, 0 MiB are available: cannot allocate memory: 0 of 2 pages needed are free on node 0; echo 2 > "},
		"page lost": {kernel: faultyFile{faultyKernel: faultyKernel{populateErr: unix.EFAULT}}, node: -1, calls: "populate, munmap",
			short: "populate: 4 MiB are needed: bad address"},
	} {
		t.Run(name, func(t *testing.T) {
			k := c.kernel
			f, err := mapFile(t.Context(), FileConfig{Bytes: 4 * mib, PageBytes: c.page, NodeID: c.node, SysRoot: sys,
				procRoot: t.TempDir()}, &k)
			if calls := strings.Join(k.calls, ", "); !strings.Contains(calls, c.calls) {
				t.Errorf("calls: %s", calls)
			}
			if c.short != "" {
				var short *ShortError
				if !errors.As(err, &short) || !strings.Contains(err.Error(), c.short) || short.Need != 4*mib {
					t.Fatalf("got %v", err)
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				r := f.Report()
				if steps := strings.Join(r.Steps, "; "); !strings.HasPrefix(steps, c.steps) || (c.steps == "") != (steps == "") {
					t.Errorf("steps: %s", steps)
				}
				if r.NodeGot != c.got || r.NodeWanted != c.node || r.Bytes != 4*mib {
					t.Errorf("%+v", r)
				}
				if err := f.Unmap(); err != nil {
					t.Error(err)
				}
			}
			if k.mapped != k.unmapped {
				t.Errorf("%d mapped, %d unmapped", k.mapped, k.unmapped)
			}
		})
	}
}

func TestMapFileRefuses(t *testing.T) {
	for _, cfg := range []FileConfig{
		{Bytes: 0}, {Bytes: 4095}, {Bytes: maxArenaBytes + 4096}, {Bytes: 4096, NodeID: -2}, {Bytes: 4096, NodeID: MaxNodes},
		{Bytes: 4096, PageBytes: 2 * mib}, {Bytes: 4096, PageBytes: 4096},
	} {
		if _, err := mapFile(t.Context(), cfg, &faultyFile{}); !errors.Is(err, ErrBadArena) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	k := faultyFile{}
	_, err := mapFile(t.Context(), FileConfig{Bytes: 1 << 40, NodeID: 1, SysRoot: fixture(t, "two"), procRoot: t.TempDir()}, &k)
	var short *ShortError
	if !errors.As(err, &short) || short.Free>>20 != 112792 || k.mapped != 0 {
		t.Fatalf("more than there is: %v, %d mapped", err, k.mapped)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k = faultyFile{}
	_, err = mapFile(ctx, FileConfig{Bytes: 4096, NodeID: -1, SysRoot: t.TempDir(), procRoot: t.TempDir()}, &k)
	if !errors.Is(err, context.Canceled) || errors.As(err, &short) || k.mapped != k.unmapped {
		t.Fatalf("after the end of the context: %v", err)
	}
}

// TestRealFile maps a file of tmpfs, and finds its content, all of its memory, and its end.
func TestRealFile(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "mover-numa-test-")
	if err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f, err := os.Create(filepath.Join(dir, "memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("kept"), 4096); err != nil {
		t.Fatal(err)
	}
	const size = 3*mib + 4096
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	m, err := MapFile(t.Context(), FileConfig{FD: int(f.Fd()), Bytes: size, HaveBytes: 4096, NodeID: 0})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(m.Report())
	mem := m.Bytes()
	if len(mem) != int(size) || string(mem[4096:4100]) != "kept" || m.Report().PageBytes != int64(os.Getpagesize()) {
		t.Errorf("%d bytes, %q, %+v", len(mem), mem[4096:4100], m.Report())
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 != size {
		t.Errorf("%d bytes have memory, %v", st.Blocks*512, err)
	}
	mem[size-1] = 7
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, size-1); err != nil || one[0] != 7 {
		t.Errorf("the file has %v, %v", one, err)
	}
	if err := (linux{}).look(mem); err != nil {
		t.Error(err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := (linux{}).look(mem); !errors.Is(err, unix.EFAULT) {
		t.Errorf("look behind the end: %v", err)
	}
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
	if err := mincore(mem, make([]byte, len(mem)/os.Getpagesize()+1)); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("after Unmap: %v", err)
	}
}

func TestFreeHugePages(t *testing.T) {
	sys := fixture(t, "two")
	for file, text := range map[string]string{"nr_hugepages": "1024\n", "free_hugepages": "512\n", "resv_hugepages": "500\n"} {
		write(t, sys, "kernel/mm/hugepages/hugepages-2048kB/"+file, text)
	}
	for _, c := range []struct {
		page int64
		node int
		want int64
	}{{2 * mib, -1, 12}, {2 * mib, 1, 12}, {2 * mib, 0, 0}, {gib, -1, 0}} {
		if n, err := FreeHugePages(sys, c.page, c.node); n != c.want || err != nil {
			t.Errorf("%d on node %d: %d, %v", c.page, c.node, n, err)
		}
	}
	write(t, sys, "kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "many\n")
	if _, err := FreeHugePages(sys, 2*mib, -1); err == nil {
		t.Error("a bad count was taken")
	}
}
