package engine

import (
	"testing"

	"mover/reason"
)

type deafControl struct{}

func (deafControl) Send(Message) error { return nil }

// TestSendAfterEnd: an item that its session never took is answered, whether
// it was queued when the session ended or given to it afterwards.
func TestSendAfterEnd(t *testing.T) {
	s := NewSession(SessionConfig{Waker: fakeWaker{}, Control: deafControl{}, Log: func(string, ...any) {}})
	var results []ItemResult
	send := func() { s.Send(&Item{Done: func(r ItemResult) { results = append(results, r) }}) }
	send()
	s.Start(1) // without a port it ends at once
	if !s.Ended() {
		t.Fatal("the session has not ended")
	}
	send()
	if len(results) != 2 {
		t.Fatalf("%d of 2 items were answered", len(results))
	}
	for i, r := range results {
		if r.Err == nil || r.Err.Code != reason.Internal {
			t.Errorf("item %d ended with %v, want the session's reason", i, r.Err)
		}
	}
}
