//go:build linux

// Package soft provides RC verbs over TCP, for hosts without RDMA hardware.
//
// Each local address is a device (soft0, soft1, ...) with one port and one GID.
// A connected QP is one TCP connection; write, write with immediate, send and
// receive have the semantics of an HCA: PD, lkey and rkey checks, ordering,
// immediates, RNR, flush on error, async events. The package knows nothing of
// what is moved, nor of who decides which QPs talk to each other.
//
// # Who drives what
//
// Posting queues, polling makes progress. PostSend and PostRecv only write to
// the QP's rings; CQ.Poll runs the non-blocking sockets of the QPs that
// complete there, on the thread that called it. Nothing moves while nobody
// polls. Goroutines exist only for connection set-up and accepting.
//
// Payload goes from registered memory into the socket and from the socket into
// registered memory with sendmsg(2) and readv(2). The only copy in user space
// is what arrives behind a header in the same read, at most a page a message.
//
// # System calls and Go's scheduler
//
// The data path's calls are raw: they do not tell the scheduler. They never
// block, and a call that the scheduler knows of and that copies for longer
// than 20 us has its P taken away by sysmon, which then runs at its fastest
// period for good: with two pollers on two CPUs that took 7 to 10 % of each
// (perf). The price is that a stop-the-world waits for the copy in progress,
// so one call moves at most Config.CallBytes, some 100 us.
//
// # Limits
//
// UC, UD, reads, atomics and address handles are an *verbs.UnsupportedError.
// Payload is clear text: addresses off loopback are refused unless the
// configuration allows it. ReqNotify treats solicitedOnly as false.
//
// # Errors
//
// A lost connection completes the first unacknowledged send WR with
// RETRY_EXC_ERR and flushes the rest; if no send WR is outstanding to carry the
// cause the QP raises QP_FATAL. Either way it is in ERR: a software QP cannot
// outlive its connection, so this also ends the responder, which on hardware
// would go on waiting. A send WR that is not acknowledged, or whose QP cannot
// connect, ends with RETRY_EXC_ERR after 4 x 4.096 us x 2^timeout x
// (retry_cnt+1), at least 2 s for connecting and 5 s for an answer, at most 10
// and 30 s (also for timeout 0, which hardware takes as infinite).
//
// Posts to a QP in ERR are accepted and flushed at once.
//
// # Use
//
//	p, err := soft.New(soft.Config{})
//	ctx, err := p.OpenDevice("soft0")
//	// then as in package verbs; PortAttr has no rate, and RTR needs the
//	// peer's ConnData in QPAttr.RemoteConnData.
package soft
