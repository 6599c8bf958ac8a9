// Package engine is the data path: it moves the bytes of items from a Source
// here to a Sink at a peer, as RDMA Writes over the lanes of a session.
//
// It is a pure machine. Nothing in it starts a goroutine, blocks on a channel,
// reads a clock or draws a random number, so that the simulation replays a
// failing seed to the letter; a test of the source enforces that. Its three
// machines are driven from outside:
//
//	Poller.Step(now)           by one pinned thread per NUMA node (node/datapath)
//	Session.Handle/Run(..now)  by one goroutine per session
//	Op.Execute                 by workers: file reads and writes, checksums; and
//	                           by whoever SessionConfig.Aside gives one to
//
// and they talk through bounded rings (package ring). engine knows verbs, ring
// and numa; it knows nothing of HTTP, gRPC, files, jobs or configuration
// files. What it needs of those it names as small interfaces: Control (the
// peer's side of the session protocol), Receiver (what accepts and publishes
// items), Source and Sink (bytes).
//
// docs/architecture.md draws the flow of one chunk and one segment.
package engine
