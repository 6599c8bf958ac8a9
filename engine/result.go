package engine

import (
	"mover/reason"
	"mover/verbs"
)

// resultKind is what a worker, or the node, tells a session.
type resultKind uint8

const (
	resultSegment   resultKind = 1 + iota // a segment arrived
	resultSourceSum                       // a segment's checksum at the source
	resultResum                           // the same, computed again after a mismatch
	resultVerified                        // a source's Verify
	resultViolation                       // the peer broke the protocol
	resultSend                            // Session.Send
	resultCancel                          // Session.Cancel
	resultOpened                          // Session.Opened
	resultPublished                       // Session.Published
	resultDiscarded                       // Session.Discarded
	resultClose                           // Session.Close
	resultPortEvent                       // Session.PortEvent
)

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

// deliver takes a result from a worker or the node, on any goroutine.
func (s *Session) deliver(r result) {
	s.mu.Lock()
	over := s.over
	if !over {
		s.results = append(s.results, r)
	}
	s.mu.Unlock()
	if !over {
		s.cfg.Waker.Wake()
		return
	}
	if r.kind == resultSend {
		r.send.Done(ItemResult{Err: s.itemError()}) // nobody else would tell its sender
	}
}

// shutResults settles what is still queued; from now on deliver answers itself.
func (s *Session) shutResults() {
	s.mu.Lock()
	s.over = true
	late := s.results
	s.results, s.acks = nil, nil
	s.mu.Unlock()
	for i := range late {
		s.handleResult(&late[i])
	}
}

// Acks that nobody waits for are gathered: a message and two wake-ups for
// every slot cost more than the slot's checksum. Credits, which the data path
// does wait for, travel apart.
const (
	ackBatch = 16
	ackDelay = 10e6 // ns
)

// deliverAcks takes a slot's acks from a worker. They are urgent when the
// source waits for them: a failure, or the last bytes of an item.
func (s *Session) deliverAcks(acks []RecordAck, urgent bool) {
	s.mu.Lock()
	first := len(s.acks) == 0
	s.acks = append(s.acks, acks...)
	s.urgent = s.urgent || urgent || len(s.acks) >= ackBatch
	wake := first || s.urgent
	s.mu.Unlock()
	if wake {
		s.cfg.Waker.Wake()
	}
}

// takeAcks takes the acks to be sent now; nil while they are gathered. Callers
// hold s.mu.
func (s *Session) takeAcks() []RecordAck {
	if len(s.acks) == 0 {
		return nil
	}
	if !s.urgent && s.ackBy == 0 {
		s.ackBy = s.now + ackDelay
	}
	if !s.urgent && s.now < s.ackBy {
		return nil
	}
	acks := s.acks
	s.acks, s.urgent, s.ackBy = s.sparing[:0], false, 0
	s.sparing = nil
	return acks
}

// takeResults handles what was delivered. Both queues are bounded by the ops
// and items that exist.
func (s *Session) takeResults() {
	s.mu.Lock()
	results, acks := s.results, s.takeAcks()
	s.results = s.spare[:0]
	s.mu.Unlock()
	for i := range results {
		s.handleResult(&results[i])
	}
	for at := 0; at < len(acks); at += MaxBatch {
		batch := acks[at:min(at+MaxBatch, len(acks))]
		s.send(&RecordAcks{Acks: append([]RecordAck(nil), batch...)})
	}
	clear(results)
	s.spare = results
	if acks != nil {
		clear(acks)
		s.sparing = acks
	}
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
