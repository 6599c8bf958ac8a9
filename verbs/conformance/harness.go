package conformance

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"mover/verbs"
)

// TB is what a case needs of *testing.T; *rapid.T has it too.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// Feature is something that a provider may lack.
type Feature uint32

// The features. A provider that lacks one of the first five refuses it with an
// *verbs.UnsupportedError: at CreateQP (UC, UD, Inline: a MaxInlineBytes above
// 0) or at PostSend (Read, Atomic). The others are behaviours in which real
// devices differ.
const (
	UC Feature = 1 << iota
	UD
	Inline
	Read
	Atomic
	// AccessEvents: the responder of a refused access gets QP_ACCESS_ERR.
	AccessEvents
	// OverrunIsFatal: an overrun CQ answers Poll with verbs.ErrCQOverrun and
	// the device gets CQ_ERR. Without it completions are lost in silence.
	OverrunIsFatal
	// StrictSQ: a send-queue entry stays taken until a completion at or after
	// it was polled. Without it an entry may be free earlier.
	StrictSQ
	// ExactStatus: whose own memory is at fault is told so: LOC_PROT_ERR for
	// the key or the range, LOC_LEN_ERR for a receive too short. Without it
	// another error may stand there (Soft-RoCE: LOC_QP_OP_ERR, and
	// REM_OP_ERR at the sender of a message too long).
	ExactStatus
	// UCRecovers: a UC receiver that missed the end of a message takes the
	// next one. Without it one that missed the end of a write of several
	// packets takes nothing more until its QP is reset (Soft-RoCE of kernel
	// 6.1: do_class_d1e_error forgets a message in progress only if it has a
	// receive).
	UCRecovers
)

// Harness is how the suite gets at a provider.
type Harness struct {
	// Open opens a pair of devices for one case; the suite closes both
	// contexts, and fails when that is refused. What else is to be undone goes
	// into tb.Cleanup.
	Open func(tb TB) *Pair
	// Lacks are the features that the provider does not have.
	Lacks Feature
	// AckTimeout is QPAttr.Timeout of the links; 0 stands for 10 (4 ms), which
	// is short for a device in an emulated machine.
	AckTimeout uint8
	// NoProperty leaves out the random sequences (100 pairs are opened for
	// them), for callers that run the suite over many seeds.
	NoProperty bool
}

// Pair is two opened devices that can reach each other; they may be one
// device opened twice. Nil functions get a default for providers that work in
// real time.
type Pair struct {
	A, B         verbs.Context
	PortA, PortB uint8 // 0 stands for 1

	// Progress lets the provider work and evaluates cond over and over, until
	// it is true or a bound is reached; it reports cond's last value. Default:
	// PollFor(20 s).
	Progress func(cond func() bool) bool
	// Settle lets the provider work, calling poll over and over, until
	// whatever can happen by itself has happened. Default: 20 ms.
	Settle func(poll func())
	// Alloc maps n bytes, page aligned, readable and writable, zeroed, not Go
	// heap memory. Default: MapPages.
	Alloc func(tb TB, n int) []byte
	// Notified reports whether the channel of an armed CQ has fired since its
	// last Drain, for providers whose CompChannel has no descriptor. Default:
	// poll(2) on FD.
	Notified func(cq verbs.CQ) bool
	// Lose makes the network lose packets of the UC and UD QPs of ctx: those
	// for which pick is true. Packets are counted from 0 at the call, in the
	// order sent; a message of n bytes is max(1, ceil(n/path MTU)) of them. A
	// nil pick ends it. pick runs inside Poll, Progress or Settle. Nil for a
	// provider that cannot lose on purpose: the cases that need it are then
	// left out, and what else loses a message is still tested.
	Lose func(ctx verbs.Context, pick func(n int) bool)
}

func (p *Pair) setDefaults() {
	if p.PortA == 0 {
		p.PortA = 1
	}
	if p.PortB == 0 {
		p.PortB = 1
	}
	if p.Progress == nil {
		p.Progress = PollFor(20 * time.Second)
	}
	if p.Settle == nil {
		p.Settle = func(poll func()) {
			PollFor(20 * time.Millisecond)(func() bool { poll(); return false })
		}
	}
	if p.Alloc == nil {
		p.Alloc = MapPages
	}
}

// PollFor makes a Progress function for providers that work in real time. The
// deadline only bounds a failure; a case that passes does not wait for it.
func PollFor(limit time.Duration) func(cond func() bool) bool {
	return func(cond func() bool) bool {
		for deadline := time.Now().Add(limit); ; runtime.Gosched() {
			if cond() {
				return true
			}
			if time.Now().After(deadline) {
				return false
			}
		}
	}
}

// MapPages maps n bytes of anonymous memory, rounded up to whole pages, until
// the test ends.
func MapPages(tb TB, n int) []byte {
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, (n+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		tb.Fatalf("map %d bytes: %v", n, err)
	}
	tb.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			tb.Errorf("unmap: %v", err)
		}
	})
	return mem
}
