package fabric

import (
	"errors"
	"fmt"
	"time"

	"mover/verbs"
)

// ErrConfig is matched by every error of a Config; the text names the option
// of `mover bench` and what is allowed.
var ErrConfig = errors.New("benchmark options")

// Test is what is measured.
type Test string

// The tests.
const (
	Bandwidth Test = "bw"
	Latency   Test = "lat"
	Rate      Test = "rate" // small messages, for 1, 2, .. Pollers pollers
)

// Op is how messages are moved.
type Op string

// The operations. On UC a checked write is one with immediate, since only that
// tells the receiver which messages were lost.
const (
	Write Op = "write"
	Send  Op = "send"
)

// Idle is what a poller does when there is nothing to do.
type Idle string

// The ways of being idle.
const (
	IdleAuto     Idle = ""         // adaptive on software verbs, else spin
	IdleSpin     Idle = "spin"     // poll without end
	IdleAdaptive Idle = "adaptive" // poll for 50 us, then wait for an event
	IdleEvents   Idle = "events"   // wait for an event at once, as perftest -e
)

// The limits of a Config.
const (
	MaxSizeBytes  = 1 << 30
	MaxAllBytes   = 8 << 20 // the last size of All, as perftest's
	MaxQPs        = 256     // of one poller
	MaxPollers    = 32
	MaxDepth      = 1 << 14
	MaxIterations = 100_000_000
	MaxDuration   = time.Hour
	MaxInline     = 912 // perftest's
	MaxAckTimeout = 31  // 5 bits (InfiniBand Architecture, Local Ack Timeout)
	maxMemory     = 64 << 30

	minIterations = 5
)

// InlineAuto lets the test choose: 236 bytes for latency and rate where the
// provider has as much, otherwise none.
const InlineAuto = -1

// Config says what to measure. The zero value of a field takes the default
// named; both sides must have the same in those marked (both).
type Config struct {
	Test      Test         // (both)
	Transport verbs.QPType // (both) default RC
	Op        Op           // (both) default Write; Send for latency and UD
	// SizeBytes is the size of a message, 1..MaxSizeBytes: (both) default
	// 65536, latency 2, rate 8. UD takes one MTU at most: more is refused, and
	// the default is cut to it.
	SizeBytes int
	// All runs 2, 4, 8 .. AllBytes (default MaxAllBytes) instead. (both)
	All      bool
	AllBytes int
	QPs      int // (both) of each poller, default 1
	// Iterations are the messages of each QP, 5..MaxIterations: (both) default
	// 5000 writes or 1000 sends. Duration replaces it when it is not 0; it is
	// the default of rate, 2 s.
	Iterations int
	Duration   time.Duration
	// Depth bounds the messages in flight on a QP: (both) default 128, rate
	// 256, latency 16. RingBytes, default 4 MiB, bounds their memory, since no
	// place is written twice at a time; 4 messages are always allowed. (both)
	Depth     int
	RingBytes int
	// Chain is how many WRs are posted with one doorbell, 0: a quarter of
	// those in flight, at most 32. Moderation is how many WRs share a
	// completion, default 100, at most a quarter of those in flight.
	Chain, Moderation int
	// InlineBytes is the most that is posted inline: 0 none, InlineAuto.
	InlineBytes int
	// StrictOrdering registers without PCIe relaxed ordering, which is used
	// where the device has it, as by perftest.
	StrictOrdering bool
	MTU            verbs.MTU // 0: the port's; the lesser of both sides is used
	// AckTimeout is how long an RC QP waits for an acknowledgement before it
	// sends again: 4.096 us * 2^n, 1..MaxAckTimeout. 0: 14, which is 67 ms; on
	// a software device of ibv 18, 1.1 s, since its acknowledgements take what
	// the scheduler makes of them.
	AckTimeout int
	Pollers    int // (both) rate: the most pollers, default 1
	Idle       Idle
	Verify     bool  // (both) check what arrives
	CPUs       []int // of the pollers; empty: chosen, where enough are left
	// Silence is how long the other side may say nothing (default 15 s), Stall
	// how long a QP may not progress (default 10 s; with a longer AckTimeout
	// two of those, at most 10 min), before the run fails.
	Silence, Stall time.Duration

	sizeGiven bool // SizeBytes is no default
}

// Validate says what Client and Serve would refuse whatever the port and the
// other side: ErrConfig. Call it before another side is made to wait.
func (c Config) Validate() error {
	_, err := c.complete()
	return err
}

// ValidateOn is Validate, and says what the port would refuse. It is for the
// same moment.
func (c Config) ValidateOn(port *Port) error {
	c, err := c.complete()
	if err != nil {
		return err
	}
	mtu, err := c.mtuOf(port)
	if err != nil {
		return err
	}
	return c.fitsDatagram(mtu, "the path MTU here")
}

// mtuOf is the MTU that this side offers.
func (c *Config) mtuOf(port *Port) (verbs.MTU, error) {
	active := port.Attr.ActiveMTU
	if c.MTU > active {
		return 0, c.bad("-m/--mtu: %v; the port's active MTU is %v", c.MTU, active)
	}
	if c.MTU != 0 {
		return c.MTU, nil
	}
	return active, nil
}

// fitsDatagram refuses a size that was asked for and cannot be sent: a smaller
// one would not be what was to be measured.
func (c *Config) fitsDatagram(mtu verbs.MTU, whose string) error {
	if c.Transport != verbs.UD || c.All || !c.sizeGiven || c.SizeBytes <= mtu.Bytes() {
		return nil
	}
	return c.bad("-s/--size: %d; a UD message is one packet, and %s is %d: lower -s, or use -c RC or UC", c.SizeBytes, whose, mtu.Bytes())
}

