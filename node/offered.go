package node

import (
	"io/fs"
	"time"

	"mover/engine"
	"mover/fileio"
	"mover/job"
)

// offered is the description of an item: a file, a range of a buffer or a
// group of tree entries, of which the Manifest has what they have in common.
type offered struct {
	job.Manifest
	group *job.GroupManifest // nil for a file or a range
}

// readOffered reads what the source says of an item. It is trusted in nothing.
func readOffered(offer *engine.ItemOffer) (offered, error) {
	if !job.IsGroup(offer.Meta) {
		m, err := job.DecodeManifest(offer.Meta)
		return offered{Manifest: m}, err
	}
	g, err := job.DecodeGroup(offer.Meta)
	if err != nil {
		return offered{}, err
	}
	return offered{group: g, Manifest: job.Manifest{
		Job: g.Job, Item: g.Group, Attempt: g.Attempt, Owner: g.Owner, SourceNode: g.SourceNode, SourceRoot: g.SourceRoot,
		Root: g.Root, Path: g.Base, Durable: g.Durable, Preserve: g.Preserve, Size: g.Bytes(),
	}}, nil
}

// key names the item over all attempts; a group is one of its attempt alone.
func (o *offered) key(peer string) itemKey {
	k := itemKey{jobKey: jobKey{peer: peer, job: o.Job}, place: o.Root + "/" + string(o.Path)}
	switch {
	case o.group != nil:
		k.attempt, k.group = o.Attempt, o.Item
	case o.Buffer != "":
		k.place = "buffer:" + o.Buffer
	}
	return k
}

// preserved translates the words of a job.
func preserved(words []string) (p fileio.Preserve) {
	for _, w := range words {
		switch w {
		case job.PreserveMode:
			p |= fileio.PreserveMode
		case job.PreserveMtime:
			p |= fileio.PreserveMTime
		case job.PreserveOwner:
			p |= fileio.PreserveOwner
		case job.PreserveXattrs:
			p |= fileio.PreserveXattrs
		}
	}
	return p
}

// createSpec is what a file's manifest asks of the file system.
func createSpec(m *job.Manifest) (fileio.CreateSpec, error) {
	spec := fileio.CreateSpec{
		Rel: string(m.Path), Size: m.Size, Job: m.Job.String(), Item: uint64(m.Item), Attempt: m.Attempt,
		Durable: m.Durable, Preserve: preserved(m.Preserve), Mode: fs.FileMode(m.Mode), MTime: time.Unix(0, m.MtimeNS),
		UID: int(m.UID), GID: int(m.GID), Xattrs: fileXattrs(m.Xattrs),
	}
	var err error
	spec.Overwrite, err = fileio.ParseOverwrite(m.Overwrite)
	if m.Compare == job.CompareCRC {
		spec.CRC, _ = job.ParseCRC32C(m.CRC32C)
		spec.Sum = sum
	}
	return spec, err
}

// groupSpec is what a group's manifest asks of the file system.
func groupSpec(g *job.GroupManifest) (fileio.GroupSpec, error) {
	spec := fileio.GroupSpec{
		Base: string(g.Base), Job: g.Job.String(), Group: uint64(g.Group), Attempt: g.Attempt,
		Durable: g.Durable, Preserve: preserved(g.Preserve), Entries: make([]fileio.GroupEntry, len(g.Entries)),
	}
	if g.Compare == job.CompareCRC {
		spec.Sum = sum
	}
	for i := range g.Entries {
		e := &g.Entries[i]
		spec.Entries[i] = fileio.GroupEntry{
			Rel: string(e.Path), Kind: fileKinds[e.Kind], Size: e.Size, CRC: e.CRC32C, Target: string(e.Target),
			Mode: fs.FileMode(e.Mode), MTime: time.Unix(0, e.MtimeNS), UID: int(e.UID), GID: int(e.GID), Xattrs: fileXattrs(e.Xattrs),
		}
	}
	var err error
	spec.Overwrite, err = fileio.ParseOverwrite(g.Overwrite)
	return spec, err
}

var fileKinds = [...]fileio.Kind{
	job.EntryDir: fileio.KindDir, job.EntryFile: fileio.KindFile,
	job.EntrySymlink: fileio.KindSymlink, job.EntryHardlink: fileio.KindHardLink,
}

func fileXattrs(in []job.Xattr) []fileio.Xattr {
	var out []fileio.Xattr
	for _, x := range in {
		out = append(out, fileio.Xattr(x))
	}
	return out
}
