package engine

import (
	"fmt"
	"math"
	"sync/atomic"

	"mover/reason"
)

// chunk is a range of a Staged item on its way through the groups. The session
// makes it and gets it back: acked, refused, or given back unsent.
type chunk struct {
	item   *sendItem
	offset int64
	bytes  uint32
	class  class
	// crc is set by the worker that read the chunk, before the chunk is
	// posted, and read by the session once the peer has acked it.
	crc atomic.Uint32
	// failed is a read error, set by the same worker.
	failed *reason.Error
	// posted is set by the poller before the peer can know of the chunk: an ack
	// of anything else is a lie that would end the item under its reader.
	posted atomic.Bool
}

type chunkKey struct {
	item   uint64
	offset int64
}

// fill hands chunks to the groups that can send, in fair turns among items and
// groups, and says in paceAt when pacers will let more of them go.
func (s *Session) fill() {
	s.paceAt = math.MaxInt64
	s.postHeld()
	for more := true; more; {
		more = false
		for _, g := range s.groups {
			if !g.usable() {
				continue
			}
			c := s.nextChunk(g)
			if c == nil {
				continue
			}
			s.inFlight[chunkKey{c.item.ref.Item, c.offset}] = c
			c.item.outstanding++
			g.push[c.class].Stage(c)
			more = true
		}
	}
	for _, g := range s.groups {
		if g.push[bulk].Publish()+g.push[express].Publish() > 0 {
			g.poller.waker.Wake()
		}
	}
}

// nextChunk takes the next item's chunk, passing by those whose pacers give
// nothing and those for whose class the group's queue is full.
func (s *Session) nextChunk(g *sessionGroup) *chunk {
	for range s.sending {
		if s.turn++; s.turn >= len(s.sending) {
			s.turn = 0
		}
		i := s.sending[s.turn]
		if i.phase != sendMoving || i.item.Kind != Staged {
			continue
		}
		if n := len(i.requeue); n > 0 { // paid for before
			c := i.requeue[n-1]
			if g.push[c.class].Free() == 0 {
				continue
			}
			i.requeue = i.requeue[:n-1]
			return c
		}
		if left := i.item.Bytes - i.next; left > 0 {
			n := min(left, int64(s.plan.payloadBytes))
			class := classOf(uint32(n), s.plan.payloadBytes)
			if g.push[class].Free() == 0 || !s.mayPost(i, n) {
				continue
			}
			c := &chunk{item: i, offset: i.next, bytes: uint32(n), class: class}
			i.next += int64(c.bytes)
			return c
		}
	}
	return nil
}

// chunkBack takes a chunk that was not sent: unreadable, stopped, or without a
// lane.
func (s *Session) chunkBack(c *chunk) {
	i := c.item
	key := chunkKey{i.ref.Item, c.offset}
	if s.inFlight[key] != c {
		return // settled with its session
	}
	delete(s.inFlight, key)
	i.outstanding--
	switch {
	case c.failed != nil:
		i.stop(c.failed)
	case i.phase == sendMoving:
		i.requeue = append(i.requeue, c)
	}
}

func (s *Session) handleRecordAcks(m *RecordAcks) error {
	for k := range m.Acks {
		a := &m.Acks[k]
		key := chunkKey{a.Ref.Item, a.Offset}
		c := s.inFlight[key]
		if c == nil || !c.posted.Load() || c.item.ref != a.Ref || c.bytes != a.Bytes {
			return fmt.Errorf("an ack for a record that is not in flight: item %d offset %d", a.Ref.Item, a.Offset)
		}
		delete(s.inFlight, key)
		i := c.item
		i.outstanding--
		if a.Code != 0 {
			i.stop(fromPeer(a.Code, a.Detail))
			continue
		}
		s.ackedBytes(i, c.offset, int64(c.bytes), c.crc.Load())
	}
	return nil
}

func (s *Session) ackedBytes(i *sendItem, offset, bytes int64, crc uint32) {
	i.acked += bytes
	i.item.acked.Store(i.acked)
	i.progressAt = s.now
	if i.item.Verify {
		i.crc ^= crcShift(crc, uint64(i.item.Bytes-offset-bytes))
	}
}
