package node

import (
	"context"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"mover/engine"
	"mover/reason"
)

// carrier brings items to a job's destination: the session with a peer, or
// local. The methods are those of engine.Session.
type carrier interface {
	Send(item *engine.Item)
	Cancel(item *engine.Item, why *reason.Error)
}

// local carries items within the node: without a session and its memory, by
// the same rules and the same publication. Every item has a goroutine; who
// sends bounds their number.
type local struct {
	receiver *receiver

	mu   sync.Mutex
	next uint64
	stop map[*engine.Item]context.CancelCauseFunc
}

func newLocal(n *Node) *local {
	return &local{receiver: &receiver{node: n, peer: n.cfg.Node.Name}, stop: map[*engine.Item]context.CancelCauseFunc{}}
}

// Send implements carrier.
func (l *local) Send(item *engine.Item) {
	ctx, cancel := context.WithCancelCause(context.Background())
	l.mu.Lock()
	ref := engine.ItemRef{Item: l.next, Attempt: item.Attempt}
	l.next++
	l.stop[item] = cancel
	l.mu.Unlock()
	go func() {
		r := l.carry(ctx, ref, item)
		l.mu.Lock()
		delete(l.stop, item)
		l.mu.Unlock()
		cancel(nil)
		item.Done(r)
	}()
}

// Cancel implements carrier.
func (l *local) Cancel(item *engine.Item, why *reason.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cancel := l.stop[item]; cancel != nil {
		cancel(why)
	}
}

func (l *local) carry(ctx context.Context, ref engine.ItemRef, item *engine.Item) engine.ItemResult {
	in, meta, err := l.receiver.open(ref, &engine.ItemOffer{Ref: ref, Kind: item.Kind, Bytes: item.Bytes, Verify: item.Verify, Meta: item.Meta})
	if in == nil {
		return engine.ItemResult{Meta: meta, Err: refusal(err)}
	}
	crc, err := transfer(ctx, item, in.arrival.target())
	if err == nil && item.Source != nil {
		item.Report(item.Bytes, true, false)
		err = item.Source.Verify(crc)
	}
	if err == nil {
		err = ctxReason(ctx)
	}
	if err == nil {
		item.Report(item.Bytes, true, true)
		meta, err = l.receiver.publish(in, crc, item.Verify)
	}
	if err != nil {
		why := asReason(err)
		l.receiver.discard(in, why)
		return engine.ItemResult{Err: why}
	}
	return engine.ItemResult{CRC: crc, Meta: meta}
}

// ctxReason is why ctx ended, nil while it has not.
func ctxReason(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return asReason(context.Cause(ctx))
}

// localBytes is how much a copy within the node reads at a time.
const localBytes = 1 << 20

// block is memory to copy through, page aligned and not in the Go heap, for
// O_DIRECT.
type block struct{ bytes []byte }

// blocks are for use again. One that the pool drops is unmapped with it.
var blocks = sync.Pool{New: func() any {
	b, err := unix.Mmap(-1, 0, localBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return (*block)(nil)
	}
	out := &block{b}
	runtime.AddCleanup(out, func(b []byte) { _ = unix.Munmap(b) }, b)
	return out
}}

// transfer copies and checksums an item's bytes.
func transfer(ctx context.Context, item *engine.Item, to engine.Target) (crc uint32, err error) {
	if item.Kind == engine.Direct {
		return transferMemory(ctx, item, to.Memory)
	}
	buf := blocks.Get().(*block)
	if buf == nil {
		return 0, reason.New(reason.Internal, "no memory for the copy")
	}
	defer blocks.Put(buf)
	var whole engine.Whole
	for at := int64(0); at < item.Bytes; at += localBytes {
		if err := ctxReason(ctx); err != nil {
			return 0, err
		}
		p := buf.bytes[:min(localBytes, item.Bytes-at)]
		if _, err := item.Source.ReadAt(p, at); err != nil {
			return 0, err
		}
		sum := engine.Checksum(p)
		if _, err := to.Sink.WriteAt(p, at); err != nil {
			return 0, err
		}
		if back, ok := to.Sink.(interface {
			ReadAt(p []byte, offset int64) (int, error)
		}); ok && item.Verify {
			// What was written is read back and compared before it is published.
			if _, err := back.ReadAt(p, at); err != nil {
				return 0, err
			}
			if got := engine.Checksum(p); got != sum {
				return 0, reason.New(reason.ChecksumMismatch, "bytes %d..%d read back with CRC32C %08x, written with %08x; if that happens again, look for a bad disk or bad memory in this host", at, at+int64(len(p)), got, sum)
			}
		}
		whole.Append(sum, int64(len(p)))
		item.Report(at+int64(len(p)), false, false)
		slowDown(ctx, item, len(p))
	}
	return whole.CRC, nil
}

// transferMemory copies from buffer to buffer, which may be one.
func transferMemory(ctx context.Context, item *engine.Item, to []byte) (crc uint32, err error) {
	from := item.Memory[:item.Bytes]
	var whole engine.Whole
	for at := 0; at < len(from); at += localBytes {
		if err := ctxReason(ctx); err != nil {
			return 0, err
		}
		end := min(at+localBytes, len(from))
		copy(to[at:end], from[at:end])
		if item.Verify {
			whole.Append(engine.Checksum(to[at:end]), int64(end-at))
		}
		item.Report(int64(end), false, false)
		slowDown(ctx, item, end-at)
	}
	return whole.CRC, nil
}

// slowDown keeps a copy within the limits of its job and of the node, each item
// for itself: what is copied within a node does not use the network that the
// node's limit is for.
func slowDown(ctx context.Context, item *engine.Item, bytes int) {
	var wait time.Duration
	for _, p := range item.Pace {
		if rate := p.Rate(); rate > 0 {
			wait = max(wait, time.Duration(float64(bytes)/float64(rate)*float64(time.Second)))
		}
	}
	if wait == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
