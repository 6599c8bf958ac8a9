package node

import (
	"sync"
	"time"

	"mover/job"
	"mover/reason"
)

// rememberPublished is how many published items are remembered: enough for
// every job that can be between its last byte and its answer.
const rememberPublished = 4096

// itemKey names an item over all attempts at it.
type itemKey struct {
	peer string
	job  job.ID
	item uint32
}

// inbounds keeps two attempts at one item apart, and remembers what was
// published: when only the answer was lost, the next attempt must learn that
// the file at the destination is its own, and not fail because it exists.
type inbounds struct {
	mu        sync.Mutex
	open      map[itemKey]*inbound
	published map[itemKey][]byte // the DoneMeta
	order     []itemKey          // of published, oldest first
}

func newInbounds() *inbounds {
	return &inbounds{open: map[itemKey]*inbound{}, published: map[itemKey][]byte{}}
}

// begin enters an item. An earlier attempt that is still ending, on a session
// that was lost, is waited for; if it published, its meta is returned.
func (b *inbounds) begin(in *inbound, wait time.Duration) (meta []byte, err error) {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		b.mu.Lock()
		earlier := b.open[in.key]
		if meta := b.published[in.key]; earlier == nil && meta != nil {
			b.mu.Unlock()
			return meta, nil
		}
		if earlier == nil {
			b.open[in.key] = in
			b.mu.Unlock()
			return nil, nil
		}
		b.mu.Unlock()
		select {
		case <-earlier.over:
		case <-limit.C:
			return nil, reason.New(reason.PeerRefused, "an earlier attempt at this item has not ended at the destination yet")
		}
	}
}

// end takes an item out; meta is not nil when it was published. forgotten is
// the item that is remembered no longer for it, if any.
func (b *inbounds) end(in *inbound, meta []byte) (forgotten *itemKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[in.key] != in {
		return nil
	}
	delete(b.open, in.key)
	close(in.over)
	if meta == nil {
		return nil
	}
	return b.remember(in.key, meta)
}

// recall enters what an earlier process published.
func (b *inbounds) recall(key itemKey, meta []byte) (forgotten *itemKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.remember(key, meta)
}

// remember adds to what was published. mu is held.
func (b *inbounds) remember(key itemKey, meta []byte) (forgotten *itemKey) {
	b.published[key] = meta
	b.order = append(b.order, key)
	if len(b.order) <= rememberPublished {
		return nil
	}
	oldest := b.order[0]
	delete(b.published, oldest)
	b.order = b.order[1:]
	return &oldest
}
