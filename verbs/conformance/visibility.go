package conformance

import (
	"math/rand/v2"

	"mover/verbs"
)

var visibilityCases = []testCase{
	{name: "visibility/immediate covers earlier writes", run: func(t TB, h Harness) { visible(t, h, verbs.RC, verbs.OpWriteWithImm) }},
	{name: "visibility/send covers earlier writes", run: func(t TB, h Harness) { visible(t, h, verbs.RC, verbs.OpSend) }},
}

// stream is one direction of the visibility case: rounds of plain writes with
// a notification at the end.
type stream struct {
	from, to *side
	seed     int
	off      int // of the direction's half of the memory
	round    int
	base     int // bytes written in earlier rounds
	total    int // bytes of this round
	posted   int
	rcvd     int
}

const (
	visibleRounds = 12
	visibleBytes  = 6 << 20
)

// visible: at the notification's completion every byte of the QP's earlier
// writes is there, in both directions at once, over random sizes.
func visible(t TB, h Harness, typ verbs.QPType, notify verbs.Opcode) {
	l := newLink(t, h, linkOpts{typ: typ, memBytes: 2 * visibleBytes, splitCQ: true})
	rng := rand.New(rand.NewPCG(1, uint64(notify)))
	streams := []*stream{{from: l.a, to: l.b, seed: 11}, {from: l.b, to: l.a, seed: 12, off: visibleBytes}}
	for _, s := range streams {
		fill(s.from.mem[s.off:s.off+visibleBytes], s.seed)
		s.postRound(rng, notify)
	}
	l.until("all rounds", func() bool {
		for _, s := range streams {
			if s.round == visibleRounds || len(s.to.rcvd) == s.rcvd || len(s.from.sent) < s.posted {
				continue
			}
			s.check()
			if s.round++; s.round < visibleRounds {
				s.postRound(rng, notify)
			}
		}
		return streams[0].round == visibleRounds && streams[1].round == visibleRounds
	})
}

// postRound posts a chain of writes of random sizes next to each other, and
// the notification. Only the last one is signalled.
func (s *stream) postRound(rng *rand.Rand, notify verbs.Opcode) {
	s.to.recv(0, 0)
	s.base += s.total
	s.total = 0
	var chain []verbs.SendWR
	for range 1 + rng.IntN(10) {
		n := rng.IntN(20000)
		if rng.IntN(4) == 0 {
			n = rng.IntN(100)
		}
		at := s.off + s.base + s.total
		wr := s.from.write(s.to, at, at, n)
		wr.Flags = 0
		chain = append(chain, wr)
		s.total += n
	}
	last := s.from.send(0, 0)
	if notify == verbs.OpWriteWithImm {
		n := rng.IntN(50000)
		at := s.off + s.base + s.total
		last = s.from.writeImm(s.to, at, at, n, uint32(s.round))
		s.total += n
	}
	s.posted++
	s.from.post(append(chain, last)...)
}

func (s *stream) check() {
	t := s.to.t
	t.Helper()
	wc, sent := s.to.rcvd[s.rcvd], s.from.sent[s.posted-1]
	s.rcvd++
	if wc.Status != verbs.WCSuccess || sent.Status != verbs.WCSuccess {
		t.Fatalf("round %d: %v, %v", s.round, wc.Status, sent.Status)
	}
	at := s.off + s.base
	if i := mismatchAt(s.to.mem[at:at+s.total], s.base, s.seed); i >= 0 {
		t.Fatalf("round %d: byte %d of %d was not visible at the completion", s.round, i, s.total)
	}
}
