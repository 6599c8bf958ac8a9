package numa

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	const all = "0-63"
	for name, c := range map[string]struct {
		host, allowed string
		nodes         []int
		perNode       int
		explicit      []int
		pollers       []int // CPUs by poller; -1 not pinned
		workers       []string
		mask          string
		reason        string
	}{
		"laptop": {host: "one", allowed: "0-3", nodes: []int{0}, perNode: 1,
			pollers: []int{1}, workers: []string{"0,2-3"}, mask: "0,2-3"},
		"two CPUs": {host: "one", allowed: "0-1", nodes: []int{0}, perNode: 1,
			pollers: []int{-1}, workers: []string{"0-1"}, mask: "0-1",
			reason: "2 CPUs allowed, 1 poller and 2 others need 3"},
		"one CPU": {host: "one", allowed: "2", nodes: []int{0}, perNode: 1,
			pollers: []int{-1}, workers: []string{"2"}, mask: "2",
			reason: "1 CPU allowed, 1 poller and 2 others need 3"},
		"two CPUs, explicit": {host: "one", allowed: "0-1", nodes: []int{0}, perNode: 1, explicit: []int{0},
			pollers: []int{0}, workers: []string{"0-1"}, mask: "0-1",
			reason: "2 CPUs allowed, 1 poller and 2 others need 3"},
		"three CPUs are enough": {host: "one", allowed: "0,2-3", nodes: []int{0}, perNode: 1,
			pollers: []int{2}, workers: []string{"0,3"}, mask: "0,3"},
		"three CPUs, two pollers": {host: "one", allowed: "1-3", nodes: []int{0}, perNode: 2,
			pollers: []int{-1, -1}, workers: []string{"1-3"}, mask: "1-3",
			reason: "3 CPUs allowed, 2 pollers and 2 others need 4"},
		"both sockets, nodes repeated": {host: "two", allowed: all, nodes: []int{1, 0, 1}, perNode: 1,
			pollers: []int{1, 16}, workers: []string{"0,2,4-15,32-47", "17-31,48-63"}, mask: "0,2-15,17-63"},
		"second socket only": {host: "two", allowed: all, nodes: []int{1}, perNode: 2,
			pollers: []int{16, 17}, workers: []string{"18-31,48-63"}, mask: "0-15,18-63"},
		"explicit, matched to nodes": {host: "two", allowed: all, nodes: []int{0, 1}, perNode: 1, explicit: []int{31, 5},
			pollers: []int{5, 31}, workers: []string{"0-2,4,6-15,32-47", "16-30,48-63"}, mask: "0-4,6-30,32-63"},
		"explicit, all on the other node": {host: "two", allowed: all, nodes: []int{0}, perNode: 2, explicit: []int{31, 20},
			pollers: []int{20, 31}, workers: []string{"0-2,4-15,32-47"}, mask: "0-19,21-30,32-63"},
		"own node not allowed": {host: "two", allowed: "16-20", nodes: []int{0, 1}, perNode: 1,
			pollers: []int{17, 16}, workers: []string{"18-20", "18-20"}, mask: "18-20"},
		"nothing left on a node": {host: "two", allowed: "1,16-31", nodes: []int{0, 1}, perNode: 1,
			pollers: []int{-1, -1}, workers: []string{"1", "16-31"}, mask: "1,16-31",
			reason: "1 CPU allowed on node 0, 1 poller there and 1 other need 2"},
		"eight nodes": {host: "eight", allowed: all, nodes: []int{0, 3, 7}, perNode: 1,
			pollers: []int{1, 24, 56}, workers: []string{"0,2-7", "25-31", "57-63"}, mask: "0,2-23,25-55,57-63"},
		"eight nodes, others one a node": {host: "eight", allowed: "0-1,8-9,16-17,24-25", nodes: []int{0, 1, 2, 3}, perNode: 1,
			pollers: []int{1, 8, 16, 24}, workers: []string{"0", "9", "17", "25"}, mask: "0,9,17,25"},
		"node without CPUs": {host: "sparse", allowed: "0-15", nodes: []int{252}, perNode: 1,
			pollers: []int{8}, workers: []string{"0-7,9-15"}, mask: "0-7,9-15"},
		"CPU of no node": {host: "one", allowed: "100-103", nodes: []int{0}, perNode: 1,
			pollers: []int{100}, workers: []string{"101-103"}, mask: "101-103"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Plan(topology(t, c.host), cpus(t, c.allowed), c.nodes, c.perNode, c.explicit)
			if err != nil {
				t.Fatal(err)
			}
			var pollers []int
			for _, poller := range p.Pollers {
				pollers = append(pollers, poller.CPU)
				if poller.Pinned != (poller.CPU >= 0) {
					t.Errorf("%+v", poller)
				}
			}
			var workers []string
			for _, w := range p.Workers {
				workers = append(workers, w.CPUs.String())
			}
			if diff := cmp.Diff(c.pollers, pollers); diff != "" {
				t.Errorf("pollers: %s", diff)
			}
			if diff := cmp.Diff(c.workers, workers); diff != "" {
				t.Errorf("workers: %s", diff)
			}
			if p.ProcessMask.String() != c.mask || p.Reason != c.reason || p.Exclusive != (c.reason == "") {
				t.Errorf("mask %q, exclusive %v, reason %q", p.ProcessMask, p.Exclusive, p.Reason)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	two := topology(t, "two")
	all := cpus(t, "0-63")
	for want, plan := range map[string]func() (Placement, error){
		"no CPU is allowed":         func() (Placement, error) { return Plan(two, CPUSet{}, []int{0}, 1, nil) },
		"no node has a port":        func() (Placement, error) { return Plan(two, all, nil, 1, nil) },
		"no NUMA node 2":            func() (Placement, error) { return Plan(two, all, []int{2}, 1, nil) },
		"no NUMA node -1":           func() (Placement, error) { return Plan(two, all, []int{-1}, 1, nil) },
		"pollers.per_node is 0":     func() (Placement, error) { return Plan(two, all, []int{0}, 0, nil) },
		"pollers.per_node is 65":    func() (Placement, error) { return Plan(two, all, []int{0}, 65, nil) },
		"there are 2 pollers":       func() (Placement, error) { return Plan(two, all, []int{0}, 2, []int{1}) },
		"CPU 64 is not among":       func() (Placement, error) { return Plan(two, all, []int{0}, 1, []int{64}) },
		"CPU -5 is not among":       func() (Placement, error) { return Plan(two, all, []int{0}, 1, []int{-5}) },
		"CPU 7 is listed twice":     func() (Placement, error) { return Plan(two, all, []int{0}, 2, []int{7, 7}) },
		"CPU 8191 is not among the": func() (Placement, error) { return Plan(two, all, []int{0}, 1, []int{8191}) },
	} {
		if _, err := plan(); !errors.Is(err, ErrPlacement) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestPlanKeepsItsPromises checks what Plan promises for any host and any set of allowed CPUs.
func TestPlanKeepsItsPromises(t *testing.T) {
	hosts := []*Topology{topology(t, "one"), topology(t, "two"), topology(t, "eight"), topology(t, "sparse")}
	rapid.Check(t, func(t *rapid.T) {
		top := rapid.SampledFrom(hosts).Draw(t, "host")
		allowed := CPUSetOf(rapid.SliceOfN(rapid.IntRange(0, 63), 1, 64).Draw(t, "allowed")...)
		var nodes []int
		for _, n := range top.Nodes {
			if rapid.Bool().Draw(t, "port") {
				nodes = append(nodes, n.ID)
			}
		}
		perNode := rapid.IntRange(1, 5).Draw(t, "per node")
		p, err := Plan(top, allowed, nodes, perNode, nil)
		if len(nodes) == 0 {
			if err == nil {
				t.Fatal("no error")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var used CPUSet
		for _, poller := range p.Pollers {
			if poller.Pinned != p.Exclusive {
				t.Fatalf("%+v", p)
			}
			if poller.Pinned {
				if used.Has(poller.CPU) || !allowed.Has(poller.CPU) {
					t.Fatalf("CPU %d is not poller %+v's to have", poller.CPU, poller)
				}
				used = used.Union(CPUSetOf(poller.CPU))
			}
		}
		if len(p.Pollers) != len(nodes)*perNode || len(p.Workers) != len(nodes) {
			t.Fatalf("%d pollers, %d workers", len(p.Pollers), len(p.Workers))
		}
		if !p.ProcessMask.Equal(allowed.Minus(used)) {
			t.Fatalf("mask %s with %s used of %s", p.ProcessMask, used, allowed)
		}
		if p.Exclusive && p.ProcessMask.Len() < max(2, len(nodes)) {
			t.Fatalf("only %s left", p.ProcessMask)
		}
		for _, w := range p.Workers {
			if w.CPUs.Empty() || !w.CPUs.Minus(p.ProcessMask).Empty() {
				t.Fatalf("workers on %s, mask %s", w.CPUs, p.ProcessMask)
			}
		}
	})
}

func TestCheckSpin(t *testing.T) {
	for _, c := range []struct {
		cpus, pollers int
		ok            bool
	}{{1, 1, false}, {2, 1, true}, {2, 2, false}, {3, 2, true}, {0, 1, false}} {
		err := CheckSpin(c.cpus, c.pollers)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil && (!errors.Is(err, ErrPlacement) || !strings.Contains(err.Error(), "set pollers.idle: adaptive")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
