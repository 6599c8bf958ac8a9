package numa

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// faultyKernel fails as told, and keeps books of what is mapped. Its memory is the Go heap's.
type faultyKernel struct {
	hugeErr, smallErr, bindErr, populateErr, touchErr, nodesErr, backingErr error
	hugePopulateErr                                                         error // populate of hugetlb memory
	adviseErr                                                               map[int]error
	interrupts                                                              int // EINTRs of populate before it goes on
	huge                                                                    backing
	node                                                                    int32

	calls    []string
	hugetlb  bool
	unmapped int
	mapped   int
}

func (k *faultyKernel) call(format string, args ...any) {
	k.calls = append(k.calls, fmt.Sprintf(format, args...))
}

func (k *faultyKernel) mapMemory(bytes int64) mapping {
	k.mapped++
	mem := make([]byte, bytes)
	return mapping{whole: mem, mem: mem}
}

func (k *faultyKernel) mapSmall(bytes, alignment int64) (mapping, error) {
	k.call("mmap %d", bytes>>20)
	k.hugetlb = false
	if k.smallErr != nil {
		return mapping{}, k.smallErr
	}
	return k.mapMemory(bytes), nil
}

func (k *faultyKernel) mapHuge(bytes, pageBytes int64) (mapping, error) {
	k.call("mmap %d in %d", bytes>>20, pageBytes>>20)
	k.hugetlb = true
	if k.hugeErr != nil || pageBytes == gib { // this host has no such pages
		return mapping{}, errors.Join(k.hugeErr, unix.ENOMEM)
	}
	return k.mapMemory(bytes), nil
}

func (k *faultyKernel) unmap(mapping) error {
	k.call("munmap")
	k.unmapped++
	return nil
}

func (k *faultyKernel) bind(_ []byte, node int) error {
	k.call("bind %d", node)
	return k.bindErr
}

func (k *faultyKernel) advise(_ []byte, advice int) error {
	k.call("advise %s", map[int]string{unix.MADV_HUGEPAGE: "huge", unix.MADV_NOHUGEPAGE: "nohuge",
		unix.MADV_POPULATE_WRITE: "populate", unix.MADV_DONTFORK: "dontfork", unix.MADV_DONTDUMP: "dontdump"}[advice])
	if advice == unix.MADV_POPULATE_WRITE {
		if k.interrupts > 0 {
			k.interrupts--
			return unix.EINTR
		}
		if k.hugetlb && k.hugePopulateErr != nil {
			return k.hugePopulateErr
		}
		return k.populateErr
	}
	return k.adviseErr[advice]
}

func (k *faultyKernel) touch([]byte) error {
	k.call("touch")
	return k.touchErr
}

func (k *faultyKernel) nodes(mem []byte, step int64) ([]int32, error) {
	status := make([]int32, int64(len(mem))/step)
	for i := range status {
		status[i] = k.node
	}
	return status, k.nodesErr
}

func (k *faultyKernel) backing(mem []byte) (backing, error) { return k.huge, k.backingErr }

func (k *faultyKernel) basePageBytes() int64 { return 4096 }

