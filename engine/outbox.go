package engine

import "mover/reason"

// send hands a message to the control connection.
func (s *Session) send(m Message) {
	if s.saidBye {
		return
	}
	// The peer may act on a message at once: what pollers have to know before
	// goes to them first.
	if len(s.unsent) > 0 || !s.flushCommands() {
		s.unsent = append(s.unsent, m)
		return
	}
	s.sendNow(m)
}

func (s *Session) sendNow(m Message) {
	if err := s.cfg.Control.Send(m); err != nil {
		// The peer's Bye, with its reason, may have been received and not been
		// handled yet: Lost, or the deadline, ends the session after it.
		s.saidBye = true
		s.sendErr, s.sendErrAt = asReason(err, reason.PeerUnreachable), s.now
	}
}

// sendErrGrace is how long a session whose connection takes no more messages
// waits to be told why.
const sendErrGrace = 1e9

// flushUnsent sends what waited for commands.
func (s *Session) flushUnsent() {
	for len(s.unsent) > 0 && s.flushCommands() && !s.saidBye {
		m := s.unsent[0]
		s.unsent = s.unsent[1:]
		s.sendNow(m)
	}
	if s.saidBye {
		s.unsent = nil
	}
}

// command hands a command to a poller, now or when its queue has room.
func (s *Session) command(p *Poller, c command) {
	if len(s.keep) == 0 && p.command(c) {
		return
	}
	s.keep, s.keepTo = append(s.keep, c), append(s.keepTo, p)
}

// flushCommands reports whether no command is left waiting.
func (s *Session) flushCommands() bool {
	for len(s.keep) > 0 && s.keepTo[0].command(s.keep[0]) {
		s.keep, s.keepTo = s.keep[1:], s.keepTo[1:]
	}
	if len(s.keep) > 0 {
		return false
	}
	s.keep, s.keepTo = nil, nil
	return true
}
