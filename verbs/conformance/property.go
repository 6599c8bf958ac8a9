package conformance

import (
	"errors"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"mover/verbs"
)

// property runs random sequences of posts and polls against a model of what
// one direction of an RC connection must do.
func property(t *testing.T, h Harness) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, h)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				m.postSend(t)
			case 3:
				m.postRecv(t)
			case 4:
				m.link.poll()
				m.check()
			case 5:
				m.link.settle()
				m.check()
			}
		}
		m.finish()
	})
}

// sentWR is a send WR of the model, in the order posted.
type sentWR struct {
	wr      verbs.SendWR
	n       int // bytes
	to      int // in B's memory: of a write; a send's receive decides
	pattern int // the payload starts at this offset of A's pattern
}

// model knows every WR accepted. Each message gets bytes of B's memory of its
// own, so what is written once must stay.
type model struct {
	link  *link
	sends []sentWR
	recvs []verbs.RecvWR

	completed int // sends known to be complete: covered by a completion polled
	sentSeen  int // completions of sends checked
	rcvdSeen  int // completions of receives checked
	matched   int // sends whose receive (if they take one) was seen
	nextByte  int // of B's memory not yet given out
}

const (
	modelBytes   = 1 << 20
	modelSlots   = 5
	modelMaxSize = 12_000
)

func newModel(t TB, h Harness) *model {
	l := newLink(t, h, linkOpts{memBytes: modelBytes, splitCQ: true, minRNR: 1,
		cap: verbs.QPCap{MaxSendWR: modelSlots, MaxRecvWR: modelSlots}})
	fill(l.a.mem, 1)
	return &model{link: l}
}

// space gives out n bytes of B's memory, or reports that there are none left.
func (m *model) space(n int) (int, bool) {
	if m.nextByte+n > modelBytes {
		return 0, false
	}
	m.nextByte += n
	return m.nextByte - n, true
}

func (m *model) postSend(t *rapid.T) {
	n := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, modelMaxSize)).Draw(t, "bytes")
	op := rapid.SampledFrom([]verbs.Opcode{verbs.OpWrite, verbs.OpWrite, verbs.OpWriteWithImm, verbs.OpSend,
		verbs.OpSendWithImm}).Draw(t, "op")
	from := rapid.IntRange(0, modelBytes-n).Draw(t, "from")
	s := sentWR{n: n, pattern: from}
	a, b := m.link.a, m.link.b
	if takesBuffer(op) {
		n = min(n, 2000) // receives of the model have room for this much
		s.n = n
		s.wr = a.send(from, n)
	} else {
		to, ok := m.space(n)
		if !ok {
			return
		}
		s.to = to
		s.wr = a.write(b, from, to, n)
	}
	s.wr.Op, s.wr.Imm = op, rapid.Uint32().Draw(t, "imm")
	if cut := rapid.IntRange(0, n).Draw(t, "cut"); n > 0 && cut < n {
		s.wr.SGL = []verbs.SGE{a.sge(from, cut), a.sge(from+cut, n-cut)}
	}
	if !rapid.Bool().Draw(t, "signalled") {
		s.wr.Flags = 0
	}
	outstanding := len(m.sends) - m.completed
	slots := a.qp.Cap().MaxSendWR
	if outstanding == slots-1 {
		s.wr.Flags |= verbs.SendSignaled // an all-unsignalled full queue never frees an entry
	}
	accepted, err := a.qp.PostSend([]verbs.SendWR{s.wr})
	switch {
	case accepted == 1 && err == nil:
		m.sends = append(m.sends, s)
	case outstanding < slots || !errors.Is(err, syscall.ENOMEM):
		t.Fatalf("post with %d of %d entries taken: %v", outstanding, slots, err)
	}
}

func takesBuffer(op verbs.Opcode) bool  { return op == verbs.OpSend || op == verbs.OpSendWithImm }
func takesReceive(op verbs.Opcode) bool { return op != verbs.OpWrite }

func (m *model) postRecv(t TB) {
	b := m.link.b
	at, ok := m.space(2000)
	if !ok {
		return
	}
	wr := verbs.RecvWR{WRID: recvBit | b.id(), SGL: []verbs.SGE{b.sge(at, 700), b.sge(at+700, 1300)}}
	accepted, err := b.qp.PostRecv([]verbs.RecvWR{wr})
	outstanding := len(m.recvs) - m.rcvdSeen
	switch {
	case accepted == 1 && err == nil:
		m.recvs = append(m.recvs, wr)
	case outstanding < b.qp.Cap().MaxRecvWR || !errors.Is(err, syscall.ENOMEM):
		t.Fatalf("post a receive with %d outstanding: %v", outstanding, err)
	}
}

// check compares all new completions with the model, in order.
func (m *model) check() {
	l := m.link
	t := l.t
	for ; m.rcvdSeen < len(l.b.rcvd); m.rcvdSeen++ {
		m.checkReceive(l.b.rcvd[m.rcvdSeen])
	}
	for ; m.sentSeen < len(l.a.sent); m.sentSeen++ {
		wc := l.a.sent[m.sentSeen]
		for m.completed < len(m.sends) && m.sends[m.completed].wr.Flags&verbs.SendSignaled == 0 {
			m.completed++
		}
		if m.completed == len(m.sends) {
			t.Fatalf("a completion too many: %+v", wc)
		}
		checkSent(t, wc, m.sends[m.completed].wr)
		m.completed++
	}
}

// checkReceive: it belongs to the first unmatched send that takes a receive,
// and every byte up to there is visible.
func (m *model) checkReceive(wc verbs.WC) {
	t, b := m.link.t, m.link.b
	for ; m.matched < len(m.sends); m.matched++ {
		s := m.sends[m.matched]
		if !takesReceive(s.wr.Op) {
			m.checkBytes(s, s.to)
			continue
		}
		recv := m.recvs[m.rcvdSeen]
		checkRecv(t, wc, recv.WRID, s.wr.Op, s.n, s.wr.Imm)
		to := s.to
		if takesBuffer(s.wr.Op) {
			to = int(recv.SGL[0].Addr - b.mr.Addr())
		}
		m.checkBytes(s, to)
		m.matched++
		return
	}
	t.Fatalf("a receive completion too many: %+v", wc)
}

func (m *model) checkBytes(s sentWR, to int) {
	if i := mismatchAt(m.link.b.mem[to:to+s.n], s.pattern, 1); i >= 0 {
		m.link.t.Fatalf("%v of %d bytes: byte %d is not there", s.wr.Op, s.n, i)
	}
}

// finish posts what is still wanted and waits until everything is done.
func (m *model) finish() {
	l := m.link
	want := 0
	for _, s := range m.sends {
		if takesReceive(s.wr.Op) {
			want++
		}
	}
	l.until("the end", func() bool {
		m.check()
		if len(m.recvs) < want && len(m.recvs)-m.rcvdSeen < l.b.qp.Cap().MaxRecvWR {
			if m.nextByte+2000 > modelBytes {
				l.t.Fatalf("the model's memory is too small")
			}
			m.postRecv(l.t)
		}
		return m.rcvdSeen >= want && m.lastSignalledSeen()
	})
	l.settle()
	m.check()
	if m.rcvdSeen != want {
		l.t.Fatalf("%d receive completions, want %d", m.rcvdSeen, want)
	}
}

// lastSignalledSeen reports whether no signalled send is outstanding.
func (m *model) lastSignalledSeen() bool {
	for _, s := range m.sends[m.completed:] {
		if s.wr.Flags&verbs.SendSignaled != 0 {
			return false
		}
	}
	return true
}