// TestChain maps 3 MiB (rounded up to 4) on a host of two nodes; node 1 has 512 of 1024 2 MiB pages free.
func TestChain(t *testing.T) {
	sys, proc := fixture(t, "two"), t.TempDir()
	small := backing{kernelPageBytes: 4096}
	thp := backing{kernelPageBytes: 4096, anonHugeBytes: 4 * mib}
	hugetlb := backing{kernelPageBytes: 2 * mib}
	for name, c := range map[string]struct {
		kernel faultyKernel
		prefer string
		node   int
		kind   string // "" is an error
		page   int64
		got    int
		steps  []string // each a part of the step at its place
		calls  string   // a part of the calls
	}{
		"hugetlb": {kernel: faultyKernel{huge: hugetlb, node: 1}, node: 1, kind: KindHugetlb2M, page: 2 * mib, got: 1,
			calls: "mmap 4 in 2, bind 1, advise populate, advise dontfork, advise dontdump"},
		"1 GiB asked for": {kernel: faultyKernel{huge: hugetlb, node: 1}, prefer: HugePages1G, node: 1, kind: KindHugetlb2M,
			page: 2 * mib, got: 1, steps: []string{"hugetlb 1GiB: mmap: cannot allocate memory: 4 of 1 pages needed are free"},
			calls: "mmap 1024 in 1024, mmap 4 in 2"},
		"no hugetlb pages": {kernel: faultyKernel{hugeErr: unix.ENOMEM, huge: thp}, node: 0, kind: KindTransparent,
			page: 2 * mib, got: 0, steps: []string{"hugetlb 2MiB: mmap: cannot allocate memory"},
			calls: "mmap 4 in 2, mmap 4, bind 0, advise huge, advise populate, advise dontfork, advise dontdump"},
		"hugetlb reserved but not on this node": {kernel: faultyKernel{hugePopulateErr: unix.EFAULT, huge: thp}, node: 0,
			kind: KindTransparent, page: 2 * mib, got: 0,
			steps: []string{"hugetlb 2MiB: populate: the node ran out of such pages: bad address: 0 of 2 pages needed are free on node 0; echo 2 > "},
			calls: "advise populate, munmap, mmap 4, bind 0"},
		"hugetlb, old kernel, SIGBUS": {kernel: faultyKernel{hugePopulateErr: unix.EINVAL, touchErr: errors.New("page fault"),
			huge: thp}, node: 0, kind: KindTransparent, page: 2 * mib, got: 0,
			steps: []string{"hugetlb 2MiB: populate: page fault"}, calls: "touch, munmap, mmap 4"},
		"transparent not to be had": {kernel: faultyKernel{hugeErr: unix.ENOMEM, huge: small}, node: 0, kind: KindSmall,
			page: 4096, got: 0, steps: []string{"hugetlb 2MiB", "0 of 4 MiB are in huge pages"}},
		"transparent in part": {kernel: faultyKernel{huge: backing{kernelPageBytes: 4096, anonHugeBytes: 2 * mib}},
			prefer: HugePagesTransparent, node: 0, kind: KindTransparent, page: 4096, got: 0,
			steps: []string{"2 of 4 MiB are in huge pages"}},
		"no transparent huge pages in the kernel": {kernel: faultyKernel{hugeErr: unix.EINVAL, huge: small,
			adviseErr: map[int]error{unix.MADV_HUGEPAGE: unix.EINVAL, unix.MADV_NOHUGEPAGE: unix.EINVAL}}, node: 0,
			kind: KindSmall, page: 4096, got: 0, steps: []string{"hugetlb 2MiB", "MADV_HUGEPAGE: invalid argument"},
			calls: "advise huge, munmap, mmap 4, bind 0, advise nohuge"},
		"none wanted": {kernel: faultyKernel{huge: small}, prefer: HugePagesNone, node: 0, kind: KindSmall, page: 4096, got: 0,
			calls: "mmap 4, bind 0, advise nohuge, advise populate, advise dontfork"},
		"old kernel": {kernel: faultyKernel{populateErr: unix.EINVAL, huge: hugetlb}, node: 0, kind: KindHugetlb2M,
			page: 2 * mib, got: 0, calls: "advise populate, touch, advise dontfork"},
		"signals": {kernel: faultyKernel{interrupts: 2, huge: hugetlb}, node: 0, kind: KindHugetlb2M, page: 2 * mib, got: 0,
			calls: "advise populate, advise populate, advise populate, advise dontfork"},
		"not bound": {kernel: faultyKernel{huge: hugetlb, node: 1}, node: -1, kind: KindHugetlb2M, page: 2 * mib, got: 1,
			calls: "mmap 4 in 2, advise populate"},
		"bind not permitted": {kernel: faultyKernel{bindErr: unix.EPERM, huge: hugetlb, node: 0}, node: 1,
			kind: KindHugetlb2M, page: 2 * mib, got: 0,
			steps: []string{"bind to node 1: operation not permitted (a seccomp filter?", "0 of 2 pages looked at are on node 1"}},
		"kernel without NUMA": {kernel: faultyKernel{bindErr: unix.ENOSYS, nodesErr: unix.ENOSYS, huge: hugetlb}, node: 0,
			kind: KindHugetlb2M, page: 2 * mib, got: -1,
			steps: []string{"(a kernel without NUMA)", "cannot verify the node: move_pages: function not implemented"}},
		"no smaps": {kernel: faultyKernel{backingErr: unix.ENOENT}, node: 0, kind: KindHugetlb2M, page: 4096, got: 0,
			steps: []string{"cannot verify the page size"}},
		"dontfork refused": {kernel: faultyKernel{huge: hugetlb, adviseErr: map[int]error{unix.MADV_DONTFORK: unix.EINVAL}},
			node: 0, kind: KindHugetlb2M, page: 2 * mib, got: 0, steps: []string{"MADV_DONTFORK: invalid argument"}},
		"nothing works": {kernel: faultyKernel{hugeErr: unix.ENOMEM, smallErr: unix.ENOMEM}, node: 0,
			steps: []string{"hugetlb 2MiB: mmap", "transparent huge pages: mmap", "small pages: mmap"}},
		"nothing to populate with": {kernel: faultyKernel{populateErr: unix.ENOMEM}, node: 0,
			steps: []string{"hugetlb 2MiB: populate", "transparent huge pages: populate", "small pages: populate"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := c.kernel
			a, err := mapArena(ArenaConfig{NodeID: c.node, Bytes: 3 * mib, HugePages: c.prefer, SysRoot: sys, procRoot: proc}, &k)
			var steps []string
			if c.kind == "" {
				var typed *ArenaError
				if !errors.As(err, &typed) || !errors.Is(err, ErrNoMemory) || typed.Need != 4*mib {
					t.Fatalf("got %v", err)
				}
				steps = typed.Steps
				for _, want := range []string{"need 4 MiB on node 0", "node 0 has 111938 MiB available", "make the arena smaller"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q misses %q", err, want)
					}
				}
			} else {
				if err != nil {
					t.Fatal(err)
				}
				r := a.Report()
				steps = r.Steps
				if r.Kind != c.kind || r.PageBytes != c.page || r.NodeGot != c.got || r.NodeWanted != c.node || r.Bytes != 4*mib ||
					int64(len(a.Bytes())) != r.Bytes {
					t.Errorf("%+v", r)
				}
				if err := a.Unmap(); err != nil {
					t.Error(err)
				}
			}
			if len(steps) != len(c.steps) {
				t.Fatalf("steps: %q", steps)
			}
			for i, want := range c.steps {
				if !strings.Contains(steps[i], want) {
					t.Errorf("step %d: %q misses %q", i, steps[i], want)
				}
			}
			if calls := strings.Join(k.calls, ", "); !strings.Contains(calls, c.calls) {
				t.Errorf("calls: %s", calls)
			}
			if k.mapped != k.unmapped {
				t.Errorf("%d mapped, %d unmapped", k.mapped, k.unmapped)
			}
		})
	}
}

