package engine

import "errors"

// simLink carries one stream of one session in order, with random delays.
type simLink struct {
	w            *world
	to           *simSide
	session      *Session // there
	queue        []Message
	last         int64
	cut          bool  // Send fails
	mute         bool  // messages vanish
	stalledUntil int64 // nothing arrives before
}

// Send implements Control for both streams of a side.
func (s *simSide) Send(m Message) error {
	l := s.links[0]
	if ItemStream(m) {
		l = s.links[1]
	}
	w := s.w
	if l.cut {
		return errors.New("the control connection is gone")
	}
	if l.mute {
		return nil
	}
	if w.liar != nil && s.index == 1 {
		w.liar.tell(l, m)
		return nil
	}
	return l.carry(m)
}

func (l *simLink) carry(m Message) error {
	w := l.w
	delay := 2*us + w.rng.Int64N(60*us)
	if w.rng.IntN(40) == 0 {
		delay += w.rng.Int64N(8 * ms)
	}
	l.last = max(l.last+1, w.now()+delay)
	l.queue = append(l.queue, m)
	w.at(l.last, "message", l.arrive)
	return nil
}

// arrive hands over the first message: whoever of the acts for them comes late,
// their order stays.
func (l *simLink) arrive() {
	w := l.w
	if until := max(l.stalledUntil, l.to.pausedUntil); w.now() < until {
		w.at(until, "message waits", l.arrive)
		return
	}
	m := l.queue[0]
	l.queue = l.queue[1:]
	if !l.cut && !l.mute && !l.to.dead && l.to.session == l.session {
		l.session.Handle(m, w.now())
		l.to.woken = true
	}
}
