package numa

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// availableBytes estimates how much memory the process can still get before something is killed for it, on node (-1:
// anywhere), and says by what it is limited. ok is false when nothing could be found out. proc and sys are "/proc" and
// "/sys" except in tests.
func availableBytes(proc, sys string, node int) (bytes int64, by string, ok bool) {
	take := func(n int64, from string, known bool) {
		if known && (!ok || n < bytes) {
			bytes, by, ok = n, from, true
		}
	}
	// The figures of an only node are the host's, which are kept better: they include memory plugged in later that some
	// kernels leave out of the node's.
	if ids, err := nodeIDs(sys); node >= 0 && (err != nil || len(ids) > 1) {
		n, known := nodeAvailable(sys, node)
		take(n, fmt.Sprintf("node %d", node), known)
	}
	n, known := hostAvailable(proc)
	take(n, "the host", known)
	n, known = cgroupAvailable(proc, sys)
	take(n, "the cgroup (memory.max)", known)
	return max(bytes, 0), by, ok
}

// nodeAvailable estimates what a node can give without swapping, as MemAvailable does for the host: free pages and
// clean caches.
func nodeAvailable(sys string, node int) (int64, bool) {
	values, err := readNodeMeminfo(filepath.Join(nodeRoot(sys), "node"+strconv.Itoa(node)))
	free, ok := values["MemFree"]
	if err != nil || !ok {
		return 0, false
	}
	return free + values["Active(file)"] + values["Inactive(file)"] + values["SReclaimable"], true
}

func hostAvailable(proc string) (int64, bool) {
	text, err := readText(filepath.Join(proc, "meminfo"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "MemAvailable:" {
			kib, err := strconv.ParseInt(f[1], 10, 53)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

// cgroupAvailable is the least that any memory.max above the process leaves (cgroup v2; what version 1 limits is not
// looked at).
func cgroupAvailable(proc, sys string) (bytes int64, ok bool) {
	text, err := readText(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return 0, false
	}
	own := ""
	for line := range strings.Lines(text) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "0::/"); found {
			own = filepath.Clean("/" + path) // never above the root, whatever a namespace shows
		}
	}
	if own == "" {
		return 0, false
	}
	for {
		n, err := cgroupRoom(filepath.Join(sys, "fs/cgroup", own))
		if err == nil && (!ok || n < bytes) {
			bytes, ok = n, true
		}
		if own == "/" {
			return bytes, ok
		}
		own = filepath.Dir(own)
	}
}

var errNoLimit = errors.New("no limit")

// cgroupRoom is limit - use of one cgroup; page cache that can be dropped does not count as use.
func cgroupRoom(dir string) (int64, error) {
	limit, err := readText(filepath.Join(dir, "memory.max"))
	if err != nil {
		return 0, err
	}
	if strings.TrimSpace(limit) == "max" {
		return 0, errNoLimit
	}
	most, err := strconv.ParseInt(strings.TrimSpace(limit), 10, 64)
	if err != nil {
		return 0, err
	}
	use, err := readCount(filepath.Join(dir, "memory.current"))
	if err != nil {
		return 0, err
	}
	stat, err := readText(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(stat) {
		if n, ok := strings.CutPrefix(line, "inactive_file "); ok {
			if cache, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64); err == nil {
				use -= cache
			}
		}
	}
	return most - use, nil
}
