// Package sim is a verbs provider for tests: hosts, devices and ports in
// memory, in virtual time, driven by one seed. It does what the specification
// allows and an engine would rather not see: bytes of a write reach memory in
// random pieces and order, and no earlier than the first completion that makes
// them visible; sender completions come before that; QPs overtake each other;
// completions are delayed and batched; fields of error completions hold
// garbage; writes that failed leave parts behind. Faults come on top, at times
// the test chooses or at random (Faults).
//
// It also watches its user: Violations lists what no real device would report,
// such as a source buffer changed before its completion, or an address handle
// destroyed before the WR that uses it.
//
// The package knows only the verbs API. It has RC and UC with write, write with
// immediate and send, UD with send, and inline data on all of them; read and
// atomics are refused with an *UnsupportedError.
//
// # UC and UD
//
// A send of UC or UD succeeds when its last packet has left the adapter,
// whatever becomes of the packets: they go on when the QP is destroyed, and get
// nowhere when the rail is cut. Packets are lost where the test asks for it
// (Faults.LosePacket, LosePackets), never otherwise. On UC a lost packet takes
// the rest of its message with it: the bytes before the gap stay, there is no
// immediate, and the receive of a SEND is left to the next message. Messages of
// one UC QP arrive in order. Datagrams of one UD QP for one port do so too
// unless Faults.ReorderUD says otherwise; they are never doubled. What finds no
// receive, or a wrong key, is dropped in silence, and a datagram longer than
// the MTU is "sent" and goes nowhere. Where adapters differ, the seed chooses: a
// SEND longer than its receive is dropped or ends it with LOC_LEN_ERR, and a WR
// that fails at home leaves its QP in SQE or in ERR.
//
// # Time and determinism
//
// Nothing happens by itself. A test calls Step or Advance on the Fabric; these
// run events and set the clock, and Poll shows what has happened by then.
// There is no goroutine, clock or random source but the seed, so a Fabric and
// everything opened on it belong to one goroutine, and the same seed with the
// same calls gives the same run (TraceHash). This narrows the rules of package
// verbs, which let some calls come from any goroutine.
//
//	f := sim.New(seed, sim.Options{})
//	ctx, err := f.Provider("a").OpenDevice("sim0")
//	...
//	qp.PostSend(wrs)
//	f.Advance(100 * time.Microsecond)
//	n, err := cq.Poll(wcs)
//	...
//	if v := f.Violations(); len(v) > 0 { ... }
package sim
