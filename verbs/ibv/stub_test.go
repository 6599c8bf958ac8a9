//go:build linux && cgo

package ibv

import (
	"fmt"
	"testing"
	"time"

	"mover/verbs"
)

// stub is a QP whose driver only touches memory: what remains is this
// package's own cost.
type stub struct {
	qp    verbs.QP
	cq    verbs.CQ
	chain []verbs.SendWR
	wcs   []verbs.WC
	// delay is waited for each WR before the post, to see whether the figure
	// tells; 0 outside the self-check.
	delay time.Duration
}

func newStub(t testing.TB, chain int) *stub {
	f := newFake(t)
	f.set("STUB", 1)
	r := f.rig(verbs.RC)
	r.connect(r.qp)
	s := &stub{qp: r.qp, cq: r.cq, chain: make([]verbs.SendWR, chain), wcs: make([]verbs.WC, 64)}
	for i := range s.chain {
		s.chain[i] = verbs.SendWR{Op: verbs.OpWriteWithImm, Flags: verbs.SendSignaled, Imm: uint32(i), RemoteAddr: 1 << 40, RKey: 7,
			SGL: []verbs.SGE{{Addr: 1 << 41, Length: 65536, LKey: 8}}}
	}
	return s
}

// round posts the chain and polls its completions.
func (s *stub) round(number int) error {
	for i := range s.chain {
		s.chain[i].WRID = uint64(number + i)
	}
	if s.delay != 0 {
		for begin := time.Now(); time.Since(begin) < s.delay*time.Duration(len(s.chain)); {
		}
	}
	if n, err := s.qp.PostSend(s.chain); n != len(s.chain) || err != nil {
		return fmt.Errorf("posted %d of %d: %w", n, len(s.chain), err)
	}
	n, err := s.cq.Poll(s.wcs)
	if n != len(s.chain) || err != nil {
		return fmt.Errorf("polled %d of %d: %w", n, len(s.chain), err)
	}
	if last := s.wcs[n-1].WRID; last != uint64(number+n-1) {
		return fmt.Errorf("the last completion is %d, want %d", last, number+n-1)
	}
	return nil
}

// stubDelay is the deliberate delay a WR of the self-check.
const stubDelay = 2 * time.Microsecond

var stubChains = []int{1, 4, 32}

// BenchmarkStubOps: one post of a chain and one poll of its completions.
// ns/WR is the figure, both together.
func BenchmarkStubOps(b *testing.B) {
	for _, chain := range stubChains {
		b.Run(fmt.Sprintf("chain=%d", chain), func(b *testing.B) { benchStub(b, chain, 0) })
	}
}

// BenchmarkStubOpsDelayed is the self-check of the above: with stubDelay more
// a WR its figure must be that much higher.
func BenchmarkStubOpsDelayed(b *testing.B) {
	for _, chain := range stubChains {
		b.Run(fmt.Sprintf("chain=%d", chain), func(b *testing.B) { benchStub(b, chain, stubDelay) })
	}
}

func benchStub(b *testing.B, chain int, delay time.Duration) {
	s := newStub(b, chain)
	s.delay = delay
	for i := range 1000 { // the pages and caches of both sides
		if i == 10 && delay != 0 {
			break
		}
		if err := s.round(i); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if err := s.round(i); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(chain), "ns/WR")
}

// BenchmarkEmptyPoll: a busy-poll that finds nothing.
func BenchmarkEmptyPoll(b *testing.B) {
	s := newStub(b, 1)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if n, err := s.cq.Poll(s.wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// TestStubOpsSeesDelay: the benchmark's round cannot hide a delay in mover. The
// clock bounds the delayed rounds from below, and the best of many rounds is
// what an undisturbed one takes, so noise cannot fail it.
func TestStubOpsSeesDelay(t *testing.T) {
	const chain = 32
	s := newStub(t, chain)
	best := func(delay time.Duration) time.Duration {
		t.Helper()
		s.delay = delay
		least := time.Hour
		for i := range 300 {
			begin := time.Now()
			if err := s.round(i); err != nil {
				t.Fatal(err)
			}
			least = min(least, time.Since(begin))
		}
		return least / chain
	}
	plain, delayed := best(0), best(stubDelay)
	t.Logf("%v a WR, with a delay of %v: %v", plain, stubDelay, delayed)
	if delayed-plain < stubDelay/2 {
		t.Errorf("%v a WR, and %v with a delay of %v", plain, delayed, stubDelay)
	}
}

// TestNoAllocs: neither a chain nor a poll allocates, nor does the error of an
// empty one.
func TestNoAllocs(t *testing.T) {
	s := newStub(t, 32)
	i := 0
	if n := testing.AllocsPerRun(200, func() {
		if err := s.round(i); err != nil {
			t.Fatal(err)
		}
		i++
	}); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
	recvs := []verbs.RecvWR{{WRID: 1, SGL: []verbs.SGE{{Addr: 1, Length: 2, LKey: 3}}}}
	if n := testing.AllocsPerRun(50, func() { s.qp.PostRecv(recvs) }); n != 0 {
		t.Errorf("%v allocations a receive", n)
	}
}