func TestMapArenaRefuses(t *testing.T) {
	for _, cfg := range []ArenaConfig{
		{NodeID: -2, Bytes: 1}, {NodeID: MaxNodes, Bytes: 1}, {Bytes: 0}, {Bytes: -1}, {Bytes: maxArenaBytes + 1},
		{Bytes: 1, HugePages: "4KiB"},
	} {
		if _, err := MapArena(cfg); !errors.Is(err, ErrBadArena) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestNotEnough: small pages that are not available are refused before the OOM killer would have a say.
func TestNotEnough(t *testing.T) {
	k := faultyKernel{hugeErr: unix.ENOMEM}
	_, err := mapArena(ArenaConfig{NodeID: 1, Bytes: 1 << 40, SysRoot: fixture(t, "two"), procRoot: t.TempDir()}, &k)
	if !errors.Is(err, ErrNoMemory) || !strings.Contains(err.Error(), "1048576 MiB are needed and node 1 has 112792 MiB available") {
		t.Fatal(err)
	}
	if k.mapped != 0 {
		t.Fatal("mapped it all the same")
	}
}

func TestAvailableBytes(t *testing.T) {
	sys, proc := fixture(t, "two"), t.TempDir()
	check := func(node int, wantMiB int64, wantBy string, wantOK bool) {
		t.Helper()
		n, by, ok := availableBytes(proc, sys, node)
		if n>>20 != wantMiB || by != wantBy || ok != wantOK {
			t.Errorf("node %d: %d MiB by %q, %v", node, n>>20, by, ok)
		}
	}
	check(-1, 0, "", false)
	check(0, 111938, "node 0", true)
	write(t, proc, "meminfo", "MemTotal: 263000000 kB\nMemAvailable:   2048000 kB\n")
	check(-1, 2000, "the host", true)
	check(0, 2000, "the host", true)
	write(t, proc, "self/cgroup", "1:cpu:/other\n0::/system.slice/mover.service\n")
	check(0, 2000, "the host", true)
	write(t, sys, "fs/cgroup/system.slice/mover.service/memory.max", "max\n")
	check(0, 2000, "the host", true)
	for file, text := range map[string]string{"max": "1073741824\n", "current": "943718400\n",
		"stat": "anon 1\ninactive_file 419430400\n"} {
		write(t, sys, "fs/cgroup/system.slice/memory."+file, text)
	}
	check(0, 524, "the cgroup (memory.max)", true)
	write(t, proc, "self/cgroup", "0::/../../escape\n")
	check(0, 2000, "the host", true)
}

func TestParseSmaps(t *testing.T) {
	const text = `7f0000000000-7f0000001000 ---p 00000000 00:00 0
Size:                  4 kB
KernelPageSize:        4 kB
AnonHugePages:         0 kB
VmFlags: mr mw me
7f0000200000-7f0000600000 rw-p 00000000 00:00 0                          [anon]
Size:               4096 kB
KernelPageSize:        4 kB
AnonHugePages:      2048 kB
7f0000600000-7f0000800000 rw-p 00000000 00:0f 123                        /anon_hugepage (deleted)
KernelPageSize:     2048 kB
AnonHugePages:         0 kB
`
	for _, c := range []struct {
		first, end uint64
		want       backing
		ok         bool
	}{
		{0x7f0000200000, 0x7f0000600000, backing{4096, 2 * mib}, true},
		{0x7f0000600000, 0x7f0000800000, backing{2 * mib, 0}, true},
		{0x7f0000200000, 0x7f0000800000, backing{4096, 2 * mib}, true},
		{0x7f0000800000, 0x7f0000900000, backing{}, false},
	} {
		got, err := parseSmaps(text, c.first, c.end)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("%x: %+v, %v", c.first, got, err)
		}
	}
}

// TestRealArena maps arenas of every preference on the kernel at hand and believes nothing of the report.
func TestRealArena(t *testing.T) {
	for _, prefer := range []string{"", HugePagesAuto, HugePages1G, HugePages2M, HugePagesTransparent, HugePagesNone} {
		t.Run(prefer, func(t *testing.T) {
			a, err := MapArena(ArenaConfig{NodeID: 0, Bytes: 7 * mib, HugePages: prefer})
			if err != nil {
				t.Fatal(err)
			}
			r := a.Report()
			t.Log(r)
			mem := a.Bytes()
			if r.Bytes < 8*mib || r.Bytes%arenaUnitBytes != 0 || int64(len(mem)) != r.Bytes {
				t.Errorf("%d bytes, reported %d", len(mem), r.Bytes)
			}
			if uintptr(unsafe.Pointer(&mem[0]))%uintptr(arenaUnitBytes) != 0 {
				t.Errorf("begins at %p", &mem[0])
			}
			if prefer == HugePagesNone && (r.HugeBytes != 0 || r.Kind != KindSmall) {
				t.Errorf("asked for small pages: %+v", r)
			}
			resident := make([]byte, len(mem)/int(linux{}.basePageBytes()))
			if err := mincore(mem, resident); err != nil {
				t.Fatal(err)
			}
			for i, page := range resident {
				if page&1 == 0 {
					t.Fatalf("page %d of %d is not there", i, len(resident))
				}
			}
			mem[0], mem[len(mem)-1] = 1, 2
			if err := a.Unmap(); err != nil {
				t.Fatal(err)
			}
			if err := mincore(mem, resident); !errors.Is(err, unix.ENOMEM) {
				t.Errorf("after Unmap: %v", err)
			}
		})
	}
}

func mincore(mem, vec []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)),
		uintptr(unsafe.Pointer(unsafe.SliceData(vec))))
	if errno != 0 {
		return errno
	}
	return nil
}

