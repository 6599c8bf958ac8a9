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
// Jobs are kept in SQLite, in Config.StateDir, and what became of their items in
// a file for each job beside it. A submit returns, and an end is shown, when it
// is durable: one goroutine writes, and what comes while it syncs shares the
// next sync. After a restart everything is as it was; an attempt that was under
// way is over and its job queued.
package job
