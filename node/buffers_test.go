package node

import (
	"errors"
	"fmt"
	"testing"

	"mover/buffer"
	"mover/job"
	"mover/reason"
)

// TestWhatABufferLacksIsNoDefect: the host's state is told to who asks, who can
// mend it.
func TestWhatABufferLacksIsNoDefect(t *testing.T) {
	for err, want := range map[error]reason.Code{buffer.ErrNoMount: reason.NoSpace, buffer.ErrForeign: reason.DestExists} {
		var why *reason.Error
		if got := bufferError(fmt.Errorf("create buffer x: %w", err)); !errors.As(got, &why) || why.Code != want {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
	if got := bufferError(fmt.Errorf("create buffer x: %w", buffer.ErrBadState)); !errors.Is(got, job.ErrStore) {
		t.Errorf("%v, want a store that fails", got)
	}
}

// TestOverlappingRangesAreTheSame: a buffer is not copied onto itself, and
// waiting for its own lease would not help.
func TestOverlappingRangesAreTheSame(t *testing.T) {
	for _, c := range []struct {
		local            bool
		to               string
		from, at, length int64
		same             bool
	}{
		{true, "x", 0, 0, 10, true}, {true, "x", 0, 9, 10, true}, {true, "x", 9, 0, 10, true},
		{true, "x", 0, 10, 10, false}, {true, "x", 10, 0, 10, false}, {true, "x", 5, 5, 0, false},
		{true, "y", 0, 0, 10, false}, {true, "", 0, 0, 10, false}, {false, "x", 0, 0, 10, false},
	} {
		at := job.Bytes(c.at)
		sh := &shipping{local: c.local, spec: job.Spec{Source: job.Place{Buffer: "x"}, Destination: job.Place{Buffer: c.to, Offset: &at}}}
		var why *reason.Error
		if err := sh.apart(c.from, c.length); errors.As(err, &why) != c.same || c.same && why.Code != reason.SameFile {
			t.Errorf("%+v: %v", c, err)
		}
	}
	sh := &shipping{local: true, spec: job.Spec{Source: job.Place{Buffer: "x"}, Destination: job.Place{Buffer: "x"}}}
	if sh.apart(0, 1) == nil {
		t.Error("no offset is the beginning")
	}
}
