package datapath

import (
	"os"
	"testing"
)

// TestArenaStats: a session's shares are seen while it lasts, and are free again
// after it.
func TestArenaStats(t *testing.T) {
	a, _, _ := newHosts(t, nil)
	free := func(when string) {
		t.Helper()
		all := a.path.Arenas()
		if len(all) != 1 {
			t.Fatalf("%d arenas", len(all))
		}
		if s := all[0]; s.Shares != 0 || s.Free != s.Bytes || s.LargestFree != s.Bytes || s.Bytes != 64<<20 {
			t.Errorf("%s: %+v", when, s)
		}
	}
	free("before any session")
	l := dial(t, a)
	// One share to send from and one to receive into.
	if s := a.path.Arenas()[0]; s.Shares != 2 || s.Free != s.Bytes-2*(16<<20) || s.LargestFree > s.Free {
		t.Errorf("with a session: %+v", s)
	}
	l.Close("the test ends it")
	<-l.Done()
	free("after it")
}

// TestThreadStats: a poller that moved something was busy for a part of its
// time, and its thread used the CPU.
func TestThreadStats(t *testing.T) {
	a, _, _ := newHosts(t, nil)
	l := dial(t, a)
	if r := send(t, l, "x", pattern(4<<20, 1)); r.Err != nil {
		t.Fatal(r.Err)
	}
	s := a.path.Stats()[0].Thread
	busy, longest := s.Busy(), s.LongestGap()
	_, sum, _ := s.GapHistogram() // read last: it only grows
	if busy <= 0 || busy.Seconds() > sum {
		t.Errorf("busy for %v of %v s", busy, sum)
	}
	if longest <= 0 || longest.Seconds() > sum {
		t.Errorf("a gap of %v in %v s", longest, sum)
	}
	_, err := os.Stat("/proc/self/schedstat") // not every kernel has it
	if used, known := s.CPUSeconds(); known != (err == nil) || known && used <= 0 {
		t.Errorf("%v s of CPU, known: %v, schedstat: %v", used, known, err)
	}
	if _, known := (&ThreadStats{}).CPUSeconds(); known {
		t.Error("the CPU time of a thread that never ran is known")
	}
}
