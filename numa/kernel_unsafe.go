package numa

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel is what mapping an arena asks of the operating system: the real one below, or one that fails as told.
type kernel interface {
	// mapSmall maps bytes of private memory in base pages, aligned to alignment, with an inaccessible page on either
	// side.
	mapSmall(bytes, alignment int64) (mapping, error)
	// mapHuge maps private memory of huge pages; bytes is a multiple of their size.
	mapHuge(bytes, pageBytes int64) (mapping, error)
	unmap(m mapping) error
	bind(mem []byte, node int) error
	advise(mem []byte, advice int) error
	// touch writes to every base page; the fault of a missing huge page becomes an error.
	touch(mem []byte) error
	// nodes returns the node of the page at every step bytes, or a negative errno for it.
	nodes(mem []byte, step int64) ([]int32, error)
	// backing returns what smaps says.
	backing(mem []byte) (backing, error)
	basePageBytes() int64
}

// mapping is a piece of address space: all of it, and the part to use.
type mapping struct{ whole, mem []byte }

// backing says which pages are behind a mapping.
type backing struct {
	kernelPageBytes int64 // of the page tables' entries; the smallest found
	anonHugeBytes   int64 // in transparent huge pages
}

type linux struct{}

func (linux) basePageBytes() int64 { return int64(os.Getpagesize()) }

func mmap(bytes int64, prot, flags int) ([]byte, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(bytes), prot, flags|unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

func (linux) mapSmall(bytes, alignment int64) (mapping, error) {
	// Reserve, then open the aligned middle. What is left over stays inaccessible: a run over the end faults, and the
	// kernel never merges two arenas' mappings, so that smaps speaks of one arena.
	guard := int64(os.Getpagesize())
	whole, err := mmap(bytes+alignment+2*guard, unix.PROT_NONE, unix.MAP_NORESERVE)
	if err != nil {
		return mapping{}, err
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	skip := (base+uintptr(guard)+uintptr(alignment)-1)&^(uintptr(alignment)-1) - base
	m := mapping{whole: whole, mem: whole[skip : int64(skip)+bytes : int64(skip)+bytes]}
	if err := unix.Mprotect(m.mem, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return mapping{}, errors.Join(err, linux{}.unmap(m))
	}
	return m, nil
}

func (linux) mapHuge(bytes, pageBytes int64) (mapping, error) {
	size := unix.MAP_HUGE_2MB
	if pageBytes == gib {
		size = unix.MAP_HUGE_1GB
	}
	// Without MAP_NORESERVE mmap itself fails when the pools are too small, instead of a page fault later.
	mem, err := mmap(bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_HUGETLB|size)
	if err != nil {
		return mapping{}, err
	}
	return mapping{whole: mem, mem: mem}, nil
}

func (linux) unmap(m mapping) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(m.whole)), uintptr(len(m.whole)))
}

// bind is mbind(2) with MPOL_BIND: pages come from this node or the fault fails.
func (linux) bind(mem []byte, node int) error {
	const bitsPerWord = 64
	var mask [MaxNodes / bitsPerWord]uint64
	mask[node/bitsPerWord] = 1 << (node % bitsPerWord)
	// The kernel takes maxnode-1 bits (get_nodes in mm/mempolicy.c).
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)),
		unix.MPOL_BIND, uintptr(unsafe.Pointer(&mask)), MaxNodes+1, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (linux) advise(mem []byte, advice int) error { return unix.Madvise(mem, advice) }

func (linux) touch(mem []byte) (err error) {
	// A huge page that is not to be had is SIGBUS here; the Go runtime makes it a panic of this goroutine.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("page fault: %v", fault)
		}
	}()
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i] = 0
	}
	return nil
}

// nodes is move_pages(2) without target nodes, which only reports.
func (linux) nodes(mem []byte, step int64) ([]int32, error) {
	// Bounded batches; a page's address is a uintptr, because nothing here is on the Go heap.
	const batch = 4096
	base := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	count := (int64(len(mem)) + step - 1) / step
	status := make([]int32, count)
	pages := make([]uintptr, 0, batch)
	for done := int64(0); done < count; done += int64(len(pages)) {
		pages = pages[:0]
		for i := done; i < count && len(pages) < batch; i++ {
			pages = append(pages, base+uintptr(i*step))
		}
		_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(len(pages)),
			uintptr(unsafe.Pointer(unsafe.SliceData(pages))), 0, uintptr(unsafe.Pointer(&status[done])), 0)
		if errno != 0 {
			return nil, errno
		}
	}
	return status, nil
}

func (linux) backing(mem []byte) (backing, error) {
	// Not bounded like a sysfs attribute: a process has up to vm.max_map_count mappings.
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return backing{}, err
	}
	first := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	return parseSmaps(string(text), first, first+uint64(len(mem)))
}

// parseSmaps sums up the mappings that overlap addresses first to end-1; see proc_pid_smaps(5).
func parseSmaps(text string, first, end uint64) (backing, error) {
	var b backing
	inside, found := false, false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if low, high, ok := strings.Cut(f[0], "-"); ok {
			from, err1 := strconv.ParseUint(low, 16, 64)
			to, err2 := strconv.ParseUint(high, 16, 64)
			if err1 == nil && err2 == nil {
				inside = from < end && to > first
				found = found || inside
				continue
			}
		}
		if !inside || len(f) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 53)
		if err != nil {
			continue // VmFlags
		}
		switch f[0] {
		case "KernelPageSize:":
			if b.kernelPageBytes == 0 || kib<<10 < b.kernelPageBytes {
				b.kernelPageBytes = kib << 10
			}
		case "AnonHugePages:":
			b.anonHugeBytes += kib << 10
		}
	}
	if !found || b.kernelPageBytes == 0 {
		return backing{}, errors.New("smaps does not list the mapping")
	}
	return b, nil
}
