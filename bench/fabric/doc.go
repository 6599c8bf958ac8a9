// Package fabric measures what two ports can do for each other with nothing in
// between but the verbs: bandwidth, latency and message rate, as ib_write_bw
// and ib_send_lat do, over any provider and transport.
//
// One side serves and one is the client; both are given the same options, and
// what they must agree on is compared before anything is measured. They meet
// over a connection that the caller made, which carries QP numbers, keys and
// results. It is not authenticated and not encrypted: whoever reaches it may
// write to the benchmark's own buffer while a run lasts, and to nothing else.
//
// The package must not know the engine, sessions, jobs or the configuration.
//
// # What is checked
//
// Every message has content that depends on its place: the sender has one
// source slot more than the receiver has places, so the same place gets other
// bytes each time round, and all bytes are new for each run. The receiver
// checks the whole ring of places when the run is over, and messages 1, 2, 4,
// 8 ... rounds after the start besides: written ones were set aside in places
// of their own, sent ones are looked at when they arrive. That finds a message
// that is missing, went to a wrong place, is older than the last one, or has
// a wrong byte, among those. It does not look at each message of the run, as
// that would measure the check; it can't see what a later, right message has
// overwritten, nor a message older by exactly as many rounds as there are
// source slots, and of messages shorter than 8 bytes it sees that much less.
//
// # Use
//
//	port, err := fabric.OpenPort(provider, "rxe0", 1, fabric.BestGID)
//	defer port.Close()
//	cfg := fabric.Config{Test: fabric.Bandwidth, Verify: true}
//	report, err := fabric.Client(ctx, cfg, port, conn, fabric.Show{}) // one side
//	report, err := fabric.Serve(ctx, cfg, port, conn, fabric.Show{})  // the other
//	report.WriteJSON(os.Stdout, false)
package fabric
