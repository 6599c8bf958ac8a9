package job

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"mover/reason"
)

// ID names a job: a UUID of version 7, so ids sort by the time of submission.
type ID = uuid.UUID

// ParseID reads the canonical form alone: 36 characters, lower case.
func ParseID(s string) (ID, error) {
	id, err := uuid.Parse(s)
	if err != nil || id.String() != s {
		return ID{}, refuse("id", "must be a job's id: a UUID of 36 characters in lower case")
	}
	return id, nil
}

// Snapshot is a job at one moment, as the HTTP API shows it. It is a value of
// its own; what its pointers, slices and map refer to is never changed.
type Snapshot struct {
	ID            ID           `json:"id"`
	State         State        `json:"state"`
	Version       uint64       `json:"version"` // grows with every change but progress; from 1
	Owner         string       `json:"owner"`   // "node/token-name"
	Spec          Spec         `json:"spec"`    // normalized
	CreatedAt     time.Time    `json:"created_at"`
	StartedAt     *time.Time   `json:"started_at"`  // of the first attempt
	FinishedAt    *time.Time   `json:"finished_at"` // set in terminal states
	DeadlineAt    *time.Time   `json:"deadline_at"`
	Attempts      int          `json:"attempts"`        // begun so far
	LastReason    *Reason      `json:"last_reason"`     // why the last attempt, or the job, ended without success
	NextAttemptAt *time.Time   `json:"next_attempt_at"` // set while queued and backing off
	Progress      ProgressView `json:"progress"`
	Result        *Result      `json:"result"` // set when an attempt published something and ended
	// Pausing says that a pause was asked and the attempt is still ending.
	Pausing bool `json:"pausing,omitempty"`
	// Retries counts how often a person brought the ended job back.
	Retries int `json:"retries,omitempty"`
	// Origin is the node at which the job was submitted, if not this one.
	Origin string `json:"origin,omitempty"`
	// Forwarded is set for a stub: a job that another node, its source's, owns.
	// State and progress are then what that node said last.
	Forwarded *Forward `json:"forwarded,omitempty"`
}

// Forward says where a stub's job is, and what is known of it there.
type Forward struct {
	Node        string     `json:"node"`                   // the owner
	Accepted    bool       `json:"accepted"`               // the owner has it
	LastContact *time.Time `json:"last_contact,omitempty"` // of the owner's last answer
	Error       string     `json:"error,omitempty"`        // why it could not be reached since, for a person
}

// Reason is why an attempt or a job ended without success.
type Reason struct {
	Code      reason.Code `json:"code"`
	Detail    string      `json:"detail"` // one sentence for a person
	Retryable bool        `json:"retryable"`
}

const maxDetailBytes = 1024

// NewReason returns the Reason of err, which is not nil: its code (INTERNAL if
// it has none) and its text, bounded, with control characters escaped.
func NewReason(err error) Reason {
	code := reason.Of(err)
	detail := strings.TrimPrefix(err.Error(), string(code)+": ")
	return Reason{Code: code, Detail: cleanDetail(detail), Retryable: code.Retryable() && !errors.Is(err, reason.ErrFinal)}
}

// cleanDetail makes text that may hold a peer's words or a file's name safe to
// print on a terminal, and short.
func cleanDetail(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if b.Len() >= maxDetailBytes-8 {
			b.WriteString("...")
			break
		}
		if isControl(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Result is what an attempt that succeeded achieved. The Router fills it in,
// except Seconds.
type Result struct {
	CRC32C    string   `json:"crc32c,omitempty"` // 8 hex digits, see FormatCRC32C; "" was not computed
	Bytes     int64    `json:"bytes"`
	Durable   bool     `json:"durable"`             // synced before it was published
	Verified  bool     `json:"verified"`            // the destination's bytes have the source's CRC
	Skipped   bool     `json:"skipped,omitempty"`   // the destination existed, and overwrite is skip
	Providers []string `json:"providers,omitempty"` // of the rails used, such as "soft"; "local" is a copy within a node
	Seconds   float64  `json:"seconds"`             // of the attempt, from its start to its end

	// Of a tree. ItemsFailed > 0 without an error from Run makes the job
	// partial; FirstFailure is then its last_reason.
	Items        int64   `json:"items,omitempty"`         // published
	ItemsSkipped int64   `json:"items_skipped,omitempty"` // by the overwrite policy
	ItemsFailed  int64   `json:"items_failed,omitempty"`
	FirstFailure *Reason `json:"first_failure,omitempty"`
}

// FormatCRC32C writes a checksum as Result and expect show it.
func FormatCRC32C(crc uint32) string { return fmt.Sprintf("%08x", crc) }

// ParseCRC32C reads what FormatCRC32C writes.
func ParseCRC32C(s string) (crc uint32, ok bool) {
	if len(s) != 8 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 16, 32)
	return uint32(n), err == nil
}
