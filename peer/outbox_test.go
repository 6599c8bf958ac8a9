package peer

import (
	"errors"
	"slices"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"mover/engine"
	"mover/peer/peerpb"
)

func bufferOf(b []byte) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(b)} }

// What goes in comes out, in order, whatever was merged; the counts return to
// zero; nothing is merged beyond a batch.
func TestOutboxKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 16
		o := newOutbox(limit, 1<<20)
		var want, got []engine.RecordAck // a Ping is an ack with its Seq as Offset
		next := int64(0)
		take := func() {
			f, _ := o.take(nil)
			m, err := fromFrame(f)
			if err != nil {
				t.Fatal(err)
			}
			switch m := m.(type) {
			case *engine.Ping:
				got = append(got, engine.RecordAck{Offset: int64(m.Seq)})
			case *engine.RecordAcks:
				if len(m.Acks) > engine.MaxBatch {
					t.Fatalf("merged %d acks", len(m.Acks))
				}
				got = append(got, m.Acks...)
			}
		}
		waiting := func() int { return len(o.frames) - o.head }
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			if waiting() > 0 && rapid.Bool().Draw(t, "take") {
				take()
				continue
			}
			var m engine.Message
			var entries []engine.RecordAck
			if rapid.Bool().Draw(t, "ping") {
				m = ping(uint64(next))
				entries = []engine.RecordAck{{Offset: next}}
				next++
			} else {
				for range rapid.SampledFrom([]int{1, 2, 3, 3, 3, engine.MaxBatch - 4, engine.MaxBatch}).Draw(t, "batch") {
					entries = append(entries, engine.RecordAck{Offset: next})
					next++
				}
				m = &engine.RecordAcks{Acks: entries}
			}
			f, err := toFrame(m)
			if err != nil {
				t.Fatal(err)
			}
			full := waiting() >= limit
			switch err := o.push(f); {
			case err == nil:
				want = append(want, entries...)
			case !errors.Is(err, ErrOverflow) || !full && o.bytes+proto.Size(f) <= o.maxBytes:
				t.Fatalf("push with %d waiting: %v", waiting(), err)
			}
		}
		for waiting() > 0 {
			take()
		}
		if !slices.Equal(want, got) {
			t.Fatalf("%d acks came out, not the %d that went in", len(got), len(want))
		}
		if o.bytes != 0 || cap(o.frames) > 4*limit {
			t.Fatalf("%d bytes counted in an empty outbox, room for %d", o.bytes, cap(o.frames))
		}
	})
}

func TestOutboxLimits(t *testing.T) {
	o := newOutbox(2, 100)
	push := func(m engine.Message) error {
		f, err := toFrame(m)
		if err != nil {
			t.Fatal(err)
		}
		return o.push(f)
	}
	if err := push(&engine.ItemOffer{Kind: engine.Staged, Meta: make([]byte, 200)}); !errors.Is(err, ErrOverflow) {
		t.Errorf("over the bytes: %v", err)
	}
	for i := range uint64(2) {
		if err := push(ping(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := push(ping(2)); !errors.Is(err, ErrOverflow) {
		t.Errorf("over the frames: %v", err)
	}
	o.seal(&peerpb.Frame{Body: &peerpb.Frame_Closing{Closing: &peerpb.Closing{Code: 1}}})
	o.seal(&peerpb.Frame{Body: &peerpb.Frame_Closing{Closing: &peerpb.Closing{Code: 2}}})
	if err := push(ping(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("sealed: %v", err)
	}
	for i := range 3 {
		f, last := o.take(nil)
		if last != (i == 2) || last && f.GetClosing().GetCode() != 1 {
			t.Errorf("frame %d: %v, last %v", i, f, last)
		}
	}
	stop := make(chan struct{})
	close(stop)
	if f, last := o.take(stop); f != nil || last {
		t.Errorf("from an empty outbox: %v", f)
	}
}

func TestMergeOnlyAlike(t *testing.T) {
	acks := func() *peerpb.Frame { return frameOf(t, &engine.RecordAcks{Acks: make([]engine.RecordAck, 1)}) }
	segs := func() *peerpb.Frame { return frameOf(t, &engine.SegmentAcks{Acks: make([]engine.SegmentAck, 2)}) }
	grants := func() *peerpb.Frame { return frameOf(t, &engine.SegmentGrants{Grants: make([]engine.SegmentGrant, 3)}) }
	makers := []func() *peerpb.Frame{acks, segs, grants, func() *peerpb.Frame { return frameOf(t, ping(1)) }}
	for i, a := range makers {
		for j, b := range makers {
			first := a()
			if got, want := merge(first, b()), i == j && i < 3; got != want {
				t.Errorf("merge(%T, %T) = %v", first.Body, b().Body, got)
			}
		}
	}
}
