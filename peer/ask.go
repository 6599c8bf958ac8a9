package peer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mover/peer/peerpb"
	"mover/reason"
)

// MaxQuestionBytes bounds the body of a question, and that of an answer.
const MaxQuestionBytes = 1 << 20

// Ask puts a question to the peer node and returns the body of its answer,
// which is the caller's. kind has 1 to 64 bytes; body at most MaxQuestionBytes,
// and it must not change until Ask returns. The question goes over the session
// with the peer if this node dialled it, else over a connection of its own,
// which is kept for the next one. It is asked once: after an error it is not
// known whether the peer acted on it, so what changes something must bear
// being asked again.
//
// Errors: a *reason.Error as the peer's Config.Answer made it; ErrUnknownQuestion
// when the peer does not know the kind, or is older than questions; ErrMessage
// for a kind or body that cannot be asked; else a *reason.Error of this node:
// PEER_REFUSED when one of the two nodes declined the other, or around ErrBusy,
// or when the peer found no answer in time; PEER_UNREACHABLE, with the addresses
// tried, when there is no connection, when it was lost, or when ctx ended (then
// errors.Is finds why); TRANSPORT_ERROR around a *ViolationError. ctx should
// have a deadline; without, the time to dial the peer's addresses and its
// AnswerTimeout bound the call.
func (c *Control) Ask(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
	e := encoder{}
	if e.name("the kind of a question", kind) == "" {
		e.fail("a question needs a kind")
	}
	if len(body) > MaxQuestionBytes {
		e.fail("a question %q has %d bytes, and at most %d can be asked", kind, len(body), MaxQuestionBytes)
	}
	if e.err != nil {
		return nil, fmt.Errorf("ask %q: %w", node, e.err)
	}
	client, l, addrs, err := c.asked(node)
	if err != nil {
		return nil, reason.New(reason.PeerUnreachable, "ask %q: %w", node, err)
	}
	if client == nil {
		a, err := c.borrow(ctx, node, addrs)
		if err != nil {
			return nil, err
		}
		defer c.give(a)
		client, l = a.client, a.link
	}
	// The peer keeps this time as well; some more lets its word arrive.
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AnswerTimeout+c.cfg.DialTimeout)
	defer cancel()
	at := fmt.Sprintf("ask %q at %s", node, l.RemoteAddr())
	answer, err := client.Ask(ctx, &peerpb.Question{Kind: kind, Body: body})
	if err != nil {
		return nil, askError(ctx, at, node, kind, l, err)
	}
	return readAnswer(at, node, kind, answer)
}

// asked says how to ask node: over its session, or else where to dial it.
func (c *Control) asked(node string) (client peerpb.PeerClient, l *link, addrs []string, err error) {
	if err := ValidName(node); err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrUnknownPeer, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch p := c.pairs[node]; {
	case c.closed:
		return nil, nil, nil, ErrShutdown
	case node == c.id.Name:
		return nil, nil, nil, fmt.Errorf("%w: it is this node itself", ErrUnknownPeer)
	case p != nil && p.conn != nil && p.conn.client != nil && c.stillTrusted(p.conn.link):
		return p.conn.client, p.conn.link, nil, nil
	}
	addrs, err = c.trust.addresses(node)
	return nil, nil, addrs, err
}

// askError is what a failed call means.
func askError(ctx context.Context, at, node, kind string, l *link, err error) error {
	s, _ := status.FromError(err)
	text := printable(s.Message())
	switch {
	case ctx.Err() != nil:
		return reason.New(reason.PeerUnreachable, "%s: %w", at, timely(ctx, err))
	case tooLarge(err):
		return reason.New(reason.TransportError, "%s: %w; check which release of mover runs there", at, oversize("answer", err))
	}
	switch s.Code() {
	case codes.Unimplemented:
		return fmt.Errorf("%s: %w (%q); upgrade mover on %q", at, ErrUnknownQuestion, kind, node)
	case codes.ResourceExhausted:
		return reason.New(reason.PeerRefused, "%s: %w; try again", at, ErrBusy)
	case codes.DeadlineExceeded:
		return reason.New(reason.PeerRefused, "%s: it found no answer in time: %s; try again", at, text)
	case codes.PermissionDenied:
		return reason.New(reason.PeerRefused, "%w", &RefusedError{Peer: node, Addr: l.RemoteAddr().String(), ByPeer: true, Err: ErrUntrusted,
			Detail: text + "; look at its configuration of this node"})
	case codes.InvalidArgument:
		return reason.New(reason.Internal, "%s: it does not understand the question: %s", at, text)
	}
	cause := errors.New(text)
	if e := l.failure(); e != nil {
		cause = e
	}
	return reason.New(reason.PeerUnreachable, "%s: connection lost: %w; check that mover still runs there and that the network is up", at, cause)
}

// readAnswer checks and takes apart what the peer said.
func readAnswer(at, node, kind string, answer *peerpb.Answer) ([]byte, error) {
	d := decoder{kind: "answer"}
	switch r := answer.GetResult().(type) {
	case *peerpb.Answer_Body:
		if len(r.Body) <= MaxQuestionBytes {
			return r.Body, nil
		}
		d.fail("body", "%d bytes, at most %d are allowed", len(r.Body), MaxQuestionBytes)
	case *peerpb.Answer_UnknownKind:
		return nil, fmt.Errorf("%s: %w (%q); upgrade mover on %q", at, ErrUnknownQuestion, kind, node)
	case *peerpb.Answer_Failure:
		detail := printable(d.text("failure.detail", r.Failure.GetDetail()))
		code, ok := reason.FromWire(uint16(r.Failure.GetCode()))
		if !ok || r.Failure.GetCode() > 1<<16-1 {
			code, detail = reason.Internal, fmt.Sprintf("%s (code %d of %q, which this version does not know)", detail, r.Failure.GetCode(), node)
		}
		if d.err == nil {
			return nil, &reason.Error{Code: code, Detail: detail}
		}
	default:
		d.fail("result", "neither a body nor a failure")
	}
	return nil, reason.New(reason.TransportError, "%s: %w; check which release of mover runs there", at, d.err)
}

// oversize is the violation of a peer whose message was over gRPC's limit.
func oversize(frame string, err error) error {
	s, _ := status.FromError(err)
	return &ViolationError{Frame: frame, Detail: s.Message()}
}
