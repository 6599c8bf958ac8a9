package fabric

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"mover/verbs"
)

func anyConfig(t *rapid.T) Config {
	c := Config{
		Test:      Bandwidth,
		Transport: rapid.SampledFrom([]verbs.QPType{verbs.RC, verbs.UC}).Draw(t, "transport"),
		Op:        rapid.SampledFrom([]Op{Write, Send}).Draw(t, "op"),
		SizeBytes: rapid.IntRange(1, 1<<20).Draw(t, "size"),
		Depth:     rapid.IntRange(1, 64).Draw(t, "depth"),
		RingBytes: rapid.IntRange(4096, 1<<22).Draw(t, "ring"),
		Chain:     rapid.IntRange(0, 100).Draw(t, "chain"),
		Verify:    rapid.Bool().Draw(t, "verify"),
	}
	c.Moderation = rapid.IntRange(1, 100).Draw(t, "moderation")
	c.Iterations = rapid.IntRange(minIterations, 2000).Draw(t, "iterations")
	if rapid.Bool().Draw(t, "for a time") {
		c.Duration = time.Second
	}
	c, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fakeQP takes posts and completes them when told, in order.
type fakeQP struct {
	verbs.QP
	signalled []uint64 // wr_ids
	written   func(wr *verbs.SendWR)
}

func (q *fakeQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if wrs[i].Flags&verbs.SendSignaled != 0 {
			q.signalled = append(q.signalled, wrs[i].WRID)
		}
		if q.written != nil {
			q.written(&wrs[i])
		}
	}
	return len(wrs), nil
}

// TestSenderFillsEveryPlaceInTurn: whatever the sizes, the sender never stops
// while messages are left, never has two messages out for one place, and
// leaves in each place what the receiver expects there.
func TestSenderFillsEveryPlaceInTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyConfig(t)
		l := newLayout(&c, c.SizeBytes)
		const ring, base = uint64(1 << 40), uint64(1 << 32)
		qp := &fakeQP{}
		n := &lane{layout: &l, qp: qp, source: make([]byte, 0), sourceAddr: base, peer: end{Addr: ring}}
		s := newSender(n, &c, false)
		s.aim()
		held := map[uint64]int{} // remote address -> source slot
		count := uint64(0)
		qp.written = func(wr *verbs.SendWR) {
			slot := int((wr.SGL[0].Addr - base) / uint64(l.strideBytes))
			if slot != l.sourceOf(count) || wr.Imm != uint32(count) {
				t.Fatalf("message %d comes from slot %d with immediate %d", count, slot, wr.Imm)
			}
			held[wr.RemoteAddr] = slot
			count++
		}
		posts := 0
		for !s.done() {
			if c.Duration > 0 && s.posted > 500 {
				s.finish()
			}
			posted := 0
			for {
				k, err := s.post()
				if err != nil {
					t.Fatal(err)
				}
				if k == 0 {
					break
				}
				posted += k
			}
			if out := s.posted - s.completed; out > uint64(l.inFlight) {
				t.Fatalf("%d messages out, of %d places", out, l.inFlight)
			}
			if posted == 0 && len(qp.signalled) == 0 && !s.done() {
				t.Fatalf("stuck: %d posted, %d complete, goal %d", s.posted, s.completed, s.goal)
			}
			// Some of the completions that are due come.
			k := min(rapid.IntRange(1, 3).Draw(t, "completions"), len(qp.signalled))
			for _, id := range qp.signalled[:k] {
				if err := s.complete(uint32(id)); err != nil {
					t.Fatal(err)
				}
			}
			qp.signalled = qp.signalled[k:]
			if posts++; posts > 100_000 {
				t.Fatal("no end")
			}
		}
		if c.Duration == 0 && s.posted != uint64(c.Iterations) || count != s.posted {
			t.Fatalf("%d posted of %d", s.posted, c.Iterations)
		}
		if c.Op == Send {
			return
		}
		for place := range l.places {
			message, ok := l.lastWritten(place, s.posted)
			slot, written := held[ring+uint64(place*l.strideBytes)]
			if ok != written || ok && slot != l.sourceOf(message) {
				t.Fatalf("place %d: holds slot %d (%v), expected message %d (%v)", place, slot, written, message, ok)
			}
		}
		for j := range l.samples {
			slot, written := held[ring+uint64((l.places+j)*l.strideBytes)]
			if want := l.sampleAt(j); want < s.posted != written || written && slot != l.sourceOf(want) {
				t.Fatalf("sample %d: holds slot %d (%v), expected message %d", j, slot, written, want)
			}
		}
	})
}

