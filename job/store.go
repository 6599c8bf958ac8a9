package job

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"sort"
	"time"
)

// record is what is kept of a job: everything, but what belongs to an attempt
// under way. It is a value; the store and the queue never share one.
type record struct {
	snap     Snapshot
	key      keyOf             // of the submit, if it had one
	body     [sha256.Size]byte // fingerprint of the Spec
	failures int               // retryable failures; an attempt cut short by Close is none
}

// keyOf is an idempotency key with the identity that used it: keys of
// different owners never meet.
type keyOf struct{ owner, key string }

// store keeps records. The queue calls it under its own lock, never twice at
// once. insert and update return when the record is as durable as the store
// makes it; a 202 is sent after insert. At most keep terminal records stay:
// those that ended first go first, with their keys.
type store interface {
	insert(r record) error
	update(r record) error
	get(id ID) (record, bool)
	byKey(k keyOf) (record, bool)
	// list returns up to limit records that match, newest first, older than
	// after if that is not the zero ID.
	list(f Filter, after ID, limit int) []record
	counts() map[State]int
}

// memory is a store that ends with the process.
type memory struct {
	keep    int
	records map[ID]record
	keys    map[keyOf]ID
	order   []ID // sorted, oldest first
	ended   []ID // in the order in which they ended
	states  map[State]int
}

func newMemory(keep int) *memory {
	return &memory{keep: keep, records: map[ID]record{}, keys: map[keyOf]ID{}, states: map[State]int{}}
}

func (m *memory) search(id ID) int {
	return sort.Search(len(m.order), func(i int) bool { return bytes.Compare(m.order[i][:], id[:]) >= 0 })
}

func (m *memory) insert(r record) error {
	id := r.snap.ID
	m.records[id] = r
	m.order = slices.Insert(m.order, m.search(id), id)
	m.states[r.snap.State]++
	if r.key.key != "" {
		m.keys[r.key] = id
	}
	return nil
}

func (m *memory) update(r record) error {
	id := r.snap.ID
	old := m.records[id]
	m.states[old.snap.State]--
	m.states[r.snap.State]++
	m.records[id] = r
	if old.snap.State.Terminal() && !r.snap.State.Terminal() {
		m.ended = slices.DeleteFunc(m.ended, func(o ID) bool { return o == id })
	}
	if r.snap.State.Terminal() && !old.snap.State.Terminal() {
		m.ended = append(m.ended, id)
		for len(m.ended) > m.keep {
			m.drop(m.ended[0])
			m.ended = m.ended[1:]
		}
	}
	return nil
}

func (m *memory) drop(id ID) {
	r := m.records[id]
	m.states[r.snap.State]--
	delete(m.records, id)
	delete(m.keys, r.key)
	i := m.search(id)
	m.order = slices.Delete(m.order, i, i+1)
}

func (m *memory) remove(id ID) {
	m.drop(id)
	m.ended = slices.DeleteFunc(m.ended, func(o ID) bool { return o == id })
}

func (m *memory) get(id ID) (record, bool) {
	r, ok := m.records[id]
	return r, ok
}

func (m *memory) byKey(k keyOf) (record, bool) {
	id, ok := m.keys[k]
	if !ok {
		return record{}, false
	}
	return m.get(id)
}

func (m *memory) list(f Filter, after ID, limit int) []record {
	end := len(m.order)
	if after != (ID{}) {
		end = m.search(after)
	}
	var page []record
	for i := end - 1; i >= 0 && len(page) < limit; i-- {
		if r := m.records[m.order[i]]; f.match(r.snap) {
			page = append(page, r)
		}
	}
	return page
}

func (m *memory) counts() map[State]int {
	out := make(map[State]int, len(moves))
	for _, s := range States() {
		out[s] = m.states[s]
	}
	return out
}

// Filter selects jobs. Its zero value selects all.
type Filter struct {
	States       []State // any of them; none is all
	Owner        string
	LabelKey     string // has this label; "" is no condition
	LabelValue   string // with this value
	CreatedAfter time.Time
}

func (f Filter) match(s Snapshot) bool {
	if len(f.States) > 0 && !slices.Contains(f.States, s.State) {
		return false
	}
	if f.Owner != "" && s.Owner != f.Owner {
		return false
	}
	if f.LabelKey != "" {
		if v, ok := s.Spec.Labels[f.LabelKey]; !ok || v != f.LabelValue {
			return false
		}
	}
	return f.CreatedAfter.IsZero() || s.CreatedAt.After(f.CreatedAfter)
}
