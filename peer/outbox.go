package peer

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"mover/engine"
	"mover/peer/peerpb"
)

// outbox is the bounded queue of frames in front of one stream. Any goroutine
// may push; one writer takes. A mutex is good enough: no poller comes here.
type outbox struct {
	maxFrames int
	maxBytes  int

	mu     sync.Mutex
	frames []queued // frames[head:] are waiting
	head   int
	bytes  int
	sealed bool

	ready chan struct{} // holds a token when there may be something to take
}

type queued struct {
	frame *peerpb.Frame
	bytes int
}

func newOutbox(maxFrames, maxBytes int) *outbox {
	return &outbox{maxFrames: maxFrames, maxBytes: maxBytes, ready: make(chan struct{}, 1)}
}

// push queues f. It never blocks: ErrOverflow when a limit is reached,
// ErrClosed once sealed.
func (o *outbox) push(f *peerpb.Frame) error {
	n := proto.Size(f)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return ErrClosed
	}
	if o.bytes+n > o.maxBytes {
		return ErrOverflow
	}
	if len(o.frames) > o.head {
		if last := &o.frames[len(o.frames)-1]; merge(last.frame, f) {
			last.bytes += n
			o.bytes += n
			return nil
		}
	}
	if len(o.frames)-o.head >= o.maxFrames {
		return ErrOverflow
	}
	o.add(f, n)
	return nil
}

// seal queues the last frame, which has room whatever the limits; pushes fail
// from now on. Only the first seal counts.
func (o *outbox) seal(last *peerpb.Frame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return
	}
	o.sealed = true
	o.add(last, proto.Size(last))
}

func (o *outbox) add(f *peerpb.Frame, n int) {
	// Move the waiting frames down rather than let the array grow behind them.
	if o.head > 0 && len(o.frames) == cap(o.frames) {
		k := copy(o.frames, o.frames[o.head:])
		clear(o.frames[k:])
		o.frames, o.head = o.frames[:k], 0
	}
	o.frames = append(o.frames, queued{f, n})
	o.bytes += n
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// take returns the next frame, waiting for one until stop is closed. last
// tells that it is the frame of seal; nil means stop.
func (o *outbox) take(stop <-chan struct{}) (f *peerpb.Frame, last bool) {
	for {
		o.mu.Lock()
		if o.head < len(o.frames) {
			q := o.frames[o.head]
			o.frames[o.head] = queued{}
			o.head++
			o.bytes -= q.bytes
			last = o.sealed && o.head == len(o.frames)
			if o.head == len(o.frames) {
				o.frames, o.head = o.frames[:0], 0
			}
			o.mu.Unlock()
			return q.frame, last
		}
		o.mu.Unlock()
		select {
		case <-o.ready:
		case <-stop:
			return nil, false
		}
	}
}

// merge appends the acks or grants of f to those of last, if both are of one
// kind and fit one frame. Order is kept: last is the frame f would follow.
func merge(last, f *peerpb.Frame) bool {
	switch a := last.Body.(type) {
	case *peerpb.Frame_RecordAcks:
		if b, ok := f.Body.(*peerpb.Frame_RecordAcks); ok {
			return mergeList(&a.RecordAcks.Acks, b.RecordAcks.Acks)
		}
	case *peerpb.Frame_SegmentAcks:
		if b, ok := f.Body.(*peerpb.Frame_SegmentAcks); ok {
			return mergeList(&a.SegmentAcks.Acks, b.SegmentAcks.Acks)
		}
	case *peerpb.Frame_SegmentGrants:
		if b, ok := f.Body.(*peerpb.Frame_SegmentGrants); ok {
			return mergeList(&a.SegmentGrants.Grants, b.SegmentGrants.Grants)
		}
	}
	return false
}

func mergeList[P any](a *[]P, b []P) bool {
	if len(*a)+len(b) > engine.MaxBatch {
		return false
	}
	*a = append(*a, b...)
	return true
}
