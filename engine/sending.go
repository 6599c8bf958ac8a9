package engine

import (
	"errors"
	"math"
	"sync/atomic"

	"mover/reason"
)

// sendPhase is where an item is at its source.
type sendPhase uint8

const (
	sendQueued    sendPhase = 1 + iota // until the session is up
	sendOffered                        // the peer decides
	sendMoving                         // bytes move
	sendVerifying                      // every byte is acked; is the source what it was?
	sendCommitted                      // the peer publishes
	sendStopping                       // it failed or was canceled; what is out comes back
)

// sendItem is an item at its source. The session owns it; pollers and workers
// read what never changes, and stopped.
type sendItem struct {
	item    *Item
	ref     ItemRef
	stopped atomic.Bool

	phase       sendPhase
	offered     bool // the peer knows of it
	next        int64
	requeue     []*chunk // given back unsent
	outstanding int      // chunks and segments out
	aux         int      // auxiliary ops out
	acked       int64
	crc         uint32
	err         *reason.Error
	progressAt  int64
	stopBy      int64
	pacers      []*Pacer       // of item.Pace
	payers      []payer        // in their queues
	held        []*segment     // Direct: granted, waiting for pacers
	local       []registration // Direct: source memory, by device
	remote      []MemoryRegion // Direct: destination memory
}

// publishBytesPerSecond is how slow a destination's disk may be at its last
// sync before the source calls it stalled.
const publishBytesPerSecond = 16 << 20

// maxAux bounds the ops that sessions submit themselves.
const maxAux = 16

// Send begins an attempt at an item; item.Done tells its end, at once and on
// this goroutine if the session has ended. Any goroutine may call it.
func (s *Session) Send(item *Item) { s.deliver(result{kind: resultSend, send: item}) }

// Cancel stops an item with the reason given; item.Done follows when nothing
// of it is in flight. An item that is being published already may still
// succeed. Any goroutine may call it.
func (s *Session) Cancel(item *Item, why *reason.Error) {
	s.deliver(result{kind: resultCancel, send: item, err: why})
}

func (s *Session) startSending(item *Item) {
	if s.phase >= phaseClosing {
		item.Done(ItemResult{Err: s.itemError()})
		return
	}
	i := &sendItem{item: item, phase: sendQueued, progressAt: s.now}
	for _, p := range item.Pace {
		if p != nil {
			i.pacers = append(i.pacers, p)
		}
	}
	i.payers = make([]payer, len(i.pacers))
	s.sending = append(s.sending, i)
	if len(i.pacers) > MaxPacers {
		i.stop(reason.New(reason.Internal, "an item with %d limits of its rate, at most %d are possible", len(i.pacers), MaxPacers))
		return
	}
	if item.Bytes < 0 || item.Kind == Direct && item.Bytes > int64(len(item.Memory)) {
		i.stop(reason.New(reason.Internal, "an item of %d bytes in %d bytes of memory", item.Bytes, len(item.Memory)))
		return
	}
	if s.phase == phaseUp {
		s.offer(i)
	}
}

// offerQueued offers what was given to the session before it was up: earlier
// an offer, on the other stream, could overtake the session's set-up, and the
// devices to register memory on are not known.
func (s *Session) offerQueued() {
	for _, i := range s.sending {
		if i.phase == sendQueued {
			s.offer(i)
		}
	}
}

func (s *Session) offer(i *sendItem) {
	item := i.item
	i.ref = ItemRef{Item: s.nextItem, Attempt: item.Attempt}
	s.nextItem++
	i.progressAt = s.now
	if item.Kind == Direct {
		var err error
		if i.local, err = s.register(item.Memory, 0); err != nil {
			i.stop(asReason(err, reason.TransportError))
			return
		}
	}
	i.phase, i.offered = sendOffered, true
	s.send(&ItemOffer{Ref: i.ref, Kind: item.Kind, Bytes: item.Bytes, Verify: item.Verify, Meta: item.Meta})
}

func (s *Session) cancelSending(item *Item, why *reason.Error) {
	for _, i := range s.sending {
		if i.item == item && i.phase != sendCommitted {
			i.stop(why)
		}
	}
}

// stop ends an item's sending; its Done follows once nothing is out.
func (i *sendItem) stop(why *reason.Error) {
	if i.phase == sendStopping {
		return
	}
	i.phase, i.err = sendStopping, why
	i.stopped.Store(true)
	for k, p := range i.pacers {
		p.leave(&i.payers[k])
	}
}

func (s *Session) sendingItem(ref ItemRef) *sendItem {
	for _, i := range s.sending {
		if i.ref == ref && i.offered {
			return i
		}
	}
	return nil
}

func (s *Session) handleAnswer(m *ItemAnswer) error {
	i := s.sendingItem(m.Ref)
	if i == nil || i.phase == sendStopping {
		return nil // it ended while the answer was on its way
	}
	if i.phase != sendOffered {
		return errors.New("a second answer to an offer")
	}
	i.progressAt = s.now
	if m.Code != 0 {
		i.offered = false
		i.stop(fromPeer(m.Code, m.Detail))
		return nil
	}
	i.phase = sendMoving
	if i.item.Kind == Direct {
		for _, r := range m.Regions {
			if int(r.Rail) >= len(s.plan.rails) || r.Offset < 0 || r.Bytes <= 0 || r.Offset > i.item.Bytes ||
				r.Addr > math.MaxUint64-uint64(r.Bytes) {
				return errors.New("an answer with an invalid region")
			}
		}
		i.remote = m.Regions
	}
	return nil
}

