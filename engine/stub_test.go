package engine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"mover/verbs"
)

// The stub: verbs whose post and poll only touch memory, as a driver's do once
// the adapter is taken away. What is left is the engine's own cost, which no
// emulated link shows.

// stubWQE is what a driver writes for a WR of one SGE: a cache line.
type stubWQE struct {
	wrid, remoteAddr, addr         uint64
	rkey, length, lkey, imm, index uint32
	op                             verbs.Opcode
	flags                          verbs.SendFlags
	_                              [16]byte
}

// stubCQE is what an adapter would write for a completion.
type stubCQE struct {
	wrid    uint64
	imm     uint32
	byteLen uint32
	opcode  verbs.WCOpcode
	flags   verbs.WCFlags
}

const stubEntries = 1024 // of each ring; more than is ever out

type stubCQ struct {
	verbs.CQ
	entries    [stubEntries]stubCQE
	head, tail uint32
}

func (c *stubCQ) push(e stubCQE) {
	if c.tail-c.head == stubEntries {
		panic("stub: completion queue overrun")
	}
	c.entries[c.tail%stubEntries] = e
	c.tail++
}

func (c *stubCQ) Poll(wcs []verbs.WC) (int, error) {
	n := min(int(c.tail-c.head), len(wcs))
	for i := range wcs[:n] {
		e := &c.entries[c.head%stubEntries]
		c.head++
		wcs[i] = verbs.WC{WRID: e.wrid, Opcode: e.opcode, Flags: e.flags, Imm: e.imm, ByteLen: e.byteLen}
	}
	return n, nil
}

// stubQP completes what is posted in the next poll, and the peer credits each
// slot that is written, behind its completion.
type stubQP struct {
	verbs.QP
	cq     *stubCQ
	credit *lane
	ring   [256]stubWQE
	posted uint32
	recvs  int
}

func (q *stubQP) PostRecv(wrs []verbs.RecvWR) (int, error) { q.recvs += len(wrs); return len(wrs), nil }

func (q *stubQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		wr := &wrs[i]
		w := &q.ring[q.posted%uint32(len(q.ring))]
		w.wrid, w.op, w.flags, w.imm = wr.WRID, wr.Op, wr.Flags, wr.Imm
		w.remoteAddr, w.rkey = wr.RemoteAddr, wr.RKey
		w.addr, w.length, w.lkey = wr.SGL[0].Addr, wr.SGL[0].Length, wr.SGL[0].LKey
		w.index = q.posted
		q.posted++
		q.cq.push(stubCQE{wrid: wr.WRID, opcode: verbs.WCRDMAWrite})
		if kind, generation, index := splitImmediate(wr.Imm); wr.Op == verbs.OpWriteWithImm && kind == immSlot {
			q.cq.push(stubCQE{wrid: wrID(wrRecv, q.credit, 0), opcode: verbs.WCRecvRDMAWithIm, flags: verbs.WCWithImm,
				imm: immediate(immCredit, uint64(generation)+1, index)})
		}
	}
	return len(wrs), nil
}

// stubDelay is the deliberate delay of each chunk in the self-check.
const stubDelay = 2 * time.Microsecond

const (
	stubSlots   = 64
	stubPayload = 4096
)

// stubNode is a node on the stub, and its supply of chunks.
type stubNode struct {
	*fakeNode
	cq     *stubCQ
	chunks [stubSlots]*chunk
	seg    *segment
	now    int64
	delay  time.Duration // before each chunk is ready; 0 outside the self-check
}

func newStubNode(tb testing.TB) *stubNode {
	tb.Helper()
	n := &stubNode{fakeNode: newFakeNode(tb, stubSlots, stubPayload, 4, 32), cq: &stubCQ{}}
	n.g.cqs = []verbs.CQ{n.cq}
	for _, l := range n.g.lanes {
		l.qp = &stubQP{cq: n.cq, credit: n.credit}
	}
	item := &sendItem{item: &Item{Kind: Staged, Bytes: math.MaxInt64, Source: nullSource{}}}
	for i := range n.chunks {
		n.chunks[i] = &chunk{item: item, bytes: stubPayload}
	}
	n.seg = &segment{item: item, local: []uint32{1}, remote: []remoteRange{{1 << 20, 2, true}}}
	n.source = alignedMemory(stubSlots * stubPayload)
	return n
}

func (n *stubNode) step() {
	n.now += 1000
	n.Step(n.now)
}

func (n *stubNode) wait(chunks int) {
	if n.delay == 0 {
		return
	}
	for begin := time.Now(); time.Since(begin) < n.delay*time.Duration(chunks); {
	}
}

// slots moves a batch of chunks through slots: ready, loaded by a worker that
// has nothing to read, posted, completed, credited, free.
func (n *stubNode) slots(batch int) error {
	n.wait(batch)
	for i := range batch {
		n.push.Stage(n.chunks[i])
	}
	n.push.Publish()
	n.step()
	for {
		op, ok := n.work.Pop()
		if !ok {
			break
		}
		op.bytes = stubPayload + 64
		n.giveBack(op)
	}
	n.step()
	n.step()
	if len(n.g.freeLocal) != stubSlots || len(n.g.freeRemote) != stubSlots {
		return fmt.Errorf("%d and %d of %d slots are free after a batch", len(n.g.freeLocal), len(n.g.freeRemote), stubSlots)
	}
	return nil
}

