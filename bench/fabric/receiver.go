package fabric

import (
	"fmt"

	"mover/verbs"
)

// receiver takes the messages of one lane.
type receiver struct {
	lane   *lane
	layout *layout
	verify bool
	send   bool // messages come into receives; else they are written
	lossy  bool
	pat    pattern

	recvs    []verbs.RecvWR
	next     int // the receive that completes next: they complete in order
	unposted int // completed and not yet posted again, the ones before next
	batch    int

	arrived uint64
	near    uint64 // one more than the highest message so far
	// holds says, for each place, 1 + the message that it received last; of
	// writes that carry no number it says nothing.
	holds    []uint64
	sampleAt uint64 // sends: the next to be looked at on arrival
	closed   bool
	verdict  verdict
}

func newReceiver(n *lane, c *Config) *receiver {
	l := n.layout
	r := &receiver{lane: n, layout: l, verify: c.Verify, send: c.Op == Send, lossy: c.lossy(), recvs: make([]verbs.RecvWR, l.receives),
		batch: min(max(l.receives/4, 1), 32), holds: make([]uint64, l.places+l.samples), sampleAt: uint64(l.inFlight),
		unposted: l.receives}
	sges := make([]verbs.SGE, l.receives)
	for i := range r.recvs {
		r.recvs[i].WRID = recvBit | n.wrid(i)
		if r.send {
			sges[i] = verbs.SGE{Addr: n.targetAddr + uint64(i*l.strideBytes), Length: uint32(l.headBytes + l.sizeBytes), LKey: n.targetKey}
			r.recvs[i].SGL = sges[i : i+1 : i+1]
		}
	}
	return r
}

// refill posts used receives again, when they are enough for a chain.
func (r *receiver) refill() error {
	if r.unposted < r.batch || r.closed {
		return nil
	}
	return r.postAgain()
}

// postAgain posts all receives that are not posted.
func (r *receiver) postAgain() error {
	for r.unposted > 0 {
		first := r.next - r.unposted
		if first < 0 {
			first += len(r.recvs)
		}
		n, err := r.lane.qp.PostRecv(r.recvs[first:min(first+r.unposted, len(r.recvs))])
		r.unposted -= n
		if err != nil {
			return fmt.Errorf("QP %d: posting receives: %w", r.lane.number, err)
		}
	}
	return nil
}

// outstanding is how many receives are posted.
func (r *receiver) outstanding() int { return len(r.recvs) - r.unposted }

// take handles the successful completion of the receive that was next; refill
// is to follow. It allocates nothing unless something is wrong.
func (r *receiver) take(wc *verbs.WC) {
	place := r.next
	if r.next++; r.next == len(r.recvs) {
		r.next = 0
	}
	r.unposted++
	if !r.send && !r.layout.immediate { // the closing message, which nothing follows
		r.closed = true
		return
	}
	message := r.near
	if r.layout.immediate {
		message = expand(wc.Imm, r.near)
	}
	if message > maxMessage { // counted back beyond the first
		r.verdict.fault(fmt.Sprintf("a message on QP %d has the number %#x, which none of this run has: it came from somewhere else", r.lane.number, wc.Imm))
		if r.send {
			r.holds[place] = 0
		}
		return
	}
	r.arrived++
	r.near = max(r.near, message+1)
	want := r.layout.sizeBytes
	if r.send {
		want += r.layout.headBytes
	} else if place = int(message % uint64(r.layout.places)); r.layout.sampleOf(message) >= 0 {
		place = r.layout.places + r.layout.sampleOf(message)
	}
	if int(wc.ByteLen) != want {
		r.verdict.fault(fmt.Sprintf("message %d of QP %d has %d bytes, not %d", message, r.lane.number, wc.ByteLen, want))
	}
	r.holds[place] = message + 1
	if r.verify && r.send && message >= r.sampleAt {
		r.look(place, message)
		for r.sampleAt <= message {
			r.sampleAt *= 2
		}
	}
}

// maxMessage is more than any run sends. On UD whoever knows the QPN can send
// to it, with any number.
const maxMessage = 1 << 62

// expand finds the number of a message from its low 32 bits: the one nearest
// to near.
func expand(low uint32, near uint64) uint64 {
	return near + uint64(int64(int32(low-uint32(near))))
}

func (r *receiver) look(place int, message uint64) {
	at := place*r.layout.strideBytes + r.layout.headBytes
	r.verdict.look(r.pat, r.layout, r.lane.target[at:at+r.layout.sizeBytes], r.lane.number, message)
}

// complete reports whether everything that was sent has been seen.
func (r *receiver) complete(sent uint64) bool {
	switch {
	case r.send || r.layout.immediate:
		return r.arrived >= sent
	case r.verify:
		return r.closed
	}
	return true
}

// counts reports whether the receiver can tell how many messages arrived.
func (r *receiver) counts() bool { return r.send || r.layout.immediate || !r.lossy }

// finalCheck looks at all places once no more messages come, and returns how
// many messages arrived.
func (r *receiver) finalCheck(sent uint64) (arrived uint64) {
	arrived = r.arrived
	if !r.send && !r.layout.immediate {
		arrived = sent // RC: the sender has an acknowledgement of each
	}
	if !r.lossy && arrived != sent {
		r.verdict.fault(fmt.Sprintf("QP %d: %d messages arrived of %d", r.lane.number, arrived, sent))
	}
	if !r.verify {
		return arrived
	}
	if r.send {
		r.checkReceived(arrived < sent)
		return arrived
	}
	for place := range r.layout.places {
		if message, ok := r.layout.lastWritten(place, sent); ok {
			r.checkWritten(place, message)
		}
	}
	for j := range r.layout.samples {
		if message := r.layout.sampleAt(j); message < sent {
			r.checkWritten(r.layout.places+j, message)
		}
	}
	return arrived
}

// checkWritten leaves out what is known to be lost: the place then has an
// older message, or a part of the lost one.
func (r *receiver) checkWritten(place int, message uint64) {
	if r.layout.immediate && r.holds[place] != message+1 {
		return
	}
	r.look(place, message)
}

// checkReceived leaves out the receive at the head of the queue when messages
// were lost: UC may have put a part of one there, and keeps the receive.
func (r *receiver) checkReceived(lost bool) {
	for place, message := range r.holds {
		if message == 0 || lost && place == r.next {
			continue
		}
		r.look(place, message-1)
	}
}
