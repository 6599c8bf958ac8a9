package engine

import (
	"math"
	"sync"
	"sync/atomic"

	"mover/reason"
	"mover/ring"
)

type sessionPhase uint8

const (
	phaseOpening sessionPhase = iota // Opens, groups and lanes
	phaseUp
	phaseClosing // groups close
	phaseClosed
)

// Session is the authenticated relationship of two nodes: the protocol machine
// of one side. One goroutine calls Start, Handle, Lost and Run; Send, Cancel,
// Opened, Published, Discarded, PortEvent and Close may be called from any.
type Session struct {
	cfg     SessionConfig
	phase   sessionPhase
	side    int // 0 dialler, 1 acceptor: the index in the plan's pairs
	plan    *plan
	rails   atomic.Pointer[[]*Rail]
	pds     []devicePD
	groups  []*sessionGroup
	lanes   []*sessionLane
	built   []LaneEnd // to be told to the peer
	readied []LaneRef
	unsent  []Message // until the commands in keep have gone
	keep    []command // for pollers whose queue was full, with their poller
	keepTo  []*Poller

	events *ring.MPMC[event]
	inbox  inbox

	mu      sync.Mutex
	over    bool // nobody takes results any more
	results []result
	acks    []RecordAck
	urgent  bool     // some of acks is awaited
	spare   []result // the slice drained last, used again
	sparing []RecordAck
	ackBy   int64 // the session goroutine's: acks are sent by then, 0 with none

	sending    []*sendItem // open, in order
	turn       int         // where the fair turn among them goes on
	paceAt     int64       // when a pacer lets the next of them go on
	nextItem   uint64
	inFlight   map[chunkKey]*chunk
	auxOut     int // ops submitted by the session itself
	auxWaiting []*Op

	receiving []*recvItem // open, in order
	nextOffer uint64
	grantTurn int
	grants    []SegmentGrant
	segAcks   []SegmentAck

	startedAt, lastHeard, lastPing int64
	now                            int64
	pingSeq                        uint64
	noLaneSince                    int64
	usableSince                    int64    // while opening
	troubles                       []string // by rail: why it is not up
	why                            *reason.Error
	saidBye                        bool
	sendErr                        *reason.Error // the connection took a message no more
	sendErrAt                      int64
	closeAt                        int64 // phaseClosing: the groups are closed then, 0 once they are
	unwired                        bool  // closing, and every QP is destroyed
}

// NewSession makes a session; Start begins it.
func NewSession(cfg SessionConfig) *Session {
	s := &Session{
		cfg:      cfg,
		events:   ring.NewMPMC[event](4096),
		inFlight: map[chunkKey]*chunk{},
		nextItem: cfg.firstItem,
	}
	s.inbox = inbox{items: map[uint64]*recvItem{}, waker: cfg.Waker}
	if !cfg.Dialler {
		s.side = 1
	}
	return s
}

// Start sends the first message. It comes before the first Handle, and every
// Handle is followed by a Run.
func (s *Session) Start(now int64) {
	s.now, s.startedAt, s.lastHeard, s.lastPing = now, now, now, now
	open := s.cfg.Open
	if err := checkOpen(&open); err != nil {
		s.end(reason.New(reason.Internal, "what this node offers is invalid: %v", err))
		return
	}
	s.send(&open)
}

// Ended reports that the session holds nothing any more: no QP, no memory, no
// item.
func (s *Session) Ended() bool { return s.phase == phaseClosed }

// Handle takes one message from the peer.
func (s *Session) Handle(m Message, now int64) {
	s.now, s.lastHeard = now, now
	if s.phase >= phaseClosing {
		return
	}
	if err := s.dispatch(m); err != nil {
		s.violation(err.Error())
	}
}

func (s *Session) dispatch(m Message) error {
	switch m := m.(type) {
	case *Open:
		return s.handleOpen(m)
	case *GroupOpen:
		return s.handleGroupOpen(m)
	case *LaneOpen:
		return s.handleLaneOpen(m)
	case *LaneOpened:
		return s.handleLaneOpened(m)
	case *LaneReady:
		return s.handleLaneReady(m)
	case *LaneDown:
		return s.handleLaneDown(m)
	case *LaneDownAnswer:
		return s.handleLaneDownAnswer(m)
	case *Ping:
		s.send(&Pong{Seq: m.Seq})
	case *Pong:
	case *Bye:
		s.handleBye(m)
	case *ItemOffer:
		return s.handleOffer(m)
	case *ItemAnswer:
		return s.handleAnswer(m)
	case *SegmentGrants:
		return s.handleGrants(m)
	case *SegmentAcks:
		return s.handleSegmentAcks(m)
	case *RecordAcks:
		return s.handleRecordAcks(m)
	case *ItemCommit:
		return s.handleCommit(m)
	case *ItemDone:
		return s.handleDone(m)
	case *ItemAbort:
		return s.handleAbort(m)
	}
	return nil
}

