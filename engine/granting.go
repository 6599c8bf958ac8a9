package engine

import (
	"errors"
	"fmt"

	"mover/reason"
)

// handleGrants queues the segments that the peer lets this side write.
func (s *Session) handleGrants(m *SegmentGrants) error {
	for k := range m.Grants {
		gr := &m.Grants[k]
		i := s.sendingItem(gr.Ref)
		if i == nil || i.phase == sendStopping {
			continue // ended; the abort on its way tells that the grant is not used
		}
		if err := s.takeGrant(i, gr); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) takeGrant(i *sendItem, gr *SegmentGrant) error {
	switch {
	case i.phase != sendMoving || i.item.Kind != Direct:
		return errors.New("a grant for an item that takes none")
	case int(gr.Group) >= len(s.groups) || gr.Seg.Index >= segmentTable || gr.Seg.Generation > generationMask:
		return errors.New("a grant outside the segment table")
	case gr.Bytes == 0 || int(gr.Bytes) > s.plan.segmentBytes || gr.Offset < 0 || gr.Offset > i.item.Bytes-int64(gr.Bytes):
		return errors.New("a grant outside the item")
	}
	g := s.groups[gr.Group]
	if before := g.sent[gr.Seg.Index]; before != nil {
		// The peer grants an entry again once it has acked it; the completions
		// and the checksum of the segment before may still be on their way here.
		// A grant that waited for that may have been taken back meanwhile, with
		// its item, and the entry granted to another.
		if !before.haveAck || before.next != nil && s.grantHolds(before.next) {
			return errors.New("a grant of a segment in use")
		}
		before.next = gr
		return nil
	}
	seg := &segment{group: gr.Group, granted: gr.Seg, index: gr.Seg.Index, generation: gr.Seg.Generation, item: i, offset: gr.Offset,
		memory: i.item.Memory[gr.Offset : gr.Offset+int64(gr.Bytes)], verify: i.item.Verify,
		local: make([]uint32, len(s.plan.rails)), remote: make([]remoteRange, len(s.plan.rails))}
	told, known := false, false
	for _, r := range g.rails {
		d, err := s.device(s.railPort(r.index))
		if err != nil {
			return err
		}
		to := i.region(r.index, gr.Offset, int64(gr.Bytes))
		told = told || to != nil
		// Either end's device may be gone, and the item's memory not be known to it.
		if local := find(i.local, d, gr.Offset); local != nil && to != nil {
			seg.local[r.index] = local.mr.LKey()
			seg.remote[r.index] = remoteRange{addr: to.Addr + uint64(gr.Offset-to.Offset), rkey: to.RKey, known: true}
			known = true
		}
	}
	switch {
	case !told:
		return errors.New("a grant of bytes that have no region on any rail of the group")
	case !known: // the next attempt is granted by what is up then
		i.stop(reason.New(reason.TransportError, "a segment was granted on a rail whose device here did not take the item's memory: is the device gone?"))
		return nil
	}
	g.sent[gr.Seg.Index] = seg
	i.outstanding++
	if len(i.pacers) > 0 {
		seg.held = true
		i.held = append(i.held, seg)
		return nil
	}
	s.command(g.poller, command{kind: commandSendSegment, group: g.group, send: seg})
	return nil
}

// grantHolds reports whether a grant that waits is for an item still to be
// sent.
func (s *Session) grantHolds(gr *SegmentGrant) bool {
	i := s.sendingItem(gr.Ref)
	return i != nil && i.phase != sendStopping
}

// region finds where on a rail a range of the item goes.
func (i *sendItem) region(rail uint16, offset, bytes int64) *MemoryRegion {
	for k := range i.remote {
		r := &i.remote[k]
		if r.Rail == rail && offset >= r.Offset && bytes <= r.Bytes && offset-r.Offset <= r.Bytes-bytes {
			return r
		}
	}
	return nil
}

// sentSegment finds a segment that is out, in just that generation.
func (s *Session) sentSegment(group uint16, ref SlotRef) *segment {
	if int(group) >= len(s.groups) || ref.Index >= segmentTable {
		return nil
	}
	if seg := s.groups[group].sent[ref.Index]; seg != nil && seg.granted == ref {
		return seg
	}
	return nil
}

func (s *Session) handleSegmentAcks(m *SegmentAcks) error {
	for k := range m.Acks {
		a := &m.Acks[k]
		seg := s.sentSegment(a.Group, a.Seg)
		if seg == nil || seg.haveAck || seg.held {
			return fmt.Errorf("an ack for segment %d of group %d, which is not in flight", a.Seg.Index, a.Group)
		}
		seg.haveAck, seg.ackCRC = true, a.CRC
		g := s.groups[a.Group]
		s.command(g.poller, command{kind: commandAckedSegment, group: g.group, seg: a.Seg})
		if a.Code != 0 {
			seg.item.stop(fromPeer(a.Code, a.Detail))
			continue
		}
		s.compareSegment(g, seg)
	}
	return nil
}

// segmentSummed takes a checksum of a segment's source memory. The segment may
// have been sent again since, in the next generation, from the same memory.
func (s *Session) segmentSummed(r *result) {
	if r.kind == resultResum {
		s.auxDone(r.item)
	}
	g := s.groups[r.group]
	seg := g.sent[r.seg.Index]
	if seg == nil || seg.item != r.item {
		return // settled with its session
	}
	switch {
	case r.err != nil:
		seg.resumming, seg.haveSum = false, true // as far as it can be had
		seg.item.stop(r.err)
	case r.kind == resultSourceSum:
		seg.haveSum, seg.sum = true, r.crc
		s.compareSegment(g, seg)
	case r.crc != seg.sum:
		seg.resumming = false
		seg.item.stop(reason.New(reason.SourceChanged, "the source memory changed while it was sent; submit again when nobody writes it"))
	default:
		seg.resumming = false
		seg.item.stop(reason.New(reason.ChecksumMismatch, "bytes %d..%d arrived with CRC32C %08x, the source has %08x; "+badMemory,
			seg.offset, seg.offset+int64(len(seg.memory)), seg.ackCRC, seg.sum))
	}
	s.settleSegment(g, seg)
}

// compareSegment compares source and destination once both are known. On a
// mismatch the source's checksum is computed again, which tells whether the
// source changed or the way there is at fault.
func (s *Session) compareSegment(g *sessionGroup, seg *segment) {
	i := seg.item
	switch {
	case !seg.haveAck || seg.verify && !seg.haveSum || i.phase != sendMoving:
	case !seg.verify || seg.sum == seg.ackCRC:
		s.ackedBytes(i, seg.offset, int64(len(seg.memory)), seg.sum)
	default:
		seg.resumming = true
		s.submitAux(&Op{kind: opResum, group: g.group, session: s, item: i, memory: seg.memory, seg: seg.granted})
	}
}

// segmentBack takes a segment that its poller is done with: acked and
// completed, or given up before it was posted.
func (s *Session) segmentBack(e *event) {
	g := s.groups[e.group]
	if seg := g.sent[e.seg.Index]; seg != nil {
		seg.back = true
		s.settleSegment(g, seg)
	}
}

// settleSegment forgets a segment that neither its poller nor a worker uses
// any more. Its poller's field summing is read after the poller gave it back.
func (s *Session) settleSegment(g *sessionGroup, seg *segment) {
	if !seg.back || seg.summing && !seg.haveSum || seg.resumming {
		return
	}
	g.sent[seg.index] = nil
	seg.item.outstanding--
	if seg.next == nil {
		return
	}
	if err := s.handleGrants(&SegmentGrants{Grants: []SegmentGrant{*seg.next}}); err != nil {
		s.violation(err.Error())
	}
}

// renameSegments follows segments that are sent again into their next
// generation.
func (s *Session) renameSegments(g *sessionGroup, missing []SlotRef) {
	for _, m := range missing {
		if seg := s.sentSegment(g.id, m); seg != nil {
			seg.granted = nextGeneration(m)
		}
	}
}

func nextGeneration(r SlotRef) SlotRef {
	return SlotRef{Index: r.Index, Generation: (r.Generation + 1) & generationMask}
}
