package node

import (
	"os"
	"testing"

	"mover/job"
	"mover/reason"
)

// TestSpoolOnAFullDisk: the job's reason says what is full, and is no defect of
// mover. /dev/full stands for the disk.
func TestSpoolOnAFullDisk(t *testing.T) {
	s, err := newSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	s.w.Reset(full)
	if err := s.put(spooled{GroupEntry: job.GroupEntry{Path: []byte("a")}}); err != nil {
		t.Fatal(err)
	}
	if got := asReason(s.each(func(spooled) error { return nil })); got.Code != reason.NoSpace {
		t.Errorf("%v, want NO_SPACE", got)
	}
}
