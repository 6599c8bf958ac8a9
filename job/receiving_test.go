package job

import (
	"errors"
	"testing"
	"time"

	"mover/job/jobtest"
	"mover/reason"
)

func TestReceiving(t *testing.T) {
	clock := jobtest.NewClock()
	r := NewReceiving(clock, 3, 2)
	begin := func(attempt uint32) *Inflow {
		t.Helper()
		m := testManifest()
		m.Attempt, m.Size = attempt, 100
		f, err := r.Begin("b", "a", m)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := begin(1)
	if _, err := r.Begin("b", "a", testManifest()); !errors.Is(err, ErrReceivingTwin) {
		t.Errorf("a twin: %v", err)
	}
	if _, err := r.Begin("b", "c", testManifest()); err != nil {
		t.Errorf("the same id from another peer: %v", err)
	}
	clock.Advance(time.Second)
	f.Phase(Running)
	f.Phase(Succeeded)
	f.Phase(Queued)
	f.Phase(Preparing)
	f.Add(150)
	page, next, err := r.List(Filter{Owner: "a/t", States: []State{Running}}, "", 10)
	if err != nil || next != "" || len(page) != 1 {
		t.Fatalf("%d, %q, %v", len(page), next, err)
	}
	v := page[0]
	if v.State != Running || v.Progress.BytesDone != 100 || v.Progress.BytesTotal != 100 || v.Peer != "a" ||
		v.Destination.Node != "b" || v.Destination.FullPath() != "in/d/x\xff" {
		t.Errorf("%+v", v)
	}
	f.End(nil)
	f.End(reason.New(reason.NoSpace, "late"))
	f.Phase(Publishing)
	begin(2).End(reason.New(reason.Canceled, "no"))
	begin(3).End(reason.New(reason.NoSpace, "full"))
	begin(4)
	page, _, err = r.List(Filter{}, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []State
	for _, v := range page {
		got = append(got, v.State)
	}
	if want := []State{Preparing, Failed, Canceled, Preparing}; len(got) != 4 || [4]State(got) != [4]State(want) {
		t.Errorf("got %v, want %v: two ended ones are kept", got, want)
	}
	if r.Live() != 2 || r.Received() != 150 {
		t.Errorf("%d under way, %d bytes", r.Live(), r.Received())
	}
	begin(5)
	if _, err := r.Begin("b", "d", testManifest()); !errors.Is(err, ErrReceivingFull) {
		t.Errorf("one too many: %v", err)
	}
	first, next, err := r.List(Filter{}, "", 3)
	if err != nil || len(first) != 3 || next == "" {
		t.Fatalf("%d, %q, %v", len(first), next, err)
	}
	rest, next, err := r.List(Filter{}, next, 3)
	if err != nil || len(rest) != 2 || next != "" || rest[0].Attempt != 2 {
		t.Errorf("%+v, %q, %v", rest, next, err)
	}
	if _, _, err := r.List(Filter{}, "x", 3); !errors.Is(err, ErrPageToken) {
		t.Error(err)
	}
}

// TestReceivingIntoABuffer: what goes into a buffer is shown as that.
func TestReceivingIntoABuffer(t *testing.T) {
	r := NewReceiving(jobtest.NewClock(), 1, 1)
	m := testManifest()
	m.Root, m.Path, m.Buffer, m.Offset, m.Size = "", nil, "kv", 4096, 100
	if _, err := r.Begin("b", "a", m); err != nil {
		t.Fatal(err)
	}
	page, _, err := r.List(Filter{}, "", 10)
	if err != nil || len(page) != 1 {
		t.Fatalf("%d, %v", len(page), err)
	}
	if d := page[0].Destination; d.Node != "b" || d.Buffer != "kv" || *d.Offset != 4096 || *d.Length != 100 || d.FullPath() != "" {
		t.Errorf("%+v", d)
	}
}
