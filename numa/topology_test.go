package numa

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTopology(t *testing.T) {
	for name, want := range map[string][]Node{
		"one": {{
			ID: 0, CPUs: cpus(t, "0-3"), MemTotalBytes: 16000000 << 10, HugePages: []HugePages{{2 << 20, 0, 0}},
			Distances: map[int]int{0: 10},
		}},
		"two": {{
			ID: 0, CPUs: cpus(t, "0-2,4-15,32-47"), MemTotalBytes: 131000000 << 10,
			HugePages: []HugePages{{2 << 20, 0, 0}, {1 << 30, 0, 0}}, Distances: map[int]int{0: 10, 1: 21},
		}, {
			ID: 1, CPUs: cpus(t, "16-31,48-63"), MemTotalBytes: 132000000 << 10,
			HugePages: []HugePages{{2 << 20, 1024, 512}, {1 << 30, 4, 4}}, Distances: map[int]int{0: 21, 1: 10},
		}},
		"nonodes": {{
			ID: 0, CPUs: cpus(t, "0-7"), HugePages: []HugePages{{2 << 20, 16, 2}},
		}},
	} {
		if diff := cmp.Diff(want, topology(t, name).Nodes, cmp.Comparer(CPUSet.Equal)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if got := len(topology(t, "eight").Nodes); got != 8 {
		t.Errorf("eight: %d nodes", got)
	}
}

func TestNodeOf(t *testing.T) {
	two := topology(t, "two")
	for cpu, want := range map[int]int{0: 0, 3: -1, 15: 0, 16: 1, 47: 0, 63: 1, 64: -1, -1: -1} {
		if got := two.NodeOf(cpu); got != want {
			t.Errorf("CPU %d: got node %d, want %d", cpu, got, want)
		}
	}
}

func TestSparseNodes(t *testing.T) {
	top := topology(t, "sparse")
	if diff := cmp.Diff([]int{8, 252, 0, 250}, top.Nearest(8)); diff != "" {
		t.Error(diff)
	}
	for node, want := range map[int]int{0: 0, 8: 252, 250: 250} {
		if got := top.MemoryNode(node); got != want {
			t.Errorf("memory for node %d: got %d, want %d", node, got, want)
		}
	}
	if n, ok := top.Node(8); !ok || !n.Memoryless {
		t.Errorf("node 8: %+v", n)
	}
	if n, ok := top.Node(250); !ok || !n.CPUs.Empty() || n.Memoryless {
		t.Errorf("node 250: %+v", n)
	}
	if _, ok := top.Node(1); ok {
		t.Error("there is a node 1")
	}
}

func TestDistanceWithoutTable(t *testing.T) {
	top := topology(t, "nonodes")
	if got := top.Distance(0, 0); got != 10 {
		t.Errorf("local: %d", got)
	}
	if got := top.Distance(0, 1); got != 20 {
		t.Errorf("remote: %d", got)
	}
	none := &Topology{Nodes: []Node{{Memoryless: true}}}
	if got := none.MemoryNode(0); got != -1 {
		t.Errorf("memory: node %d", got)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, broken := range map[string]struct{ path, content, want string }{
		"no CPUs":          {"devices/system/cpu/online", "", "no CPU"},
		"bad CPUs":         {"devices/system/cpu/online", "0-x", "bad CPU list"},
		"bad cpulist":      {"devices/system/node/node1/cpulist", "zero", "node 1: cpulist: bad CPU list"},
		"short distance":   {"devices/system/node/node1/distance", "10", "1 columns for 2 nodes"},
		"bad distance":     {"devices/system/node/node1/distance", "10 -1", `bad value "-1"`},
		"bad meminfo":      {"devices/system/node/node1/meminfo", "Node 1 MemTotal: x kB", "bad line"},
		"bad pool":         {"devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "-3", "bad count"},
		"all CPUs offline": {"devices/system/cpu/online", "900", "no node under"},
	} {
		root := fixture(t, "two")
		write(t, root, broken.path, broken.content)
		if _, err := Read(root); err == nil || !strings.Contains(err.Error(), broken.want) {
			t.Errorf("%s: got %v, want %q", name, err, broken.want)
		}
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is sysfs mounted") {
		t.Errorf("empty root: %v", err)
	}
}

func TestReadThisHost(t *testing.T) {
	top, err := Read("/sys")
	if err != nil {
		t.Fatal(err)
	}
	allowed, err := AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	for cpu := range allowed.All() {
		if top.NodeOf(cpu) < 0 {
			t.Errorf("CPU %d has no node in %+v", cpu, top.Nodes)
		}
	}
}

func TestDeviceNodes(t *testing.T) {
	roots := map[string]string{"one": fixture(t, "one"), "two": fixture(t, "two")}
	for _, c := range []struct {
		host, kind, device string
		node               int
		reason             string
	}{
		{"one", "net", "ens5", -1, "firmware does not tell"},
		{"one", "net", "lo", -1, "no hardware device"},
		{"one", "net", "eth9", -1, "no network device eth9"},
		{"one", "ib", "rxe0", -1, "rxe0: ens5: the firmware"},
		{"one", "ib", "mlx5_0", -1, "no RDMA device mlx5_0"},
		{"two", "net", "ens1f0", 0, ""},
		{"two", "net", "ens2f0", 1, ""}, // the adapter does not tell, the bridge above does
		{"two", "net", "bond0", 1, ""},
		{"two", "net", "bond0.7", 1, ""},
		{"two", "net", "br0", -1, "on nodes 0 and 1"},
		{"two", "net", "loop0", -1, "more than 4 devices"},
		{"two", "net", "broken", -1, `is "nonsense"`},
		{"two", "net", "outside", -1, "no numa_node"},
		{"two", "ib", "mlx5_0", 0, ""},
		{"two", "ib", "mlx5_1", 1, ""},
		{"two", "ib", "siw0", 1, ""},
		{"two", "ib", "lost", -1, "lost: it has no hardware device"},
		{"two", "net", "../net/ens1f0", -1, "not a device name"},
		{"two", "ib", "", -1, "not a device name"},
		{"two", "net", "..", -1, "not a device name"},
		{"two", "net", "ens*", -1, "not a device name"},
	} {
		read := NetdevNode
		if c.kind == "ib" {
			read = InfinibandNode
		}
		node, reason := read(roots[c.host], c.device)
		if node != c.node || !strings.Contains(reason, c.reason) || (reason == "") != (c.reason == "") {
			t.Errorf("%s: %s %q: got %d, %q; want %d, %q", c.host, c.kind, c.device, node, reason, c.node, c.reason)
		}
	}
}
