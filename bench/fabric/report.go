package fabric

import (
	"math"
	"time"

	"mover/verbs"
)

// Report is what two sides agreed on and what was measured.
type Report struct {
	Config   Config // with all defaults
	Client   bool
	Device   string
	Remote   string // the other side's device
	Provider string // the provider
	Link     verbs.LinkLayer
	GID      verbs.GIDEntry
	// The MTUs of both sides, and the lesser, which is used.
	LocalMTU, RemoteMTU, MTU verbs.MTU
	// RateBits is the port's rate in bits per second, 0 where it has none or,
	// on software devices, where it is not real.
	RateBits uint64
	Relaxed  bool  // PCIe relaxed ordering
	CPUs     []int // of the pollers; empty: the kernel's choice
	// AckTimeout is this side's exponent, 0 where nothing is acknowledged.
	AckTimeout int
	Results    []Result

	path path
}

// Result is one line: one size, or one count of pollers.
type Result struct {
	SizeBytes, Pollers                       int
	InFlight, Chain, Moderation, InlineBytes int
	Messages                                 uint64 // sent
	Elapsed                                  time.Duration
	BytesPerSecond, PeakBytesPerSecond       float64 // payload; peak 0: unknown
	MessagesPerSecond                        float64
	Latency                                  *LatencyFigures // latency only

	// CountKnown: Arrived was counted, and Lost is what is missing. (Of
	// unchecked UC writes nobody knows.)
	CountKnown    bool
	Arrived, Lost uint64
	Checked       uint64 // messages whose content was looked at, and right
	// CPULocal and CPURemote are CPUs used, user and system, of each process.
	CPULocal, CPURemote float64
	// Ceiling is the share of the line's rate that payload can have; Share is
	// how much of that ceiling was reached. 0: not known.
	Ceiling, Share float64
}

// TargetMessagesPerSecond is the rate that `rate` computes the pollers for.
const TargetMessagesPerSecond = 200e6

func newReport(c *Config, port *Port, client bool) *Report {
	r := &Report{Config: *c, Client: client, Device: port.Info.Name, Provider: port.provider, Link: port.Attr.LinkLayer,
		GID: port.GID, RateBits: port.Attr.ActiveRate, Relaxed: port.relaxed(c)}
	if port.Info.Software {
		r.RateBits = 0
	}
	if !c.lossy() {
		r.AckTimeout = port.ackTimeout(c)
	}
	r.path = path{link: r.Link, gidType: r.GID.Type, ipv4: r.GID.GID.Addr().Is4(), global: port.isGlobal(), transport: c.Transport,
		op: c.Op, immediate: c.lossy() && (c.Op == Send || c.Verify)}
	return r
}

func (r *Report) agree(local verbs.MTU, remote *portTerms) {
	r.LocalMTU, r.RemoteMTU, r.Remote = local, verbs.MTU(remote.MTU), remote.Device
	r.MTU = min(r.LocalMTU, r.RemoteMTU)
	r.path.mtu = r.MTU
}

// add takes a result in, with what the ceiling says of it.
func (r *Report) add(x Result) {
	if r.RateBits > 0 && r.Config.Test != Latency { // one message at a time fills no line
		x.Ceiling = r.path.ceiling(x.SizeBytes)
	}
	if x.Ceiling > 0 {
		x.Share = x.BytesPerSecond * 8 / float64(r.RateBits) / x.Ceiling
	}
	r.Results = append(r.Results, x)
}

// judge takes in what the server counted.
func (x *Result) judge(o *outcome) {
	x.CountKnown, x.Arrived, x.Checked, x.CPURemote = o.Known, o.Arrived, o.Checked, o.CPU
	if x.CountKnown && x.Arrived < x.Messages {
		x.Lost = x.Messages - x.Arrived
	}
}

// PollersFor is how many pollers a rate of messages would need if each made
// what the last result's did: growth in proportion, which caches, the adapter
// and the line all limit. 0 when nothing was measured.
func (r *Report) PollersFor(messagesPerSecond float64) int {
	if len(r.Results) == 0 {
		return 0
	}
	last := r.Results[len(r.Results)-1]
	each := last.MessagesPerSecond / float64(last.Pollers)
	if each <= 0 {
		return 0
	}
	return int(math.Ceil(messagesPerSecond / each))
}