// Lost tells that the control connection is gone.
func (s *Session) Lost(err error, now int64) {
	s.now = now
	s.saidBye = true // nobody hears it
	s.end(asReason(err, reason.PeerUnreachable))
	if s.closeAt != 0 {
		s.closeGroups()
	}
}

// Run does what is due: results of workers and the node, events of pollers,
// work for the groups, timers. It returns when it must run again at the
// latest.
func (s *Session) Run(now int64) (next int64) {
	s.now = now
	s.flushCommands()
	s.takeResults()
	for range s.events.Cap() {
		e, ok := s.events.TryPop()
		if !ok {
			break
		}
		s.handleEvent(&e)
	}
	s.flushLanes()
	if s.phase == phaseUp {
		s.fill()
		s.grantSegments()
	}
	s.settleReceiving()
	s.settleSending()
	s.flushGrants()
	s.flushAux()
	s.flushCommands()
	s.flushUnsent()
	return s.tick()
}

// tick runs the timers.
func (s *Session) tick() int64 {
	c := &s.cfg
	switch {
	case s.phase == phaseClosed:
		return math.MaxInt64
	case s.phase == phaseClosing && s.now < s.closeAt:
		return s.closeAt
	case s.phase == phaseClosing && s.closeAt != 0:
		s.closeGroups()
		return s.now + c.DrainTimeout/4
	case s.phase == phaseClosing:
		s.tryClosed()
		return s.now + c.DrainTimeout/4
	case s.sendErr != nil && s.now-s.sendErrAt >= sendErrGrace:
		s.end(s.sendErr)
		return s.now
	case s.now-s.lastHeard > c.DeadAfter:
		s.end(reason.New(reason.PeerUnreachable, "the peer has not answered for %d ms", c.DeadAfter/1e6))
	case s.now-s.lastPing >= c.PingEvery:
		s.pingSeq++
		s.lastPing = s.now
		s.send(&Ping{Seq: s.pingSeq})
	}
	next := min(s.lastPing+c.PingEvery, s.lastHeard+c.DeadAfter+1)
	if s.phase == phaseOpening {
		next = min(next, s.tickOpening())
	}
	if s.sendErr != nil {
		next = min(next, s.sendErrAt+sendErrGrace)
	}
	next = min(next, s.tickLanes(), s.tickItems())
	if s.ackBy != 0 {
		next = min(next, s.ackBy)
	}
	if s.phase == phaseUp {
		next = min(next, s.paceAt)
	}
	if len(s.keep) > 0 || s.auxOut < maxAux && len(s.auxWaiting) > 0 {
		next = min(next, s.now+1e6)
	}
	return next
}

// clip bounds text for the wire and from it.
func clip(s string) string {
	const most = 512
	if len(s) > most {
		return s[:most]
	}
	return s
}

// event takes an event from a poller; false when the queue is full.
func (s *Session) event(e event) bool {
	if !s.events.TryPush(e) {
		return false
	}
	s.cfg.Waker.Wake()
	return true
}

func (s *Session) handleEvent(e *event) {
	switch e.kind {
	case eventLaneBuilt:
		s.laneBuilt(e)
	case eventLaneConnected:
		s.laneConnected(e)
	case eventLaneDrained:
		s.laneDrained(e)
	case eventLaneStuck:
		if s.phase < phaseClosing {
			s.end(reason.New(reason.TransportError, "lane %d did not drain within %d ms %s", e.lane.Lane, s.cfg.DrainTimeout/1e6, e.detail))
		}
	case eventLaneAnswer:
		s.laneAnswered(e)
	case eventChunkBack:
		s.chunkBack(e.chunk)
	case eventSegmentBack:
		s.segmentBack(e)
	case eventViolation:
		s.violation(e.detail)
	case eventFailed:
		s.end(reason.New(reason.TransportError, "%s", e.detail))
	case eventGroupClosed:
		s.groups[e.group].closed = true
	}
}
