// Package verbs is mover's RDMA API: the nouns of libibverbs (Context, PD, MR,
// CQ, QP, WR, WC) as small Go interfaces, implemented by providers.
//
//	verbs/ibv   libibverbs, opened at run time: adapters and Soft-RoCE
//	verbs/soft  the same semantics over TCP and UDP, for hosts without RDMA
//	verbs/sim   in memory, virtual time, seeded and adversarial: tests only
//
// The package knows nothing of sessions, lanes, jobs or files. Its types cover
// RC, UC and UD, write, write with immediate, send, receive, read, atomics,
// inline data and events; what a provider lacks it refuses with an
// *UnsupportedError.
//
// # Who may call what
//
// One goroutine at a time owns a CQ and all the QPs that complete on it (in
// mover: the poller). Poll, ReqNotify, PostSend, PostRecv and a QP's Modify,
// Query and Destroy belong to the owner; ownership may be handed on, with a
// happens-before edge. Everything else, and in particular creating a QP on a
// CQ that another goroutine polls, is safe from any goroutine. libibverbs is
// thread safe throughout (ibv_post_send(3), "thread safe"); the narrower rule
// spares the providers the locks.
//
// # Memory
//
// Registered memory is never Go heap memory: a provider may write to it at any
// time, behind the garbage collector and the race detector. The caller keeps
// it mapped until Dereg has returned and every QP that could use it has been
// drained.
//
// # Use
//
//	ctx, err := provider.OpenDevice("soft0")
//	pd, err := ctx.AllocPD()
//	mr, err := pd.RegMR(arena.Bytes(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
//	cq, err := ctx.CreateCQ(verbs.CQInitAttr{Entries: 256})
//	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq,
//		Cap: verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 33, MaxSendSGE: 1, MaxRecvSGE: 1}})
//	// exchange qp.QPN, the GID and qp.ConnData with the peer, then
//	// Modify to INIT, post receives, RTR, RTS (verbs.InitMask, RTRMask, RTSMask).
//	n, err := qp.PostSend(wrs)
//	n, err = cq.Poll(wcs)
package verbs
