package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"mover/reason"
	"mover/verbs"
)

// maxReceiving bounds the items that a peer may have open here.
const maxReceiving = 1024

// Opened answers Receiver.Open: the target, or why the item is refused.
// published says that an earlier attempt of this item was published already
// and only the word of it was lost; meta is then what Published gave. Any
// goroutine may call it.
func (s *Session) Opened(ref ItemRef, target *Target, published bool, meta []byte, err *reason.Error) {
	s.deliver(result{kind: resultOpened, ref: ref, target: target, done: published, meta: meta, err: err})
}

// Published answers Receiver.Publish. Any goroutine may call it.
func (s *Session) Published(ref ItemRef, meta []byte, err *reason.Error) {
	s.deliver(result{kind: resultPublished, ref: ref, meta: meta, err: err})
}

// Discarded answers Receiver.Discard. Any goroutine may call it.
func (s *Session) Discarded(ref ItemRef) { s.deliver(result{kind: resultDiscarded, ref: ref}) }

func (s *Session) receivingItem(ref ItemRef) *recvItem {
	for _, i := range s.receiving {
		if i.ref == ref {
			return i
		}
	}
	return nil
}

func (s *Session) forget(i *recvItem) {
	for at := range s.receiving {
		if s.receiving[at] == i {
			s.receiving = append(s.receiving[:at], s.receiving[at+1:]...)
			return
		}
	}
}

func (s *Session) handleOffer(m *ItemOffer) error {
	switch {
	case s.plan == nil:
		return errors.New("an offer before the session was opened")
	case m.Ref.Item < s.nextOffer || m.Ref.Item == math.MaxUint64:
		return errors.New("an offer with the number of an earlier one")
	case m.Kind != Staged && m.Kind != Direct || m.Bytes < 0 || len(m.Meta) > MaxMetaBytes:
		return errors.New("an invalid offer")
	}
	s.nextOffer = m.Ref.Item + 1
	if len(s.receiving) >= maxReceiving {
		s.send(&ItemAnswer{Ref: m.Ref, Code: reason.PeerRefused.Wire(), Detail: fmt.Sprintf("%d items are open already", maxReceiving)})
		return nil
	}
	i := &recvItem{ref: m.Ref, offer: m, phase: recvOpening}
	s.receiving = append(s.receiving, i)
	s.cfg.Receiver.Open(s, i.ref, m)
	return nil
}

func (s *Session) opened(r *result) {
	i := s.receivingItem(r.ref)
	if i == nil || i.phase != recvOpening {
		return
	}
	i.target = r.target
	if r.err == nil && !r.done && !i.fits() {
		r.err = reason.New(reason.Internal, "the destination made no room for the item's %d bytes", i.offer.Bytes)
	}
	switch {
	case i.why != nil: // it ended meanwhile
		i.phase = recvEnding
	case r.err != nil:
		s.send(&ItemAnswer{Ref: i.ref, Code: r.err.Code.Wire(), Detail: clip(r.err.Detail)})
		if i.target == nil {
			s.forget(i)
			return
		}
		i.phase = recvReceiving // as far as there is something to discard
		s.endReceiving(i, r.err)
	case r.done:
		s.send(&ItemDone{Ref: i.ref, Meta: r.meta})
		s.forget(i)
	default:
		s.accept(i)
	}
}

// fits checks what the Receiver made.
func (i *recvItem) fits() bool {
	switch {
	case i.target == nil:
		return false
	case i.offer.Kind == Direct:
		return i.offer.Bytes <= int64(len(i.target.Memory))
	}
	return i.target.Sink != nil
}

