package node

import (
	"slices"
	"sync"
	"time"

	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// What is remembered of what was published: enough for every job that can be
// between its last byte and its answer.
const (
	rememberItems  = 4096
	rememberGroups = 512 // of up to 512 names each
)

// jobKey names a job of a node.
type jobKey struct {
	peer string
	job  job.ID
}

// itemKey names an item over all attempts at it: by where it goes, for a job
// puts one thing there. A group is an item of one attempt alone.
type itemKey struct {
	jobKey
	place          string // "root/path", "buffer:name"
	attempt, group uint32 // of a group
}

// inbounds keeps two attempts at one job apart, and remembers what was
// published: when only the answer was lost, the next attempt must learn that
// the file at the destination is its own, and not fail because it exists.
type inbounds struct {
	mu        sync.Mutex
	open      map[jobKey]map[*inbound]struct{}
	published map[itemKey][]byte // the DoneMeta
	order     []itemKey          // of published, oldest first
	groups    map[jobKey][]*namedGroup
	grouping  []*namedGroup // of all jobs, oldest first
}

// namedGroup is the names that a group gave, or was about to.
type namedGroup struct {
	key        itemKey
	root, base string
	names      []fileio.NameInode
}

func newInbounds() *inbounds {
	return &inbounds{open: map[jobKey]map[*inbound]struct{}{}, published: map[itemKey][]byte{}, groups: map[jobKey][]*namedGroup{}}
}

// begin enters an item. What an earlier attempt at the job still has open, on
// a session that was lost, is waited for: it must neither publish after this
// one nor be in its way. If it published this item, its meta is returned.
func (b *inbounds) begin(in *inbound, wait time.Duration) (meta []byte, err error) {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		earlier, meta, err := b.enter(in)
		if earlier == nil || err != nil {
			return meta, err
		}
		select {
		case <-earlier.over:
		case <-limit.C:
			return nil, reason.New(reason.PeerRefused, "an earlier attempt at this job has not ended at the destination yet")
		}
	}
}

// enter enters an item unless another is in its way.
func (b *inbounds) enter(in *inbound) (earlier *inbound, meta []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.open[in.key.jobKey]
	for other := range open {
		switch {
		case other.attempt > in.attempt:
			return nil, nil, reason.New(reason.PeerRefused, "a later attempt at this job has begun")
		case other.attempt < in.attempt:
			return other, nil, nil
		case other.key == in.key:
			return nil, nil, reason.New(reason.PeerRefused, "the attempt sends this item already")
		}
	}
	if meta := b.published[in.key]; meta != nil {
		return nil, meta, nil
	}
	if open == nil {
		open = map[*inbound]struct{}{}
		b.open[in.key.jobKey] = open
	}
	open[in] = struct{}{}
	return nil, nil, nil
}

// end takes an item out; meta is not nil when it was published. forgotten are
// the items that are remembered no longer for it.
func (b *inbounds) end(in *inbound, meta []byte) (forgotten []itemKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.open[in.key.jobKey]
	if _, ok := open[in]; !ok {
		return nil
	}
	delete(open, in)
	if len(open) == 0 {
		delete(b.open, in.key.jobKey)
	}
	close(in.over)
	if meta == nil || in.key.attempt != 0 {
		return b.trimGroups()
	}
	return b.remember(in.key, meta)
}

// recall enters what an earlier process published.
func (b *inbounds) recall(key itemKey, meta []byte) (forgotten []itemKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.remember(key, meta)
}

// remember adds to what was published. mu is held.
func (b *inbounds) remember(key itemKey, meta []byte) (forgotten []itemKey) {
	b.published[key] = meta
	b.order = append(b.order, key)
	if len(b.order) <= rememberItems {
		return nil
	}
	oldest := b.order[0]
	delete(b.published, oldest)
	b.order = b.order[1:]
	return []itemKey{oldest}
}

// naming enters the names that a group is about to give.
func (b *inbounds) naming(key itemKey, root, base string, names []fileio.NameInode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.groups[key.jobKey] {
		if g.key == key {
			g.names = names // told again, see fileio.GroupSpec.Naming
			return
		}
	}
	g := &namedGroup{key: key, root: root, base: base, names: names}
	b.groups[key.jobKey] = append(b.groups[key.jobKey], g)
	b.grouping = append(b.grouping, g)
}

// trimGroups forgets the oldest groups beyond the limit. mu is held.
func (b *inbounds) trimGroups() (forgotten []itemKey) {
	for len(b.grouping) > rememberGroups {
		oldest := b.grouping[0]
		b.grouping = b.grouping[1:]
		left := slices.DeleteFunc(b.groups[oldest.key.jobKey], func(g *namedGroup) bool { return g == oldest })
		if b.groups[oldest.key.jobKey] = left; len(left) == 0 {
			delete(b.groups, oldest.key.jobKey)
		}
		forgotten = append(forgotten, oldest.key)
	}
	return forgotten
}

// named returns the names that a job's groups gave below base, by the name.
func (b *inbounds) named(j jobKey, root, base string) map[string]fileio.NameInode {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out map[string]fileio.NameInode
	for _, g := range b.groups[j] {
		if g.root != root || g.base != base {
			continue
		}
		if out == nil {
			out = map[string]fileio.NameInode{}
		}
		for _, n := range g.names {
			out[n.Rel] = n
		}
	}
	return out
}
