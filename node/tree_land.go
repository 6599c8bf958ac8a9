package node

import (
	"mover/engine"
	"mover/job"
	"mover/reason"
)

// landing is an item that came back.
type landing struct {
	*shipment
	result engine.ItemResult
}

// land takes an item that came back. It runs on the attempt's goroutine.
func (t *tree) land(l landing) {
	t.mu.Lock()
	delete(t.flying, l.shipment)
	t.arrived(l.shipment)
	t.mu.Unlock()
	again := false
	var err error
	if l.group != nil {
		l.group.source.Close()
		again, err = t.landGroup(l)
	} else {
		l.file.Close()
		err = t.landFile(l)
	}
	if !again {
		<-t.window
	}
	if err != nil {
		t.fail(asReason(err))
	}
}

// landFile takes a file that was an item of its own.
func (t *tree) landFile(l landing) error {
	size := l.item.Bytes
	if l.result.Err != nil {
		t.unpublished(&l.entry, false)
		return t.problem(l.entry.Rel, job.EntryFile, size, l.result.Err)
	}
	m, err := job.DecodeDoneMeta(l.result.Meta)
	if err != nil {
		return reason.New(reason.Internal, "the destination published a file and described it wrongly: %w", err)
	}
	if m.Skipped {
		t.unpublished(&l.entry, true)
		t.skipped(l.entry.Rel, job.EntryFile, size)
		return nil
	}
	t.attempt.Progress.Add(size - l.seen) // an earlier attempt had published it
	t.done(l.entry.Rel, job.EntryFile, m.Bytes, m.CRC32C)
	return nil
}

// landGroup takes a group. again says that what is left of it was sent again,
// in its place.
func (t *tree) landGroup(l landing) (again bool, err error) {
	g := l.group
	if l.result.Err != nil {
		return t.groupFailed(l)
	}
	d, err := job.DecodeGroupDone(l.result.Meta, len(g.entries))
	if err != nil {
		return false, reason.New(reason.Internal, "the destination published a group and described it wrongly: %w", err)
	}
	exceptions, failure := d.Exceptions, error(nil)
	for i := range g.entries {
		e, kind := &g.entries[i], g.described[i].Kind
		if len(exceptions) == 0 || int(exceptions[0].Index) != i {
			if g.final {
				continue // counted when it was made
			}
			crc := ""
			if sum, ok := g.source.CRC(i); ok && kind == job.EntryFile && t.verify() {
				crc = job.FormatCRC32C(sum)
			}
			t.attempt.Progress.Add(e.Size)
			t.done(e.Rel, kind, e.Size, crc)
			continue
		}
		x := exceptions[0]
		exceptions = exceptions[1:]
		t.unpublished(e, x.Outcome == job.EntrySkipped)
		if x.Outcome == job.EntrySkipped {
			t.skipped(e.Rel, kind, e.Size)
		} else if err := t.problem(e.Rel, kind, e.Size, &reason.Error{Code: x.Code, Detail: x.Detail}); err != nil && failure == nil {
			failure = err // but those after it were published, and the next attempt must know
		}
	}
	return false, failure
}

// groupFailed takes a group that was not published. Entries that could not be
// read are left out, and the others sent again.
func (t *tree) groupFailed(l landing) (again bool, err error) {
	g := l.group
	failed := g.source.Failed()
	if len(failed) == 0 {
		// All of it, for a reason that each of them has.
		for i := range g.entries {
			t.unpublished(&g.entries[i], false)
			if err := t.problem(g.entries[i].Rel, g.described[i].Kind, g.entries[i].Size, l.result.Err); err != nil {
				return false, err
			}
		}
		return false, nil
	}
	left := pack{final: g.final}
	for i := range g.entries {
		e := g.entries[i]
		if len(failed) > 0 && failed[0].Index == i {
			t.unpublished(&e, false)
			if err := t.problem(e.Rel, g.described[i].Kind, e.Size, failed[0].Err); err != nil {
				return false, err
			}
			failed = failed[1:]
			continue
		}
		left.entries, left.described = append(left.entries, e), append(left.described, g.described[i])
		left.bytes += e.Size
	}
	if len(left.entries) == 0 || t.failure != nil {
		return false, nil
	}
	err = t.sendGroup(left)
	return err == nil, err
}

// done records an entry that is published.
func (t *tree) done(rel string, kind job.EntryKind, bytes int64, crc string) {
	t.attempt.Items.Add(job.ItemRecord{Path: []byte(rel), Kind: kind, State: job.ItemSucceeded, Bytes: bytes, CRC32C: crc})
	t.counted(bytes, 1, 0)
}

// skipped records an entry that the destination keeps as it is.
func (t *tree) skipped(rel string, kind job.EntryKind, bytes int64) {
	t.attempt.Items.Add(job.ItemRecord{Path: []byte(rel), Kind: kind, State: job.ItemSkipped})
	t.expect(-bytes, 0)
	t.counted(0, 0, 1)
}
