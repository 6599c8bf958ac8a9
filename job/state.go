package job

import "fmt"

// State is where a job stands. The names are part of the HTTP API.
type State string

// The states. A job begins queued and ends in one of the five terminal ones.
const (
	Queued     State = "queued"     // waits for its turn, or for next_attempt_at
	Preparing  State = "preparing"  // an attempt looks at source and destination
	Running    State = "running"    // bytes move
	Verifying  State = "verifying"  // all bytes arrived; sizes and checksums are compared
	Publishing State = "publishing" // synced and given their final names
	Paused     State = "paused"     // stopped by a person until resumed
	Canceling  State = "canceling"  // cancel was asked; the attempt is ending, within Config.CancelTimeout
	Succeeded  State = "succeeded"  // every item is published
	Partial    State = "partial"    // some items failed, the rest is published
	Failed     State = "failed"     // ended with last_reason
	Canceled   State = "canceled"   // ended because someone asked
	Expired    State = "expired"    // ended because the deadline passed
)

// States returns every state, in the order of a job's life. The slice is the
// caller's own.
func States() []State {
	return []State{Queued, Preparing, Running, Verifying, Publishing, Paused, Canceling,
		Succeeded, Partial, Failed, Canceled, Expired}
}

// moves is the transition table: whatever is not listed is illegal. A retryable
// failure takes any phase back to queued. Only an attempt that finds nothing to
// do (overwrite: skip) succeeds out of preparing. Queued fails without a
// further attempt when the deadline leaves no room for one. A canceling job
// ends canceled whatever its attempt answers. What did not end well can be
// retried by a person: back to queued, under the same id.
var moves = map[State][]State{
	Queued:     {Preparing, Paused, Canceled, Expired, Failed},
	Preparing:  {Running, Queued, Paused, Canceling, Succeeded, Failed, Expired},
	Running:    {Verifying, Publishing, Queued, Paused, Canceling, Failed, Expired},
	Verifying:  {Publishing, Queued, Paused, Canceling, Failed, Expired},
	Publishing: {Succeeded, Partial, Queued, Paused, Canceling, Failed, Expired},
	Paused:     {Queued, Canceled, Expired},
	Canceling:  {Canceled},
	Succeeded:  {},
	Partial:    {Queued},
	Failed:     {Queued},
	Canceled:   {Queued},
	Expired:    {Queued},
}

// Valid reports whether s is one of the states.
func (s State) Valid() bool { _, ok := moves[s]; return ok }

// Terminal reports whether a job in s has ended. Nothing but Queue.Retry
// brings it back.
func (s State) Terminal() bool {
	switch s {
	case Succeeded, Partial, Failed, Canceled, Expired:
		return true
	}
	return false
}

// Active reports whether an attempt is under way in s.
func (s State) Active() bool {
	switch s {
	case Preparing, Running, Verifying, Publishing, Canceling:
		return true
	}
	return false
}

// CanMove reports whether the table has a transition from s to to. A state
// does not move to itself.
func (s State) CanMove(to State) bool {
	for _, m := range moves[s] {
		if m == to {
			return true
		}
	}
	return false
}

// TransitionError is a move that the table does not have; from a state to itself
// stands for a change of a job that has ended. The HTTP API answers it with 409.
type TransitionError struct{ From, To State }

func (e *TransitionError) Error() string {
	if e.From == e.To {
		return fmt.Sprintf("a job that is %s cannot be changed any more", e.From)
	}
	return fmt.Sprintf("a job that is %s cannot become %s", e.From, e.To)
}
