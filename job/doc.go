// Package job holds what a user asks for and what became of it: the job as
// submitted (Spec), its life as an explicit table of states (State), the view
// of it that the HTTP API shows (Snapshot), and the Queue that decides when an
// attempt starts, waits, is repeated or given up. Its receiving half is the
// Manifest, the description of an item that travels to the destination inside
// the data path's opaque bytes, and Receiving, the list of what arrives here.
//
// It must not know how bytes move: a Router does an attempt, and answers with
// a Result or with a *reason.Error whose code says whether trying again can
// help. It knows nothing of HTTP, gRPC, verbs or metrics libraries, reads no
// clock but the Clock it is given, and draws no random number but Config.Rand.
//
//	q, err := job.NewQueue(job.Config{NodeName: "host-a", Router: router, MaxRunning: 4})
//	...
//	spec, err := job.ParseSpec(body)
//	snap, replay, err := q.Submit(ctx, spec, "host-a/alice", idempotencyKey)
//	for !snap.State.Terminal() {
//		snap, err = q.Wait(ctx, snap.ID, snap.Version)
//	}
//	...
//	err = q.Close(ctx)
//
// The queue lives in memory. Records go through the store interface alone, so
// that a durable store can take the place of the one in store.go.
package job
