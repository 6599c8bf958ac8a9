package numa

import (
	"errors"
	"fmt"
	"slices"
)

// MaxPollersPerNode bounds pollers.per_node.
const MaxPollersPerNode = 64

// minOthers is how many CPUs must be left for everything but pollers before pollers get theirs for themselves: one for
// the control plane and the Go runtime, one for readers and writers.
const minOthers = 2

// ErrPlacement is wrapped by the errors of [Plan] and [CheckSpin].
var ErrPlacement = errors.New("cannot place the pollers")

// Placement says which CPUs pollers and everything else run on.
type Placement struct {
	Pollers []PollerPlace // by node, then index
	Workers []WorkerPlace // one for each node with pollers, by node
	// ProcessMask is for every thread that is not a poller.
	ProcessMask CPUSet
	// Exclusive is true when no thread but its poller runs on a poller's CPU; otherwise Reason says why not.
	Exclusive bool
	Reason    string
}

// PollerPlace is the place of one poller.
type PollerPlace struct {
	Node   int
	Index  int  // among the node's pollers, from 0
	Pinned bool // false: leave the thread's affinity at the process mask
	CPU    int  // -1 if not pinned
}

// WorkerPlace has the CPUs that readers and writers of one node are bound to; never empty.
type WorkerPlace struct {
	Node int
	CPUs CPUSet
}

// Plan decides where pollers and everything else run. It is a pure function.
//
// allowed are the CPUs the process may use ([AllowedCPUs]), nodesWithPorts the nodes that get pollersPerNode (1 to
// MaxPollersPerNode) pollers each; duplicates count once, and a device whose node is unknown (-1) must have been given
// one by the caller. A poller gets a CPU of its node, or of the nearest node that has one to spare; CPU 0, where much
// of the kernel's own work ends up, comes last.
//
// Pollers get CPUs for themselves when enough remain for the others: at least one on each node that has pollers and
// CPUs, and two in all. Otherwise nothing is pinned, every thread may run everywhere, and Reason says what is short.
//
// explicit, when not empty, lists the pollers' CPUs: as many as there are pollers, distinct and allowed. They are
// always pinned, each to a CPU of its own node as far as the list has them; too few remaining CPUs then only mean that
// other threads share the pollers' CPUs.
func Plan(t *Topology, allowed CPUSet, nodesWithPorts []int, pollersPerNode int, explicit []int) (Placement, error) {
	nodes := slices.Compact(slices.Sorted(slices.Values(nodesWithPorts)))
	if err := checkPlan(t, allowed, nodes, pollersPerNode, explicit); err != nil {
		return Placement{}, err
	}
	var place Placement
	for _, node := range nodes {
		for i := range pollersPerNode {
			place.Pollers = append(place.Pollers, PollerPlace{Node: node, Index: i, CPU: -1})
		}
	}
	fixed := len(explicit) > 0
	candidates := allowed
	if fixed {
		candidates = CPUSetOf(explicit...)
	}
	used := assign(t, place.Pollers, candidates)
	place.Reason = shortage(t, allowed, used, nodes, len(place.Pollers))
	place.Exclusive = place.Reason == ""
	place.ProcessMask = allowed
	if place.Exclusive {
		place.ProcessMask = allowed.Minus(used)
	}
	for i := range place.Pollers {
		p := &place.Pollers[i]
		p.Pinned = place.Exclusive || fixed
		if !p.Pinned {
			p.CPU = -1
		}
	}
	for _, node := range nodes {
		n, _ := t.Node(node)
		cpus := place.ProcessMask.Intersect(n.CPUs)
		if cpus.Empty() {
			cpus = place.ProcessMask
		}
		place.Workers = append(place.Workers, WorkerPlace{Node: node, CPUs: cpus})
	}
	return place, nil
}

