package engine

import "mover/verbs"

// Message is one message of the session protocol. The peer package carries it,
// in order per stream: the control stream takes set-up, lanes and liveness;
// the item stream takes offers, grants, acks and results, so that a long
// manifest never delays a lane-down. ItemStream tells which.
//
// Everything in a message from the peer is untrusted until Session.Handle has
// checked it; a violation closes the session.
type Message interface{ isMessage() }

// Limits of the protocol; what exceeds one is a violation.
const (
	MaxPorts        = 64   // ports a node offers
	MaxRails        = 64   // rails of a session
	MaxLanesPerRail = 32   // data lanes
	MaxLaneDepth    = 1024 // W
	MaxGroups       = 256
	MaxBatch        = 1024 // entries of any repeated field
	MaxMetaBytes    = 64 << 10
	MaxSlots        = 1 << 20 // index bits of an immediate
)

// Open is the first message each way: what this side has and wants. Both sides
// derive the same rails, lanes and groups from the two.
type Open struct {
	Ports        []PortOffer
	PayloadBytes uint32 // of a slot; the smaller of both is used
	LanesPerRail uint16 // data lanes; the smaller of both is used
	LaneDepth    uint16 // W; the smaller of both is used
	SegmentBytes uint32 // the smaller of both is used
}

// PortOffer is a port that may become one end of a rail.
type PortOffer struct {
	Provider  string // ports of different providers never match
	Device    string
	Port      uint8
	LinkLayer verbs.LinkLayer
	GID       verbs.GID
	GIDType   verbs.GIDType
	LID       uint16
	MTU       verbs.MTU
	RateBits  uint64   // bits per second
	Pollers   []uint16 // the pollers that drive this port's lanes, in turn
	// Down: the port can't be used now. Its rails are planned all the same,
	// after those of ports that can, and their lanes are built once it is up.
	// GID and LID may be zero then.
	Down bool
	// GRHRequired is verbs.PortAttr.GRHRequired.
	GRHRequired bool
}

// GroupOpen gives the peer this side's receive slots of a lane group.
type GroupOpen struct {
	Group       uint16
	Slots       uint32 // slots 0..Slots-1 are granted with generation 0
	StrideBytes uint32 // from one slot to the next of its region
	// Regions are those of the first rail, in the order of their slots, then of
	// the next.
	Regions []Region
	// RegionSlots is how many slots a region holds, a power of two; the last
	// one of a rail holds the rest. 0: every rail has one region with all slots,
	// as wherever a device registers the share whole.
	RegionSlots uint32
}

// Region is where a rail's QPs may write: the same memory has another rkey,
// and on some providers another address, on every device.
type Region struct {
	Rail uint16
	Addr uint64
	RKey uint32
}

// LaneEnd is one side's end of a lane.
type LaneEnd struct {
	Lane     uint16 // index in the session's lane list
	Epoch    uint32 // counts rebuilds of the lane
	QPN      uint32
	PSN      uint32
	GID      verbs.GID
	LID      uint16
	MTU      verbs.MTU
	ConnData []byte
}

// LaneOpen carries the dialler's ends; receives are posted, state INIT.
type LaneOpen struct{ Lanes []LaneEnd }

// LaneOpened answers with the acceptor's ends, in RTS and polled.
type LaneOpened struct{ Lanes []LaneEnd }

// LaneReady tells the acceptor that the dialler's ends are in RTS: it may send.
type LaneReady struct{ Lanes []LaneRef }

// LaneRef names one life of a lane.
type LaneRef struct {
	Lane  uint16
	Epoch uint32
}

// LaneDown says that this side's end of a lane is drained and lists what it
// sent there and has no credit or ack for. The peer drains its own end before
// it answers.
type LaneDown struct {
	Lane     LaneRef
	Cause    string // the first status that was not a flush, for the log
	Slots    []SlotRef
	Segments []SlotRef
}

// LaneDownAnswer lists which of those never arrived: their slots are free again
// with the next generation. The others will be credited or acked in due course.
type LaneDownAnswer struct {
	Lane     LaneRef
	Slots    []SlotRef
	Segments []SlotRef
}

// SlotRef is a slot, or an entry of the segment table, in one generation.
type SlotRef struct {
	Index      uint32
	Generation uint32 // low generationBits bits
}

// Ping and Pong keep the session alive.
type Ping struct{ Seq uint64 }

