package numa

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// MaxNodes bounds node numbers: 0 to MaxNodes-1, the largest MAX_NUMNODES of Linux (CONFIG_NODES_SHIFT is at most 10).
const MaxNodes = 1024

// Topology is what a host's sysfs says about its NUMA nodes when it was read. It is not changed after Read returned.
type Topology struct {
	Nodes []Node // at least one, by ascending ID; IDs may have gaps
}

// Node is one NUMA node.
type Node struct {
	ID   int
	CPUs CPUSet // online ones; empty on a node that has memory only
	// MemTotalBytes is the node's memory; 0 if it has none, or if the kernel does not tell (see Memoryless).
	MemTotalBytes int64
	// Memoryless is true on a node known to have no memory: an arena cannot be bound to it.
	Memoryless bool
	HugePages  []HugePages // the sizes the kernel supports, ascending
	// Distances are the relative costs of reaching each node's memory, by node ID, as in the ACPI SLIT: 10 is local.
	// Nil when the kernel does not tell.
	Distances map[int]int
}

// HugePages is one pool of reserved huge pages of a node.
type HugePages struct {
	PageBytes   int64
	Total, Free int64 // pages
}

// Read reads the topology below root, which is "/sys" except in tests. A host without /sys/devices/system/node (a
// kernel without NUMA, some containers) is one node 0 with all online CPUs.
func Read(root string) (*Topology, error) {
	online, err := onlineCPUs(root)
	if err != nil {
		return nil, err
	}
	ids, err := nodeIDs(root)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		pools, err := readHugePages(filepath.Join(root, "kernel/mm/hugepages"))
		if err != nil {
			return nil, err
		}
		return &Topology{Nodes: []Node{{CPUs: online, HugePages: pools}}}, nil
	}
	t := &Topology{}
	for _, id := range ids {
		n, err := readNode(root, id, ids)
		if err != nil {
			return nil, err
		}
		n.CPUs = n.CPUs.Intersect(online)
		t.Nodes = append(t.Nodes, n)
	}
	if !slices.ContainsFunc(t.Nodes, func(n Node) bool { return !n.CPUs.Empty() }) {
		return nil, fmt.Errorf("numa: no node under %s has an online CPU", nodeRoot(root))
	}
	return t, nil
}

func nodeRoot(root string) string { return filepath.Join(root, "devices/system/node") }

// onlineCPUs reads the CPUs that are online. The file "online" is absent in kernels that cannot take CPUs offline.
func onlineCPUs(root string) (CPUSet, error) {
	var errs []error
	for _, name := range []string{"online", "present"} {
		path := filepath.Join(root, "devices/system/cpu", name)
		text, err := readText(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		set, err := ParseCPUSet(text)
		if err == nil && set.Empty() {
			err = errors.New("no CPU listed")
		}
		if err != nil {
			return CPUSet{}, fmt.Errorf("numa: %s: %w", path, err)
		}
		return set, nil
	}
	return CPUSet{}, fmt.Errorf("numa: cannot tell which CPUs are online (is sysfs mounted at %s?): %w", root,
		errors.Join(errs...))
}

// nodeIDs lists the nodes that have a directory, ascending; nil when the host has none.
func nodeIDs(root string) ([]int, error) {
	entries, err := os.ReadDir(nodeRoot(root))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("numa: list nodes: %w", err)
	}
	var ids []int
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "node")
		if !ok {
			continue
		}
		if id, err := strconv.Atoi(number); err == nil && id >= 0 && id < MaxNodes {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func readNode(root string, id int, ids []int) (Node, error) {
	dir := filepath.Join(nodeRoot(root), "node"+strconv.Itoa(id))
	n := Node{ID: id}
	list, err := readText(filepath.Join(dir, "cpulist"))
	if err != nil {
		return n, fmt.Errorf("numa: node %d: %w", id, err)
	}
	if n.CPUs, err = ParseCPUSet(list); err != nil {
		return n, fmt.Errorf("numa: node %d: cpulist: %w", id, err)
	}
	meminfo, err := readNodeMeminfo(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return n, fmt.Errorf("numa: node %d: %w", id, err)
	default:
		total, known := meminfo["MemTotal"]
		n.MemTotalBytes, n.Memoryless = total, known && total == 0
	}
	if n.Distances, err = readDistances(filepath.Join(dir, "distance"), ids); err != nil {
		return n, fmt.Errorf("numa: node %d: %w", id, err)
	}
	if n.HugePages, err = readHugePages(filepath.Join(dir, "hugepages")); err != nil {
		return n, fmt.Errorf("numa: node %d: %w", id, err)
	}
	return n, nil
}

// readNodeMeminfo reads lines such as "Node 0 MemTotal:  24681396 kB" (drivers/base/node.c) into bytes by name. Lines
// without a unit are counts of pages and are left out.
func readNodeMeminfo(dir string) (map[string]int64, error) {
	text, err := readText(filepath.Join(dir, "meminfo"))
	if err != nil {
		return nil, err
	}
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 5 || f[0] != "Node" || f[4] != "kB" {
			continue
		}
		kib, err := strconv.ParseInt(f[3], 10, 53)
		if err != nil || kib < 0 {
			return nil, fmt.Errorf("meminfo: bad line %q", abbreviate(strings.TrimSpace(line)))
		}
		values[strings.TrimSuffix(f[2], ":")] = kib << 10
	}
	return values, nil
}

