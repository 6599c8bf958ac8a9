package fabric

import (
	"errors"
	"fmt"
	"strings"

	"mover/verbs"
)

// terms are the options that both sides must share: they decide what is
// allocated, posted and expected, so neither side takes them from the other.
type terms struct {
	Test       string `json:"test"`
	Transport  string `json:"transport"`
	Op         string `json:"op"`
	SizeBytes  int    `json:"size_bytes"`
	AllBytes   int    `json:"all_bytes"` // 0: one size
	QPs        int    `json:"qps"`
	Pollers    int    `json:"pollers"`
	Iterations int    `json:"iterations"` // 0: for a time
	DurationNS int64  `json:"duration_ns"`
	Depth      int    `json:"depth"`
	RingBytes  int    `json:"ring_bytes"`
	Verify     bool   `json:"verify"`
}

func (c *Config) terms() terms {
	t := terms{Test: string(c.Test), Transport: c.Transport.String(), Op: string(c.Op), SizeBytes: c.SizeBytes,
		QPs: c.QPs, Pollers: c.Pollers, Iterations: c.Iterations, DurationNS: int64(c.Duration),
		Depth: c.Depth, RingBytes: c.RingBytes, Verify: c.Verify}
	if c.All {
		t.AllBytes, t.SizeBytes = c.AllBytes, 0
	}
	if c.Duration > 0 {
		t.Iterations = 0
	}
	return t
}

// MismatchError: the two sides were started with different options.
type MismatchError struct {
	Differences []Difference
}

// Difference is one option that differs.
type Difference struct {
	Option        string
	Local, Remote string
}

func (e *MismatchError) Error() string {
	var parts []string
	for _, d := range e.Differences {
		parts = append(parts, fmt.Sprintf("%s is %s here and %s there", d.Option, d.Local, d.Remote))
	}
	return "the two sides do not fit: " + strings.Join(parts, ", ") + "; start both with the same options"
}

// ErrMismatch is matched by every *MismatchError.
var ErrMismatch = errors.New("the options of the two sides differ")

// Is matches ErrMismatch.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

// compare lists the differences of two greetings; nil means that they fit.
func compare(local, remote *hello) error {
	e := &MismatchError{}
	add := func(option string, l, r any) {
		if l != r {
			e.Differences = append(e.Differences, Difference{Option: option, Local: fmt.Sprint(l), Remote: fmt.Sprint(r)})
		}
	}
	l, r := local.Terms, remote.Terms
	add("the test", l.Test, r.Test)
	add("-c/--connection", l.Transport, r.Transport)
	add("--op", l.Op, r.Op)
	add("-s/--size", sizeWords(l), sizeWords(r))
	add("-q/--qp", l.QPs, r.QPs)
	add("--pollers", l.Pollers, r.Pollers)
	add("-n/--iters or -D/--duration", lengthWords(l), lengthWords(r))
	add("-t/--tx-depth", l.Depth, r.Depth)
	add("--ring", l.RingBytes, r.RingBytes)
	add("checking (--no-verify)", l.Verify, r.Verify)
	add("--provider", local.Port.Provider, remote.Port.Provider)
	add("the link layer", verbs.LinkLayer(local.Port.LinkLayer), verbs.LinkLayer(remote.Port.LinkLayer))
	add("the GID type (-x/--gid-index)", verbs.GIDType(local.Port.GIDType), verbs.GIDType(remote.Port.GIDType))
	add("the GID's address family (-x/--gid-index)", local.Port.family(), remote.Port.family())
	if len(e.Differences) == 0 {
		return nil
	}
	return e
}

func sizeWords(t terms) string {
	if t.AllBytes > 0 {
		return fmt.Sprintf("2 to %d", t.AllBytes)
	}
	return fmt.Sprint(t.SizeBytes)
}

func lengthWords(t terms) string {
	if t.Iterations == 0 {
		return fmt.Sprintf("%.3g s", float64(t.DurationNS)/1e9)
	}
	return fmt.Sprint(t.Iterations)
}
