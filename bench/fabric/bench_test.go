package fabric

import (
	"testing"
	"time"

	"mover/verbs"
)

// ready QPs and CQ that complete everything at once: what is left is the loop.
type instantCQ struct {
	verbs.CQ
	wcs []verbs.WC
}

func (q *instantCQ) Poll(wcs []verbs.WC) (int, error) {
	n := copy(wcs, q.wcs)
	q.wcs = append(q.wcs[:0], q.wcs[n:]...)
	return n, nil
}

type instantQP struct {
	verbs.QP
	cq *instantCQ
}

func (q *instantQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if wrs[i].Flags&verbs.SendSignaled != 0 {
			q.cq.wcs = append(q.cq.wcs, verbs.WC{WRID: wrs[i].WRID})
		}
	}
	return len(wrs), nil
}

func (q *instantQP) PostRecv(wrs []verbs.RecvWR) (int, error) { return len(wrs), nil }

// newInstant is a poller with lanes whose every message completes at once.
func newInstant(c Config, qps int) *poller {
	c = *mustComplete(c)
	l := newLayout(&c, c.SizeBytes)
	cq := &instantCQ{wcs: make([]verbs.WC, 0, 1024)}
	t := &talk{}
	p := &poller{cpu: -1, stall: time.Minute, talk: t, cq: cq, wcs: make([]verbs.WC, pollBatch), base: time.Now(), history: newPeak()}
	for i := range qps {
		n := &lane{number: i, index: i, layout: &l, qp: &instantQP{cq: cq}, peer: end{Addr: 1 << 40}}
		n.tx, n.rx = newSender(n, &c, false), newReceiver(n, &c)
		n.tx.aim()
		p.lanes = append(p.lanes, n)
	}
	return p
}

// TestLoopsDoNotAllocate: garbage in the timed loop would measure the
// collector.
func TestLoopsDoNotAllocate(t *testing.T) {
	p := newInstant(Config{Test: Bandwidth, SizeBytes: 64, Iterations: 20_000, Verify: true}, 4)
	lanes := p.lanes
	if n := testing.AllocsPerRun(3, func() {
		for _, n := range lanes {
			n.tx.next, n.tx.source, n.tx.oldest, n.tx.posted, n.tx.completed = 0, 0, 0, 0, 0
		}
		if err := p.sendAll(0); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("a run of sends allocates %v times", n)
	}
	p = newInstant(Config{Test: Bandwidth, Op: Send, Transport: verbs.UC, SizeBytes: 64, Iterations: 1000}, 1)
	r := p.lanes[0].rx
	wc := verbs.WC{Opcode: verbs.WCRecv, ByteLen: 64}
	r.unposted = 0
	if n := testing.AllocsPerRun(1000, func() {
		wc.WRID, wc.Imm = recvBit|uint64(r.next), uint32(r.near)
		if err := p.handle(&wc); err != nil {
			t.Error(err)
		}
		if err := r.refill(); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("a receive allocates %v times", n)
	}
	if r.arrived < 1000 || r.verdict.wrong > 0 {
		t.Errorf("%d arrived, %+v", r.arrived, r.verdict)
	}
}

// BenchmarkSend is the loop's own cost for one message.
func BenchmarkSend(b *testing.B) {
	p := newInstant(Config{Test: Rate, SizeBytes: 64, Verify: true}, 1)
	p.lanes[0].tx.goal = uint64(b.N)
	b.ReportAllocs()
	b.ResetTimer()
	if err := p.sendAll(0); err != nil {
		b.Fatal(err)
	}
}
