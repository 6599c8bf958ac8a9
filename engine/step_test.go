package engine

import (
	"math"
	"testing"

	"mover/verbs"
)

// steady is a node under full load in both directions, and its supply.
type steady struct {
	*fakeNode
	chunks  []*chunk
	next    int
	seg     *segment
	scratch *Scratch
	now     int64
	slot    uint32
	turns   []uint64 // of the receive slots
}

func newSteady(tb testing.TB) *steady {
	const slots, payload = 64, 4096
	n := &steady{fakeNode: newFakeNode(tb, slots, payload, 4, 32), scratch: new(Scratch), turns: make([]uint64, slots)}
	item := &sendItem{item: &Item{Kind: Staged, Bytes: math.MaxInt64, Source: nullSource{}}}
	for range 2 * slots {
		n.chunks = append(n.chunks, &chunk{item: item, bytes: payload})
	}
	n.seg = &segment{item: item, memory: n.source, local: []uint32{1}, remote: []remoteRange{{1 << 20, 2, true}}}
	n.Poller.command(command{kind: commandSendSegment, group: n.g, send: n.seg})
	return n
}

// round loads, posts and completes 8 slots and a segment of 4 chunks, receives
// 4 slots and credits them: 5 steps, of which none is idle.
func (n *steady) round(tb testing.TB) {
	for range 8 {
		n.push.Stage(n.chunks[n.next])
		n.next = (n.next + 1) % len(n.chunks)
	}
	n.push.Publish()
	for range 4 {
		l := n.data[int(n.slot)%len(n.data)]
		n.arrive(l, immediate(immSlot, n.turns[n.slot], n.slot), 4096+64)
		n.turns[n.slot]++
		n.slot = (n.slot + 1) % uint32(len(n.turns))
	}
	for range 5 {
		n.now += 1000
		n.Step(n.now)
		for {
			op, ok := n.work.Pop()
			if !ok {
				break
			}
			if op.kind == opStore { // its result is the session's business, not the step's
				n.giveBack(op)
				continue
			}
			op.Execute(n.scratch)
		}
		for {
			e, ok := n.session.events.TryPop()
			if !ok {
				break
			}
			if e.kind != eventSegmentBack {
				tb.Fatalf("event %+v", e)
			}
			n.seg.generation = (n.seg.generation + 1) & generationMask
			n.Poller.command(command{kind: commandSendSegment, group: n.g, send: n.seg})
		}
		if s := n.g.sending[0]; s != nil && s.lane != nil && !s.acked {
			n.Poller.command(command{kind: commandAckedSegment, group: n.g, seg: SlotRef{0, s.generation}})
		}
	}
}

func (n *steady) check(tb testing.TB, rounds int) {
	st := n.Stats()
	if got := int(st.Slots.Load()); got < 8*rounds-64 {
		tb.Errorf("%d slots written in %d rounds", got, rounds)
	}
	if got := int(st.Credits.Load()); got < 4*rounds-8 {
		tb.Errorf("%d credits in %d rounds", got, rounds)
	}
	if got := int(st.Segments.Load()); got < rounds-1 {
		tb.Errorf("%d segments written in %d rounds", got, rounds)
	}
}

// BenchmarkStepSteady is the cost of the poller's own work in a round of 16
// writes, 4 received slots and 4 credits, without verbs: 0 allocations.
func BenchmarkStepSteady(b *testing.B) {
	n := newSteady(b)
	for range 100 {
		n.round(b)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		n.round(b)
	}
	b.StopTimer()
	n.check(b, b.N)
}

// BenchmarkStepIdle is a step with nothing to do.
func BenchmarkStepIdle(b *testing.B) {
	n := newFakeNode(b, 64, 4096, 4, 32)
	b.ReportAllocs()
	for b.Loop() {
		if n.Step(1) != 0 {
			b.Fatal("it did something")
		}
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	n := newSteady(t)
	for range 100 {
		n.round(t)
	}
	if got := testing.AllocsPerRun(500, func() { n.round(t) }); got != 0 {
		t.Errorf("%v allocations in a round", got)
	}
	n.check(t, 600)
	if n.data[0].state != laneUp || n.stats.LaneErrors.Load() != 0 {
		t.Error("a lane failed")
	}
}

// TestStepDeadlines: a post without completion takes its lane down at the
// deadline, and not before; what waits for a full queue keeps a poller awake.
func TestStepDeadlines(t *testing.T) {
	n := newSteady(t)
	n.g.queued, n.g.sending[0] = newFIFO(segmentTable), nil
	if at := n.Deadline(); at != math.MaxInt64 {
		t.Errorf("an idle poller has a deadline at %d", at)
	}
	for _, l := range n.data {
		qpOf(l).held = true
	}
	n.push.Push(n.chunks[0])
	n.Step(1000)
	op, _ := n.work.Pop()
	op.Execute(n.scratch)
	n.Step(2000)
	n.g.queued = newFIFO(segmentTable)
	at := n.Deadline()
	if at <= 2000 || at > 2000+n.g.cfg.laneDeadline+1 {
		t.Fatalf("deadline %d", at)
	}
	n.Step(at - 1)
	if n.stats.LaneErrors.Load() != 0 {
		t.Fatal("a lane failed before its deadline")
	}
	n.Step(at)
	failed := n.stats.LaneErrors.Load()
	if failed == 0 {
		t.Fatal("no lane failed at the deadline")
	}
	if got := n.g.rails[0].shown.LaneErrors.Load(); got != failed {
		t.Errorf("the rail counts %d failures, the poller %d", got, failed)
	}
	n.Step(at + 1)
	if got := n.events(); len(got) == 0 || got[len(got)-1].kind != eventLaneDrained || got[len(got)-1].cause != verbs.WCRespTimeoutErr {
		t.Fatalf("events %+v", got)
	}
	n.g.backlog = append(n.g.backlog, event{})
	if n.Deadline() > at {
		t.Error("a poller with an event that waits may park")
	}
}

// TestEndIsNoError: a session that ends in order takes its lanes down, and
// none of them failed.
func TestEndIsNoError(t *testing.T) {
	n := newSteady(t)
	n.Poller.command(command{kind: commandEndGroup, group: n.g})
	n.cq.wcs = append(n.cq.wcs, verbs.WC{WRID: wrID(wrRecv, n.data[0], 0), Status: verbs.WCFlushErr}) // the peer is faster
	n.Step(1000)
	n.Poller.command(command{kind: commandCloseGroup, group: n.g})
	n.Step(2000)
	if n.data[0].state == laneUp {
		t.Fatal("the lane is still up")
	}
	if got := n.stats.LaneErrors.Load() + n.g.rails[0].shown.LaneErrors.Load(); got != 0 {
		t.Errorf("%d failures counted", got)
	}
}
