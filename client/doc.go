// Package client is the Go client of a node's HTTP API: it submits jobs so that
// a repeated request makes one job, follows them to their end, and tells a
// person what to do when the node does not answer.
//
// It must not know how the server works: it shares with it the JSON types
// alone (packages job and api/v1).
//
//	c, err := client.New(client.FromEnv(os.Getenv))
//	...
//	s, err := c.Submit(ctx, job.Spec{
//		Source:      job.Place{Path: "data/ckpt"},
//		Destination: job.Place{Node: "host-b", Path: "incoming/"},
//	}, "")
//	...
//	s, err = c.Wait(ctx, s.ID, func(s job.Snapshot) { draw(s.Progress) })
//
// Every call takes a context, and an error is an *Error when the server refused
// (switch on its Code), an *UnreachableError when no answer came. What may be
// repeated is, a few times, with a growing pause.
package client
