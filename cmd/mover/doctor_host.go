package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"mover/node/config"
	"mover/node/device"
	"mover/numa"
)

// checkCPU looks at the processors, their NUMA nodes and where pollers would
// go.
func checkCPU(cfg *config.Config) []finding {
	out := []finding{ok("version", "mover %s, %s, %s/%s", versionText(), runtime.Version(), runtime.GOOS, runtime.GOARCH)}
	if cpu.X86.HasSSE42 || cpu.ARM64.HasCRC32 {
		out = append(out, ok("crc32c", "done by the CPU"))
	} else {
		out = append(out, warn("crc32c", "use `verify: none` for jobs that can do without, or another CPU", "this CPU has no CRC32C instruction: verifying is slow"))
	}
	topology, err := numa.Read("/sys")
	if err != nil {
		return append(out, fail("numa", "mount sysfs on /sys", "%v", err))
	}
	allowed, err := numa.AllowedCPUs()
	if err != nil {
		return append(out, fail("cpu", "look at the process's cpuset", "%v", err))
	}
	var nodes []string
	var withCPUs int
	for _, n := range topology.Nodes {
		nodes = append(nodes, fmt.Sprintf("node %d: CPUs %s, %v", n.ID, n.CPUs, config.Size(n.MemTotalBytes)/(1<<20)*(1<<20)))
		if !n.CPUs.Intersect(allowed).Empty() {
			withCPUs++
		}
	}
	out = append(out, ok("numa", "%s", strings.Join(nodes, "; ")))
	count := max(len(cfg.Pollers.CPUs), cfg.Pollers.PerNode*withCPUs)
	for _, c := range cfg.Pollers.CPUs {
		if !allowed.Has(c) {
			out = append(out, fail("pollers", "change pollers.cpus, or the service's AllowedCPUs", "CPU %d may not be used: allowed are %s", c, allowed))
		}
	}
	switch n := allowed.Len(); {
	case n >= count+2:
		out = append(out, ok("cpu", "%s (%s), for at most %s", counted(int64(n), "CPU"), allowed, counted(int64(count), "poller")))
	case cfg.Pollers.Idle == "spin" && n < count+1:
		out = append(out, fail("cpu", "set pollers.idle: adaptive, lower pollers.per_node, or allow more CPUs", "%s for up to %s that spin", counted(int64(n), "CPU"), counted(int64(count), "poller")))
	default:
		out = append(out, warn("cpu", "allow more CPUs for speed; pollers.idle: auto then parks them when there is nothing to do", "%s for up to %s and everything else: they will share", counted(int64(n), "CPU"), counted(int64(count), "poller")))
	}
	return out
}

// checkMemory looks at what the arenas need.
func checkMemory(cfg *config.Config, selection *device.Selection) []finding {
	var out []finding
	arena := int64(cfg.Memory.Arena)
	if n, err := availableMemory("/proc/meminfo"); err != nil {
		out = append(out, warn("memory", "mount procfs on /proc", "%v", err))
	} else if n < arena {
		out = append(out, fail("memory", "lower memory.arena and memory.session_share, or free memory", "%v available, memory.arena is %v on each NUMA node with a port", roundedMiB(n), cfg.Memory.Arena))
	} else {
		out = append(out, ok("memory", "%v available, memory.arena is %v on each NUMA node with a port", roundedMiB(n), cfg.Memory.Arena))
	}
	out = append(out, checkHugePages(cfg, selection)...)
	out = append(out, checkMemlock(cfg, selection))
	var files unix.Rlimit
	const wantFiles = 4096
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Max < wantFiles {
		out = append(out, warn("open files", "systemd: LimitNOFILE=65536; or ulimit -n", "at most %d files can be open; large trees need %d", files.Max, wantFiles))
	} else if err == nil {
		out = append(out, ok("open files", "up to %d", files.Max))
	}
	return out
}

// checkMemlock compares what all devices together register with what this
// process may lock.
func checkMemlock(cfg *config.Config, selection *device.Selection) finding {
	const subject, fix = "memlock", "ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1; or smaller arenas"
	need := selection.MemlockNeed(cfg.Memory.Arena)
	if need == 0 {
		return ok(subject, "software verbs lock no memory")
	}
	if err := selection.CheckMemlock(cfg); errors.Is(err, numa.ErrMemlock) {
		return fail(subject, fix, "%v", err)
	} else if err != nil {
		return warn(subject, "mount procfs on /proc", "%v", err)
	}
	return ok(subject, "%v, which %s register together, may be locked", config.Size(need), counted(int64(len(selection.Used())), "device"))
}

func roundedMiB(n int64) config.Size { return config.Size(n &^ (1<<20 - 1)) }

func availableMemory(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("reading what memory is available: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("%s does not say what memory is available", file)
}

func checkHugePages(cfg *config.Config, selection *device.Selection) []finding {
	if cfg.Memory.HugePages == "none" {
		return []finding{ok("huge pages", "not wanted (memory.hugepages: none)")}
	}
	topology, err := numa.Read("/sys")
	if err != nil {
		return nil // said by checkCPU
	}
	insisted, pageBytes := device.InsistedPages(cfg)
	if !insisted {
		pageBytes = 2 << 20
	}
	missing := selection.MissingHugePages(cfg, topology, pageBytes)
	switch {
	case missing == nil:
		return []finding{ok("huge pages", "enough of %v are free on each NUMA node with a port", config.Size(pageBytes))}
	case insisted:
		p := missing.Problem()
		return []finding{fail("huge pages", p.Fix, "%s", p.What)}
	}
	transparent, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	second := "transparent huge pages will be tried"
	if err != nil || strings.Contains(string(transparent), "[never]") {
		second = "and transparent huge pages are off: 4 KiB pages will be used"
	}
	if cfg.Memory.HugePages == "transparent" && !strings.Contains(second, "off") {
		return []finding{ok("huge pages", "transparent, as configured")}
	}
	return []finding{warn("huge pages", missing.Fix, "NUMA node %d has %d of the %d pages of 2MiB needed free; %s", missing.Node, missing.Free, missing.Need, second)}
}
