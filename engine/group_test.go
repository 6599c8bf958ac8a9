package engine

import (
	"strings"
	"testing"

	"mover/ring"
	"mover/verbs"
)

// lastImm are the immediates posted on a lane.
func lastImm(l *lane) []uint32 { return qpOf(l).posted }

func record(lanes ...*lane) {
	for _, l := range lanes {
		qpOf(l).record = true
	}
}

// storeSlot has the peer write a slot, and the workers store it.
func (n *fakeNode) storeSlot(t *testing.T, l *lane, index uint32, generation uint64, now int64) {
	t.Helper()
	n.arrive(l, immediate(immSlot, generation, index), 4096)
	n.Step(now)
	op, ok := n.work.Pop()
	if !ok || op.kind != opStore || op.index != index {
		t.Fatalf("no store: %+v; events %+v", op, n.events())
	}
	n.giveBack(op)
	n.Step(now)
}

func quietNode(t *testing.T) *fakeNode {
	return newFakeNode(t, 8, 4096, 2, 4)
}

// rebuild gives a drained lane its next life.
func (n *fakeNode) rebuild(l *lane) *lane {
	next := &lane{index: l.index, epoch: l.epoch + 1, rail: l.rail, credit: l.credit, depth: l.depth, sendCap: l.sendCap,
		recvCap: l.recvCap, recvs: l.recvCap, state: laneUp}
	next.qp = &fakeQP{n: n, lane: l.index, credits: true, record: true}
	n.g.lanes[l.index] = next
	if l.credit {
		l.rail.credit, n.credit = next, next
		return next
	}
	for i := range n.g.data {
		if n.g.data[i] == l {
			n.g.data[i], n.data[i] = next, next
		}
	}
	n.g.up++
	return next
}

// TestCreditRepeats: a credit whose send completed is repeated when its lane
// is lost, for the peer may not have polled it, unless the slot was written
// since.
func TestCreditRepeats(t *testing.T) {
	n := quietNode(t)
	record(n.credit)
	n.storeSlot(t, n.data[0], 3, 0, 10)
	n.storeSlot(t, n.data[0], 4, 0, 20)
	n.Step(30) // the completions of the credits
	if n.credit.sends != 0 || len(lastImm(n.credit)) != 2 {
		t.Fatalf("%d sends out, posted %x", n.credit.sends, lastImm(n.credit))
	}
	n.arrive(n.data[0], immediate(immSlot, 1, 4), 4096) // the peer has the credit of slot 4
	n.Step(40)
	n.g.fail(n.credit, verbs.WCRetryExcErr, 0, 50)
	n.Step(50)
	l := n.rebuild(n.credit)
	n.Step(60)
	if got := lastImm(l); len(got) != 1 || got[0] != immediate(immCredit, 1, 3) {
		t.Errorf("repeated %x, want the credit of slot 3 alone", got)
	}
}

// TestAnsweredSlotIsNotCredited: the peer's write of a slot was lost with its
// lane, and the credit lane is lost at the same time. The answer frees the slot
// in the next generation. A credit of that generation would pass for the
// receipt of the lost write.
func TestAnsweredSlotIsNotCredited(t *testing.T) {
	for _, first := range []string{"answer", "credit lane"} {
		t.Run(first+" first", func(t *testing.T) {
			n := quietNode(t)
			record(n.credit)
			n.storeSlot(t, n.data[0], 3, 0, 10)
			n.Step(20)
			answer := func() {
				n.g.ask(LaneRef{1, 0}, &laneList{slots: []SlotRef{{3, 1}}}, 30)
				n.Step(30)
			}
			lose := func() { n.g.fail(n.credit, verbs.WCRetryExcErr, 0, 40); n.Step(40) }
			if first == "answer" {
				answer()
				lose()
			} else {
				lose()
				answer()
			}
			var told *laneList
			for _, e := range n.events() {
				if e.kind == eventLaneAnswer {
					told = e.list
				}
			}
			if told == nil || len(told.slots) != 1 || n.g.recv[3].generation != 2 {
				t.Fatalf("answered %+v, generation %d", told, n.g.recv[3].generation)
			}
			l := n.rebuild(n.credit)
			n.Step(50)
			if got := lastImm(l); len(got) != 0 {
				t.Fatalf("credited %x after the answer", got)
			}
			// Written again, it is credited again.
			n.storeSlot(t, n.data[0], 3, 2, 60)
			if got := lastImm(l); len(got) != 1 || got[0] != immediate(immCredit, 3, 3) {
				t.Errorf("credited %x", got)
			}
		})
	}
}

// TestLateCreditIsIgnored: a repeat that arrives after the slot's next credits
// is no violation; one of a generation that is still to come is.
func TestLateCreditIsIgnored(t *testing.T) {
	n := quietNode(t)
	r := &n.g.remote[5]
	r.generation = 2
	for _, generation := range []uint32{2, 1, 0, generationMask} {
		n.g.credited(5, generation)
	}
	if got := n.events(); len(got) != 0 || r.generation != 2 {
		t.Errorf("late credits: %+v, generation %d", got, r.generation)
	}
	n.g.credited(5, 3) // the slot is not in flight
	if got := n.events(); len(got) != 1 || got[0].kind != eventViolation {
		t.Errorf("a credit that is ahead: %+v", got)
	}
	n.g.credited(8, 3)
	if got := n.events(); len(got) != 1 || got[0].kind != eventViolation {
		t.Errorf("a credit of no slot: %+v", got)
	}
}

