package numa

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// populateBytes is how much of a file is allocated and populated between two looks at the context: 0.1 s or less.
const populateBytes = 256 * mib

// FileConfig says what [MapFile] maps, and where its memory is wanted.
type FileConfig struct {
	// FD is a file of tmpfs or hugetlbfs, open for reading and writing. The caller keeps it, and may close it afterwards.
	FD int
	// Bytes is the file's length, a multiple of its page size, at least one page.
	Bytes int64
	// HaveBytes is how much of it has memory already (st_blocks, stat(2)).
	HaveBytes int64
	// PageBytes is the page size of a hugetlbfs mount, 2 MiB or 1 GiB; 0 for tmpfs.
	PageBytes int64
	// NodeID is as in ArenaConfig.
	NodeID int
	// SysRoot is as in ArenaConfig.
	SysRoot string

	procRoot string
}

// FileMap is a file that is mapped, shared with others. Any goroutine may call its methods, Unmap once and last.
type FileMap struct {
	kernel  fileKernel
	mapping mapping
	report  ArenaReport
}

// fileKernel is what mapping a file asks of the operating system besides.
type fileKernel interface {
	kernel
	mapFile(fd int, bytes int64) (mapping, error)
	// allocate is fallocate(2) without flags.
	allocate(fd int, offset, bytes int64) error
	// look reads from every base page; the fault of a missing one becomes an error.
	look(mem []byte) error
}

// ShortError says that there is not memory enough for a file.
type ShortError struct {
	What       string // what was tried
	Need, Free int64  // bytes; Free is -1 when nothing tells
	Fix        string // may be ""
	Err        error  // may be nil
}

// Error names need, what is free and, where there is one, the fix.
func (e *ShortError) Error() string {
	text := fmt.Sprintf("%s: %d MiB are needed", e.What, (e.Need+mib-1)/mib)
	if e.Free >= 0 {
		text += fmt.Sprintf(", %d MiB are available", e.Free/mib)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + e.Fix
}

// Unwrap returns the errno.
func (e *ShortError) Unwrap() error { return e.Err }

// MapFile maps a file, binds it to the node, allocates and populates all of it, verifies node and page size, and keeps
// it out of children and core dumps. What the file holds stays. A policy or an advice that the kernel refuses is
// reported, not fatal. Without enough memory the error is a *ShortError; when ctx ends it is the context's.
//
// The node is bound before a page is allocated: on a shared file the policy belongs to the file's range (mbind(2)),
// and fallocate(2) follows it. Pages that the file has already stay where they are.
//
// Another process that can write the file can make it shorter. Access to what is gone is SIGBUS (mmap(2)), which the
// caller turns into a panic with debug.SetPanicOnFault, and system calls answer EFAULT.
func MapFile(ctx context.Context, cfg FileConfig) (*FileMap, error) {
	return mapFile(ctx, cfg, linux{})
}

func mapFile(ctx context.Context, cfg FileConfig, k fileKernel) (*FileMap, error) {
	r := rung{KindSmall, cfg.PageBytes}
	page := k.basePageBytes()
	switch cfg.PageBytes {
	case 0:
	case 2 * mib:
		r.kind, page = KindHugetlb2M, cfg.PageBytes
	case gib:
		r.kind, page = KindHugetlb1G, cfg.PageBytes
	default:
		return nil, fmt.Errorf("%w: pages of %d bytes", ErrBadArena, cfg.PageBytes)
	}
	if cfg.NodeID < -1 || cfg.NodeID >= MaxNodes {
		return nil, fmt.Errorf("%w: node %d: must be -1 to %d", ErrBadArena, cfg.NodeID, MaxNodes-1)
	}
	if cfg.Bytes < 1 || cfg.Bytes > maxArenaBytes || cfg.Bytes%page != 0 {
		return nil, fmt.Errorf("%w: %d bytes: must be 1 to %d, in whole pages of %d", ErrBadArena, cfg.Bytes, maxArenaBytes, page)
	}
	a := &arenaMapper{cfg: ArenaConfig{NodeID: cfg.NodeID, SysRoot: cfg.SysRoot, procRoot: cfg.procRoot}, kernel: k}
	if a.cfg.SysRoot == "" {
		a.cfg.SysRoot = "/sys"
	}
	if a.cfg.procRoot == "" {
		a.cfg.procRoot = "/proc"
	}
	if need := cfg.Bytes - cfg.HaveBytes; r.pageBytes == 0 && need > 0 {
		// Allocating more than there is would bring in the OOM killer, not an error: a tmpfs may be larger than memory.
		have, by, ok := availableBytes(a.cfg.procRoot, a.cfg.SysRoot, cfg.NodeID)
		if ok && have < need {
			return nil, &ShortError{What: "memory of " + by, Need: need, Free: have}
		}
	}
	m, err := k.mapFile(cfg.FD, cfg.Bytes)
	if err != nil {
		return nil, a.short(fmt.Sprintf("%s: mmap", r.kind), r, cfg, err)
	}
	f := &FileMap{kernel: k, mapping: m, report: ArenaReport{Bytes: cfg.Bytes, NodeWanted: cfg.NodeID, NodeGot: -1, Kind: r.kind}}
	note := func(format string, args ...any) {
		f.report.Steps = append(f.report.Steps, fmt.Sprintf(format, args...))
	}
	if cfg.NodeID >= 0 {
		if err := k.bind(m.mem, cfg.NodeID); err != nil {
			note("bind to node %d: %v%s", cfg.NodeID, err, bindHint(err))
		}
	}
	if what, err := f.fill(ctx, cfg.FD); err != nil {
		if unmapErr := k.unmap(m); unmapErr != nil {
			return nil, fmt.Errorf("%s: %s: %w (and munmap: %w)", r.kind, what, err, unmapErr)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %s: %w", r.kind, what, err)
		}
		return nil, a.short(r.kind+": "+what, r, cfg, err)
	}
	a.verify(m.mem, r, &f.report)
	if err := k.advise(m.mem, unix.MADV_DONTFORK); err != nil {
		note("MADV_DONTFORK: %v", err)
	}
	if err := k.advise(m.mem, unix.MADV_DONTDUMP); err != nil {
		note("MADV_DONTDUMP: %v", err)
	}
	return f, nil
}

// fill allocates and populates, a part at a time, and says what failed.
func (f *FileMap) fill(ctx context.Context, fd int) (what string, err error) {
	mem := f.mapping.mem
	// A part begins and ends with a page of any size.
	step := int(max(populateBytes, f.report.pageStep()))
	for at := 0; at < len(mem); at += step {
		if err := ctx.Err(); err != nil {
			return "populate", err
		}
		part := mem[at:min(at+step, len(mem))]
		for {
			err = f.kernel.allocate(fd, int64(at), int64(len(part)))
			if !errors.Is(err, unix.EINTR) || ctx.Err() != nil {
				break
			}
		}
		// Old hugetlbfs knows no fallocate; its mmap has reserved the pages, and populating takes them.
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return "allocate", err
		}
		if err := f.populate(part); err != nil {
			return "populate", err
		}
	}
	return "", nil
}