func checkPlan(t *Topology, allowed CPUSet, nodes []int, pollersPerNode int, explicit []int) error {
	if allowed.Empty() {
		return fmt.Errorf("%w: no CPU is allowed", ErrPlacement)
	}
	if len(nodes) == 0 {
		return fmt.Errorf("%w: no node has a port", ErrPlacement)
	}
	for _, node := range nodes {
		if _, ok := t.Node(node); !ok {
			return fmt.Errorf("%w: the host has no NUMA node %d", ErrPlacement, node)
		}
	}
	if pollersPerNode < 1 || pollersPerNode > MaxPollersPerNode {
		return fmt.Errorf("%w: pollers.per_node is %d: must be 1 to %d", ErrPlacement, pollersPerNode, MaxPollersPerNode)
	}
	pollers := len(nodes) * pollersPerNode
	if len(explicit) == 0 {
		return nil
	}
	if len(explicit) != pollers {
		return fmt.Errorf("%w: the list of CPUs has %d, and there are %d pollers (%d nodes x %d): list one CPU a poller",
			ErrPlacement, len(explicit), pollers, len(nodes), pollersPerNode)
	}
	seen := map[int]bool{}
	for _, cpu := range explicit {
		if !allowed.Has(cpu) {
			return fmt.Errorf("%w: CPU %d is not among the allowed CPUs %s: list others, or allow it (cpuset, taskset)",
				ErrPlacement, cpu, allowed)
		}
		if seen[cpu] {
			return fmt.Errorf("%w: CPU %d is listed twice", ErrPlacement, cpu)
		}
		seen[cpu] = true
	}
	return nil
}

// assign gives each poller a CPU out of candidates as long as there are any, and returns those given. Pollers take
// CPUs of their own nodes first, all of them, so that none is lost to a poller from elsewhere.
func assign(t *Topology, pollers []PollerPlace, candidates CPUSet) (used CPUSet) {
	for i := range pollers {
		n, _ := t.Node(pollers[i].Node)
		if cpu := pick(candidates.Intersect(n.CPUs).Minus(used)); cpu >= 0 {
			pollers[i].CPU = cpu
			used = used.Union(CPUSetOf(cpu))
		}
	}
	for i := range pollers {
		if pollers[i].CPU >= 0 {
			continue
		}
		for _, near := range t.Nearest(pollers[i].Node) {
			n, _ := t.Node(near)
			if cpu := pick(candidates.Intersect(n.CPUs).Minus(used)); cpu >= 0 {
				pollers[i].CPU = cpu
				break
			}
		}
		if pollers[i].CPU < 0 {
			// A CPU that no node lists: it came online after the topology was read.
			pollers[i].CPU = pick(candidates.Minus(used))
		}
		if pollers[i].CPU >= 0 {
			used = used.Union(CPUSetOf(pollers[i].CPU))
		}
	}
	return used
}

// pick returns the lowest CPU but 0, 0 if it is the only one, -1 if there is none.
func pick(cpus CPUSet) int {
	best := -1
	for cpu := range cpus.All() {
		if best = cpu; cpu != 0 {
			break
		}
	}
	return best
}

// shortage says why pollers cannot have the CPUs in used for themselves; "" if they can.
func shortage(t *Topology, allowed, used CPUSet, nodes []int, pollers int) string {
	others := max(minOthers, len(nodes))
	if allowed.Len() < pollers+others {
		return fmt.Sprintf("%s allowed, %s and %d others need %d", count(allowed.Len(), "CPU"), count(pollers, "poller"),
			others, pollers+others)
	}
	for _, node := range nodes {
		n, _ := t.Node(node)
		local := allowed.Intersect(n.CPUs)
		if !local.Empty() && local.Minus(used).Empty() {
			return fmt.Sprintf("%s allowed on node %d, %s there and 1 other need %d", count(local.Len(), "CPU"), node,
				count(local.Len(), "poller"), local.Len()+1)
		}
	}
	return ""
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// CheckSpin refuses "idle: spin" with fewer CPUs than pollers + 1: the pollers would starve the rest of the process,
// themselves included. cpus is what the process may use at the same time: the smaller of its affinity and its CPU
// quota, rounded down.
func CheckSpin(cpus, pollers int) error {
	if cpus > pollers {
		return nil
	}
	return fmt.Errorf("%w: idle: spin with %s needs %d CPUs, the process may use %d; set pollers.idle: adaptive, lower "+
		"pollers.per_node, or allow more CPUs (taskset, cpuset, CPU quota)", ErrPlacement, count(pollers, "poller"),
		pollers+1, cpus)
}
