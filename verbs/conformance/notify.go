package conformance

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

var notifyCases = []testCase{
	{name: "notify/no lost wake-up", run: func(t TB, h Harness) { noLostWakeup(t, h, verbs.RC) }},
}

const pings = 200

// noLostWakeup plays ping-pong between two sides that park whenever they find
// nothing: a wake-up that is lost stops the game.
func noLostWakeup(t TB, h Harness, typ verbs.QPType) {
	l := newLink(t, h, linkOpts{typ: typ, channel: true, minRNR: 1})
	if l.pair.Notified != nil {
		l.pingPongStepped()
		return
	}
	for _, s := range []*side{l.a, l.b} {
		for range 8 {
			s.recv(0, 64+s.headroom)
		}
	}
	var wg sync.WaitGroup
	var errA, errB string
	// Whoever is done polls on: its acknowledgements may need it.
	var done atomic.Int32
	play := func(s *side, serve bool) string {
		msg := s.pingPong(serve)
		done.Add(1)
		PollFor(20 * time.Second)(func() bool { s.poll(); return done.Load() == 2 })
		return msg
	}
	wg.Go(func() { errA = play(l.a, true) })
	wg.Go(func() { errB = play(l.b, false) })
	wg.Wait()
	if errA != "" || errB != "" {
		t.Fatalf("A: %q, B: %q", errA, errB)
	}
}

// pingPong answers every message with one; the side that serves begins.
func (s *side) pingPong(serve bool) string {
	got, posted, slots := 0, 0, s.qp.Cap().MaxSendWR
	for turn := range pings {
		if serve || turn > 0 {
			if _, err := s.qp.PostSend([]verbs.SendWR{s.send(0, 64)}); err != nil {
				return "post: " + err.Error()
			}
			posted++
		}
		// The answer may come long before the completion of the question.
		if msg := s.park(func() bool { return len(s.rcvd) > got && posted-len(s.sent) < slots }); msg != "" {
			return msg
		}
		got++
		if _, err := s.qp.PostRecv([]verbs.RecvWR{{WRID: recvBit, SGL: []verbs.SGE{s.sge(0, 64+s.headroom)}}}); err != nil {
			return "post receive: " + err.Error()
		}
	}
	if serve {
		return s.park(func() bool { return len(s.sent) == pings })
	}
	if _, err := s.qp.PostSend([]verbs.SendWR{s.send(0, 64)}); err != nil {
		return "post: " + err.Error()
	}
	return s.park(func() bool { return len(s.sent) == pings })
}

// park is the protocol that users of ReqNotify follow: arm, poll once more,
// wait, drain.
func (s *side) park(cond func() bool) string {
	for {
		s.poll()
		for _, wc := range slices.Concat(s.sent, s.rcvd) {
			if wc.Status != verbs.WCSuccess {
				return "completion " + wc.Status.String()
			}
		}
		if cond() {
			return ""
		}
		if err := s.scq.ReqNotify(false); err != nil {
			return "arm: " + err.Error()
		}
		before := len(s.sent) + len(s.rcvd)
		s.poll()
		if len(s.sent)+len(s.rcvd) > before {
			continue
		}
		if msg := s.waitFD(); msg != "" {
			return msg
		}
		if err := s.channel.Drain(); err != nil {
			return "drain: " + err.Error()
		}
	}
}

func (s *side) waitFD() string {
	fds := []unix.PollFd{{Fd: int32(s.channel.FD()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int((15 * time.Second).Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return "poll(2): " + err.Error()
		case n == 0:
			return "the wake-up was lost"
		default:
			return ""
		}
	}
}

// pingPongStepped is the same game for a provider that the caller drives: the
// sides are polled only when they have been notified.
func (l *link) pingPongStepped() {
	t := l.t
	for _, s := range []*side{l.a, l.b} {
		for range 8 {
			s.recv(0, 64+s.headroom)
		}
	}
	l.a.post(l.a.send(0, 64))
	posted := map[*side]int{l.a: 1}
	answered := map[*side]int{}
	for answered[l.b] < pings {
		woken := false
		for _, s := range []*side{l.a, l.b} {
			must(t, s.channel.Drain(), "drain")
			must(t, s.scq.ReqNotify(false), "arm")
			s.poll()
			// The answer may come long before the completion of the question.
			for len(s.rcvd) > answered[s] && posted[s]-len(s.sent) < s.qp.Cap().MaxSendWR {
				woken = true
				answered[s]++
				posted[s]++
				s.recv(0, 64+s.headroom)
				s.post(s.send(0, 64))
			}
		}
		if woken {
			continue
		}
		if !l.pair.Progress(func() bool { return l.pair.Notified(l.a.scq) || l.pair.Notified(l.b.scq) }) {
			t.Fatalf("the wake-up was lost after %d messages", answered[l.b])
		}
	}
	for _, wc := range slices.Concat(l.a.sent, l.b.sent) {
		if wc.Status != verbs.WCSuccess {
			t.Fatalf("completion %v", wc.Status)
		}
	}
}