// TestViolationNamesWhatArrived: an immediate that is delivered twice is told
// from one that was never granted by the line in the log.
func TestViolationNamesWhatArrived(t *testing.T) {
	n := quietNode(t)
	n.g.recv[3].generation, n.g.recv[3].state = 7, recvStoring
	n.g.slotReceived(n.data[0], 3, 7, 100)
	got := n.events()
	want := "a write of 100 bytes on lane 0 to slot 3 in generation 7, which was not granted: the slot is written and being stored, in generation 7"
	if len(got) != 1 || got[0].kind != eventViolation || !strings.Contains(got[0].detail, want) {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// TestSegmentIsNotStarved: slots without end leave a segment that needs the
// whole window its place.
func TestSegmentIsNotStarved(t *testing.T) {
	for _, lanes := range []int{1, 3} {
		n := newFakeNode(t, 64, 4096, lanes, 4)
		item := &sendItem{item: &Item{Kind: Staged, Bytes: 1 << 40, Source: nullSource{}}}
		scratch := new(Scratch)
		for _, l := range n.data { // the peer takes its time
			qpOf(l).credits, qpOf(l).record = false, true
		}
		var out []uint32 // slots written, oldest first
		written := 0
		step := func(now int64) {
			for n.push.Push(&chunk{item: item, bytes: 4096}) {
			}
			n.Step(now)
			for op, ok := n.work.Pop(); ok; op, ok = n.work.Pop() {
				op.Execute(scratch)
			}
			for _, l := range n.data {
				for _, imm := range lastImm(l) {
					if kind, generation, index := splitImmediate(imm); kind == immSlot {
						out = append(out, immediate(immCredit, uint64(generation)+1, index))
					}
				}
				qpOf(l).posted = nil
			}
			if len(out) > 0 { // one credit a step: a place comes free, and another slot wants it
				n.arrive(n.credit, out[0], 0)
				out = out[1:]
				written++
			}
		}
		for now := range int64(20) {
			step(now + 1)
		}
		seg := &segment{item: item, memory: n.source, local: []uint32{1}, remote: []remoteRange{{1 << 20, 2, true}}}
		n.Poller.command(command{kind: commandSendSegment, group: n.g, send: seg})
		for now := range int64(40) {
			step(now + 30)
		}
		if n.stats.Segments.Load() != 1 {
			t.Errorf("%d lanes: the segment was not written while %d slots were", lanes, written)
		}
		if n.g.kept != nil {
			t.Error("a lane is kept although no segment waits")
		}
		n.Poller.command(command{kind: commandAckedSegment, group: n.g, seg: SlotRef{}})
		before := written
		for now := range int64(40) {
			step(now + 100)
		}
		if written == before {
			t.Errorf("%d lanes: no slot is written any more", lanes)
		}
	}
}

// TestFullQueues: an op that finds its queue full, and the event that closes a
// group, wait; nothing is lost and nothing panics.
func TestFullQueues(t *testing.T) {
	n := quietNode(t)
	n.Poller.work = NewWorkQueue(2, noPool{})
	n.Poller.returned = ring.NewMPMC[*Op](8)
	for slot := range uint32(4) {
		n.arrive(n.data[0], immediate(immSlot, 0, slot), 4096)
	}
	n.Step(1)
	if len(n.g.unsubmitted) != 2 || n.g.ops != 4 || n.Deadline() > 1 {
		t.Fatalf("%d ops wait, %d out, deadline %d", len(n.g.unsubmitted), n.g.ops, n.Deadline())
	}
	order := []uint32{}
	for now := int64(2); n.g.ops > 0 && now < 20; now++ {
		if op, ok := n.work.Pop(); ok {
			order = append(order, op.index)
			n.giveBack(op)
		}
		n.Step(now)
	}
	if len(order) != 4 || order[0] != 0 || order[3] != 3 {
		t.Errorf("executed %v", order)
	}
	for n.session.event(event{kind: eventChunkBack}) {
	}
	n.g.close(30)
	for now := int64(30); now < 40; now++ {
		n.Step(now)
	}
	if len(n.groups) != 1 {
		t.Fatal("the group was forgotten before its last events were told")
	}
	var last event
	for _, e := range n.events() {
		last = e
	}
	for now := int64(40); now < 45; now++ {
		n.Step(now)
		for _, e := range n.events() {
			last = e
		}
	}
	if len(n.groups) != 0 || last.kind != eventGroupClosed {
		t.Errorf("%d groups, the last event %+v", len(n.groups), last)
	}
}

// TestSegmentBeforeItsGrant: the peer is faster than the command of the grant.
func TestSegmentBeforeItsGrant(t *testing.T) {
	n := quietNode(t)
	memory := alignedMemory(8192)
	n.Step(1)
	// The command is pushed between the poller's look at its commands and its
	// look at the CQ.
	n.Poller.command(command{kind: commandGrantSegment, group: n.g, seg: SlotRef{2, 7}, mem: memory})
	n.arrive(n.data[0], immediate(immSegment, 7, 2), 4096)
	n.arrive(n.data[0], immediate(immSlot, 0, 1), 4096)
	n.g.poll(2)
	if len(n.g.early) != 2 || len(n.events()) != 0 || n.Deadline() > 2 {
		t.Fatalf("%d completions wait", len(n.g.early))
	}
	n.Step(3)
	var kinds []opKind
	for op, ok := n.work.Pop(); ok; op, ok = n.work.Pop() {
		kinds = append(kinds, op.kind)
	}
	if len(kinds) != 2 || kinds[0] != opSum || kinds[1] != opStore || len(n.g.early) != 0 {
		t.Errorf("ops %v, %d wait, events %+v", kinds, len(n.g.early), n.events())
	}
	n.arrive(n.data[0], immediate(immSegment, 8, 2), 4096)
	n.Step(4)
	if got := n.events(); len(got) != 1 || got[0].kind != eventViolation {
		t.Errorf("a segment that was never granted: %+v", got)
	}
}
