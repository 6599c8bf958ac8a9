package peer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"mover/engine"
	"mover/peer/peerpb"
)

// Description is what a node tells its peers of itself, for diagnosis.
type Description struct {
	Node    string             // its name
	Version string             // of the program
	Ports   []engine.PortOffer // what it would offer a session now
	Reason  string             // why it uses the provider that it does
}

// ErrNoDescription: the peer is of a version that cannot describe itself, or
// was not told how.
var ErrNoDescription = errors.New("the peer does not describe itself")

// Describe asks the peer name at one of its addresses what it would offer. It
// makes a connection of its own, authenticated as a session's is, and leaves
// sessions alone. The error is a *RefusedError when one of the two nodes
// declined the other, ErrNoDescription, ErrBusy (the peer answers again in a
// moment), a *ViolationError, or that of the connection; ctx, and Config.DialTimeout, bound it. What it returns is checked
// for form only.
func (c *Control) Describe(ctx context.Context, name, address string) (*Description, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	address, err := parseAddress(strings.ReplaceAll(address, nodePattern, name), false)
	if err != nil {
		return nil, err
	}
	l, err := c.dialLink(ctx, address, name)
	if err != nil {
		return nil, err
	}
	defer l.shut()
	cc, err := newClient(l, c.cfg.Keepalive, c.cfg.KeepaliveTimeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	defer cc.Close()
	answer, err := peerpb.NewPeerClient(cc).Describe(ctx, &peerpb.DescribeRequest{})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		return nil, fmt.Errorf("%s: %w; upgrade mover on %q", address, ErrNoDescription, name)
	case codes.ResourceExhausted:
		if tooLarge(err) {
			return nil, fmt.Errorf("%s: %w", address, oversize("description", err))
		}
		return nil, fmt.Errorf("%s: %w: %q answers again in a moment; try again", address, ErrBusy, name)
	default:
		return nil, fmt.Errorf("%s: %w", address, timely(ctx, err))
	}
	d, err := fromDescription(answer, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return d, nil
}

// fromDescription checks the form of what the peer name answered.
func fromDescription(x *peerpb.Description, name string) (*Description, error) {
	d := decoder{kind: "description"}
	out := &Description{
		Node: d.name("node", x.GetNode()), Version: printable(d.name("version", x.GetVersion())), Reason: printable(d.text("reason", x.GetReason())),
		Ports: entries(&d, "ports", x.GetPorts(), engine.MaxPorts, d.portOffer),
	}
	if out.Node != name {
		d.fail("node", "%.80q, and its certificate is of %q", out.Node, name)
	}
	if d.err != nil {
		return nil, d.err
	}
	for i := range out.Ports {
		// They are shown to people.
		out.Ports[i].Device, out.Ports[i].Provider = printable(out.Ports[i].Device), printable(out.Ports[i].Provider)
	}
	return out, nil
}

// Describe answers a peer's question.
func (s *service) Describe(ctx context.Context, _ *peerpb.DescribeRequest) (*peerpb.Description, error) {
	c := s.c
	l, err := linkOf(ctx)
	if err != nil {
		return nil, err
	}
	l.asked.Store(true)
	c.mu.Lock()
	trusted, closed := c.stillTrusted(l), c.closed
	c.mu.Unlock()
	switch {
	case closed:
		return nil, status.Error(codes.Unavailable, "the node is shutting down")
	case !trusted:
		return nil, status.Error(codes.PermissionDenied, "no longer trusted")
	case c.cfg.Describe == nil:
		return nil, status.Error(codes.Unimplemented, "this node was not told how")
	case !c.questions.allow():
		return nil, status.Error(codes.ResourceExhausted, "too many questions")
	}
	return description(c.cfg.Describe())
}

// description is the wire form; what does not fit is the node's own fault.
func description(d Description) (*peerpb.Description, error) {
	e := encoder{}
	out := &peerpb.Description{Node: e.name("Description.Node", d.Node), Version: e.name("Description.Version", d.Version),
		Reason: clip(d.Reason), Ports: list(&e, "Description.Ports", d.Ports, engine.MaxPorts, e.portOffer)}
	if e.err != nil {
		return nil, status.Error(codes.Internal, e.err.Error())
	}
	return out, nil
}

// questions bounds how often the node's ports are queried for peers: a burst,
// then one a second, of all peers together.
type questions struct {
	now func() time.Time

	mu     sync.Mutex
	tokens float64
	last   time.Time
}

const questionBurst = 20

func newQuestions(now func() time.Time) *questions {
	return &questions{now: now, tokens: questionBurst, last: now()}
}

func (q *questions) allow() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	q.tokens = min(questionBurst, q.tokens+now.Sub(q.last).Seconds())
	q.last = now
	if q.tokens < 1 {
		return false
	}
	q.tokens--
	return true
}
