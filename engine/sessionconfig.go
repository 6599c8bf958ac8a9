package engine

import (
	"mover/reason"
	"mover/verbs"
)

// LocalPort is a port of this node that may become one end of a rail.
type LocalPort struct {
	Offer   PortOffer
	Context verbs.Context
	Wish    verbs.GIDWish // which of its GIDs to use; Like is the session's
	// RelaxedOrdering: memory that is registered on the device may be written
	// out of order, which a receive completion does not mind: it still covers
	// everything before it (verbs.AccessRelaxedOrdering).
	RelaxedOrdering bool
	// Channels are the completion channels of Context, by poller; nil where
	// the poller never parks.
	Channels map[uint16]verbs.CompChannel
}

// SessionConfig is what a session needs. Times are nanoseconds of the clock
// that Handle and Run are given.
type SessionConfig struct {
	Dialler bool // this side opened the control connection
	Open    Open // Ports as in Ports
	Ports   []LocalPort
	Pollers []*Poller // by the index that PortOffer.Pollers names

	ShareBytes int64 // per direction, divided among the groups of a poller
	// Lease takes bytes of the poller's arena; the session releases it at its
	// end. A *reason.Error says why there is none.
	Lease func(poller uint16, bytes int64) (memory []byte, release func(), err error)

	Control  Control
	Receiver Receiver
	Waker    Waker                          // wakes the session's goroutine
	Random   func() uint32                  // for PSNs
	Log      func(text string, args ...any) // warnings
	Info     func(text string, args ...any)
	// Aside runs Execute of an op that may block in the kernel for a second: a
	// QP's transition to RTR, which resolves the peer's address. It returns at
	// once, so it needs a goroutine for it. nil where a QP may only be touched
	// by the owner of its CQ, as on software verbs: then the poller does it.
	Aside func(*Op)
	// Up is called once, when data can flow and no other lane is about to come up
	// (checkUp); Ended once, when the session holds nothing any more.
	Up    func()
	Ended func(why *reason.Error)

	// AckTimeout is the QPs' timeout, encoded: 4.096 us << AckTimeout, 1..31. A
	// lane's write fails after 1+rcRetries of them (hardware may take four times
	// as long). 14 is 67 ms, and half a second to two until RETRY_EXC.
	AckTimeout uint8

	PingEvery    int64
	DeadAfter    int64 // without a message from the peer
	SetupTimeout int64
	DrainTimeout int64
	LaneDeadline int64 // a lane with WRs out and without any completion
	StallAfter   int64
	RebuildMin   int64 // back-off before a failed lane is built again
	RebuildMax   int64

	// firstGeneration is where slots and segments begin to count, firstEpoch
	// where lanes, firstItem where items do: 0 but in tests of the wrap, where
	// they are the same on both sides.
	firstGeneration uint64
	firstEpoch      uint32
	firstItem       uint64
}
