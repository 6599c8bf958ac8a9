package numa

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// HugePages preferences of [ArenaConfig].
const (
	HugePagesAuto        = "auto"        // 2 MiB hugetlb, else transparent, else small pages
	HugePages1G          = "1GiB"        // 1 GiB hugetlb, else as auto
	HugePages2M          = "2MiB"        // the same as auto, said explicitly
	HugePagesTransparent = "transparent" // transparent huge pages, else small pages
	HugePagesNone        = "none"        // small pages only
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30

	// arenaUnitBytes is what arenas are rounded up to and leases are made of: a huge page, so that no registration
	// shares one with another.
	arenaUnitBytes = 2 * mib
	// maxArenaBytes is far above any host's memory; it keeps sums of sizes from wrapping.
	maxArenaBytes = int64(1) << 46
)

// ErrBadArena is wrapped by the errors of [MapArena] about its configuration.
var ErrBadArena = errors.New("bad arena")

// ArenaConfig says what is wanted of an arena.
type ArenaConfig struct {
	// NodeID is the node to bind the memory to, 0 to MaxNodes-1, or -1 for wherever it comes from. A node without
	// memory has a neighbour that stands in: [Topology.MemoryNode].
	NodeID int
	// Bytes is rounded up to 2 MiB (to 1 GiB when those pages are obtained); at least 1.
	Bytes int64
	// HugePages is one of the HugePages constants; "" is auto.
	HugePages string
	// SysRoot is where sysfs is, to say why huge pages are missing; "" is /sys.
	SysRoot string

	procRoot string // "" is /proc
}

// rung is one step of the chain from the best to the plainest memory.
type rung struct {
	kind      string
	pageBytes int64 // of hugetlb pages; 0 for the others
}

func (c ArenaConfig) rungs() ([]rung, error) {
	all := []rung{{KindHugetlb1G, gib}, {KindHugetlb2M, 2 * mib}, {KindTransparent, 0}, {KindSmall, 0}}
	switch c.HugePages {
	case "", HugePagesAuto, HugePages2M:
		return all[1:], nil
	case HugePages1G:
		return all, nil
	case HugePagesTransparent:
		return all[2:], nil
	case HugePagesNone:
		return all[3:], nil
	}
	return nil, fmt.Errorf("%w: hugepages %q: must be %s, %s, %s, %s or %s", ErrBadArena, c.HugePages,
		HugePagesAuto, HugePages1G, HugePages2M, HugePagesTransparent, HugePagesNone)
}

// MapArena maps memory, binds it to the node, populates it, verifies node and page size, and keeps it out of children
// and core dumps. It takes the best kind of memory that works, from what cfg prefers down to small pages; the report
// says what was obtained. A policy or an advice that the kernel refuses is reported, not fatal. When nothing works the
// error is an *ArenaError.
//
// The pages are faulted in, and so really there, when MapArena returns; expect about 0.1 to 0.3 s a GiB. The memory is
// not on the Go heap. It is zero at first.
func MapArena(cfg ArenaConfig) (*Arena, error) {
	return mapArena(cfg, linux{})
}

func mapArena(cfg ArenaConfig, k kernel) (*Arena, error) {
	if cfg.NodeID < -1 || cfg.NodeID >= MaxNodes {
		return nil, fmt.Errorf("%w: node %d: must be -1 to %d", ErrBadArena, cfg.NodeID, MaxNodes-1)
	}
	if cfg.Bytes < 1 || cfg.Bytes > maxArenaBytes {
		return nil, fmt.Errorf("%w: %d bytes: must be 1 to %d", ErrBadArena, cfg.Bytes, maxArenaBytes)
	}
	rungs, err := cfg.rungs()
	if err != nil {
		return nil, err
	}
	if cfg.SysRoot == "" {
		cfg.SysRoot = "/sys"
	}
	if cfg.procRoot == "" {
		cfg.procRoot = "/proc"
	}
	a := &arenaMapper{kernel: k, cfg: cfg}
	for _, r := range rungs {
		m, report, err := a.try(r)
		if err != nil {
			a.failed = append(a.failed, err.Error())
			continue
		}
		report.Steps = append(a.failed, report.Steps...)
		return newArena(k, m, report), nil
	}
	return nil, &ArenaError{Need: roundUp64(cfg.Bytes, arenaUnitBytes), Node: cfg.NodeID, Limit: a.limit(), Steps: a.failed}
}