// complete fills in the defaults and checks the ranges.
func (c Config) complete() (Config, error) {
	if c.Transport == 0 {
		c.Transport = verbs.RC
	}
	defaults := map[Test]struct {
		size, depth int
		op          Op
	}{Bandwidth: {65536, 128, Write}, Latency: {2, 16, Send}, Rate: {8, 256, Write}}
	d, ok := defaults[c.Test]
	if !ok {
		return c, c.bad("test %q; allowed: bw, lat, rate", string(c.Test))
	}
	if c.Transport == verbs.UD {
		d.op, d.size = Send, min(d.size, verbs.MTU4096.Bytes())
	}
	if c.Op == "" {
		c.Op = d.op
	}
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	c.sizeGiven = c.sizeGiven || c.SizeBytes != 0
	def(&c.SizeBytes, d.size)
	def(&c.Depth, d.depth)
	def(&c.QPs, 1)
	def(&c.Pollers, 1)
	def(&c.Moderation, 100)
	def(&c.RingBytes, 4<<20)
	def(&c.AllBytes, MaxAllBytes)
	if c.Test == Rate && c.Duration == 0 && c.Iterations == 0 {
		c.Duration = 2 * time.Second
	}
	if c.Op == Write {
		def(&c.Iterations, 5000)
	}
	def(&c.Iterations, 1000)
	if c.Test == Latency {
		c.Chain = 1 // an answer goes out as soon as it is due
	}
	if c.Silence == 0 {
		c.Silence = 15 * time.Second
	}
	if c.Stall == 0 {
		c.Stall = max(10*time.Second, min(2*ackTime(c.AckTimeout), 10*time.Minute))
	}
	return c, c.check()
}

func (c *Config) bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
}

func (c *Config) check() error {
	for _, r := range []struct {
		name              string
		have, least, most int
	}{
		{"-s/--size", c.SizeBytes, 1, MaxSizeBytes},
		{"-q/--qp", c.QPs, 1, MaxQPs},
		{"-n/--iters", c.Iterations, minIterations, MaxIterations},
		{"-t/--tx-depth", c.Depth, 1, MaxDepth},
		{"-l/--post_list", c.Chain, 0, MaxDepth},
		{"-Q/--cq-mod", c.Moderation, 1, 1024},
		{"-I/--inline_size", c.InlineBytes, InlineAuto, MaxInline},
		{"-u/--qp-timeout", c.AckTimeout, 0, MaxAckTimeout},
		{"--ring", c.RingBytes, 4096, MaxSizeBytes},
		{"--pollers", c.Pollers, 1, MaxPollers},
		{"-a/--all's last size", c.AllBytes, 2, MaxAllBytes},
	} {
		if r.have < r.least || r.have > r.most {
			return c.bad("%s: %d; allowed: %d to %d", r.name, r.have, r.least, r.most)
		}
	}
	switch {
	case c.Duration < 0 || c.Duration > MaxDuration:
		return c.bad("-D/--duration: %v; allowed: up to %v", c.Duration, MaxDuration)
	case c.Transport != verbs.RC && c.Transport != verbs.UC && c.Transport != verbs.UD:
		return c.bad("-c/--connection: %v; allowed: RC, UC, UD", c.Transport)
	case c.Op != Write && c.Op != Send:
		return c.bad("--op: %q; allowed: write, send", string(c.Op))
	case c.Op == Write && c.Transport == verbs.UD:
		return c.bad("--op: UD has no writes; use --op send, or -c RC or UC")
	case c.Test == Latency && c.Op != Send:
		return c.bad("--op: latency is measured with sends: written bytes are not to be polled for")
	case c.Test == Latency && c.QPs != 1:
		return c.bad("-q/--qp: latency is measured on one QP")
	case c.Test != Rate && c.Pollers != 1:
		return c.bad("--pollers: only rate has more than one")
	case c.Test == Rate && c.All:
		return c.bad("-a/--all: rate has one size and several counts of pollers")
	case c.MTU != 0 && !c.MTU.Valid():
		return c.bad("-m/--mtu: allowed: 256, 512, 1024, 2048, 4096")
	case len(c.CPUs) > 0 && len(c.CPUs) < c.Pollers:
		return c.bad("--cpus: %d for %d pollers; give each poller one", len(c.CPUs), c.Pollers)
	case c.Silence < 0 || c.Stall < 0:
		return c.bad("a deadline is negative")
	}
	most, whose := verbs.MTU4096, "the largest MTU"
	if c.MTU != 0 {
		most, whose = c.MTU, "the MTU of -m"
	}
	if err := c.fitsDatagram(most, whose); err != nil {
		return err
	}
	switch c.Idle {
	case IdleAuto, IdleSpin, IdleAdaptive, IdleEvents:
	default:
		return c.bad("--idle: %q; allowed: spin, adaptive", string(c.Idle))
	}
	return nil
}

// lossy reports whether a message may be lost without an error.
func (c *Config) lossy() bool { return c.Transport != verbs.RC }

// run is one line of the result.
type run struct {
	sizeBytes int
	pollers   int
}

// runs lists what is measured; mtu cuts the size on UD.
func (c *Config) runs(mtu verbs.MTU) []run {
	most := MaxSizeBytes
	if c.Transport == verbs.UD {
		most = mtu.Bytes()
	}
	var out []run
	switch {
	case c.Test == Rate:
		for n := 1; n <= c.Pollers; n++ {
			out = append(out, run{min(c.SizeBytes, most), n})
		}
	case c.All:
		for size := 2; size <= min(c.AllBytes, most); size *= 2 {
			out = append(out, run{size, 1})
		}
	default:
		out = append(out, run{min(c.SizeBytes, most), 1})
	}
	return out
}
