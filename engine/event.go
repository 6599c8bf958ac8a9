package engine

import "mover/verbs"

// eventKind is what a poller tells a session.
type eventKind uint8

const (
	eventLaneBuilt     eventKind = 1 + iota // in INIT, receives posted
	eventLaneConnected                      // in RTS; at the dialler, and proved
	eventLaneDrained                        // a lane failed, and its end here is drained
	eventLaneStuck                          // it did not drain in time
	eventLaneAnswer                         // what of the peer's list never arrived here
	eventChunkBack                          // a chunk is given back: unread, or its lanes are gone
	eventSegmentBack                        // the same for a segment not yet posted
	eventViolation                          // the peer broke the protocol
	eventFailed                             // the session can't go on, and not because of what the peer sent
	eventGroupClosed                        // no WR and no op of the group is outstanding
)

// event is one message from a poller to a session.
type event struct {
	kind   eventKind
	group  uint16
	lane   LaneRef
	chunk  *chunk
	seg    SlotRef
	cause  verbs.WCStatus
	vendor uint32
	detail string
	gone   bool // LaneDrained: the QP is destroyed already
	list   *laneList
}

// laneList carries slots and segments of a lane that failed: allocated on
// failure only.
type laneList struct{ slots, segments []SlotRef }

// commandKind is what a session asks of a poller.
type commandKind uint8

const (
	commandAttachGroup    commandKind = 1 + iota
	commandBuildLane                  // to INIT, with receives; poll it
	commandConnectLane                // to RTS: it may receive; the dialler probes
	commandReadyLane                  // it may send
	commandDestroyLane                // both ends are settled
	commandFailLane                   // the peer says that it failed
	commandAnswerLane                 // which of these did not arrive?
	commandResolveLane                // these did not arrive: free the slots, send the content again
	commandGrantSegment               // destination: expect this segment
	commandSendSegment                // source: write this segment
	commandAckedSegment               // source: the segment's window is free
	commandReleaseSegment             // destination: forget this grant
	commandEndGroup                   // the session is about to end in order
	commandCloseGroup
)

// command is one message from a session to a poller.
type command struct {
	kind  commandKind
	group *group
	lane  LaneRef
	qp    verbs.QP
	attr  [2]*verbs.QPAttr // build: INIT; connect: RTR, RTS
	seg   SlotRef
	send  *segment
	ref   ItemRef
	mem   []byte
	off   int64
	list  *laneList
	check bool // verify
}
