// Package procfs reads the few figures of proc(5) that the benchmarks report.
// It knows nothing of what is measured.
//
//	bytes, err := procfs.PeakResident(os.Getpid())
package procfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// PeakResident is the high-water mark of a process's resident memory in bytes
// (proc_pid_status(5)): VmHWM, which has what lies on ordinary and transparent
// huge pages, and HugetlbPages, which are counted apart.
func PeakResident(pid int) (int64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	peak, err := parsePeak(string(data))
	if err != nil {
		return 0, fmt.Errorf("resident memory of process %d: %w", pid, err)
	}
	return peak, nil
}

func parsePeak(status string) (int64, error) {
	peak, err := KiBField(status, "VmHWM")
	if err != nil {
		return 0, err
	}
	huge, err := KiBField(status, "HugetlbPages")
	if err != nil {
		huge = 0 // a kernel without hugetlbfs has no such line
	}
	return peak + huge, nil
}

// KiBField reads a "Name:   123 kB" line of a proc file (status, meminfo) and
// returns bytes. A missing or malformed line is an error.
func KiBField(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		digits, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if !ok {
			return 0, fmt.Errorf("%s has no kB value: %q", name, strings.TrimSpace(line))
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%s is not a number: %q", name, strings.TrimSpace(line))
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("no line %s", name)
}
