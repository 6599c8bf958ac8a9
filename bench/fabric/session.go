package fabric

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"mover/numa"
)

// Show is called with what is known as soon as it is known, on the goroutine
// that called Client or Serve. Nil functions are not called.
type Show struct {
	Agreed   func(*Report) // both sides fit; nothing is measured yet
	Measured func(Result)  // one more line of the result
}

// session is one conversation: the greeting and all runs.
type session struct {
	ctx    context.Context
	cfg    Config
	port   *Port
	talk   *talk
	client bool
	show   Show
	report *Report
	places []int // CPUs of the pollers, -1 for any
	told   bool  // the other side knows that this one ends, or need not
}

// Client measures: it sends, to the side that serves at the other end of conn,
// which it closes. It returns what was measured so far even with an error:
// ErrConfig, a *MismatchError, ErrWrong, ErrStalled, a *CompletionError, what
// the other side said (*RemoteError), ErrSilent or ctx's. One call at a time
// for a Port, whose resources are all given back.
func Client(ctx context.Context, c Config, port *Port, conn net.Conn, show Show) (*Report, error) {
	return converse(ctx, c, port, conn, show, true)
}

// Serve is the other side of one Client, with the same options, and returns
// when that has finished. Its Report has the client's figures only where both
// know them: what arrived and what was checked.
func Serve(ctx context.Context, c Config, port *Port, conn net.Conn, show Show) (*Report, error) {
	return converse(ctx, c, port, conn, show, false)
}

func converse(ctx context.Context, c Config, port *Port, conn net.Conn, show Show, client bool) (*Report, error) {
	c, err := c.complete()
	if err != nil {
		conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{ctx: ctx, cfg: c, port: port, client: client, show: show, report: newReport(&c, port, client),
		talk: newTalk(ctx, conn, c.Silence)}
	defer s.talk.close()
	return s.report, s.settle(s.all(conn))
}

// settle finds the cause of an error and tells the other side.
func (s *session) settle(err error) error {
	if err == nil || s.told {
		return err
	}
	s.told = true
	err = s.explain(err)
	var remote *RemoteError
	var wrong *WrongError
	if !errors.As(err, &remote) && !errors.As(err, &wrong) { // else it knows
		s.talk.fail(err)
	}
	return err
}

func (s *session) all(conn net.Conn) error {
	if err := s.greet(); err != nil {
		return err
	}
	if err := s.place(conn); err != nil {
		return err
	}
	if s.show.Agreed != nil {
		s.show.Agreed(s.report)
	}
	for i, r := range s.cfg.runs(s.report.MTU) {
		result, err := s.one(i, r)
		if err != nil {
			return err
		}
		s.report.add(result)
		if s.show.Measured != nil {
			s.show.Measured(s.report.Results[len(s.report.Results)-1])
		}
	}
	if !s.client {
		// The client closes, so that no reset overtakes the last outcome.
		select {
		case <-s.talk.ended:
		case <-time.After(time.Second):
		}
	}
	return nil
}

// explain finds the cause behind an error: a poller that was interrupted does
// not know why, and a failed completion often only shows that the other side
// has gone, for a reason that is on its way here.
func (s *session) explain(err error) error {
	var wc *CompletionError
	switch {
	case errors.Is(err, errAttention):
		if cause := s.talk.over(); cause != nil {
			return cause
		}
		return badFrame("a frame while a run goes on")
	case errors.As(err, &wc):
		select {
		case <-s.talk.ended:
		case <-time.After(time.Second):
			return err
		}
		if cause := s.talk.over(); cause != nil {
			return fmt.Errorf("%w (seen here as: %v)", cause, err)
		}
	}
	return err
}

// greet compares what both sides were told.
func (s *session) greet() error {
	mtu, err := s.cfg.mtuOf(s.port)
	if err != nil {
		return err
	}
	mine := hello{Terms: s.cfg.terms(), Port: s.port.terms(mtu)}
	if s.client {
		if err := s.talk.send(kindHello, &mine); err != nil {
			return err
		}
	}
	var theirs hello
	if err := s.talk.receive(kindHello, &theirs); err != nil {
		return err
	}
	if !s.client { // also when they differ: the client says so in its own words
		if err := s.talk.send(kindHello, &mine); err != nil {
			return err
		}
	}
	if err := compare(&mine, &theirs); err != nil {
		return err
	}
	s.report.agree(mtu, &theirs.Port)
	return s.cfg.fitsDatagram(s.report.MTU, "the lesser MTU of both sides")
}

// place chooses CPUs for the pollers: those given; else, where enough CPUs are
// left for everything else, some of the device's NUMA node. On one host the
// two sides take different ones.
func (s *session) place(conn net.Conn) error {
	if len(s.cfg.CPUs) > 0 {
		s.places = s.cfg.CPUs
		s.report.CPUs = s.places[:s.cfg.Pollers]
		return nil
	}
	for range s.cfg.Pollers {
		s.places = append(s.places, -1)
	}
	topology, err := numa.Read("/sys")
	if err != nil {
		return err
	}
	allowed, err := numa.AllowedCPUs()
	if err != nil {
		return err
	}
	node := s.port.Info.NUMANode
	if _, ok := topology.Node(node); !ok {
		node = topology.Nodes[0].ID
	}
	count, from := s.cfg.Pollers, 0
	if sameHost(conn) {
		count *= 2
		if s.client {
			from = s.cfg.Pollers
		}
	}
	plan, err := numa.Plan(topology, allowed, []int{node}, count, nil)
	if err != nil || !plan.Exclusive {
		return nil // too few CPUs: the kernel does better then
	}
	for i := range s.places {
		s.places[i] = plan.Pollers[from+i].CPU
	}
	s.report.CPUs = s.places
	return nil
}

func sameHost(conn net.Conn) bool {
	l, ok1 := conn.LocalAddr().(*net.TCPAddr)
	r, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return !ok1 || !ok2 || l.IP.Equal(r.IP)
}
