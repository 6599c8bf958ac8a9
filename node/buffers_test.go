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
