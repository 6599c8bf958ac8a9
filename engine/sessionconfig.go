package engine

import (
	"mover/reason"
	"mover/verbs"
)

// LocalPort is a port of this node that may become one end of a rail.
type LocalPort struct {
	Offer     PortOffer
	Context   verbs.Context
	SGIDIndex int
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
	Waker    Waker         // wakes the session's goroutine
	Random   func() uint32 // for PSNs
	Log      func(text string, args ...any)
	// Up is called once, when every lane has been opened; Ended once, when the
	// session holds nothing any more.
	Up    func()
	Ended func(why *reason.Error)

	PingEvery    int64
	DeadAfter    int64 // without a message from the peer
	SetupTimeout int64
	DrainTimeout int64
	LaneDeadline int64
	StallAfter   int64
	RebuildMin   int64 // back-off before a failed lane is built again
	RebuildMax   int64

	// firstGeneration is where slots and segments begin to count, 0 but in
	// tests of the wrap, where it is the same on both sides.
	firstGeneration uint64
}
