package device

import (
	"fmt"

	"mover/node/config"
	"mover/numa"
	"mover/verbs"
)

// queueBytes is an allowance for the rings of a device's queue pairs and
// completion queues: adapters' drivers pin them as well, in the same account.
const queueBytes = 8 << 20

// softProvider locks no memory.
const softProvider = "soft"

// MemlockNeed is how many bytes the node locks for its devices when every
// share is leased: each device registers the arena of its NUMA node, and the
// kernel charges the same memory again for every device (ib_umem_get). 0 for
// software verbs.
func (s *Selection) MemlockNeed(arena config.Size) uint64 {
	need := uint64(0)
	for _, d := range s.Used() {
		if d.Provider != softProvider {
			need += uint64(arena) + queueBytes
		}
	}
	return need
}

// CheckMemory tells, before any memory is mapped, that the process may not lock
// what its devices register (an error that matches numa.ErrMemlock), or that
// there are fewer huge pages than memory.hugepages insists on (a *HugePagesError).
// Each is one line with limit, need and fix.
func (s *Selection) CheckMemory(cfg *config.Config, topology *numa.Topology) error {
	if err := s.CheckMemlock(cfg); err != nil {
		return err
	}
	return s.CheckHugePages(cfg, topology)
}

// CheckMemlock is the part of CheckMemory about RLIMIT_MEMLOCK.
func (s *Selection) CheckMemlock(cfg *config.Config) error {
	need := s.MemlockNeed(cfg.Memory.Arena)
	if need == 0 {
		return nil
	}
	if err := numa.CheckMemlock(need); err != nil {
		return fmt.Errorf("memory.arena of %v registered with %s: %w", cfg.Memory.Arena, namesOf(s.Used()), err)
	}
	return nil
}

// HugePagesError says that huge pages are missing.
type HugePagesError struct {
	Setting    string // memory.hugepages
	Node       int    // NUMA node
	Need, Free int64  // pages
	Fix        string
}

func (e *HugePagesError) Error() string { return e.Problem().Error() }

// Problem parts what was found from what to do.
func (e *HugePagesError) Problem() *Problem {
	return &Problem{fmt.Sprintf("memory.hugepages is %s, and NUMA node %d has %d of the %d pages needed free", e.Setting, e.Node, e.Free, e.Need),
		e.Fix + ", or set memory.hugepages: auto"}
}

// CheckHugePages is the part of CheckMemory about huge pages. Only 1GiB and
// 2MiB insist on them; auto takes what there is.
func (s *Selection) CheckHugePages(cfg *config.Config, topology *numa.Topology) error {
	if insisted, pageBytes := InsistedPages(cfg); insisted {
		if missing := s.MissingHugePages(cfg, topology, pageBytes); missing != nil {
			return missing
		}
	}
	return nil
}

// InsistedPages is the size of huge pages that memory.hugepages insists on.
func InsistedPages(cfg *config.Config) (insisted bool, pageBytes int64) {
	switch cfg.Memory.HugePages {
	case numa.HugePages2M:
		return true, 2 << 20
	case numa.HugePages1G:
		return true, 1 << 30
	}
	return false, 0
}

// MissingHugePages looks whether every NUMA node that gets an arena has the
// pages for it, and tells of the first that has not; nil when all have.
func (s *Selection) MissingHugePages(cfg *config.Config, topology *numa.Topology, pageBytes int64) *HugePagesError {
	arenas := map[int]int64{} // by the node that has the memory
	for _, id := range s.nodes(topology) {
		arenas[topology.MemoryNode(id)]++
	}
	for _, n := range topology.Nodes {
		if arenas[n.ID] == 0 {
			continue
		}
		if e := nodePages(cfg, topology, n.ID, pageBytes, arenas[n.ID]); e != nil {
			return e
		}
	}
	return nil
}

func nodePages(cfg *config.Config, topology *numa.Topology, id int, pageBytes, arenas int64) *HugePagesError {
	e := &HugePagesError{Setting: cfg.Memory.HugePages, Node: id, Need: arenas * ((int64(cfg.Memory.Arena) + pageBytes - 1) / pageBytes)}
	total := int64(0)
	n, _ := topology.Node(id)
	for _, p := range n.HugePages {
		if p.PageBytes == pageBytes {
			e.Free, total = p.Free, p.Total
		}
	}
	if e.Free >= e.Need {
		return nil
	}
	file := fmt.Sprintf("/sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages", id, pageBytes>>10)
	e.Fix = fmt.Sprintf("echo %d > %s", total-e.Free+e.Need, file)
	if pageBytes == 1<<30 {
		e.Fix += fmt.Sprintf(" (or boot with hugepagesz=1G hugepages=%d: they get rare soon)", e.Need)
	}
	return e
}

// nodes are the NUMA nodes of the used devices, each once.
func (s *Selection) nodes(topology *numa.Topology) []int {
	var out []int
	seen := map[int]bool{}
	for _, d := range s.Used() {
		if n := NodeOf(topology, d); !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

// NodeOf is the NUMA node that serves a device: its own, or the first where it
// is unknown.
func NodeOf(topology *numa.Topology, info verbs.DeviceInfo) int {
	if _, ok := topology.Node(info.NUMANode); ok {
		return info.NUMANode
	}
	return topology.Nodes[0].ID
}
