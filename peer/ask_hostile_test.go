package peer

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"mover/peer/peerpb"
	"mover/reason"
)

// rogue is a peer whose gRPC service does what a test wants: it authenticates
// like any node, and answers Ask by hand; nil leaves it out.
func rogue(t *testing.T, id *Identity, trust Trust, ask func(grpc.ServerStream) error) string {
	t.Helper()
	n := startNode(t, id, trust)
	s := grpc.NewServer(grpc.Creds(serverCreds{n.Control}), grpc.ForceServerCodecV2(newFrameCodec()), grpc.MaxRecvMsgSize(8<<20))
	d := peerpb.Peer_ServiceDesc
	d.Methods, d.Streams, d.HandlerType = nil, nil, (*any)(nil)
	if ask != nil {
		d.Streams = []grpc.StreamDesc{{StreamName: "Ask", ClientStreams: true, ServerStreams: true,
			Handler: func(_ any, st grpc.ServerStream) error { return ask(st) }}}
	}
	s.RegisterService(&d, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(listener{l, n.Control}) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return l.Addr().String()
}

// asking is a node whose only peer, "b", is a rogue.
func asking(t *testing.T, ask func(grpc.ServerStream) error, change ...func(*Config)) *node {
	t.Helper()
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	addr := rogue(t, idb, pin(ida), ask)
	return startNode(t, ida, pin(idb, addr), change...)
}

func TestAnswersOfHostilePeers(t *testing.T) {
	say := func(m proto.Message) func(grpc.ServerStream) error {
		return func(st grpc.ServerStream) error {
			if err := st.RecvMsg(new(peerpb.Question)); err != nil {
				return err
			}
			return st.SendMsg(m)
		}
	}
	fails := func(code uint32, detail string) func(grpc.ServerStream) error {
		return say(&peerpb.Answer{Result: &peerpb.Answer_Failure{Failure: &peerpb.Failure{Code: code, Detail: detail}}})
	}
	body := func(n int) func(grpc.ServerStream) error {
		return say(&peerpb.Answer{Result: &peerpb.Answer_Body{Body: make([]byte, n)}})
	}
	for name, tt := range map[string]struct {
		ask  func(grpc.ServerStream) error
		code reason.Code
		kind error
		says []string
	}{
		"an older peer":     {nil, "", ErrUnknownQuestion, []string{"upgrade mover"}},
		"nothing in it":     {say(&peerpb.Answer{}), reason.TransportError, nil, []string{"neither a body nor a failure"}},
		"garbage":           {say(&peerpb.Ping{Seq: 1 << 60}), reason.TransportError, nil, []string{"protocol violation"}},
		"a large body":      {body(MaxQuestionBytes + 1), reason.TransportError, nil, []string{"answer.body"}},
		"a huge body":       {body(4 << 20), reason.TransportError, nil, []string{"answer", "larger than max"}},
		"a long text":       {fails(1, strings.Repeat("x", maxDetailBytes+1)), reason.TransportError, nil, []string{"answer.failure.detail"}},
		"an escape":         {fails(4, "a\x1b[31m\nb"), reason.DestExists, nil, []string{"a\uFFFD[31m\uFFFDb"}},
		"a new reason":      {fails(60000, "later"), reason.Internal, nil, []string{"later", "60000"}},
		"a reason too far":  {fails(1<<16+1, "x"), reason.Internal, nil, []string{"65537"}},
		"no reason":         {fails(0, "x"), reason.Internal, nil, nil},
		"busy":              {func(grpc.ServerStream) error { return status.Error(codes.ResourceExhausted, "later") }, reason.PeerRefused, ErrBusy, []string{"try again"}},
		"no answer in time": {func(grpc.ServerStream) error { return status.Error(codes.DeadlineExceeded, "too slow\n") }, reason.PeerRefused, nil, []string{"too slow\uFFFD"}},
		"no trust":          {func(grpc.ServerStream) error { return status.Error(codes.PermissionDenied, "go") }, reason.PeerRefused, ErrUntrusted, nil},
		"it ends":           {func(grpc.ServerStream) error { return nil }, reason.PeerUnreachable, nil, nil},
		"it is unavailable": {func(grpc.ServerStream) error { return status.Error(codes.Unavailable, "shutting down") }, reason.PeerUnreachable, nil, []string{"shutting down"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := asking(t, tt.ask)
			got, err := ask(t, a, "b", "echo", []byte("hello"))
			var r *reason.Error
			if err == nil || tt.code != "" && reason.Of(err) != tt.code || tt.code == "" && errors.As(err, &r) || tt.kind != nil && !errors.Is(err, tt.kind) {
				t.Fatalf("%q, %v", got, err)
			}
			mentionErr(t, err, tt.says...)
		})
	}
}

// A peer that never answers holds nobody beyond ctx, nor beyond its own time.
func TestPeerThatNeverAnswers(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	mute := func(grpc.ServerStream) error { <-release; return nil }
	a := asking(t, mute, func(c *Config) { c.AnswerTimeout, c.DialTimeout = 50*time.Millisecond, time.Second })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := a.Ask(ctx, "b", "echo", nil); !errors.Is(err, context.Canceled) || reason.Of(err) != reason.PeerUnreachable {
		t.Error(err)
	}
	if _, err := a.Ask(t.Context(), "b", "echo", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if a.kept() != 1 {
		t.Errorf("%d connections kept", a.kept())
	}
}

func TestQuestionsThatCannotBeAsked(t *testing.T) {
	a, b := twoNodes(t, answering(echo))
	name := b.cfg.Identity.Name
	for what, q := range map[string]struct {
		kind string
		n    int
	}{"no kind": {"", 0}, "a long kind": {strings.Repeat("k", maxNameBytes+1), 0}, "not UTF-8": {"\xff", 0}, "a large body": {"echo", MaxQuestionBytes + 1}} {
		if _, err := ask(t, a, name, q.kind, make([]byte, q.n)); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if a.kept() != 0 {
		t.Error("it was asked")
	}
	for _, who := range []string{"c", a.cfg.Identity.Name, "B/x"} {
		if _, err := ask(t, a, who, "echo", nil); !errors.Is(err, ErrUnknownPeer) || reason.Of(err) != reason.PeerUnreachable {
			t.Errorf("%q: %v", who, err)
		}
	}
}

func TestAskUnreachable(t *testing.T) {
	b := testIdentity(t, "b")
	dead, mute := deadAddress(t), listenRaw(t, silent)
	a := startNode(t, testIdentity(t, "a"), pin(b, dead, mute), func(c *Config) { c.DialTimeout = 200 * time.Millisecond })
	_, err := ask(t, a, "b", "echo", nil)
	if reason.Of(err) != reason.PeerUnreachable {
		t.Error(err)
	}
	mentionErr(t, err, dead+": ", "connection refused", mute+": no answer in time", "check that mover runs there")
	if a.kept() != 0 {
		t.Error("something is kept of it")
	}
	// Who gives up does not wait for the dial.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Ask(ctx, "b", "echo", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAskOfStrangers(t *testing.T) {
	_, b := twoNodes(t, answering(func(context.Context, PeerInfo, string, []byte) ([]byte, error) {
		t.Error("answered a stranger")
		return nil, nil
	}))
	c := startNode(t, testIdentity(t, "c"), pin(b.cfg.Identity, b.addr()))
	if _, err := ask(t, c, b.cfg.Identity.Name, "echo", nil); reason.Of(err) != reason.PeerRefused || !errors.Is(err, ErrUntrusted) {
		t.Error(err)
	}
}

// A hostile asker: garbage, a body too large, no body at all.
func TestHostileQuestions(t *testing.T) {
	_, s := strangerNode(t, answering(func(context.Context, PeerInfo, string, []byte) ([]byte, error) {
		t.Error("answered")
		return nil, nil
	}))
	for name, q := range map[string]*peerpb.Question{
		"no kind":      {},
		"a long kind":  {Kind: strings.Repeat("k", maxNameBytes+1)},
		"a large body": {Kind: "echo", Body: make([]byte, MaxQuestionBytes+1)},
	} {
		if _, err := s.client.Ask(s.ctx, q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.client.Ask(s.ctx, &peerpb.Question{Kind: "echo", Body: make([]byte, maxFrameBytes)}); !tooLarge(err) {
		t.Error(err)
	}
	var out peerpb.Answer
	if err := s.conn.Invoke(s.ctx, peerpb.Peer_Ask_FullMethodName, garbage(), &out); status.Code(err) != codes.InvalidArgument {
		t.Errorf("garbage: %v", err)
	}
}

// A question whose body never comes costs its place for the node's own time.
func TestQuestionThatNeverComes(t *testing.T) {
	n, s := strangerNode(t, answering(echo), func(c *Config) { c.AnswerTimeout = 50 * time.Millisecond })
	st, err := s.conn.NewStream(s.ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, peerpb.Peer_Ask_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.RecvMsg(new(peerpb.Answer)); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	waitFor(t, "the place to be free", func() bool { n.answers.mu.Lock(); defer n.answers.mu.Unlock(); return n.answers.total == 0 })
}

func TestQuestionsAtATime(t *testing.T) {
	release := make(chan struct{})
	started := make(chan string, maxAnswers)
	a, b := twoNodes(t, answering(func(ctx context.Context, _ PeerInfo, _ string, body []byte) ([]byte, error) {
		started <- string(body)
		select {
		case <-release:
			return body, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
	name := b.cfg.Identity.Name
	var wg sync.WaitGroup
	for i := range maxAnswersPerPeer {
		body := bytes.Repeat([]byte{byte(i)}, 100)
		wg.Go(func() {
			if got, err := ask(t, a, name, "wait", body); err != nil || !bytes.Equal(got, body) {
				t.Errorf("question %d: %q, %v", i, got, err)
			}
		})
	}
	for range maxAnswersPerPeer {
		receive(t, started, "a question")
	}
	if _, err := ask(t, a, name, "wait", nil); !errors.Is(err, ErrBusy) || reason.Of(err) != reason.PeerRefused {
		t.Error(err)
	}
	close(release)
	wg.Wait()
	if connections(b) != 1 {
		t.Errorf("%d connections", connections(b))
	}

	c := newAnswers()
	for i := range maxAnswers {
		if !c.enter(string(rune('a' + i/maxAnswersPerPeer))) {
			t.Fatal(i)
		}
	}
	if c.enter("z") {
		t.Error("more than in all")
	}
	c.leave("a")
	if !c.enter("z") || c.enter("z") {
		t.Error("a place given back")
	}
}

// The server's own time: a node that does not answer, and says so.
func TestAnswerTimeout(t *testing.T) {
	ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
	b := startNode(t, idb, pin(ida), answering(func(ctx context.Context, _ PeerInfo, _ string, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}), func(c *Config) { c.AnswerTimeout = 20 * time.Millisecond })
	a := startNode(t, ida, pin(idb, b.addr()))
	if _, err := ask(t, a, "b", "echo", nil); reason.Of(err) != reason.PeerRefused || errors.Is(err, ErrBusy) {
		t.Error(err)
	}
}

// Close of either node ends questions under way, and waits for their answers.
func TestCloseDuringQuestion(t *testing.T) {
	for _, closer := range []string{"asker", "answerer"} {
		t.Run(closer, func(t *testing.T) {
			started := make(chan string, 1)
			a, b := twoNodes(t, answering(func(ctx context.Context, _ PeerInfo, _ string, _ []byte) ([]byte, error) {
				started <- ""
				<-ctx.Done()
				return nil, ctx.Err()
			}))
			errs := make(chan error, 1)
			go func() { _, err := a.Ask(context.Background(), b.cfg.Identity.Name, "wait", nil); errs <- err }()
			receive(t, started, "the question")
			if closer == "asker" {
				a.Close()
			} else {
				b.Close()
			}
			if err := receive(t, errs, "Ask"); reason.Of(err) != reason.PeerUnreachable {
				t.Error(err)
			}
			if _, err := ask(t, a, b.cfg.Identity.Name, "wait", nil); reason.Of(err) != reason.PeerUnreachable {
				t.Error(err)
			}
			if a.kept() != 0 {
				t.Error("a connection is kept")
			}
		})
	}
}

// A connection for questions goes when it is idle, and when the trust does.
func TestConnectionsForQuestionsEnd(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		a, b := twoNodes(t, answering(echo), func(c *Config) { c.QuestionIdle = 50 * time.Millisecond })
		name := b.cfg.Identity.Name
		for range 2 {
			if _, err := ask(t, a, name, "echo", nil); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the connection to go", func() bool { return a.kept() == 0 && connections(b) == 0 })
		}
	})
	t.Run("idle at the peer", func(t *testing.T) {
		ida, idb := testIdentity(t, "a"), testIdentity(t, "b")
		b := startNode(t, idb, pin(ida), answering(echo), func(c *Config) { c.QuestionIdle, c.HandshakeTimeout = 10*time.Millisecond, 500*time.Millisecond })
		a := startNode(t, ida, pin(idb, b.addr()))
		for range 2 {
			if _, err := ask(t, a, "b", "echo", nil); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the connection to go", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return connections(b) == 0 && a.askers["b"].dead()
			})
		}
		if strings.Contains(b.log.String(), "no session on an inbound connection") {
			t.Error(b.log.String())
		}
	})
	t.Run("trust of the asker", func(t *testing.T) {
		a, b := twoNodes(t, answering(echo))
		if _, err := ask(t, a, b.cfg.Identity.Name, "echo", nil); err != nil {
			t.Fatal(err)
		}
		if err := a.Reload(nil, Trust{}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the connection to go", func() bool { return a.kept() == 0 && connections(b) == 0 })
		if _, err := ask(t, a, b.cfg.Identity.Name, "echo", nil); !errors.Is(err, ErrUnknownPeer) {
			t.Error(err)
		}
	})
	t.Run("trust of the peer", func(t *testing.T) {
		a, b := twoNodes(t, answering(echo))
		if _, err := ask(t, a, b.cfg.Identity.Name, "echo", nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Reload(nil, Trust{}); err != nil {
			t.Fatal(err)
		}
		var refused *RefusedError
		if _, err := ask(t, a, b.cfg.Identity.Name, "echo", nil); reason.Of(err) != reason.PeerRefused || !errors.As(err, &refused) || !refused.ByPeer {
			t.Error(err)
		}
	})
}

// An acceptor that does not say it answers on the session's connection, as
// older ones do not, is asked on another: their streams have no room.
func TestAskOlderAcceptor(t *testing.T) {
	a, b := twoNodes(t, answering(echo))
	conn, _ := connect(t, a, b)
	conn.client = nil // what a Welcome without asks leaves
	if _, err := ask(t, a, b.cfg.Identity.Name, "echo", nil); err != nil {
		t.Error(err)
	}
	if a.kept() != 1 {
		t.Errorf("%d kept", a.kept())
	}
}

// Connections that are idle make room, and without one the asker is told.
func TestAskersAreBounded(t *testing.T) {
	a, b := twoNodes(t, answering(echo))
	name := b.cfg.Identity.Name
	var fake []*asker
	for i := range maxAskers {
		x := &asker{name: string(rune(1000 + i)), ready: make(chan struct{})} // still dialling
		fake = append(fake, x)
	}
	a.mu.Lock()
	for _, x := range fake {
		a.askers[x.name] = x
	}
	a.mu.Unlock()
	if _, err := ask(t, a, name, "echo", nil); !errors.Is(err, ErrBusy) || reason.Of(err) != reason.PeerRefused {
		t.Error(err)
	}
	a.mu.Lock()
	delete(a.askers, fake[0].name)
	a.mu.Unlock()
	if _, err := ask(t, a, name, "echo", nil); err != nil {
		t.Error(err)
	}
	a.mu.Lock()
	if lost := a.dropIdlest(); len(lost) != 1 || lost[0].name != name {
		t.Errorf("%d dropped", len(lost))
	} else {
		defer lost[0].close()
	}
	clear(a.askers)
	a.mu.Unlock()
}

func FuzzAnswer(f *testing.F) {
	f.Add(must(proto.Marshal(&peerpb.Answer{Result: &peerpb.Answer_Body{Body: []byte("x")}})))
	f.Add(must(proto.Marshal(failure(reason.DestExists, "a\x1bb"))))
	f.Add(must(proto.Marshal(&peerpb.Answer{Result: &peerpb.Answer_UnknownKind{UnknownKind: true}})))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m peerpb.Answer
		if proto.Unmarshal(data, &m) != nil {
			return
		}
		body, err := readAnswer("here", "b", "kind", &m)
		if err == nil && len(body) > MaxQuestionBytes || err != nil && body != nil {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		if err != nil && !errors.Is(err, ErrUnknownQuestion) && !reason.Of(err).Valid() {
			t.Fatal(err)
		}
		var r *reason.Error
		if errors.As(err, &r) && r.Detail != printable(r.Detail) && len(r.Detail) <= maxDetailBytes {
			t.Fatalf("%q is not for a terminal", r.Detail)
		}
	})
}