// TestTouchSurvivesFaults is the fallback for kernels without MADV_POPULATE_WRITE: a page that cannot be had is an
// error, not the end of the process.
func TestTouchSurvivesFaults(t *testing.T) {
	m, err := linux{}.mapSmall(arenaUnitBytes, arenaUnitBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer linux{}.unmap(m)
	if err := (linux{}).touch(m.mem); err != nil {
		t.Fatal(err)
	}
	guarded := unsafe.Slice(unsafe.SliceData(m.mem), len(m.mem)+1) // one byte into the guard page
	if err := (linux{}).touch(guarded); err == nil {
		t.Fatal("wrote into the guard page")
	}
}

func TestReportString(t *testing.T) {
	var got []string
	for _, r := range []ArenaReport{
		{Bytes: 64 * mib, NodeWanted: 1, NodeGot: 1, Kind: KindHugetlb2M},
		{Bytes: 64 * mib, NodeWanted: -1, NodeGot: 0, HugeBytes: 2 * mib, Kind: KindTransparent},
		{Bytes: 64 * mib, NodeWanted: 1, NodeGot: 0, Kind: KindSmall, Steps: []string{"a: b", "c: d"}},
		{Bytes: 64 * mib, NodeWanted: 1, NodeGot: -1, Kind: KindSmall},
	} {
		got = append(got, r.String())
	}
	if diff := cmp.Diff([]string{
		"64 MiB in hugetlb 2MiB on node 1",
		"64 MiB in transparent huge pages (2 MiB of it huge) on node 0",
		"64 MiB in small pages on node 0 instead of 1; a: b; c: d",
		"64 MiB in small pages, wanted on node 1",
	}, got); diff != "" {
		t.Error(diff)
	}
}