type arenaMapper struct {
	kernel kernel
	cfg    ArenaConfig
	failed []string // rungs that did not work
}

// try goes through all steps for one kind of memory and leaves nothing behind on failure.
func (a *arenaMapper) try(r rung) (mapping, ArenaReport, error) {
	unit := max(arenaUnitBytes, r.pageBytes)
	report := ArenaReport{Bytes: roundUp64(a.cfg.Bytes, unit), NodeWanted: a.cfg.NodeID, NodeGot: -1, Kind: r.kind}
	note := func(format string, args ...any) { report.Steps = append(report.Steps, fmt.Sprintf(format, args...)) }

	var m mapping
	var err error
	if r.pageBytes > 0 {
		m, err = a.kernel.mapHuge(report.Bytes, r.pageBytes)
	} else {
		if err := a.enough(report.Bytes); err != nil {
			return mapping{}, report, fmt.Errorf("%s: %w", r.kind, err)
		}
		m, err = a.kernel.mapSmall(report.Bytes, arenaUnitBytes)
	}
	if err != nil {
		return mapping{}, report, fmt.Errorf("%s: mmap: %w%s", r.kind, err, a.poolState(r, report.Bytes))
	}
	if a.cfg.NodeID >= 0 {
		if err := a.kernel.bind(m.mem, a.cfg.NodeID); err != nil {
			note("%s: bind to node %d: %v%s", r.kind, a.cfg.NodeID, err, bindHint(err))
		}
	}
	switch r.kind {
	case KindTransparent:
		err = a.kernel.advise(m.mem, unix.MADV_HUGEPAGE)
	case KindSmall:
		// A kernel without transparent huge pages answers EINVAL, and has none to avoid.
		if err := a.kernel.advise(m.mem, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
			note("%s: MADV_NOHUGEPAGE: %v", r.kind, err)
		}
	}
	if err != nil {
		return mapping{}, report, a.giveUp(m, fmt.Errorf("%s: MADV_HUGEPAGE: %w", r.kind, err))
	}
	if err := a.populate(m.mem); err != nil {
		what := "populate"
		if r.pageBytes > 0 && errors.Is(err, unix.EFAULT) {
			what = "populate: the node ran out of such pages" // they were reserved on another
		}
		err = a.giveUp(m, fmt.Errorf("%s: %s: %w", r.kind, what, err))
		// Not before: what the mapping held would not count as free.
		return mapping{}, report, fmt.Errorf("%w%s", err, a.poolState(r, report.Bytes))
	}
	a.verify(m.mem, r, &report)
	// A child must not share pages that devices write to: after fork they could become copies (madvise(2)).
	if err := a.kernel.advise(m.mem, unix.MADV_DONTFORK); err != nil {
		note("MADV_DONTFORK: %v", err)
	}
	if err := a.kernel.advise(m.mem, unix.MADV_DONTDUMP); err != nil {
		note("MADV_DONTDUMP: %v", err)
	}
	return m, report, nil
}

func (a *arenaMapper) giveUp(m mapping, err error) error {
	if unmapErr := a.kernel.unmap(m); unmapErr != nil {
		return fmt.Errorf("%w (and munmap: %w)", err, unmapErr)
	}
	return err
}

// populate faults everything in. MADV_POPULATE_WRITE (Linux 5.14) reports what would otherwise be SIGBUS or the OOM
// killer's business; before it, pages are touched one by one.
func (a *arenaMapper) populate(mem []byte) error {
	for {
		err := a.kernel.advise(mem, unix.MADV_POPULATE_WRITE)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue // a signal; what is populated stays so
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
			return a.kernel.touch(mem)
		}
		return err
	}
}