// fromPeer makes a reason of what a peer sent.
func fromPeer(code uint16, detail string) *reason.Error {
	c, ok := reason.FromWire(code)
	if !ok {
		return reason.New(reason.Internal, "the peer gave reason %d, which this version does not know: %s", code, clip(detail))
	}
	return &reason.Error{Code: c, Detail: clip(detail)}
}

// settleSending moves items on that have nothing out.
func (s *Session) settleSending() {
	for at := 0; at < len(s.sending); {
		i := s.sending[at]
		if i.phase == sendStopping && len(i.held) > 0 {
			s.dropHeld(i)
		}
		if i.outstanding == 0 && i.aux == 0 {
			switch {
			case i.phase == sendMoving && i.acked == i.item.Bytes:
				s.verifySource(i)
			case i.phase == sendMoving && i.acked > i.item.Bytes:
				s.violation("more bytes acked than an item has")
				return
			case i.phase == sendStopping && s.mayLetGo():
				if i.offered {
					s.send(&ItemAbort{Ref: i.ref, Code: i.err.Code.Wire(), Detail: clip(i.err.Detail)})
				}
				s.finish(at, ItemResult{Err: i.err})
				continue
			}
		}
		at++
	}
}

// finish takes an item off the list and tells its owner.
func (s *Session) finish(at int, r ItemResult) {
	i := s.sending[at]
	s.sending = append(s.sending[:at], s.sending[at+1:]...)
	i.stopped.Store(true)
	s.deregister(i.local)
	i.item.Done(r)
}

// verifySource asks a worker whether the source changed while it was read.
func (s *Session) verifySource(i *sendItem) {
	i.phase = sendVerifying
	i.item.verify.Store(true)
	if i.item.Kind == Direct {
		s.commit(i)
		return
	}
	s.submitAux(&Op{kind: opVerify, class: express, session: s, item: i, crc: i.crc})
}

// submitAux hands a session's own op to the workers of its first poller, whose
// group has reserved room for maxAux of them.
func (s *Session) submitAux(op *Op) {
	op.item.aux++
	s.auxWaiting = append(s.auxWaiting, op)
	s.flushAux()
}

func (s *Session) flushAux() {
	for len(s.auxWaiting) > 0 && s.auxOut < maxAux && s.groups[0].poller.work.push(s.auxWaiting[0]) {
		s.auxWaiting = s.auxWaiting[1:]
		s.auxOut++
	}
}

func (s *Session) auxDone(i *sendItem) {
	i.aux--
	s.auxOut--
	s.flushAux()
}

func (s *Session) sourceVerified(r *result) {
	i := r.item
	s.auxDone(i)
	i.progressAt = s.now
	switch {
	case i.phase != sendVerifying:
	case r.err != nil:
		i.stop(r.err)
	default:
		s.commit(i)
	}
}

func (s *Session) commit(i *sendItem) {
	i.phase = sendCommitted
	i.progressAt = s.now
	i.item.publish.Store(true)
	s.send(&ItemCommit{Ref: i.ref, CRC: i.crc})
}

func (s *Session) handleDone(m *ItemDone) error {
	for at, i := range s.sending {
		switch {
		case i.ref != m.Ref || !i.offered:
			continue
		case m.Code != 0:
			i.stop(fromPeer(m.Code, m.Detail))
		case i.phase == sendCommitted, i.phase == sendOffered:
			// Straight after the offer: an earlier attempt had published it, and
			// only its answer was lost.
			s.finish(at, ItemResult{CRC: i.crc, Meta: m.Meta})
		case i.phase != sendStopping:
			return errors.New("an item done that was not committed")
		}
		return nil
	}
	return nil // it ended while this was on its way
}

// tickItems fails items that do not get on.
func (s *Session) tickItems() int64 {
	next := int64(math.MaxInt64)
	for _, i := range s.sending {
		limit := i.progressAt + s.cfg.StallAfter
		switch i.phase {
		case sendQueued:
			continue // bounded by the session's set-up
		case sendCommitted:
			limit += i.item.Bytes / publishBytesPerSecond * 1e9
		case sendStopping:
			if i.stopBy == 0 {
				i.stopBy = s.now + s.cfg.StallAfter
			}
			limit = i.stopBy
		}
		if s.now < limit {
			next = min(next, limit)
			continue
		}
		if i.phase == sendStopping {
			s.end(reason.New(reason.Stalled, "an item's writes did not come back within %d ms; see what `mover peers` says of the rails, and both nodes' logs", s.cfg.StallAfter/1e6))
			return s.now
		}
		i.stop(reason.New(reason.Stalled, "no progress for %d ms, %d of %d bytes acked; look at the disks of both nodes and the network between them, or raise jobs.stall_after", s.cfg.StallAfter/1e6, i.acked, i.item.Bytes))
		next = s.now
	}
	return next
}
