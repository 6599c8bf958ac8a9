package verbs

// CQInitAttr describes a completion queue.
type CQInitAttr struct {
	// Entries is the least number of entries: at least the sum of MaxSendWR +
	// MaxRecvWR over the QPs that complete here, because an error flushes
	// every WR.
	Entries int
	// Channel receives the queue's events; nil for a queue that is only polled.
	Channel CompChannel
	// Vector is the completion vector, 0..num_comp_vectors-1.
	Vector int
}

// CQ is a completion queue. Poll and ReqNotify belong to the owner.
type CQ interface {
	// Poll fills wcs and returns how many; 0 means empty. It never blocks and
	// never allocates. On soft and sim it also drives the QPs. An error
	// (CQOverrun, device gone) is final: whatever is in flight has failed and
	// no completion will come.
	Poll(wcs []WC) (int, error)
	// ReqNotify arms the channel for the next completion
	// (ibv_req_notify_cq(3)). Completions that arrived before are not
	// announced, so poll once more after arming. On soft and sim, "progress to
	// be made" counts as a completion.
	ReqNotify(solicitedOnly bool) error
	Entries() int
	// Destroy fails with EBUSY while a QP uses the queue.
	Destroy() error
}

// CompChannel is the descriptor behind ReqNotify.
type CompChannel interface {
	// FD becomes readable when an armed CQ has something; poll(2) it, do not
	// read it.
	FD() int
	// Drain consumes and acknowledges the pending events without blocking
	// (ibv_get_cq_event(3), ibv_ack_cq_events(3)). CQs must be armed again.
	Drain() error
	// Destroy fails with EBUSY while a CQ uses the channel.
	Destroy() error
}
