package peer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mover/peer/peerpb"
	"mover/reason"
)

// Limits of the questions answered at a time.
const (
	maxAnswersPerPeer = 64
	maxAnswers        = 256
)

// peerService is the service as generated, except that Ask is handled as a
// stream of one message, which is the same on the wire. gRPC calls the handler
// of a unary call only when it holds the whole request; this way limits and
// deadline count before a byte of the body is taken in.
func peerService() *grpc.ServiceDesc {
	d := peerpb.Peer_ServiceDesc
	const name = "Ask"
	d.Methods = slices.DeleteFunc(slices.Clone(d.Methods), func(m grpc.MethodDesc) bool { return m.MethodName == name })
	d.Streams = append(slices.Clone(d.Streams), grpc.StreamDesc{StreamName: name, ClientStreams: true, ServerStreams: true,
		Handler: func(srv any, st grpc.ServerStream) error { return srv.(*service).ask(st) }})
	return &d
}

// ask answers one question of a peer.
func (s *service) ask(st grpc.ServerStream) error {
	c := s.c
	l, err := linkOf(st.Context())
	if err != nil {
		return err
	}
	c.mu.Lock()
	trusted, closed := c.stillTrusted(l), c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return status.Error(codes.Unavailable, "the node is shutting down")
	case !trusted:
		return status.Error(codes.PermissionDenied, "no longer trusted")
	case !c.answers.enter(l.name):
		return status.Error(codes.ResourceExhausted, "too many questions")
	}
	defer c.answers.leave(l.name)
	l.question()
	// The asker closes an idle connection; the time of a handshake more leaves
	// that to it.
	defer l.answered(c.cfg.QuestionIdle + c.cfg.HandshakeTimeout)
	ctx, cancel := context.WithTimeout(st.Context(), c.cfg.AnswerTimeout)
	defer cancel()
	q, err := receiveQuestion(ctx, st)
	if err != nil {
		return err
	}
	out, err := c.answer(ctx, l, q)
	if err != nil {
		return err
	}
	return st.SendMsg(out)
}

// receiveQuestion takes the question in before ctx ends. gRPC ends the call
// that is then left behind when the handler returns.
func receiveQuestion(ctx context.Context, st grpc.ServerStream) (*peerpb.Question, error) {
	q := new(peerpb.Question)
	got := make(chan error, 1)
	go func() { got <- st.RecvMsg(q) }()
	select {
	case err := <-got:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	d := decoder{kind: "question"}
	if d.name("kind", q.GetKind()) == "" {
		d.fail("kind", "empty")
	}
	if len(q.GetBody()) > MaxQuestionBytes {
		d.fail("body", "%d bytes, at most %d are taken", len(q.GetBody()), MaxQuestionBytes)
	}
	if d.err != nil {
		return nil, status.Error(codes.InvalidArgument, d.err.Error())
	}
	return q, nil
}

// answer has the node answer. An error is a gRPC status.
func (c *Control) answer(ctx context.Context, l *link, q *peerpb.Question) (*peerpb.Answer, error) {
	body, err := []byte(nil), ErrUnknownQuestion
	if c.cfg.Answer != nil {
		from := PeerInfo{Name: l.name, Fingerprint: l.key, Addr: l.RemoteAddr().String()}
		body, err = c.cfg.Answer(ctx, from, q.GetKind(), q.GetBody())
	}
	if err == nil && len(body) > MaxQuestionBytes {
		err = reason.New(reason.Internal, "the answer to a question %q has %d bytes, and at most %d can be sent", q.GetKind(), len(body), MaxQuestionBytes)
	}
	var r *reason.Error
	switch {
	case err == nil:
		return &peerpb.Answer{Result: &peerpb.Answer_Body{Body: body}}, nil
	case errors.As(err, &r):
		detail := r.Detail
		if detail == "" && r.Err != nil {
			detail = r.Err.Error()
		}
		return failure(r.Code, detail), nil
	case errors.Is(err, ErrUnknownQuestion):
		return &peerpb.Answer{Result: &peerpb.Answer_UnknownKind{UnknownKind: true}}, nil
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return failure(reason.Internal, err.Error()), nil
}

func failure(code reason.Code, detail string) *peerpb.Answer {
	return &peerpb.Answer{Result: &peerpb.Answer_Failure{Failure: &peerpb.Failure{Code: uint32(code.Wire()), Detail: clip(detail)}}}
}

// answers counts the questions being answered.
type answers struct {
	mu    sync.Mutex
	total int
	of    map[string]int // by the peer's name
}

func newAnswers() *answers { return &answers{of: make(map[string]int)} }

func (a *answers) enter(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total >= maxAnswers || a.of[name] >= maxAnswersPerPeer {
		return false
	}
	a.total++
	a.of[name]++
	return true
}

func (a *answers) leave(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.total--
	if a.of[name]--; a.of[name] == 0 {
		delete(a.of, name)
	}
}