// Pong answers a Ping.
type Pong struct{ Seq uint64 }

// Bye ends the session; Code and Detail are a reason for people and metrics.
type Bye struct {
	Code   uint16 // reason.Code.Wire, 0 for an orderly end
	Detail string
}

// ItemKind says how an item's bytes travel.
type ItemKind uint8

// The kinds of items.
const (
	Staged ItemKind = 1 // through slots, for files
	Direct ItemKind = 2 // memory to memory, in segments
)

// ItemRef is one attempt at one item; Item counts up within the session, per
// direction.
type ItemRef struct {
	Item    uint64
	Attempt uint32
}

// ItemOffer asks the peer to receive an item.
type ItemOffer struct {
	Ref   ItemRef
	Kind  ItemKind
	Bytes int64
	// Verify is CRC32C over every chunk, compared at the destination, and over
	// the whole item before it is published.
	Verify bool
	// Meta is the Receiver's own description of what to make of the bytes.
	Meta []byte
}

// ItemAnswer accepts (Code 0) or refuses an offer.
type ItemAnswer struct {
	Ref     ItemRef
	Code    uint16
	Detail  string
	Regions []MemoryRegion // Direct: where the item's memory is
}

// MemoryRegion is a registered range of a Direct destination, for one rail.
type MemoryRegion struct {
	Rail   uint16
	Offset int64 // in the item
	Bytes  int64
	Addr   uint64
	RKey   uint32
}

// SegmentGrant lets the source write one segment. Its receive is posted.
type SegmentGrant struct {
	Ref    ItemRef
	Group  uint16
	Seg    SlotRef // entry of the group's segment table
	Offset int64
	Bytes  uint32
}

// SegmentGrants is a batch of grants, destination to source.
type SegmentGrants struct{ Grants []SegmentGrant }

// SegmentAck tells that a segment arrived whole; CRC is computed from the
// destination memory.
type SegmentAck struct {
	Group  uint16
	Seg    SlotRef
	CRC    uint32
	Code   uint16 // 0, or why the segment failed
	Detail string
}

// SegmentAcks is a batch of acks, destination to source.
type SegmentAcks struct{ Acks []SegmentAck }

// RecordAck acks (Code 0) or nacks one record of a slot.
type RecordAck struct {
	Ref    ItemRef
	Offset int64
	Bytes  uint32
	Code   uint16
	Detail string
}

// RecordAcks is a batch of acks, destination to source.
type RecordAcks struct{ Acks []RecordAck }

// ItemCommit says that every byte is acked, and what the whole must be.
type ItemCommit struct {
	Ref ItemRef
	CRC uint32 // CRC32C of the item, from source memory; 0 without Verify
}

// ItemDone is the destination's last word on an item: published (Code 0), or
// why not. After a failure the source stops sending and answers ItemAbort.
type ItemDone struct {
	Ref    ItemRef
	Code   uint16
	Detail string
	Meta   []byte // of the Receiver, for the source
}

// ItemAbort is the source's last word on an item that will not be committed:
// none of its writes is in flight any more.
type ItemAbort struct {
	Ref    ItemRef
	Code   uint16
	Detail string
}

func (*Open) isMessage()           {}
func (*GroupOpen) isMessage()      {}
func (*LaneOpen) isMessage()       {}
func (*LaneOpened) isMessage()     {}
func (*LaneReady) isMessage()      {}
func (*LaneDown) isMessage()       {}
func (*LaneDownAnswer) isMessage() {}
func (*Ping) isMessage()           {}
func (*Pong) isMessage()           {}
func (*Bye) isMessage()            {}
func (*ItemOffer) isMessage()      {}
func (*ItemAnswer) isMessage()     {}
func (*SegmentGrants) isMessage()  {}
func (*SegmentAcks) isMessage()    {}
func (*RecordAcks) isMessage()     {}
func (*ItemCommit) isMessage()     {}
func (*ItemDone) isMessage()       {}
func (*ItemAbort) isMessage()      {}

// ItemStream reports whether m travels on the item stream.
func ItemStream(m Message) bool {
	switch m.(type) {
	case *ItemOffer, *ItemAnswer, *SegmentGrants, *SegmentAcks, *RecordAcks, *ItemCommit, *ItemDone, *ItemAbort:
		return true
	}
	return false
}