// TestStrangeCompletions: a completion of what is not out is refused.
func TestStrangeCompletions(t *testing.T) {
	c := *mustComplete(Config{Test: Bandwidth, Depth: 16})
	l := newLayout(&c, 64)
	s := newSender(&lane{layout: &l, qp: &fakeQP{}}, &c, false)
	if _, err := s.post(); err != nil {
		t.Fatal(err)
	}
	for _, index := range []uint32{uint32(s.posted), 15, 16, 1 << 31} {
		if s.complete(index) == nil {
			t.Errorf("WR %d was taken, %d are out", index, s.posted)
		}
	}
	if err := s.complete(uint32(s.posted) - 1); err != nil {
		t.Error(err)
	}
}

// TestExpand: numbers survive the wrap of their 32 bits, in any order.
// A stray datagram may carry any number: it is a fault, and the receiver goes
// on with the next.
func TestStrangeNumbers(t *testing.T) {
	c, err := Config{Test: Bandwidth, Transport: verbs.UD, SizeBytes: 64, Depth: 4, Verify: true}.complete()
	if err != nil {
		t.Fatal(err)
	}
	l := newLayout(&c, 64)
	n := &lane{layout: &l, target: make([]byte, l.targetBytes())}
	r := newReceiver(n, &c)
	r.unposted = 0
	for i, imm := range []uint32{1<<32 - 1, 1 << 31, 0} {
		r.take(&verbs.WC{ByteLen: 64 + grhBytes, Flags: verbs.WCWithImm, Imm: imm})
		if r.unposted != i+1 {
			t.Fatalf("after number %#x %d receives are to be posted again, not %d", imm, r.unposted, i+1)
		}
	}
	if r.arrived != 1 || r.near != 1 || r.verdict.wrong != 2 {
		t.Errorf("%d arrived, %d is next, %d faults", r.arrived, r.near, r.verdict.wrong)
	}
}

func TestExpand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		near := rapid.Uint64Range(1<<31, 1<<50).Draw(t, "near")
		message := near + uint64(rapid.Int64Range(-1<<31, 1<<31-1).Draw(t, "distance"))
		if got := expand(uint32(message), near); got != message {
			t.Fatalf("%d near %d is read as %d", message, near, got)
		}
	})
}

// TestPattern: a byte anywhere differs from what another slot, QP or run has
// there often enough that no message passes for another.
func TestPattern(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pattern{rapid.Uint64().Draw(t, "seed")}
		qp, slot := rapid.IntRange(0, 100).Draw(t, "qp"), rapid.IntRange(0, 1000).Draw(t, "slot")
		b := make([]byte, rapid.IntRange(1, 300).Draw(t, "bytes"))
		p.fill(b, qp, slot)
		if at := p.mismatch(b, qp, slot); at >= 0 {
			t.Fatalf("byte %d is wrong in its own slot", at)
		}
		if len(b) >= 8 && (p.mismatch(b, qp+1, slot) < 0 || p.mismatch(b, qp, slot+1) < 0 || (pattern{p.seed + 1<<60}).mismatch(b, qp, slot) < 0) {
			t.Fatal("passes for another")
		}
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if got := p.mismatch(b, qp, slot); got != at {
			t.Fatalf("byte %d was changed, %d found", at, got)
		}
	})
}
