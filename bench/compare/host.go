package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mover/bench/pairs"
	"mover/bench/procfs"
)

// hostFacts is what a figure depends on besides the programs compared. It is
// written next to the figures.
type hostFacts struct {
	StartedAt     time.Time        `json:"started_at"`
	Mover         string           `json:"mover"` // version line; empty in a baseline run
	CPU           string           `json:"cpu"`
	CPUs          int              `json:"cpus"` // this process may use
	MemoryBytes   int64            `json:"memory_bytes"`
	Kernel        string           `json:"kernel"`
	Arch          string           `json:"arch"`
	TCPCongestion string           `json:"tcp_congestion"` // of both sides of every TCP connection
	HugePages     string           `json:"transparent_hugepages"`
	LoadBefore    string           `json:"load_before"` // /proc/loadavg: was the machine quiet?
	LoadAfter     string           `json:"load_after"`
	Filesystems   []filesystemFact `json:"filesystems"`
	Packages      []packageFact    `json:"packages"`
	SizeBytes     int64            `json:"size_bytes"` // of the file in file figures
	Pairs         int              `json:"pairs"`
	MemorySeconds int              `json:"memory_seconds"` // of one run in memory figures
	Statistic     string           `json:"statistic"`
	BootstrapSeed int              `json:"bootstrap_seed"`
}

type filesystemFact struct {
	Figures    placeKind `json:"figures"` // "tmpfs" or "disk"
	Directory  string    `json:"directory"`
	Filesystem string    `json:"filesystem"`
}

type packageFact struct {
	Name    string `json:"name"`
	Version string `json:"version"` // "not installed from a package" when unknown
}

// peerPackages are the Debian packages the peers come from: those of
// bench/packages.txt, and coreutils, which is always there. A test keeps the
// two lists equal.
var peerPackages = []string{"iperf3", "rsync", "globus-gridftp-server-progs", "globus-gass-copy-progs", "coreutils"}

// gatherFacts reads what can be known of the machine. What a kernel does not
// tell is left empty: a missing fact is no reason not to measure.
func gatherFacts(ctx context.Context, o options) hostFacts {
	h := hostFacts{
		StartedAt:     time.Now().UTC(),
		CPU:           cpuModel(readText("/proc/cpuinfo")),
		CPUs:          runtime.NumCPU(),
		Arch:          runtime.GOARCH,
		TCPCongestion: strings.TrimSpace(readText("/proc/sys/net/ipv4/tcp_congestion_control")),
		HugePages:     strings.TrimSpace(readText("/sys/kernel/mm/transparent_hugepage/enabled")),
		LoadBefore:    loadAverage(),
		SizeBytes:     o.size,
		Pairs:         o.pairs,
		MemorySeconds: o.seconds,
		Statistic:     fmt.Sprintf("median of pair ratios, %.0f %% percentile bootstrap, %d resamples", pairs.Confidence*100, pairs.Resamples),
		BootstrapSeed: pairs.BootstrapSeed,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if total, err := procfs.KiBField(readText("/proc/meminfo"), "MemTotal"); err == nil {
		h.MemoryBytes = total
	}
	for _, name := range peerPackages {
		version := "not installed from a package"
		out, err := runClient(ctx, startDeadline, nil, "dpkg-query", "-W", "-f=${Version}", name)
		if v := strings.TrimSpace(string(out)); err == nil && v != "" {
			version = v
		}
		h.Packages = append(h.Packages, packageFact{name, version})
	}
	return h
}

func loadAverage() string { return strings.TrimSpace(readText("/proc/loadavg")) }

// readText reads a small proc or sys file; empty when it cannot be read.
func readText(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// cpuModel takes the processor's name out of /proc/cpuinfo. arm64 kernels
// print no name, only implementer and part.
func cpuModel(cpuinfo string) string {
	fields := map[string]string{}
	for line := range strings.Lines(cpuinfo) {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if _, seen := fields[name]; ok && !seen {
			fields[name] = value
		}
	}
	if name := fields["model name"]; name != "" {
		return name
	}
	if part := fields["CPU part"]; part != "" {
		return "implementer " + fields["CPU implementer"] + " part " + part
	}
	return "unknown CPU"
}
