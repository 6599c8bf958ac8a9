package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"time"

	"mover/job"
)

// Send is the job that moves DataDir/name of a node to IncomingDir/name of its
// peer, as a user would write it.
func (n *Node) Send(name string) job.Spec {
	return job.Spec{
		Source:      job.Place{Path: path.Join("data", name)},
		Destination: job.Place{Node: n.peer.Name, Path: path.Join("incoming", name)},
	}
}

// Submit submits a job to the node.
func (n *Node) Submit(ctx context.Context, spec job.Spec) (job.Snapshot, error) {
	api, err := n.API(ctx)
	if err != nil {
		return job.Snapshot{}, err
	}
	s, err := api.Submit(ctx, spec, "")
	if err == nil {
		n.lab.Note("%s: job %s: %s to %s:%s", n.Name, s.ID, spec.Source.Path, spec.Destination.Node, spec.Destination.Path)
	}
	return s, err
}

// Job returns a job of the node as it is now.
func (n *Node) Job(ctx context.Context, id job.ID) (job.Snapshot, error) {
	api, err := n.API(ctx)
	if err != nil {
		return job.Snapshot{}, err
	}
	return api.Get(ctx, id)
}

// AwaitJob waits until enough is true of a job, such as that bytes have moved,
// or the job has ended, which is an error unless enough says otherwise. It asks
// every 50 ms: a transfer under test may be short.
func (n *Node) AwaitJob(ctx context.Context, id job.ID, what string, enough func(job.Snapshot) bool) (job.Snapshot, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := n.Job(ctx, id)
		if err != nil {
			return s, fmt.Errorf("await %s: %w", what, err)
		}
		if enough(s) {
			n.lab.Note("%s: %s: %s", n.Name, what, brief(s))
			return s, nil
		}
		if s.State.Terminal() {
			return s, fmt.Errorf("await %s: %w: %s", what, errTooSoon, brief(s))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, fmt.Errorf("await %s: %w; the job: %s", what, context.Cause(ctx), brief(s))
		}
	}
}

// WaitJob follows a job to its end, and notes each change of state and reason
// on the way. That it failed is no error.
func (n *Node) WaitJob(ctx context.Context, id job.ID) (job.Snapshot, error) {
	api, err := n.API(ctx)
	if err != nil {
		return job.Snapshot{}, err
	}
	var noted uint64
	return api.Wait(ctx, id, func(s job.Snapshot) {
		if s.Version != noted {
			noted = s.Version
			n.lab.Note("%s: job %s", n.Name, brief(s))
		}
	})
}

// WaitSucceeded is WaitJob, with an error unless the job succeeded.
func (n *Node) WaitSucceeded(ctx context.Context, id job.ID) (job.Snapshot, error) {
	s, err := n.WaitJob(ctx, id)
	if err == nil && s.State != job.Succeeded {
		err = fmt.Errorf("job %s of node %s ended: %s", id, n.Name, brief(s))
	}
	return s, err
}

// brief is a job in one line.
func brief(s job.Snapshot) string {
	text := fmt.Sprintf("%s, %d of %d bytes, attempt %d", s.State, s.Progress.BytesDone, s.Progress.BytesTotal, s.Attempts)
	if r := s.LastReason; r != nil {
		text += fmt.Sprintf(", %s: %s", r.Code, r.Detail)
	}
	if s.Result != nil {
		if result, err := json.Marshal(s.Result); err == nil {
			text += ", " + string(result)
		}
	}
	return text
}
