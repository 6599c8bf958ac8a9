package job

import "time"

// EventType says what happened.
type EventType string

// The types; the names are part of the HTTP API.
const (
	EventSubmitted EventType = "submitted"
	EventState     EventType = "state"   // the job came to State
	EventAttempt   EventType = "attempt" // an attempt ended and the job did not: it is queued again, Reason says why
	EventPatched   EventType = "patched" // priority, limit, deadline or labels
	EventDeleted   EventType = "deleted" // by a person; retention tells nobody
)

// Event is one thing that happened to a job. Events become visible when they
// are as durable as the job, in the order of Seq.
type Event struct {
	Seq     uint64    `json:"seq"` // grows, with gaps, also over restarts; from 1
	At      time.Time `json:"at"`
	Job     ID        `json:"job"`
	Type    EventType `json:"type"`
	State   State     `json:"state"`
	Reason  *Reason   `json:"reason,omitempty"`
	Owner   string    `json:"owner"`
	Version uint64    `json:"version"` // of the job, then
}

// EventFilter selects events. Its zero value selects all that are kept.
type EventFilter struct {
	Job   *ID    // of this job alone
	Owner string // of this owner's jobs alone
	After uint64 // with a larger Seq
}

func (f EventFilter) match(e Event) bool {
	return e.Seq > f.After && (f.Job == nil || e.Job == *f.Job) && (f.Owner == "" || e.Owner == f.Owner)
}
