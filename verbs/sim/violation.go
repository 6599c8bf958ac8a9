package sim

import (
	"fmt"
	"time"
)

// ViolationKind is a rule of the verbs that the user broke.
type ViolationKind uint8

// The violations. A real device reports none of them; it corrupts data, hangs
// or leaks.
const (
	// SourceChanged: a source buffer differs between the post and the poll of
	// the completion that gives it back.
	SourceChanged ViolationKind = iota
	// DeregInFlight: an MR was deregistered while a WR outstanding here uses
	// it, or bytes for it had been accepted and were on their way to memory.
	DeregInFlight
	// WriteRevoked: a write for a deregistered MR reached a QP that works.
	WriteRevoked
	// OverlappingWrites: a write arrived for bytes that an earlier one, whose
	// completion its sender had not polled at the time of the post, or one of
	// another QP, was still on its way to.
	OverlappingWrites
	// DestroyedBusy: a QP was destroyed while WRs were outstanding.
	DestroyedBusy
	// QueueOverflow: a post to a full queue.
	QueueOverflow
	// CQTooSmall: a CQ has fewer entries than its QPs have WRs.
	CQTooSmall
	// StaleQP: a post on a QP, or to a UD address handle, that was built before
	// its port's last flap.
	StaleQP
	// BadPath: two QPs were connected with different MTUs or PSNs, or a UC QP
	// sends to one that is connected to another. RC and UC differ in what then
	// arrives.
	BadPath
	// AHInFlight: an address handle was destroyed while a send WR outstanding
	// here uses it.
	AHInFlight
)

func (k ViolationKind) String() string {
	names := [...]string{"source changed", "MR deregistered in flight", "write for a deregistered MR",
		"overlapping writes", "QP destroyed busy", "queue overflow", "CQ too small", "stale QP", "bad path",
		"AH destroyed in flight"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("ViolationKind(%d)", uint8(k))
}

// Violation is a rule broken.
type Violation struct {
	At     time.Duration
	Kind   ViolationKind
	Host   string
	QPN    uint32 // 0 when no QP is concerned
	Detail string
}

func (v Violation) String() string {
	return fmt.Sprintf("%v: %s: %v, QP %#x: %s", v.At, v.Host, v.Kind, v.QPN, v.Detail)
}

// violationsKept bounds the list; the first ones tell the cause.
const violationsKept = 1000

// Violations are the rules broken so far, oldest first, at most 1000.
func (f *Fabric) Violations() []Violation { return f.violations }

func (f *Fabric) violate(kind ViolationKind, d *device, qpn uint32, format string, args ...any) {
	f.record("violation", uint64(kind), uint64(qpn))
	if len(f.violations) < violationsKept {
		f.violations = append(f.violations, Violation{At: f.Now(), Kind: kind, Host: d.host.name, QPN: qpn,
			Detail: fmt.Sprintf(format, args...)})
	}
}
