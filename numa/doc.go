// Package numa knows where CPUs, memory and devices of this host are, pins threads, and maps the arenas that payload
// lives in.
//
//   - [Read], [NetdevNode], [InfinibandNode]: topology, from sysfs under any root.
//   - [Plan], [CheckSpin]: pure functions that decide which CPU each poller gets and what is left for the rest.
//   - [PinThread], [SetProcessMask], [AllowedCPUs]: affinity of threads, read back after it was set.
//   - [MapArena]: one node's memory in the largest pages to be had, with a report of what was obtained and why; an
//     [Arena] is given out in contiguous shares by [Arena.Lease].
//   - [MapFile]: the same for memory that other programs map too, a file of tmpfs or hugetlbfs.
//   - [CheckMemlock]: whether so much memory may be registered.
//
// It does not know verbs, sessions or the configuration file, and starts no goroutine or thread. Functions may be
// called by any goroutine; PinThread's caller has locked its OS thread.
//
//	topology, err := numa.Read("/sys")
//	allowed, err := numa.AllowedCPUs()
//	place, err := numa.Plan(topology, allowed, []int{0}, 1, nil)
//	err = numa.SetProcessMask(place.ProcessMask)
//	arena, err := numa.MapArena(numa.ArenaConfig{NodeID: 0, Bytes: 1 << 30, HugePages: numa.HugePagesAuto})
//	log.Print(arena.Report())
//	share, err := arena.Lease(64<<20, "session with b, receiving")
//	defer share.Release()
package numa
