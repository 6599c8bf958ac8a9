package node

import (
	"context"
	"slices"

	"mover/engine"
	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// packMetaBytes bounds the description of a group's entries: what describes the
// whole group comes to it, within job.MaxGroupMetaBytes.
const packMetaBytes = 48 << 10

// pack is the group that is being filled.
type pack struct {
	entries   []fileio.Entry
	described []job.GroupEntry
	bytes     int64
	meta      int
	final     bool // directories get their attributes
}

// shipment is an item of a tree under way: a group, or a file.
type shipment struct {
	item  *engine.Item
	group *groupShipment
	file  *fileio.Source
	entry fileio.Entry // of a file
	seen  int64        // bytes of a file that were counted
}

// groupShipment is a group under way.
type groupShipment struct {
	pack
	source *fileio.GroupSource
}

// entryKinds are the kinds of a walk's entries as they travel.
var entryKinds = [...]job.EntryKind{fileio.KindFile: job.EntryFile, fileio.KindDir: job.EntryDir,
	fileio.KindSymlink: job.EntrySymlink, fileio.KindHardLink: job.EntryHardlink, fileio.KindOther: job.EntryFile}

// describe is an entry as it travels.
func (t *tree) describe(e fileio.Entry) job.GroupEntry {
	d := job.GroupEntry{Kind: entryKinds[e.Kind], Path: []byte(e.Rel), Size: e.Size, MtimeNS: job.MtimeNS(e.MTime), Target: []byte(e.Target)}
	if e.Kind != fileio.KindSymlink {
		d.Mode = uint32(e.Mode.Perm())
	}
	if t.spec.Preserves(job.PreserveOwner) {
		d.UID, d.GID = uint32(e.UID), uint32(e.GID)
	}
	d.Xattrs = jobXattrs(e.Xattrs)
	return d
}

// add puts an entry into the group.
func (t *tree) add(e fileio.Entry) error { return t.addDescribed(t.describe(e), e) }

// addDescribed sends the group first if the entry does not fit any more.
func (t *tree) addDescribed(d job.GroupEntry, e fileio.Entry) error {
	p, size := &t.pack, d.EncodedSize()
	if len(p.entries) == job.MaxGroupEntries || p.meta+size > packMetaBytes || p.bytes+e.Size > int64(t.cfg.Session.SlotPayload) {
		if err := t.flush(); err != nil {
			return err
		}
	}
	p.entries, p.described = append(p.entries, e), append(p.described, d)
	p.bytes += e.Size
	p.meta += size
	return nil
}

// flush sends the group, if there is one.
func (t *tree) flush() error {
	p := t.pack
	t.pack = pack{final: p.final}
	if len(p.entries) == 0 {
		return nil
	}
	if err := t.place(); err != nil {
		return err
	}
	if err := t.sendGroup(p); err != nil {
		<-t.window
		return err
	}
	return nil
}

// place waits until another item may be under way.
func (t *tree) place() error {
	select {
	case t.window <- struct{}{}:
		return nil
	case <-t.ctx.Done():
		return asReason(context.Cause(t.ctx))
	}
}

// sendGroup sends a group, for which there is a place.
func (t *tree) sendGroup(p pack) error {
	src, err := t.root.OpenGroup(t.base, p.entries, sum)
	if err != nil {
		return err
	}
	if t.spec.Compare == job.CompareCRC && !p.final {
		if err := t.checksums(&p, src); err != nil {
			src.Close()
			return err
		}
	}
	g := job.GroupManifest{
		Job: t.attempt.Job.ID, Group: t.nextNumber(), Attempt: uint32(t.attempt.Number), Owner: t.attempt.Job.Owner,
		SourceNode: t.cfg.Node.Name, SourceRoot: t.spec.Source.Root(), Root: t.dest.root, Base: []byte(t.dest.base),
		Overwrite: t.spec.Overwrite, Compare: t.spec.Compare, Durable: t.durable(), Final: p.final, Preserve: inOrder(t.spec.Preserve), Entries: p.described,
	}
	meta, err := g.Append(nil)
	if err != nil {
		src.Close()
		return reason.New(reason.Internal, "%w", err)
	}
	t.send(&shipment{group: &groupShipment{p, src}, item: &engine.Item{
		Attempt: g.Attempt, Kind: engine.Staged, Bytes: p.bytes, Verify: t.verify(), Meta: meta, Source: groupSource{src},
	}})
	return nil
}

// inOrder are the words of preserve as a group's description has them.
func inOrder(words []string) (out []string) {
	for _, w := range [...]string{job.PreserveMode, job.PreserveMtime, job.PreserveOwner, job.PreserveXattrs, job.PreserveHardlinks} {
		if slices.Contains(words, w) {
			out = append(out, w)
		}
	}
	return out
}

// checksums reads the group's files, so that the destination can compare them
// with what it has. What can't be read fails when it is sent.
func (t *tree) checksums(p *pack, src *fileio.GroupSource) error {
	if p.bytes == 0 {
		return nil
	}
	buf := make([]byte, p.bytes)
	_, _ = src.ReadAt(buf, 0)
	for i := range p.described {
		if d := &p.described[i]; d.Kind == job.EntryFile {
			d.CRC32C, d.HasCRC = src.CRC(i)
		}
	}
	return t.ctx.Err()
}

// groupSource is a group as the engine reads it.
type groupSource struct{ *fileio.GroupSource }

// Verify implements engine.Source.
func (s groupSource) Verify(uint32) error { return s.GroupSource.Verify() }

// sendFile sends a file that is an item of its own.
func (t *tree) sendFile(e fileio.Entry) error {
	if err := t.place(); err != nil {
		return err
	}
	item, src, err := t.fileItem(e)
	if err != nil {
		<-t.window
		t.unpublished(&e, false)
		return t.problem(e.Rel, job.EntryFile, e.Size, asReason(err))
	}
	t.send(&shipment{file: src, entry: e, item: item})
	return nil
}

func (t *tree) fileItem(e fileio.Entry) (*engine.Item, *fileio.Source, error) {
	src, err := t.root.OpenSource(treePlace{base: t.base}.path(e.Rel))
	if err != nil {
		return nil, nil, err
	}
	m, err := t.manifest(t.ctx, src)
	if err == nil {
		m.Item, m.Root, m.Path = t.nextNumber(), t.dest.root, []byte(t.dest.path(e.Rel))
		t.expect(src.Size()-e.Size, 0) // it may have changed since the walk saw it
		var item *engine.Item
		if item, err = t.item(m, &checkedFile{src, &t.spec}); err == nil {
			return item, src, nil
		}
	}
	src.Close()
	return nil, nil, err
}

func (t *tree) nextNumber() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	return t.number
}

// send sends an item that has a place.
func (t *tree) send(s *shipment) {
	s.item.Pace = t.pacers()
	s.item.Done = func(r engine.ItemResult) { t.landed <- landing{s, r} }
	t.mu.Lock()
	t.flying[s] = struct{}{}
	t.mu.Unlock()
	t.to.Send(s.item)
	if t.ctx.Err() != nil { // it failed meanwhile, and may not have seen this one
		t.to.Cancel(s.item, asReason(context.Cause(t.ctx)))
	}
}
