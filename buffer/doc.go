// Package buffer keeps a node's named memory: pieces of /dev/shm or of a
// hugetlbfs mount that jobs read and write instead of files, and that programs
// on the host map at the same time.
//
//   - [Open] makes a [Registry] and brings back what an earlier process had.
//     What is in a buffer survives the process, because the file does; it does
//     not survive the host's restart, nor a container's own /dev/shm. A buffer
//     whose memory is gone is made again, zeroed, with another generation, and
//     the [Problem] that Open returns says so.
//   - [Registry.Create] has the semantics of PUT, [Registry.Delete] waits for
//     leases, [Registry.Get] and [Registry.List] describe.
//   - [Registry.Lease] gives one range to one transfer: shared to read,
//     exclusive to write. It is a Source and a Sink of the engine, and gives
//     the memory itself for transfers that need no copy.
//   - [Registry.Readable] and [Registry.Writable] say whether a node may.
//
// The package knows neither jobs, nor HTTP, nor verbs. It never mounts
// anything, and never removes or maps a file that it did not make. All methods
// may be called by any goroutine.
//
//	buffers, problems, err := buffer.Open(ctx, buffer.Config{Dir: stateDir, Node: "host-a", Logger: log})
//	info, created, err := buffers.Create(ctx, buffer.Spec{Name: "ckpt", Bytes: 1 << 30, NUMANode: buffer.AnyNode})
//	lease, err := buffers.Lease(buffer.LeaseRequest{Name: "ckpt", Length: 1 << 30, Exclusive: true, Holder: "job " + id})
//	defer lease.Release()
//	item.Memory, err = lease.Pages() // or engine.Item{Source: lease}, Target{Sink: lease}
//
// # For programs on the host
//
// A program maps the file of [Info]: Path and MappedBytes, once; its place and
// size never change while the buffer exists. In Python:
//
//	f = open("/dev/shm/mover.host-a.ckpt", "r+b")
//	m = mmap.mmap(f.fileno(), 0)                     # all of it, shared
//
// In C:
//
//	int fd = open(path, O_RDWR | O_CLOEXEC);
//	void *p = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
//
// Leases are between transfers: they keep two jobs from one range, and do not
// stop a program that has the file mapped. A program waits for its job to end,
// and it may compare Generation, which is another after every transfer into
// the buffer. A program that writes a range while a job reads it gets
// SOURCE_CHANGED or a copy of both states, as with a file.
//
// A program must not make the file shorter. It could not be kept from it: only
// a memfd can be sealed (F_SEAL_SHRINK, fcntl(2)), and a memfd has no path to
// map by; tmpfs files made by path are born with F_SEAL_SEAL. Access behind the
// new end is SIGBUS, mmap(2). Whatever this package copies or sums is therefore
// guarded, and such a lease fails with IO_ERROR and [ErrTruncated]. Who uses
// [Lease.Memory] or [Lease.Pages] with the CPU guards itself, with [Guard].
package buffer