// accept lets the bytes come.
func (s *Session) accept(i *recvItem) {
	answer := &ItemAnswer{Ref: i.ref}
	i.phase = recvReceiving
	if i.offer.Kind == Direct {
		regs, err := s.register(i.target.Memory, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		if err != nil {
			why := asReason(err, reason.TransportError)
			s.send(&ItemAnswer{Ref: i.ref, Code: why.Code.Wire(), Detail: clip(why.Detail)})
			s.endReceiving(i, why)
			return
		}
		i.mrs = regs
		for r := range s.plan.rails {
			d, err := s.device(s.railPort(uint16(r)))
			for k := range regs {
				if err == nil && regs[k].device == d {
					answer.Regions = append(answer.Regions, MemoryRegion{Rail: uint16(r), Offset: regs[k].offset,
						Bytes: int64(regs[k].mr.Length()), Addr: regs[k].mr.Addr(), RKey: regs[k].mr.RKey()})
				}
			}
		}
	}
	s.inbox.add(i)
	s.send(answer)
}

// grantSegments lets the sources of direct items write, as long as the groups'
// segment tables have room. An item never holds more entries than it leaves free
// (and the next is for who has fewest): a grant is not taken back, and a source
// that sends slowly, because its rate is limited, would keep the whole table
// from those who come later. A half is still more than fills the rails.
func (s *Session) grantSegments() {
	var out []*recvItem // no group reaches them
	for free := s.freeEntries(); free > 0; free = s.freeEntries() {
		var poorest *recvItem
		for _, i := range s.receiving {
			if i.offer.Kind != Direct || i.phase != recvReceiving || i.failed || i.next >= i.offer.Bytes || slices.Contains(out, i) {
				continue
			}
			if poorest == nil || len(i.granted) < len(poorest.granted) {
				poorest = i
			}
		}
		if poorest == nil || len(poorest.granted) >= free {
			return
		}
		if g := s.groupForGrant(poorest); g != nil {
			s.grantSegment(g, poorest)
		} else {
			out = append(out, poorest)
		}
	}
}

// freeEntries counts what can be granted in groups that have lanes.
func (s *Session) freeEntries() (n int) {
	for _, g := range s.groups {
		if g.upLanes > 0 {
			n += len(g.freeSegs)
		}
	}
	return n
}

// groupForGrant takes turns among the groups that have room, and a lane on a
// device that the item's memory is registered on.
func (s *Session) groupForGrant(i *recvItem) *sessionGroup {
	for range s.groups {
		if s.grantTurn++; s.grantTurn >= len(s.groups) {
			s.grantTurn = 0
		}
		if g := s.groups[s.grantTurn]; g.upLanes > 0 && len(g.freeSegs) > 0 && s.reaches(g, i) {
			return g
		}
	}
	return nil
}

// reaches reports whether a lane of the group that is up ends on a device that
// took the next bytes of the item: one that is gone, or refused, did not.
func (s *Session) reaches(g *sessionGroup, i *recvItem) bool {
	for _, l := range s.lanes {
		if l.group != g || l.credit || !l.ready {
			continue
		}
		if d, err := s.device(s.railPort(l.rail)); err == nil && find(i.mrs, d, i.next) != nil {
			return true
		}
	}
	return false
}

func (s *Session) grantSegment(g *sessionGroup, i *recvItem) {
	ref := g.freeSegs[len(g.freeSegs)-1]
	g.freeSegs = g.freeSegs[:len(g.freeSegs)-1]
	bytes := min(int64(s.plan.segmentBytes), i.offer.Bytes-i.next)
	i.granted = append(i.granted, heldSegment{group: g.id, seg: ref, offset: i.next, bytes: uint32(bytes)})
	// The entry is the poller's before the peer hears of it.
	s.command(g.poller, command{kind: commandGrantSegment, group: g.group, seg: ref, ref: i.ref,
		mem: i.target.Memory[i.next : i.next+bytes], off: i.next, check: i.offer.Verify})
	s.grants = append(s.grants, SegmentGrant{Ref: i.ref, Group: g.id, Seg: ref, Offset: i.next, Bytes: uint32(bytes)})
	i.next += bytes
}

// flushGrants sends what was gathered.
func (s *Session) flushGrants() {
	// Acks first: a grant may use the entry that an ack has freed.
	for len(s.segAcks) > 0 {
		n := min(len(s.segAcks), MaxBatch)
		s.send(&SegmentAcks{Acks: append([]SegmentAck(nil), s.segAcks[:n]...)})
		s.segAcks = s.segAcks[:copy(s.segAcks, s.segAcks[n:])]
	}
	for len(s.grants) > 0 {
		n := min(len(s.grants), MaxBatch)
		s.send(&SegmentGrants{Grants: append([]SegmentGrant(nil), s.grants[:n]...)})
		s.grants = s.grants[:copy(s.grants, s.grants[n:])]
	}
}

// segmentArrived counts a segment that a worker has checksummed, and acks it.
func (s *Session) segmentArrived(r *result) {
	i := s.receivingItem(r.ref)
	if i == nil {
		return
	}
	for k := range i.granted {
		h := i.granted[k]
		if h.group != r.group || h.seg != r.seg {
			continue
		}
		i.granted = append(i.granted[:k], i.granted[k+1:]...)
		ack := SegmentAck{Group: h.group, Seg: h.seg, CRC: r.crc}
		if r.err == nil {
			i.count(h.offset, int64(h.bytes), r.crc)
		} else { // the source stops, and its abort ends the item
			ack.Code, ack.Detail = r.err.Code.Wire(), clip(r.err.Detail)
		}
		g := s.groups[h.group]
		g.freeSegs = append(g.freeSegs, nextGeneration(h.seg))
		s.segAcks = append(s.segAcks, ack)
		return
	}
}

// regenerate follows grants that were lost with a lane into their next
// generation.
func (s *Session) regenerate(g *sessionGroup, missing []SlotRef) {
	for _, i := range s.receiving {
		for k := range i.granted {
			for _, m := range missing {
				if h := &i.granted[k]; h.group == g.id && h.seg == m {
					h.seg = nextGeneration(m)
					break
				}
			}
		}
	}
}

func (s *Session) handleCommit(m *ItemCommit) error {
	i := s.receivingItem(m.Ref)
	if i == nil || i.phase != recvReceiving || i.failed {
		return errors.New("a commit of an item that is not open")
	}
	got, crc := i.counted()
	if got != i.offer.Bytes || i.busy.Load() != 0 {
		return fmt.Errorf("a commit of an item with %d of %d bytes", got, i.offer.Bytes)
	}
	s.inbox.close(i)
	if i.offer.Verify && crc != m.CRC {
		s.refuse(i, reason.New(reason.ChecksumMismatch, "the item has CRC32C %08x here, %08x at its source; "+badMemory, crc, m.CRC))
		return nil
	}
	i.phase = recvPublishing
	// Every byte is here: from now on the peer's writes are refused, also by
	// memory that is somebody else's next.
	s.deregister(i.mrs)
	i.mrs = nil
	s.cfg.Receiver.Publish(s, i.ref, i.target, crc, i.offer.Verify)
	return nil
}

// refuse tells the source that an item fails here; its abort ends the item.
func (s *Session) refuse(i *recvItem, why *reason.Error) {
	i.failed = true
	s.send(&ItemDone{Ref: i.ref, Code: why.Code.Wire(), Detail: clip(why.Detail)})
}

func (s *Session) published(r *result) {
	i := s.receivingItem(r.ref)
	if i == nil || i.phase != recvPublishing {
		return
	}
	switch {
	case r.err == nil:
		// Even when the source has given up meanwhile: the Receiver remembers,
		// and the next attempt learns of it.
		s.send(&ItemDone{Ref: i.ref, Meta: r.meta})
		s.forget(i)
	case i.why != nil:
		i.phase = recvEnding
	default:
		i.phase = recvReceiving // closed to workers; awaiting the abort
		s.refuse(i, r.err)
	}
}

func (s *Session) handleAbort(m *ItemAbort) error {
	if i := s.receivingItem(m.Ref); i != nil {
		s.endReceiving(i, fromPeer(m.Code, m.Detail))
	}
	return nil
}

// endReceiving begins an item's end without publication; an opening or a
// publication that is under way ends first.
func (s *Session) endReceiving(i *recvItem, why *reason.Error) {
	if i.why == nil {
		i.why = why
	}
	if i.phase == recvReceiving {
		s.inbox.close(i)
		i.phase = recvEnding
	}
}

// settleReceiving discards ended items that nobody writes to any more.
func (s *Session) settleReceiving() {
	if !s.mayLetGo() {
		return
	}
	for at := 0; at < len(s.receiving); at++ {
		i := s.receiving[at]
		if i.phase != recvEnding || i.busy.Load() != 0 {
			continue
		}
		for _, h := range i.granted {
			// The source has said that it will not use them.
			g := s.groups[h.group]
			s.command(g.poller, command{kind: commandReleaseSegment, group: g.group, seg: h.seg})
			g.freeSegs = append(g.freeSegs, nextGeneration(h.seg))
		}
		i.granted = nil
		s.dropGrants(i)
		s.deregister(i.mrs)
		i.mrs = nil
		if i.target == nil {
			s.forget(i)
			at--
			continue
		}
		i.phase = recvDiscarding
		s.cfg.Receiver.Discard(s, i.ref, i.target, i.why)
	}
}

// dropGrants takes back grants that were not sent yet.
func (s *Session) dropGrants(i *recvItem) {
	kept := s.grants[:0]
	for _, g := range s.grants {
		if g.Ref != i.ref {
			kept = append(kept, g)
		}
	}
	s.grants = kept
}

func (s *Session) discarded(r *result) {
	if i := s.receivingItem(r.ref); i != nil && i.phase == recvDiscarding {
		s.forget(i)
	}
}
