package engine

import (
	"math"
	"sync"
	"sync/atomic"

	"mover/reason"
	"mover/ring"
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
	results []result
	acks    []RecordAck
	spare   []result // the slice drained last, used again
	sparing []RecordAck

	sending    []*sendItem // open, in order
	turn       int         // where the fair turn among them goes on
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
	why                            *reason.Error
	saidBye                        bool
	closeAt                        int64 // phaseClosing: the groups are closed then, 0 once they are
	unwired                        bool  // closing, and every QP is destroyed
}

// result is something that a worker or the node tells the session.
type result struct {
	kind   resultKind
	group  uint16
	seg    SlotRef
	ref    ItemRef
	bytes  uint32
	offset int64
	crc    uint32
	item   *sendItem
	send   *Item
	target *Target
	err    *reason.Error
	meta   []byte
	done   bool
	event  verbs.AsyncEvent
	ctx    verbs.Context
}

// NewSession makes a session; Start begins it.
func NewSession(cfg SessionConfig) *Session {
	s := &Session{
		cfg:      cfg,
		events:   ring.NewMPMC[event](4096),
		inFlight: map[chunkKey]*chunk{},
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
	case s.now-s.lastHeard > c.DeadAfter:
		s.end(reason.New(reason.PeerUnreachable, "the peer has not answered for %d ms", c.DeadAfter/1e6))
	case s.phase == phaseOpening && s.now-s.startedAt > c.SetupTimeout:
		s.end(reason.New(reason.PeerUnreachable, "the session was not set up within %d ms", c.SetupTimeout/1e6))
	case s.now-s.lastPing >= c.PingEvery:
		s.pingSeq++
		s.lastPing = s.now
		s.send(&Ping{Seq: s.pingSeq})
	}
	next := min(s.lastPing+c.PingEvery, s.lastHeard+c.DeadAfter+1)
	next = min(next, s.tickLanes(), s.tickItems())
	if len(s.keep) > 0 || s.auxOut < maxAux && len(s.auxWaiting) > 0 {
		next = min(next, s.now+1e6)
	}
	return next
}

// Close ends the session in order: what is in flight fails with why.
func (s *Session) Close(why *reason.Error) { s.deliver(result{kind: resultClose, err: why}) }

// PortEvent tells of an asynchronous event of a device that the session uses.
func (s *Session) PortEvent(ctx verbs.Context, e verbs.AsyncEvent) {
	s.deliver(result{kind: resultPortEvent, ctx: ctx, event: e})
}

// send hands a message to the control connection; a failure ends the session.
func (s *Session) send(m Message) {
	if s.saidBye {
		return
	}
	// The peer may act on a message at once: what pollers have to know before
	// goes to them first.
	if len(s.unsent) > 0 || !s.flushCommands() {
		s.unsent = append(s.unsent, m)
		return
	}
	s.sendNow(m)
}

func (s *Session) sendNow(m Message) {
	if err := s.cfg.Control.Send(m); err != nil {
		s.saidBye = true
		s.end(asReason(err, reason.PeerUnreachable))
	}
}

// flushUnsent sends what waited for commands.
func (s *Session) flushUnsent() {
	for len(s.unsent) > 0 && s.flushCommands() && !s.saidBye {
		m := s.unsent[0]
		s.unsent = s.unsent[1:]
		s.sendNow(m)
	}
	if s.saidBye {
		s.unsent = nil
	}
}

// violation ends the session: what a peer sends is never clamped into shape.
func (s *Session) violation(what string) {
	s.cfg.Log("the peer broke the session protocol; closing the session", "violation", what)
	s.end(reason.New(reason.TransportError, "the peer broke the session protocol: %s", what))
}

// end begins the end: the peer is told, every item fails, every group closes.
func (s *Session) end(why *reason.Error) {
	if s.phase < phaseClosing {
		s.beginEnd(why)
		s.closeGroups()
	}
}

// byeGrace is how long the QPs outlive an orderly Bye, so that the peer hears
// of the end before its lanes fail one by one. It closes the connection at
// once, which ends the wait.
const byeGrace = 200e6

// endInOrder is end for a healthy session.
func (s *Session) endInOrder(why *reason.Error) {
	if s.phase < phaseClosing {
		s.beginEnd(why)
		s.closeAt = s.now + byeGrace
	}
}

