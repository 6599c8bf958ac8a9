package node

import (
	"testing"
	"time"
)

// TestLineLimit: a burst, then a steady rate, and the next line tells how many
// are missing.
func TestLineLimit(t *testing.T) {
	now := time.Unix(1, 0)
	l := newLineLimit(func() time.Time { return now })
	for i := range lineBurst {
		if ok, _ := l.allow(); !ok {
			t.Fatalf("line %d of the burst is left out", i)
		}
	}
	for range 7 {
		if ok, _ := l.allow(); ok {
			t.Fatal("a line beyond the burst")
		}
	}
	now = now.Add(time.Second / linesASecond)
	if ok, skipped := l.allow(); !ok || skipped != 7 {
		t.Errorf("after a while: %v, %d left out, want 7", ok, skipped)
	}
	if ok, _ := l.allow(); ok {
		t.Error("faster than the rate")
	}
	now = now.Add(time.Hour)
	for range lineBurst {
		l.allow()
	}
	if ok, skipped := l.allow(); ok || skipped != 0 {
		t.Errorf("the burst grows with time: %v, %d", ok, skipped)
	}
}