// readDistances reads one row of the distance table, which has a column for each node of ids, in their order.
func readDistances(path string, ids []int) (map[int]int, error) {
	text, err := readText(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(text)
	if len(fields) != len(ids) {
		return nil, fmt.Errorf("distance: %d columns for %d nodes", len(fields), len(ids))
	}
	distances := make(map[int]int, len(ids))
	for i, f := range fields {
		d, err := strconv.Atoi(f)
		if err != nil || d < 0 {
			return nil, fmt.Errorf("distance: bad value %q", abbreviate(f))
		}
		distances[ids[i]] = d
	}
	return distances, nil
}

// readHugePages reads the directories hugepages-<size>kB below dir, of a node or of the host.
func readHugePages(dir string) ([]HugePages, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without hugetlb
	}
	if err != nil {
		return nil, fmt.Errorf("huge pages: %w", err)
	}
	var pools []HugePages
	for _, e := range entries {
		number, isPool := strings.CutPrefix(e.Name(), "hugepages-")
		number, isKiB := strings.CutSuffix(number, "kB")
		kib, err := strconv.ParseInt(number, 10, 53)
		if !isPool || !isKiB || err != nil || kib <= 0 {
			continue
		}
		pool := HugePages{PageBytes: kib << 10}
		if pool.Total, err = readCount(filepath.Join(dir, e.Name(), "nr_hugepages")); err != nil {
			return nil, err
		}
		if pool.Free, err = readCount(filepath.Join(dir, e.Name(), "free_hugepages")); err != nil {
			return nil, err
		}
		pools = append(pools, pool)
	}
	slices.SortFunc(pools, func(a, b HugePages) int { return cmp.Compare(a.PageBytes, b.PageBytes) })
	return pools, nil
}

func readCount(path string) (int64, error) {
	text, err := readText(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s: bad count %q", path, abbreviate(strings.TrimSpace(text)))
	}
	return n, nil
}

// maxTextBytes bounds what is read of a sysfs attribute. Attributes are at most a page; cpulist and meminfo of the
// largest hosts stay far below this.
const maxTextBytes = 1 << 20

func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if len(text) > maxTextBytes {
		return "", fmt.Errorf("%s: %d bytes are more than a sysfs attribute has", path, len(text))
	}
	return string(text), nil
}

// Node returns the node with the given ID.
func (t *Topology) Node(id int) (Node, bool) {
	for _, n := range t.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

// NodeOf returns the ID of the node that cpu belongs to, or -1 when no node has it (it is offline, or not there).
func (t *Topology) NodeOf(cpu int) int {
	for _, n := range t.Nodes {
		if n.CPUs.Has(cpu) {
			return n.ID
		}
	}
	return -1
}

// Distance returns the relative cost for CPUs of node from to reach memory of node to: 10 is local. When the kernel
// does not tell, it is 10 for a node itself and 20 for any other, as the ACPI specification assumes.
func (t *Topology) Distance(from, to int) int {
	if n, ok := t.Node(from); ok {
		if d, ok := n.Distances[to]; ok {
			return d
		}
	}
	if from == to {
		return 10
	}
	return 20
}

// Nearest returns the IDs of all nodes ordered by their distance from node, itself first; equal ones by ID.
func (t *Topology) Nearest(node int) []int {
	ids := make([]int, 0, len(t.Nodes))
	for _, n := range t.Nodes {
		ids = append(ids, n.ID)
	}
	slices.SortStableFunc(ids, func(a, b int) int {
		switch {
		case a == b:
			return 0
		case a == node:
			return -1
		case b == node:
			return 1
		}
		return cmp.Compare(t.Distance(node, a), t.Distance(node, b))
	})
	return ids
}

// MemoryNode returns the node to bind an arena to for pollers on node: node itself, or the nearest one that has memory.
// It returns -1 (do not bind) when none is known to.
func (t *Topology) MemoryNode(node int) int {
	for _, id := range t.Nearest(node) {
		if n, _ := t.Node(id); !n.Memoryless {
			return id
		}
	}
	return -1
}
