// Command compare measures mover against the tools people use today, side by
// side on one machine, and writes what it found as JSON.
//
//	go run ./bench/compare -bin out/mover -out out/bench.json
//	go run ./bench/compare -bin out/mover -only mem-none-iperf3,file2g-tmpfs-cp
//	go run ./bench/compare -baseline            # the peers alone, no mover needed
//
// # What is compared
//
// Memory to memory, and buffer to buffer by jobs, over loopback against iperf3;
// one 2 GiB file against a GridFTP server, an rsync daemon and cp, and 2,000
// files of 4 KiB against the rsync daemon, each on tmpfs and on a disk file
// system. The peers are the Debian packages listed in bench/packages.txt.
//
// What the service promises of its queue is held against numbers; `peer` is
// then "target" and `theirs` the number. submits-per-second: durable submits by
// 64 clients while slow jobs hold all places. submit-p95: one client submits
// one after the other while a huge job moves. small-beside-huge: the p95 of a
// hundred jobs of one small file beside a huge job, against three times what it
// is alone. The queue is on the disk file system, what moves on tmpfs.
//
// # How
//
// Figures are pairs of runs, as package pairs makes them. Before the pairs both
// sides run unmeasured: first touch of memory costs many times a copy on a
// virtual machine. The same warm-up tries every sensible setting of the peer
// twice and keeps the fastest, so that mover is compared with the peer at its
// best.
//
// # Conditions, the same for both sides
//
// The source file is pseudo-random (nothing to compress or to skip), generated
// once per file system and read once before its figures, so it is in the page
// cache for everybody. Every copy is to a name that does not exist; the
// previous destination is deleted and, on disk, dirty pages and the journal are
// flushed (syncfs(2)) outside the timed part. On disk everybody ends durable
// inside the timed part: mover with `durable: true` (file and directory),
// rsync with --fsync (the file), cp and GridFTP, which have no such option, by
// an fsync(2) of file and directory right after, which is what `sync FILE`
// does. On tmpfs mover keeps `durable: true`; fsync costs nothing there.
//
// mover verifies (CRC32C from source memory, checked from destination memory)
// in every file figure. rsync compares a whole-file checksum of its own; cp and
// GridFTP check nothing. Time is wall clock: for mover from the submit of the
// job over HTTP to the answer that says succeeded, for the peers from fork to
// exit of the client. The daemons of both sides are started once per file
// system and are not part of it. SHA-256 of the first and of the last copy of
// both sides is compared with the source's, outside the timed part.
//
// # Memory
//
// The entries rss-source and rss-destination compare the peak resident memory
// of mover's processes with what they are allowed: arenas + 96 MiB. Of all
// processes observed in the run the one nearest to its limit is reported.
//
// # What it must not do
//
// It fails (exit status 1) only when something did not run, never because a
// target was missed: it informs, tests decide. It does not import mover's
// packages but the benchmarks' own: it uses the binary and the HTTP API as any user does. Everything
// it starts runs in a process group of its own and is ended with it; work
// directories are removed.
package main