// segment moves a segment of batch chunks: granted, posted, completed, acked,
// given back.
func (n *stubNode) segment(batch int) error {
	n.wait(batch)
	n.seg.memory = n.source[:batch*stubPayload]
	n.Poller.command(command{kind: commandSendSegment, group: n.g, send: n.seg})
	n.step()
	n.step()
	n.Poller.command(command{kind: commandAckedSegment, group: n.g, seg: SlotRef{0, n.seg.generation}})
	n.step()
	e, ok := n.session.events.TryPop()
	if !ok || e.kind != eventSegmentBack {
		return fmt.Errorf("the segment does not come back: %+v", e)
	}
	n.seg.generation = (n.seg.generation + 1) & generationMask
	return nil
}

// check fails unless all that was counted went over the stub, and every receive
// that a credit took was posted again.
func (n *stubNode) check(tb testing.TB, slots, segments int) {
	tb.Helper()
	st := n.Stats()
	posted, recvs := 0, 0
	for _, l := range n.g.lanes {
		posted, recvs = posted+int(l.qp.(*stubQP).posted), recvs+l.qp.(*stubQP).recvs
		if l.state != laneUp || l.sends != 0 || l.window != 0 {
			tb.Errorf("lane %d: state %d, %d sends and a window of %d are left", l.index, l.state, l.sends, l.window)
		}
	}
	if got := int(st.Slots.Load()); got != slots {
		tb.Errorf("%d slots, want %d", got, slots)
	}
	if got := int(st.Segments.Load()); got != segments {
		tb.Errorf("%d segments, want %d", got, segments)
	}
	if got := int(st.Posts.Load()); got != posted || posted < slots+segments {
		tb.Errorf("%d WRs counted, %d posted", got, posted)
	}
	if recvs != slots {
		tb.Errorf("%d receives posted again for %d credits", recvs, slots)
	}
}

// stubCases are a round each of a batch of chunks.
var stubCases = []struct {
	name  string
	batch int
	round func(n *stubNode, batch int) error
}{
	{"slots/batch=1", 1, (*stubNode).slots},
	{"slots/batch=8", 8, (*stubNode).slots},
	{"slots/batch=32", 32, (*stubNode).slots},
	{"segment/batch=16", 16, (*stubNode).segment},
}

// BenchmarkStubOps is what a chunk costs the poller from ready to completed and
// its slot, or segment, free again, with the rings on the way. ns/chunk is the
// figure.
func BenchmarkStubOps(b *testing.B) { benchStub(b, 0) }

// BenchmarkStubOpsDelayed is the self-check of the above: with stubDelay more a
// chunk its figure must be that much higher.
func BenchmarkStubOpsDelayed(b *testing.B) { benchStub(b, stubDelay) }

func benchStub(b *testing.B, delay time.Duration) {
	for _, c := range stubCases {
		b.Run(c.name, func(b *testing.B) {
			n := newStubNode(b)
			for range 200 { // the pages and caches
				if err := c.round(n, c.batch); err != nil {
					b.Fatal(err)
				}
			}
			n.delay = delay
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := c.round(n, c.batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.batch), "ns/chunk")
		})
	}
}

func TestStubOps(t *testing.T) {
	for _, c := range stubCases {
		t.Run(c.name, func(t *testing.T) {
			n := newStubNode(t)
			const rounds = 2100 // generations wrap at 1024
			for range rounds {
				if err := c.round(n, c.batch); err != nil {
					t.Fatal(err)
				}
			}
			slots, segments := rounds*c.batch, 0
			if c.name == "segment/batch=16" {
				slots, segments = 0, rounds
			}
			n.check(t, slots, segments)
			if raceEnabled {
				return // the race detector allocates
			}
			if got := testing.AllocsPerRun(200, func() {
				if err := c.round(n, c.batch); err != nil {
					t.Fatal(err)
				}
			}); got != 0 {
				t.Errorf("%v allocations a round", got)
			}
		})
	}
}

// TestStubOpsSeesDelay: the benchmark's rounds cannot hide a delay. The clock
// bounds the delayed ones from below, and the best of many is what an
// undisturbed one takes, so noise cannot fail it.
func TestStubOpsSeesDelay(t *testing.T) {
	for _, c := range stubCases {
		best := func(delay time.Duration) time.Duration {
			t.Helper()
			n := newStubNode(t)
			n.delay = delay
			least := time.Hour
			for range 300 {
				begin := time.Now()
				if err := c.round(n, c.batch); err != nil {
					t.Fatal(err)
				}
				least = min(least, time.Since(begin))
			}
			return least / time.Duration(c.batch)
		}
		plain, delayed := best(0), best(stubDelay)
		t.Logf("%s: %v a chunk, with a delay of %v: %v", c.name, plain, stubDelay, delayed)
		if delayed < stubDelay {
			t.Errorf("%s: %v a chunk with a delay of %v", c.name, delayed, stubDelay)
		}
	}
}
