package node

import (
	"context"

	v1 "mover/api/v1"
	"mover/job"
)

// drainer implements api.Drainer.
type drainer struct{ node *Node }

// Drain implements api.Drainer.
func (d drainer) Drain(_ context.Context, undo bool) (v1.Drain, error) {
	q := d.node.queue
	q.Drain(!undo)
	s := q.Stats()
	return v1.Drain{Draining: !undo, Queued: s.Jobs[job.Queued], Running: s.Running, Receiving: d.node.receiving.Live()}, nil
}