// populate is arenaMapper.populate for memory whose content matters: before Linux 5.14 it is read, not written.
func (f *FileMap) populate(part []byte) error {
	for {
		err := f.kernel.advise(part, unix.MADV_POPULATE_WRITE)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			return f.kernel.look(part)
		}
		return err
	}
}

func (r ArenaReport) pageStep() int64 {
	if r.Kind == KindHugetlb1G {
		return gib
	}
	return 2 * mib
}

// short tells errors that mean "not enough" from others. MADV_POPULATE_WRITE answers EFAULT where an access would be
// SIGBUS, and ENOMEM or EHWPOISON; mmap of hugetlbfs ENOMEM.
func (a *arenaMapper) short(what string, r rung, cfg FileConfig, err error) error {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.ENOMEM, unix.EFAULT} {
		if errors.Is(err, errno) {
			e := &ShortError{What: what, Need: cfg.Bytes - cfg.HaveBytes, Free: -1, Err: err}
			if r.pageBytes > 0 {
				e.Fix = a.poolState(r, e.Need)
				if free, poolErr := FreeHugePages(a.cfg.SysRoot, r.pageBytes, cfg.NodeID); poolErr == nil {
					e.Free = free * r.pageBytes
				}
			}
			return e
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Bytes returns the mapped memory, for as long as it is mapped.
func (f *FileMap) Bytes() []byte { return f.mapping.mem }

// Report says what was obtained. The caller must not change its Steps.
func (f *FileMap) Report() ArenaReport { return f.report }

// Unmap takes the file out of the address space; what it holds stays in the file. Nothing may touch the memory any
// more, devices included.
func (f *FileMap) Unmap() error {
	if err := f.kernel.unmap(f.mapping); err != nil {
		return fmt.Errorf("munmap: %w", err)
	}
	return nil
}

// FreeHugePages returns how many huge pages of a size a new mapping could take now: those free and not reserved, of the
// host, and no more than are free on the node if it is not -1. sysRoot is "" or "/sys" except in tests. A size that the
// kernel does not have is 0.
func FreeHugePages(sysRoot string, pageBytes int64, node int) (int64, error) {
	if sysRoot == "" {
		sysRoot = "/sys"
	}
	host := filepath.Join(sysRoot, "kernel/mm/hugepages")
	pools, err := readHugePages(host)
	if err != nil {
		return 0, err
	}
	free := int64(0)
	for _, p := range pools {
		if p.PageBytes == pageBytes {
			reserved, err := readCount(filepath.Join(host, fmt.Sprintf("hugepages-%dkB", pageBytes>>10), "resv_hugepages"))
			if err != nil {
				return 0, err
			}
			free = max(p.Free-reserved, 0)
		}
	}
	if node < 0 {
		return free, nil
	}
	pools, err = readHugePages(filepath.Join(nodeRoot(sysRoot), "node"+strconv.Itoa(node), "hugepages"))
	if err != nil {
		return 0, err
	}
	if pools == nil {
		return free, nil // a kernel without NUMA
	}
	for _, p := range pools {
		if p.PageBytes == pageBytes {
			return min(free, p.Free), nil
		}
	}
	return 0, nil
}