// verify fills in what the memory really is.
func (a *arenaMapper) verify(mem []byte, r rung, report *ArenaReport) {
	note := func(format string, args ...any) { report.Steps = append(report.Steps, fmt.Sprintf(format, args...)) }
	report.PageBytes = a.kernel.basePageBytes()
	b, err := a.kernel.backing(mem)
	switch {
	case err != nil:
		note("%s: cannot verify the page size: %v", r.kind, err)
	case r.pageBytes > 0:
		report.PageBytes, report.HugeBytes = b.kernelPageBytes, report.Bytes
		if b.kernelPageBytes < r.pageBytes {
			note("%s: the kernel's pages are %d KiB", r.kind, b.kernelPageBytes>>10)
		}
	default:
		report.HugeBytes = min(b.anonHugeBytes, report.Bytes)
		if report.HugeBytes == report.Bytes {
			report.PageBytes = arenaUnitBytes
		} else if r.kind == KindTransparent {
			note("%s: %d of %d MiB are in huge pages; see /sys/kernel/mm/transparent_hugepage/enabled, or memory is "+
				"fragmented: reserve pages with vm.nr_hugepages=%d", r.kind, report.HugeBytes>>20, report.Bytes>>20,
				report.Bytes/(2*mib))
			if report.HugeBytes == 0 {
				report.Kind = KindSmall
			}
		}
	}
	a.verifyNode(mem, report, note)
}

func (a *arenaMapper) verifyNode(mem []byte, report *ArenaReport, note func(string, ...any)) {
	status, err := a.kernel.nodes(mem, arenaUnitBytes)
	if err != nil {
		note("cannot verify the node: move_pages: %v", err)
		return
	}
	on := map[int32]int{}
	for _, s := range status {
		on[s]++
	}
	if first := status[0]; on[first] == len(status) && first >= 0 {
		report.NodeGot = int(first)
	}
	if want := report.NodeWanted; want >= 0 && report.NodeGot != want {
		note("%d of %d pages looked at are on node %d", on[int32(want)], len(status), want)
	}
}

// enough refuses small pages that are not there: populating them would bring in the OOM killer, not an error. What it
// cannot find out it lets pass.
func (a *arenaMapper) enough(bytes int64) error {
	have, by, ok := availableBytes(a.cfg.procRoot, a.cfg.SysRoot, a.cfg.NodeID)
	if ok && have < bytes {
		return fmt.Errorf("%d MiB are needed and %s has %d MiB available", bytes>>20, by, have>>20)
	}
	return nil
}

// limit says what is known about why nothing worked.
func (a *arenaMapper) limit() string {
	have, by, ok := availableBytes(a.cfg.procRoot, a.cfg.SysRoot, a.cfg.NodeID)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s has %d MiB available", by, have>>20)
}

// poolState says how many huge pages there are and how to get enough: of the node when one is wanted, else of the host.
func (a *arenaMapper) poolState(r rung, bytes int64) string {
	if r.pageBytes == 0 {
		return ""
	}
	need := bytes / r.pageBytes
	dir, where := filepath.Join(a.cfg.SysRoot, "kernel/mm/hugepages"), ""
	if a.cfg.NodeID >= 0 {
		node := filepath.Join(nodeRoot(a.cfg.SysRoot), "node"+strconv.Itoa(a.cfg.NodeID), "hugepages")
		if pools, err := readHugePages(node); err == nil && pools != nil {
			dir, where = node, fmt.Sprintf(" on node %d", a.cfg.NodeID)
		}
	}
	pools, err := readHugePages(dir)
	if err != nil {
		return fmt.Sprintf(" (%d pages needed; %v)", need, err)
	}
	for _, p := range pools {
		if p.PageBytes != r.pageBytes {
			continue
		}
		fix := fmt.Sprintf("set vm.nr_hugepages=%d", p.Total-p.Free+need)
		if r.pageBytes == gib || where != "" {
			file := filepath.Join(dir, fmt.Sprintf("hugepages-%dkB", r.pageBytes>>10), "nr_hugepages")
			fix = fmt.Sprintf("echo %d > %s", p.Total-p.Free+need, file)
		}
		return fmt.Sprintf(": %d of %d pages needed are free%s; %s", p.Free, need, where, fix)
	}
	return fmt.Sprintf(": this kernel has no %s pages", strings.TrimPrefix(r.kind, "hugetlb "))
}

func bindHint(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return " (a seccomp filter? containers need CAP_SYS_NICE for it)"
	case errors.Is(err, unix.EINVAL):
		return " (no memory on that node, or it is not in the cpuset's mems)"
	case errors.Is(err, unix.ENOSYS):
		return " (a kernel without NUMA)"
	}
	return ""
}

func roundUp64(n, to int64) int64 { return (n + to - 1) / to * to }
