package fabric

import (
	"fmt"

	"mover/verbs"
)

// closingIndex is the wr_id index of the closing message.
const closingIndex = 1<<32 - 1

// sender posts the messages of one lane from a ring of WRs that is made once:
// WR i writes to place i, and each time round only its source address (and
// immediate) changes.
type sender struct {
	lane       *lane
	layout     *layout
	wrs        []verbs.SendWR
	sges       []verbs.SGE
	chain      int
	moderation int

	next      int    // WR of the next message
	source    int    // source slot of the next message
	oldest    int    // WR of the oldest message not known to be complete
	posted    uint64 // messages
	completed uint64
	goal      uint64 // posted when all are

	sample   int    // the next one
	sampleAt uint64 // its message
	closing  [1]verbs.SendWR
	closed   bool
}

// noMessage is a number that no message has.
const noMessage = ^uint64(0)

func newSender(n *lane, c *Config, inline bool) *sender {
	l := n.layout
	s := &sender{lane: n, layout: l, wrs: make([]verbs.SendWR, l.inFlight), sges: make([]verbs.SGE, l.inFlight),
		chain: l.chain(c), moderation: l.moderation(c), goal: noMessage, sampleAt: noMessage}
	if l.samples > 0 {
		s.sampleAt = l.sampleAt(0)
	}
	if c.Duration == 0 {
		s.goal = uint64(c.Iterations)
	}
	op := verbs.OpWrite
	switch {
	case c.Op == Send && l.immediate:
		op = verbs.OpSendWithImm
	case c.Op == Send:
		op = verbs.OpSend
	case l.immediate:
		op = verbs.OpWriteWithImm
	}
	for i := range s.wrs {
		s.sges[i] = verbs.SGE{Length: uint32(l.sizeBytes), LKey: n.sourceKey}
		s.wrs[i] = verbs.SendWR{WRID: n.wrid(i), Op: op, SGL: s.sges[i : i+1 : i+1]}
		if s.signalled(i) {
			s.wrs[i].Flags |= verbs.SendSignaled
		}
		if inline {
			s.wrs[i].Flags |= verbs.SendInline
		}
	}
	s.closing[0] = verbs.SendWR{WRID: n.wrid(closingIndex), Op: verbs.OpSend, Flags: verbs.SendSignaled}
	return s
}

// signalled: every moderation-th of the ring, and its last.
func (s *sender) signalled(i int) bool { return (i+1)%s.moderation == 0 || i == len(s.wrs)-1 }

// aim fills in what the peer told.
func (s *sender) aim() {
	n := s.lane
	for i := range s.wrs {
		wr := &s.wrs[i]
		if wr.Op == verbs.OpWrite || wr.Op == verbs.OpWriteWithImm {
			wr.RemoteAddr, wr.RKey = n.peer.Addr+uint64(i*s.layout.strideBytes), n.peer.RKey
		}
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = n.ah, n.peer.QPN, benchQKey
	}
}

// post posts one chain, when there is room for a whole one, and returns how
// many messages that was. It allocates nothing.
func (s *sender) post() (int, error) {
	n := uint64(s.chain)
	if left := s.goal - s.posted; left < n {
		n = left
	}
	if n == 0 || uint64(len(s.wrs))-(s.posted-s.completed) < n {
		return 0, nil
	}
	count := min(int(n), len(s.wrs)-s.next)
	wrs := s.wrs[s.next : s.next+count]
	for i := range wrs {
		s.sges[s.next+i].Addr = s.lane.sourceAddr + uint64(s.source*s.layout.strideBytes)
		if s.source++; s.source == s.layout.sources {
			s.source = 0
		}
		wrs[i].Imm = uint32(s.posted) + uint32(i)
	}
	// The two exceptions, undone below: a sample has a place of its own, and
	// the very last message must be signalled.
	last := &wrs[count-1]
	flags, addr := last.Flags, wrs[0].RemoteAddr
	if s.posted == s.sampleAt {
		wrs[0].RemoteAddr = s.lane.peer.Addr + uint64((s.layout.places+s.sample)*s.layout.strideBytes)
		s.nextSample()
	}
	if s.posted+uint64(count) == s.goal {
		last.Flags |= verbs.SendSignaled
	}
	accepted, err := s.lane.qp.PostSend(wrs)
	last.Flags, wrs[0].RemoteAddr = flags, addr
	s.posted += uint64(accepted)
	if s.next += accepted; s.next == len(s.wrs) {
		s.next = 0
	}
	if err != nil {
		return accepted, fmt.Errorf("QP %d: posting %d messages, %d accepted: %w", s.lane.number, count, accepted, err)
	}
	return accepted, nil
}

// nextSample: samples are whole rounds apart, so they always are the first of
// the ring, and so of a chain.
func (s *sender) nextSample() {
	if s.sample++; s.sample < s.layout.samples {
		s.sampleAt = s.layout.sampleAt(s.sample)
		return
	}
	s.sampleAt = noMessage
}

// complete takes a success completion, which covers everything before it.
func (s *sender) complete(index uint32) error {
	if index == closingIndex {
		s.closed = true
		return nil
	}
	n := int(index) - s.oldest
	if n < 0 {
		n += len(s.wrs)
	}
	if int(index) >= len(s.wrs) || uint64(n)+1 > s.posted-s.completed {
		return fmt.Errorf("QP %d: a completion names WR %d, which is not out", s.lane.number, index)
	}
	s.completed += uint64(n) + 1
	if s.oldest = int(index) + 1; s.oldest == len(s.wrs) {
		s.oldest = 0
	}
	return nil
}

// finish ends a run for a time: after what is posted, and as many more as
// it takes to have a last one that is signalled.
func (s *sender) finish() {
	if s.goal != noMessage {
		return
	}
	s.goal = s.posted
	for i := s.next; s.goal == 0 || i != 0 && !s.signalled(i-1); i++ {
		s.goal++
	}
}

func (s *sender) inline() bool { return s.wrs[0].Flags&verbs.SendInline != 0 }

func (s *sender) done() bool { return s.completed == s.goal }

// close posts the closing message: the receiver may look at written memory
// only after a receive completion on the same QP.
func (s *sender) close() error {
	if _, err := s.lane.qp.PostSend(s.closing[:]); err != nil {
		return fmt.Errorf("QP %d: posting the closing message: %w", s.lane.number, err)
	}
	return nil
}