func (s *Session) beginEnd(why *reason.Error) {
	s.phase, s.why = phaseClosing, why
	if !s.saidBye {
		bye := &Bye{}
		if why != nil {
			bye.Code, bye.Detail = why.Code.Wire(), clip(why.Detail)
		}
		_ = s.cfg.Control.Send(bye) // it is over either way
		s.saidBye = true
	}
	for _, l := range s.lanes {
		s.unready(l)
	}
	for _, i := range s.sending {
		i.stop(s.itemError())
	}
	for _, i := range s.receiving {
		s.endReceiving(i, s.itemError())
	}
}

func (s *Session) closeGroups() {
	s.closeAt = 0
	for _, g := range s.groups {
		if g.attached {
			s.command(g.poller, command{kind: commandCloseGroup, group: g.group})
		} else {
			g.closed = true
		}
	}
	s.tryClosed()
}

// itemError is why the session's items fail.
func (s *Session) itemError() *reason.Error {
	if s.why == nil {
		return reason.New(reason.TransportError, "the session was closed")
	}
	return s.why
}

func (s *Session) handleBye(m *Bye) {
	s.saidBye = true
	code, ok := reason.FromWire(m.Code)
	if !ok {
		code = reason.TransportError
	}
	if m.Detail == "" {
		m.Detail = "the peer closed the session"
	}
	s.end(reason.New(code, "the peer ended the session: %s", clip(m.Detail)))
}

// clip bounds text for the wire and from it.
func clip(s string) string {
	const most = 512
	if len(s) > most {
		return s[:most]
	}
	return s
}

// command hands a command to a poller, now or when its queue has room.
func (s *Session) command(p *Poller, c command) {
	if len(s.keep) == 0 && p.command(c) {
		return
	}
	s.keep, s.keepTo = append(s.keep, c), append(s.keepTo, p)
}

// flushCommands reports whether no command is left waiting.
func (s *Session) flushCommands() bool {
	for len(s.keep) > 0 && s.keepTo[0].command(s.keep[0]) {
		s.keep, s.keepTo = s.keep[1:], s.keepTo[1:]
	}
	if len(s.keep) > 0 {
		return false
	}
	s.keep, s.keepTo = nil, nil
	return true
}

// event takes an event from a poller; false when the queue is full.
func (s *Session) event(e event) bool {
	if !s.events.TryPush(e) {
		return false
	}
	s.cfg.Waker.Wake()
	return true
}

// deliver takes a result from a worker or the node, on any goroutine.
func (s *Session) deliver(r result) {
	s.mu.Lock()
	s.results = append(s.results, r)
	s.mu.Unlock()
	s.cfg.Waker.Wake()
}

// deliverAcks takes a slot's acks from a worker.
func (s *Session) deliverAcks(acks []RecordAck) {
	s.mu.Lock()
	s.acks = append(s.acks, acks...)
	s.mu.Unlock()
	s.cfg.Waker.Wake()
}

// takeResults handles what was delivered. Both queues are bounded by the ops
// and items that exist.
func (s *Session) takeResults() {
	s.mu.Lock()
	results, acks := s.results, s.acks
	s.results, s.acks = s.spare[:0], s.sparing[:0]
	s.mu.Unlock()
	for i := range results {
		s.handleResult(&results[i])
	}
	for at := 0; at < len(acks); at += MaxBatch {
		batch := acks[at:min(at+MaxBatch, len(acks))]
		s.send(&RecordAcks{Acks: append([]RecordAck(nil), batch...)})
	}
	clear(results)
	clear(acks)
	s.spare, s.sparing = results, acks
}

func (s *Session) handleResult(r *result) {
	switch r.kind {
	case resultSend:
		s.startSending(r.send)
	case resultCancel:
		s.cancelSending(r.send, r.err)
	case resultSegment:
		s.segmentArrived(r)
	case resultSourceSum, resultResum:
		s.segmentSummed(r)
	case resultVerified:
		s.sourceVerified(r)
	case resultOpened:
		s.opened(r)
	case resultPublished:
		s.published(r)
	case resultDiscarded:
		s.discarded(r)
	case resultViolation:
		s.violation(r.err.Detail)
	case resultClose:
		s.endInOrder(r.err)
	case resultPortEvent:
		s.portEvent(r.ctx, r.event)
	}
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
