package buffer

import (
	"cmp"
	"slices"
)

// leaseTable is the leases of one buffer: readers share, a writer is alone on
// its range. It is small (Limits.MaxLeases), so it is searched from end to end.
// Not safe for concurrent use.
type leaseTable struct{ held []*Lease }

// conflict is the first lease in the way of a new one, nil if none is. An
// empty range is in nobody's way.
func (t *leaseTable) conflict(offset, length int64, exclusive bool) *Lease {
	for _, l := range t.held {
		i := &l.info
		if (exclusive || i.Exclusive) && max(offset, i.Offset) < min(offset+length, i.Offset+i.Length) {
			return l
		}
	}
	return nil
}

func (t *leaseTable) add(l *Lease) { t.held = append(t.held, l) }

// remove forgets a lease and gives its place back.
func (t *leaseTable) remove(l *Lease) {
	if i := slices.Index(t.held, l); i >= 0 {
		t.held = slices.Delete(t.held, i, i+1)
	}
}

// list describes all, by offset and age.
func (t *leaseTable) list() []LeaseInfo {
	all := make([]LeaseInfo, len(t.held))
	for i, l := range t.held {
		all[i] = l.info
	}
	slices.SortStableFunc(all, func(a, b LeaseInfo) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), a.Since.Compare(b.Since))
	})
	return all
}
