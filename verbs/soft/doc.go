//go:build linux

// Package soft provides verbs without RDMA hardware: RC over TCP, UC and UD
// over UDP.
//
// Each local address is a device (soft0, soft1, ...) with one port and one GID.
// Write, write with immediate, send and receive have the semantics of an HCA:
// PD, lkey and rkey checks, ordering, immediates, RNR, flush on error, async
// events. The package knows nothing of what is moved, nor of who decides which
// QPs talk to each other.
//
// # Who drives what
//
// Posting queues, polling makes progress. PostSend and PostRecv only write to
// the QP's rings; CQ.Poll runs the non-blocking sockets of the QPs that
// complete there, on the thread that called it. Nothing moves while nobody
// polls. Goroutines exist only for connection set-up and accepting.
//
// On RC, payload goes from registered memory into the socket and from the
// socket into registered memory with sendmsg(2) and readv(2). The only copy in
// user space is what arrives behind a header in the same read, at most a page
// a message. On UC and UD the header says where the payload goes, so it is
// copied once more at the receiver; sendmmsg(2) and recvmmsg(2) take 16 packets
// at a time.
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
// # RC
//
// A connected QP is one TCP connection, which proves a 128-bit secret from
// ConnData.
//
// # UC
//
// A QP is a connected UDP socket, and a message is as many packets as the path
// MTU demands. Every packet carries a token derived from the secret in the
// receiver's ConnData. Nothing is acknowledged, repeated or answered:
//
//   - A send WR completes, with success, when the kernel has its last packet.
//     A socket that takes no more keeps packets queued; one that the kernel
//     refuses twice (ECONNREFUSED, ENOBUFS, ...) is lost.
//   - The responder drops the rest of a message of which a packet is missing:
//     what came before stays in memory, no immediate comes, and a receive WR
//     that a send had begun to fill takes the next message. The first packet
//     of a message is taken whatever its PSN, as Soft-RoCE does, so a network
//     that delivers a message of one packet twice delivers it twice here.
//   - A message that finds no receive WR, and a write that the rkey, the bounds
//     or the QP do not allow, are dropped in silence, and the QP lives on.
//   - A send too long for the receive WR completes that with LOC_LEN_ERR, and
//     the QP is in ERR.
//   - A receiver that does not poll loses what its socket buffer does not hold
//     (Config.RecvBuffer). A QP sends at most 32 packets a Poll.
//
// # UD
//
// A QP is a UDP socket whose port is the lower half of its QPN, so GID and QPN
// lead to it. There is no ConnData; who may send is decided by the Q_Key alone.
// A send whose Q_Key has the upper bit set uses that of its own QP. A datagram
// with another Q_Key, or one whose source QPN does not name the port it comes
// from, is dropped. Receives begin with 40 bytes of GRH: over IPv4 the last 20
// of them are an IPv4 header. A message longer than 4096 bytes completes with
// success, and nothing is sent. A datagram longer than the receive WR is that
// WR's LOC_LEN_ERR, and the QP is in ERR. An AH may go as soon as the send is
// posted.
//
// A packet of a full MTU is larger than an Ethernet frame: off loopback the
// kernel cuts it into fragments, and one lost fragment loses the packet.
//
// # Limits
//
// Reads and atomics are an *verbs.UnsupportedError on RC and EINVAL on UC and
// UD, which don't have them. Payload, tokens and Q_Keys are clear text:
// addresses off loopback are refused unless the configuration allows it.
// ReqNotify treats solicitedOnly as false. Drops counts what UC and UD drop,
// LosePackets makes them lose on purpose.
//
// # Errors
//
// A local error of a send WR (LOC_PROT_ERR, LOC_LEN_ERR) ends the QP on every
// transport: there is no SQE state.
//
// On RC, a lost connection completes the first unacknowledged send WR with
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
//	// then as in package verbs; PortAttr has no rate, and RTR of an RC or UC
//	// QP needs the peer's ConnData in QPAttr.RemoteConnData.
package soft
