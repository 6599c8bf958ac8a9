package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"mover/bench/pairs"
)

// labFacts is what figures depend on besides the programs compared; it is
// written next to them.
type labFacts struct {
	StartedAt   time.Time     `json:"started_at"`
	Seconds     float64       `json:"seconds"` // all together
	Mover       string        `json:"mover"`   // version line
	GuestKernel string        `json:"guest_kernel"`
	Emulated    bool          `json:"emulated"` // no virtualization of the host's
	CPUs        int           `json:"cpus"`     // of the host
	LoadBefore  string        `json:"load_before"`
	LoadAfter   string        `json:"load_after"` // with the lab's own load
	Packages    []labPackage  `json:"packages"`
	Pairs       int           `json:"pairs"`
	StubRuns    int           `json:"stub_runs"`
	RunTime     time.Duration `json:"run_time_ns"` // aimed at, of a bandwidth run
	Statistic   string        `json:"statistic"`
}

type labPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"` // "not installed from a package" when unknown
}

// gatherFacts reads what can be known. What is missing is no reason not to
// measure.
func gatherFacts(ctx context.Context, h host, o benchOptions) labFacts {
	f := labFacts{StartedAt: time.Now().UTC(), GuestKernel: h.image.Version, Emulated: !h.kvm, CPUs: runtime.NumCPU(), LoadBefore: loadAverage(),
		Pairs: o.pairs, StubRuns: stubRuns, RunTime: runTime,
		Statistic: fmt.Sprintf("median of pair ratios, %.0f %% percentile bootstrap, %d resamples", pairs.Confidence*100, pairs.Resamples)}
	f.Mover, _, _ = strings.Cut(output(ctx, h.mover, "version"), "\n")
	for _, name := range []string{"perftest", "rdmacm-utils", "ibverbs-providers", "qemu-system-x86"} {
		version := output(ctx, "dpkg-query", "-W", "-f=${Version}", name)
		if version == "" {
			version = "not installed from a package"
		}
		f.Packages = append(f.Packages, labPackage{name, version})
	}
	return f
}

func output(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// loadAverage is /proc/loadavg: was the machine quiet?
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (f *labFacts) finish() {
	f.LoadAfter, f.Seconds = loadAverage(), time.Since(f.StartedAt).Seconds()
}

func (f labFacts) String() string {
	var packages []string
	for _, p := range f.Packages {
		packages = append(packages, p.Name+" "+p.Version)
	}
	guests := "emulated guests: only ratios mean something"
	if !f.Emulated {
		guests = "guests by KVM"
	}
	return fmt.Sprintf("%s\n%s, %s, %d CPUs, load before: %s, %.0f s\n%s\n", f.Mover, f.GuestKernel, guests, f.CPUs, f.LoadBefore, f.Seconds, strings.Join(packages, ", "))
}
