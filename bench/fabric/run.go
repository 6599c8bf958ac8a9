package fabric

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"runtime"
	"time"

	"mover/verbs"
)

// one does one run: both sides make their resources, connect, and give them
// back at the end, whatever happens.
func (s *session) one(index int, r run) (_ Result, err error) {
	both := s.cfg.Test == Latency
	st, err := newStage(&s.cfg, s.port, r, s.places, s.talk, s.client || both, !s.client || both)
	if err != nil {
		return Result{}, err
	}
	// Not before the other side knows: it would see its QPs fail one by one.
	defer func() { err = errors.Join(s.settle(err), st.close()) }()
	if err := s.connect(st, index); err != nil {
		return Result{}, err
	}
	runtime.GC() // not while measuring
	if err := s.talk.send(kindReady, &ready{Run: index}); err != nil {
		return Result{}, err
	}
	if err := s.talk.receive(kindReady, &ready{}); err != nil {
		return Result{}, err
	}
	if s.client {
		return s.lead(st, index, r)
	}
	return s.follow(st, index, r)
}

func (s *session) connect(st *stage, index int) error {
	var remote setup
	var seed uint64
	if s.client {
		var b [8]byte
		rand.Read(b[:]) // never fails (crypto/rand)
		seed = binary.LittleEndian.Uint64(b[:])
		if err := s.talk.send(kindSetup, st.setup(index, seed)); err != nil {
			return err
		}
	}
	if err := s.talk.receive(kindSetup, &remote); err != nil {
		return err
	}
	if !s.client {
		seed = remote.Seed
		if err := s.talk.send(kindSetup, st.setup(index, seed)); err != nil {
			return err
		}
	}
	return st.connect(s.report.MTU, index, seed, &remote)
}

// lead is the client's part.
func (s *session) lead(st *stage, index int, r run) (Result, error) {
	result := Result{SizeBytes: r.sizeBytes, Pollers: r.pollers, InFlight: st.layout.inFlight,
		Chain: st.layout.chain(&s.cfg), Moderation: st.layout.moderation(&s.cfg), InlineBytes: st.inlineBytes()}
	var trips []int64
	use := beginUsage()
	var err error
	if s.cfg.Test == Latency {
		trips = make([]int64, 0, s.tripsFor())
		err = st.onPollers(func(p *poller) (err error) {
			trips, err = p.ping(s.cfg.Duration, trips)
			return err
		})
	} else {
		err = st.onPollers(func(p *poller) error { return p.sendAll(s.cfg.Duration) })
	}
	result.CPULocal = use.cpus()
	if err != nil {
		return result, err
	}
	if s.cfg.Verify && s.cfg.Op == Write && s.cfg.Transport == verbs.RC {
		if err := st.onPollers((*poller).closeAll); err != nil {
			return result, err
		}
	}
	sent := st.sent()
	if err := s.talk.send(kindDone, &done{Run: index, Sent: sent}); err != nil {
		return result, err
	}
	var told outcome
	if err := s.talk.receive(kindOutcome, &told); err != nil {
		return result, err
	}
	st.measure(&result)
	if s.cfg.Test == Latency {
		f := figures(trips)
		result.Latency = &f
	}
	result.judge(&told)
	return result, s.verdict(st, &told)
}

// tripsFor is how many round trips are remembered.
func (s *session) tripsFor() int {
	if s.cfg.Duration > 0 {
		return maxRoundTrips
	}
	return min(s.cfg.Iterations, maxRoundTrips)
}

// verdict is the client's: of what the server found and, where answers came
// back, of those.
func (s *session) verdict(st *stage, told *outcome) error {
	if told.Wrong != "" {
		return &WrongError{Text: told.Wrong}
	}
	var own verdict
	for _, n := range st.lanes {
		if n.rx != nil {
			n.rx.finalCheck(n.rx.arrived)
			own.add(n.rx.verdict)
		}
	}
	if own.wrong > 0 {
		return &WrongError{Text: "of the answers, " + own.text()}
	}
	return nil
}

// follow is the server's part.
func (s *session) follow(st *stage, index int, r run) (Result, error) {
	result := Result{SizeBytes: r.sizeBytes, Pollers: r.pollers, InFlight: st.layout.inFlight}
	use := beginUsage()
	var err error
	switch {
	case s.cfg.Test == Latency:
		err = st.onPollers((*poller).pong)
	case s.port.drivenByPolling() || s.cfg.Op == Send || st.layout.immediate:
		err = st.onPollers((*poller).receiveAll)
	}
	// Else the adapter does it all, and the CPU is left to others.
	if err != nil {
		return result, err
	}
	var d done
	if err := s.talk.receive(kindDone, &d); err != nil {
		return result, err
	}
	result.CPULocal = use.cpus()
	if d.Run != index || len(d.Sent) != len(st.lanes) {
		return result, badFrame("run %d with %d QPs is done", d.Run, len(d.Sent))
	}
	if err := st.onPollers(func(p *poller) error { return p.collect(d.Sent, s.cfg.lossy()) }); err != nil {
		return result, err
	}
	told := outcome{Run: index, Known: st.lanes[0].rx.counts(), CPU: result.CPULocal}
	var all verdict
	for _, n := range st.lanes {
		result.Messages += d.Sent[n.number]
		told.Arrived += n.rx.finalCheck(d.Sent[n.number])
		all.add(n.rx.verdict)
	}
	told.Checked, told.Wrong = all.checked, fitText(all.text())
	if err := s.talk.send(kindOutcome, &told); err != nil {
		return result, err
	}
	result.judge(&told)
	result.CPURemote = 0
	if told.Wrong != "" {
		return result, &WrongError{Text: told.Wrong}
	}
	return result, nil
}

// sent is what was sent, by lane.
func (s *stage) sent() []uint64 {
	var out []uint64
	for _, n := range s.lanes {
		out = append(out, n.tx.posted)
	}
	return out
}

// inlineBytes is how much is posted inline: a whole message or nothing.
func (s *stage) inlineBytes() int {
	if tx := s.lanes[0].tx; tx != nil && tx.inline() {
		return s.layout.sizeBytes
	}
	return 0
}

// measure computes what the pollers timed.
func (s *stage) measure(r *Result) {
	began, ended := s.pollers[0].began, s.pollers[0].ended
	for _, p := range s.pollers {
		began, ended = min(began, p.began), max(ended, p.ended)
	}
	for _, n := range s.lanes {
		r.Messages += n.tx.posted
	}
	r.Elapsed = time.Duration(max(ended-began, 1))
	r.BytesPerSecond = float64(r.Messages) * float64(s.layout.sizeBytes) / r.Elapsed.Seconds()
	r.MessagesPerSecond = float64(r.Messages) / r.Elapsed.Seconds()
	if len(s.pollers) == 1 && s.cfg.Test == Bandwidth {
		r.PeakBytesPerSecond = s.pollers[0].history.messagesPerSecond() * float64(s.layout.sizeBytes)
	}
}
