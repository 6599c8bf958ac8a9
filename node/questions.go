package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"mover/api"
	"mover/job"
	"mover/peer"
	"mover/reason"
)

// The kinds of questions that nodes ask each other.
const (
	askForward = "job.forward" // take a job whose source you have: forwarded, and a job.Snapshot back
	askStates  = "job.states"  // how are these jobs: []job.ID, and []job.Snapshot of those known back
	askAPI     = "api"         // api.RemoteRequest, api.RemoteResponse
	askPlan    = "job.plan"    // planQuestion, v1.Plan
	askLook    = "tree.look"   // a job.GroupManifest's bytes, looked
)

// forwarded is a job on its way to its owner.
type forwarded struct {
	ID    job.ID   `json:"id"`
	Owner string   `json:"owner"`
	Spec  job.Spec `json:"spec"`
}

// statesMost bounds the jobs that one question asks about; each may have 1 KiB
// of labels and text.
const statesMost = 100

// answer is peer.Config.Answer: what a peer asks.
func (n *Node) answer(ctx context.Context, who peer.PeerInfo, kind string, body []byte) ([]byte, error) {
	switch kind {
	case askForward:
		return n.takeForwarded(ctx, who.Name, body)
	case askStates:
		return n.tellStates(who.Name, body)
	case askAPI:
		var q api.RemoteRequest
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, reason.New(reason.PeerRefused, "the request is malformed")
		}
		return json.Marshal(n.web.api.ServeRemote(ctx, who.Name, q))
	case askPlan:
		return n.answerPlan(ctx, who.Name, body)
	case askLook:
		return n.answerLook(ctx, who.Name, body)
	}
	return nil, peer.ErrUnknownQuestion
}

// delegated refuses who may not submit jobs whose source is here.
func (n *Node) delegated(from string) error {
	if d := n.live.Load().Delegates; !slices.Contains(d, from) && !slices.Contains(d, "*") {
		return reason.New(reason.NotAuthorized, "node %s does not list %s under delegates: submit the job at %s, or add it there", n.cfg.Node.Name, from, n.cfg.Node.Name)
	}
	return nil
}

// takeForwarded takes a job for a peer's user. The peer vouches for its user;
// whether it may is this node's to say.
func (n *Node) takeForwarded(ctx context.Context, from string, body []byte) ([]byte, error) {
	if err := n.delegated(from); err != nil {
		return nil, err
	}
	var f forwarded
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, reason.New(reason.NotAuthorized, "the forwarded job is malformed: %v", err)
	}
	s, _, err := n.queue.Accept(ctx, f.ID, f.Spec, f.Owner, from)
	var field *job.FieldError
	switch {
	case errors.As(err, &field), errors.Is(err, job.ErrKeyConflict):
		return nil, reason.New(reason.NotAuthorized, "the owner of the source does not take the job: %w", err)
	case err != nil:
		return nil, reason.New(reason.PeerRefused, "%w", err)
	}
	return json.Marshal(s)
}

func (n *Node) tellStates(from string, body []byte) ([]byte, error) {
	var ids []job.ID
	if err := json.Unmarshal(body, &ids); err != nil || len(ids) > statesMost {
		return nil, reason.New(reason.PeerRefused, "the question is malformed")
	}
	out := []job.Snapshot{}
	for _, id := range ids {
		if s, err := n.queue.Get(id); err == nil && s.Origin == from {
			out = append(out, s)
		}
	}
	return json.Marshal(out)
}

// remote implements api.Remote.
type remote struct{ node *Node }

// Call implements api.Remote.
func (r remote) Call(ctx context.Context, node string, req api.RemoteRequest) (out api.RemoteResponse, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return out, err
	}
	if body, err = r.node.control.Ask(ctx, node, askAPI, body); err != nil {
		return out, asReason(err)
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return out, reason.New(reason.TransportError, "node %s answered what cannot be read: %w", node, err)
	}
	return out, nil
}

// Times of the forwarder.
const (
	forwardEvery = time.Second
	forwardLimit = 30 * time.Second // of one question
	forwardMax   = time.Minute      // between two tries at a node that does not answer
)

// forward offers stubs to their owners and asks after those that were taken,
// until ctx ends.
func (n *Node) forward(ctx context.Context) {
	tick := time.NewTicker(forwardEvery)
	defer tick.Stop()
	waiting := map[string]backoff{} // by node
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		byOwner := map[string][]job.Snapshot{}
		for _, s := range n.queue.Stubs() {
			if s.Forwarded != nil {
				byOwner[s.Forwarded.Node] = append(byOwner[s.Forwarded.Node], s)
			}
		}
		for owner, stubs := range byOwner {
			if time.Now().Before(waiting[owner].until) {
				continue
			}
			if err := n.serveStubs(ctx, owner, stubs); err != nil {
				waiting[owner] = waiting[owner].next()
				continue
			}
			delete(waiting, owner)
		}
	}
}

// backoff is how long a node is left alone.
type backoff struct {
	until time.Time
	wait  time.Duration
}

func (b backoff) next() backoff {
	b.wait = min(max(2*b.wait, forwardEvery), forwardMax)
	b.until = time.Now().Add(b.wait)
	return b
}

// serveStubs does what is due with the stubs of one owner. The error says that
// it could not be reached.
func (n *Node) serveStubs(ctx context.Context, owner string, stubs []job.Snapshot) error {
	var ask []job.ID
	for _, s := range stubs {
		if s.Forwarded.Accepted {
			ask = append(ask, s.ID)
			continue
		}
		if err := n.offerStub(ctx, owner, s); err != nil {
			return err
		}
	}
	for len(ask) > 0 {
		some := ask[:min(len(ask), statesMost)]
		ask = ask[len(some):]
		if err := n.refreshStubs(ctx, owner, some); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) offerStub(ctx context.Context, owner string, s job.Snapshot) error {
	body, err := json.Marshal(forwarded{ID: s.ID, Owner: s.Owner, Spec: s.Spec})
	if err != nil {
		return err
	}
	body, err = n.ask(ctx, owner, askForward, body)
	var answer job.Snapshot
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err == nil {
		_, err = n.queue.UpdateStub(s.ID, answer)
		return err
	}
	why := asReason(err)
	if !why.Code.Retryable() {
		_, err := n.queue.RefuseStub(s.ID, why)
		return err
	}
	_, _ = n.queue.UnreachableStub(s.ID, why)
	return why
}

func (n *Node) refreshStubs(ctx context.Context, owner string, ids []job.ID) error {
	body, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	body, err = n.ask(ctx, owner, askStates, body)
	var known []job.Snapshot
	if err == nil {
		err = json.Unmarshal(body, &known)
	}
	if err != nil {
		for _, id := range ids {
			_, _ = n.queue.UnreachableStub(id, err)
		}
		return err
	}
	for _, s := range known {
		if _, err := n.queue.UpdateStub(s.ID, s); err != nil {
			n.log.Warn("what the owner says of a job could not be kept", "job", s.ID, "error", err)
		}
	}
	return nil
}

func (n *Node) ask(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardLimit)
	defer cancel()
	return n.control.Ask(ctx, node, kind, body)
}
