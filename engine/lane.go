package engine

import "mover/verbs"

// laneState is where this side's end of a lane is.
type laneState uint8

const (
	laneAbsent     laneState = iota // not built, or taken down for good
	laneAttached                    // polled, receives posted; the peer is not ready, or a probe is out
	laneConnecting                  // the same, while a helper moves its QP to RTS
	laneUp                          // sends too
	laneDraining                    // in ERR; WRs are flushing
	laneDrained                     // every WR has completed
)

// chainWRs is how many WRs one doorbell carries at most.
const chainWRs = 16

// lane is one QP pair on a rail, as its poller sees it: only the poller
// touches it. A data lane carries slots and segments, a credit lane the
// credits of its group and rail.
type lane struct {
	index  uint16 // in the session's lane list
	epoch  uint32
	rail   *groupRail
	credit bool
	state  laneState
	qp     verbs.QP

	sendCap, recvCap int // what the QP was built with
	sends, recvs     int // WRs posted and not completed
	// window counts the slot writes and segment chunks that the peer has not
	// credited or acked; it never exceeds depth, so neither does what the peer
	// must have receives for.
	window, depth int

	stagedSends int
	stagedRecvs int
	sendWRs     [chainWRs]verbs.SendWR
	sges        [chainWRs]verbs.SGE
	recvWRs     [chainWRs]verbs.RecvWR

	// quietSince is when a posted WR was last seen to make progress, 0 with
	// none posted: a CQ that died silently shows here.
	quietSince int64
	drainBy    int64
	cause      verbs.WCStatus
	vendorErr  uint32
	detail     string    // what is known of the cause beyond its status
	answer     *laneList // the peer's question, to be answered once drained

	connection connection
	probed     bool // the peer's probe has come: one a life
	gone       bool // the QP is destroyed: its device took no commands any more
}

// wrKind is the kind of a WR, in its WRID.
type wrKind uint8

const (
	wrSlot wrKind = 1 + iota
	wrChunk
	wrCredit
	wrRecv
	wrProbe
)

// wrID is kind(8) | lane epoch(8) | lane(16) | index(32). The epoch tells the
// completions of a QP that had to be destroyed with its device; any other is
// destroyed only when all its WRs have completed.
func wrID(kind wrKind, l *lane, index uint32) uint64 {
	return uint64(kind)<<56 | uint64(uint8(l.epoch))<<48 | uint64(l.index)<<32 | uint64(index)
}

func splitWRID(id uint64) (kind wrKind, epoch uint8, laneIndex uint16, index uint32) {
	return wrKind(id >> 56), uint8(id >> 48), uint16(id >> 32), uint32(id)
}

// room is how many sends the queue takes: an entry is free only when its
// completion was polled. One entry stays free, so that the queue is never full
// of work whose completion nobody has seen.
func (l *lane) room() int { return l.sendCap - 1 - l.sends - l.stagedSends }

// stage adds a send to the lane's chain; the caller has checked room and
// flushes when the chain is full.
func (l *lane) stage() (*verbs.SendWR, *verbs.SGE) {
	i := l.stagedSends
	l.stagedSends++
	wr, sge := &l.sendWRs[i], &l.sges[i]
	wr.SGL = l.sges[i : i+1 : i+1]
	wr.Flags = verbs.SendSignaled
	return wr, sge
}
