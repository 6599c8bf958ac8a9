// Package ibv is the provider over libibverbs: RDMA hardware, and Soft-RoCE.
//
// libibverbs is opened at run time (dlopen(3), dlvsym(3) with the versions of
// its map file), so a binary built here starts on any glibc host, with or
// without RDMA. A build without cgo, or without <infiniband/verbs.h>, compiles
// and answers New with a *BuildError. The package knows verbs and sysfs, and
// nothing of lanes, sessions or configuration files.
//
// # The data path
//
// ibv_post_send, ibv_post_recv, ibv_poll_cq and ibv_req_notify_cq are inlines
// through context->ops; the shim (shim.h, datapath.c) calls them. A QP's work
// requests and their SGEs, and a CQ's completions, are arrays off the Go heap
// with libibverbs' own layout, linked once: a post fills the fields that change
// and crosses into C once for up to 64 WRs, a poll once for up to 64
// completions. The newer ibv_wr_* and ibv_start_poll interfaces are left alone:
// the rxe driver of rdma-core 44 has faults there.
//
// What a driver would accept and misplace is refused before it: WRs with an
// operation that the transport lacks, too many SGEs or too much inline data,
// sends before RTS and receives in RESET or ERR, which rxe queues without a
// look at the state.
//
// # Errors
//
// New: *LibraryError or *BuildError, both matching ErrUnavailable. OpenDevice:
// *DeviceError with the node in /dev, the errno and what to do; ErrNoDevice
// when there is no such device. All else is a *verbs.Error with the errno of
// the call. CQ_ERR or DEVICE_FATAL, read by GetAsyncEvent, end Poll with a
// final error: somebody must be reading events, or a dead CQ looks empty.
//
// # Memory and fork
//
// Addresses travel as integers; nothing in the Go heap is ever seen by a
// device. ibv_fork_init and RDMAV_HUGEPAGES_SAFE are not used: they protect a
// child of fork(2) that goes on running the parent's code, mark every
// registered range with madvise(2), and make registration many times slower.
// os/exec calls exec at once, and arenas are MADV_DONTFORK already.
//
// # Use
//
//	p, err := ibv.New(ibv.Config{})
//	infos, err := p.Devices()
//	ctx, err := p.OpenDevice(infos[0].Name)
//	// then as in package verbs
package ibv
