package node

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// TestNoDescriptorsIsRefusedForNow: the sender tries again, as the shortage is
// not its fault and passes.
func TestNoDescriptorsIsRefusedForNow(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE} {
		got := refusal(reason.New(reason.Internal, "open directory: %w", errno))
		if got.Code != reason.PeerRefused || !got.Code.Retryable() {
			t.Errorf("%v: %v, want PEER_REFUSED", errno, got)
		}
		source := asReason(withoutDescriptors(reason.New(reason.Internal, "open file: %w", errno), "source"))
		if source.Code != reason.PeerRefused || !strings.Contains(source.Detail, "ulimit -n) at the source") {
			t.Errorf("%v at the source: %v, want PEER_REFUSED with advice", errno, source)
		}
	}
	if got := refusal(reason.New(reason.DestExists, "exists: %w", unix.EEXIST)); got.Code != reason.DestExists {
		t.Errorf("got %v, want the reason that it had", got)
	}
	if got := refusal(nil); got != nil {
		t.Errorf("got %v for no error", got)
	}
}
