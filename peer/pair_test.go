package peer

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"mover/peer/peerpb"
	"mover/reason"
)

// Whatever the timing of two nodes that dial each other, they end up with one
// session, and everyone who asked has it.
func TestSimultaneousDials(t *testing.T) {
	a, b := twoNodes(t)
	dialled := 0
	for round := range 25 {
		start := make(chan struct{})
		conns := make([]*Conn, 4)
		var wg sync.WaitGroup
		for i := range conns {
			wg.Go(func() {
				<-start
				from, to := a, b
				if i%2 == 1 {
					from, to = b, a
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				conn, err := from.Dial(ctx, to.cfg.Identity.Name)
				if err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				conns[i] = conn
			})
		}
		close(start)
		wg.Wait()
		if t.Failed() {
			return
		}
		ca, cb := conns[0], conns[1]
		if conns[2] != ca || conns[3] != cb || ca.id != cb.id || ca.Dialler() == cb.Dialler() {
			t.Fatalf("round %d: sessions %s (%v), %s (%v), %s, %s", round, ca.Session(), ca.Dialler(), cb.Session(), cb.Dialler(), conns[2].Session(), conns[3].Session())
		}
		if ca.Dialler() {
			dialled++
		}
		// It is alive, and stays so with the losing connections gone.
		if err := ca.Send(ping(uint64(round))); err != nil {
			t.Fatal(err)
		}
		receive(t, cb.Messages(), "ping")
		for _, n := range []*node{a, b} {
			if s := n.Sessions(); len(s) != 1 {
				t.Fatalf("%d sessions", len(s))
			}
		}
		acceptor, accepted := b, cb
		if !ca.Dialler() {
			acceptor, accepted = a, ca
		}
		if got := receive(t, acceptor.accepted, "accepted"); got != accepted {
			t.Fatalf("round %d: Accept had another session", round)
		}
		if len(a.accepted)+len(b.accepted) != 0 {
			t.Fatalf("round %d: two sessions were accepted", round)
		}
		ca.Close("next round")
		ended(t, ca)
		ended(t, cb)
	}
	t.Logf("the lower fingerprint dialled %d of 25", dialled)
}

// Dials, closes and cuts from both sides in any order: no Dial hangs, no node
// ever has two sessions, and in the end a session works.
func TestChurn(t *testing.T) {
	a, b := twoNodes(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		from, to := a, b
		if worker%2 == 1 {
			from, to = b, a
		}
		rnd := rand.New(rand.NewPCG(1, uint64(worker)))
		wg.Go(func() {
			for range 25 {
				timeout := patience
				if rnd.IntN(4) == 0 {
					timeout = time.Duration(rnd.IntN(5000)) * time.Microsecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				conn, err := from.Dial(ctx, to.cfg.Identity.Name)
				cancel()
				if n := len(from.Sessions()); n > 1 {
					t.Errorf("%d sessions", n)
				}
				switch {
				case err != nil && errors.Is(err, context.DeadlineExceeded) && timeout == patience:
					t.Errorf("Dial hung: %v", err)
					return
				case err != nil: // the others cut what it was about to get
				case rnd.IntN(2) == 0:
					conn.Close("churn")
				default:
					conn.link.shut()
				}
			}
		})
	}
	stop, drained := make(chan struct{}), make(chan struct{})
	go func() { // the channels of Accept are bounded
		defer close(drained)
		for {
			select {
			case <-a.accepted:
			case <-b.accepted:
			case <-stop:
				return
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-drained
	if t.Failed() {
		return
	}
	waitFor(t, "a session that works on both sides", func() bool {
		ca, cb := dial(t, a, b.cfg.Identity.Name), dial(t, b, a.cfg.Identity.Name)
		return ca.id == cb.id && ca.Send(ping(1)) == nil && len(cb.Messages()) > 0
	})
}

// holdingServer is a peer driven by hand on the accepting side.
type holdingServer struct {
	peerpb.UnimplementedPeerServer
	hello  chan *peerpb.Hello
	answer chan *peerpb.Frame
}

func (h *holdingServer) Control(st controlServer) error {
	f, err := st.Recv()
	if err != nil {
		return err
	}
	h.hello <- f.GetHello()
	select {
	case f := <-h.answer:
		if err := st.Send(f); err != nil {
			return err
		}
	case <-st.Context().Done():
	}
	<-st.Context().Done()
	return nil
}

func (h *holdingServer) Items(st itemsServer) error {
	if _, err := st.Recv(); err != nil {
		return err
	}
	if err := st.Send(&peerpb.Frame{Body: &peerpb.Frame_Linked{Linked: &peerpb.Linked{}}}); err != nil {
		return err
	}
	<-st.Context().Done()
	return nil
}

// startHolding serves h as id, which trusts everyone that t does.
func startHolding(t *testing.T, id *Identity, trust Trust, h *holdingServer) string {
	t.Helper()
	host := startNode(t, id, trust)
	host.server.Stop() // its listeners, credentials and gate are of use
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(serverCreds{host.Control}), grpc.ForceServerCodecV2(newFrameCodec()))
	peerpb.RegisterPeerServer(s, h)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(listener{l, host.Control}) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String()
}

// ordered makes two identities, the first with the lower fingerprint.
func ordered(t *testing.T) (low, high *Identity) {
	t.Helper()
	low, high = testIdentity(t, "node-a"), testIdentity(t, "node-b")
	if high.Fingerprint < low.Fingerprint {
		low, high = high, low
	}
	return low, high
}

// While the lower fingerprint's Hello is on its way, the other's waits; when
// the first is welcomed, the second is a duplicate.
func TestLowerFingerprintWins(t *testing.T) {
	low, high := ordered(t)
	h := &holdingServer{hello: make(chan *peerpb.Hello, 1), answer: make(chan *peerpb.Frame, 1)}
	addr := startHolding(t, high, pin(low), h)
	n := startNode(t, low, pin(high, addr), shortDrain)
	result := make(chan *Conn, 1)
	go func() { result <- dial(t, n, high.Name) }()
	receive(t, h.hello, "Hello of the lower")

	s := newStranger(t, high, n)
	type answer struct {
		f   *peerpb.Frame
		err error
	}
	answers := make(chan answer, 1)
	go func() { _, f, err := s.say(s.hello()); answers <- answer{f, err} }()
	waitFor(t, "its Hello to be held", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.pairs[high.Name].held == 1 })
	h.answer <- &peerpb.Frame{Body: &peerpb.Frame_Welcome{Welcome: &peerpb.Welcome{Version: Version, Node: high.Name, Instance: s.c.instance, Session: gid()}}}
	conn := receive(t, result, "session of the lower")
	if !conn.Dialler() {
		t.Error("the session is not the one it dialled")
	}
	if got := receive(t, answers, "answer to the higher"); got.f.GetRefusal().GetCode() != peerpb.RefusalCode_REFUSAL_DUPLICATE {
		t.Errorf("the higher fingerprint got %v, %v", got.f, got.err)
	}
}

// If the lower fingerprint's dial fails, the other's connection is taken, and
// is what that Dial returns.
func TestHigherFingerprintIfLowerFails(t *testing.T) {
	low, high := ordered(t)
	h := &holdingServer{hello: make(chan *peerpb.Hello, 1), answer: make(chan *peerpb.Frame, 1)}
	addr := startHolding(t, high, pin(low), h)
	n := startNode(t, low, pin(high, addr))
	result := make(chan *Conn, 1)
	go func() { result <- dial(t, n, high.Name) }()
	receive(t, h.hello, "Hello of the lower")
	s := newStranger(t, high, n)
	came := make(chan struct{})
	go func() { defer close(came); s.session() }()
	waitFor(t, "the other Hello to be held", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.pairs[high.Name].held == 1 })
	h.answer <- &peerpb.Frame{Body: &peerpb.Frame_Refusal{Refusal: &peerpb.Refusal{Code: peerpb.RefusalCode_REFUSAL_CLOSING, Detail: "going"}}}
	conn := receive(t, result, "session")
	if conn.Dialler() || receive(t, n.accepted, "accepted") != conn {
		t.Error("not the accepted session")
	}
	<-came
}

// A node that cannot reach its peer does not keep the peer from reaching it.
func TestHigherFingerprintIfLowerIsStuck(t *testing.T) {
	low, high := ordered(t)
	n := startNode(t, low, pin(high, listenRaw(t, silent)), func(c *Config) { c.DialTimeout = time.Hour })
	result := make(chan *Conn, 1)
	go func() { result <- dial(t, n, high.Name) }()
	waitFor(t, "the attempt", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.pairs[high.Name] != nil && n.pairs[high.Name].attempt != nil
	})
	newStranger(t, high, n).session() // waits for holdUncommitted
	if conn := receive(t, result, "session"); conn.Dialler() {
		t.Error("not the accepted session")
	}
}

func TestRestartedPeerReplacesItsSession(t *testing.T) {
	n, s := strangerNode(t, shortDrain)
	s.session()
	old := receive(t, n.accepted, "session")

	again := newStranger(t, s.c.cfg.Identity, n) // another process: another instance
	again.session()
	conn := receive(t, n.accepted, "session of the restarted peer")
	err := ended(t, old)
	if !errors.Is(err, ErrReplaced) || reason.Of(err) != reason.TransportError {
		t.Errorf("the old session: %v", err)
	}
	if conn.Peer().Instance == old.Peer().Instance || dial(t, n, "stranger") != conn {
		t.Error("the new session is not the current one")
	}
}

// The same process: a Hello that names the session as ended replaces it, one
// that does not, because it was on its way already, is a duplicate.
func TestSecondHelloOfTheSameProcess(t *testing.T) {
	n, s := strangerNode(t, shortDrain)
	s.session()
	old := receive(t, n.accepted, "session")
	second := newStranger(t, s.c.cfg.Identity, n)
	h := s.hello()
	_, f, err := second.say(h)
	if err != nil || f.GetRefusal().GetCode() != peerpb.RefusalCode_REFUSAL_DUPLICATE {
		t.Fatalf("%v, %v", f, err)
	}
	third := newStranger(t, s.c.cfg.Identity, n)
	h.LastSession = old.id[:]
	_, f, err = third.say(h)
	if err != nil || f.GetWelcome() == nil {
		t.Fatalf("%v, %v", f, err)
	}
	if err := ended(t, old); !errors.Is(err, ErrReplaced) {
		t.Error(err)
	}
}

// A peer that insists on a session that this node has not got.
func TestPhantomDuplicate(t *testing.T) {
	low, high := ordered(t)
	h := &holdingServer{hello: make(chan *peerpb.Hello, dialRounds), answer: make(chan *peerpb.Frame, dialRounds)}
	for range dialRounds {
		h.answer <- &peerpb.Frame{Body: &peerpb.Frame_Refusal{Refusal: &peerpb.Refusal{Code: peerpb.RefusalCode_REFUSAL_DUPLICATE}}}
	}
	n := startNode(t, low, pin(high, startHolding(t, high, pin(low), h)))
	err := dialError(t, n, high.Name)
	if reason.Of(err) != reason.PeerUnreachable || len(h.hello) != dialRounds {
		t.Errorf("after %d rounds: %v", len(h.hello), err)
	}
	mentionErr(t, err, "has a session already", "try again", "log")
}

// A Dial right after the end of a session makes a new one, though the peer may
// not have noticed yet.
func TestDialRightAfterClose(t *testing.T) {
	a, b := twoNodes(t)
	old, _ := connect(t, a, b)
	for range 10 {
		old.Close("again")
		conn := dial(t, a, b.cfg.Identity.Name)
		if conn == old {
			t.Fatal("the closed session was returned")
		}
		if got := receive(t, b.accepted, "new session"); got.id != conn.id {
			t.Fatal("two different sessions")
		}
		old = conn
	}
}
