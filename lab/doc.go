// Command lab proves mover over real kernel RDMA without RDMA hardware: it
// boots two virtual hosts joined by two cables, with a Soft-RoCE device on each
// end, runs what is under test in them, and ends them.
//
//	go run ./lab run                 the scenarios that CI runs (make lab)
//	go run ./lab -full run           all of them (make lab-full)
//	go run ./lab -run 'demo|rails' run
//	go run ./lab shell               a shell in each guest (make lab-shell)
//	go run ./lab bench               mover against perftest and rcopy (make lab-bench)
//	go run ./lab list
//
// # The two hosts
//
// Guests a and b have two CPUs, two NUMA nodes and two network cards each. Rail
// r is card "rail<r>" with device "rxe<r>" on NUMA node r, and the address
// 10.77.<r>.1 in a, 10.77.<r>.2 in b. There is no other network: nodes reach
// each other over the rails alone, and the lab reaches its guests over
// virtio-serial (package remote). A guest's root is the host's, read-only, with
// a few directories of its own in memory: the programs under test are those of
// the host, out/mover and Debian's.
//
// # Scenarios
//
// A scenario is a function of a [Lab], with a deadline of its own. The guests
// stay up from one to the next, but each starts with rails as new, no process
// of the one before, and empty directories. What is left of a run is in
// out/lab: results.json, NAME.log with each command and step, NAME.a.mover.log
// and NAME.b.mover.log of the two nodes, a.console and b.console, and
// NAME.a.dmesg and the like, with all that the kernel knows, of a scenario that
// failed. To add one, append to [scenarios].
//
// # The benchmark
//
// It compares mover with perftest's programs and rcopy in pairs of runs
// (package bench/pairs): [figures] are all there are. But for the file, both
// ends are in guest a on rxe0, of one NUMA node, with one poller a process that
// spins. Beside them stand the stub ops: what a work request and a chunk cost
// mover on verbs that only touch memory, with the check that a delay of 2 us a
// work request would show. It writes out/lab-bench.json, of the shape of
// out/bench.json, and fails only when something could not be measured.
//
// # What it is not
//
// Emulated, a link carries about 0.13 Gbit/s and a boot takes half a minute:
// nothing measured here means anything by itself. The InfiniBand link layer,
// real PCIe and real devices are not here either.
package main
