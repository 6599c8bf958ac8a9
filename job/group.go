package job

import (
	"slices"
	"strings"

	"mover/reason"
)

// Limits of a group of small entries, which travels as one item.
const (
	MaxGroupEntries    = 512
	MaxGroupBytes      = 16 << 20 // of the files' bytes: the largest slot payload
	MaxGroupMetaBytes  = 64 << 10 // of the encoded description, and of the answer
	MaxGroupDetail     = 96       // bytes of the text of one exception
	groupVersion       = 1
	groupAnswerVersion = 1
)

// EntryKind is what an entry of a tree is.
type EntryKind uint8

// The kinds. The numbers travel.
const (
	EntryDir      EntryKind = 1
	EntryFile     EntryKind = 2
	EntrySymlink  EntryKind = 3
	EntryHardlink EntryKind = 4
)

var kindNames = [...]string{EntryDir: "dir", EntryFile: "file", EntrySymlink: "symlink", EntryHardlink: "hardlink"}

// Valid reports whether k is one of the kinds.
func (k EntryKind) Valid() bool { return k >= EntryDir && k <= EntryHardlink }

// String returns the name that the API shows, "" if k is not Valid.
func (k EntryKind) String() string {
	if !k.Valid() {
		return ""
	}
	return kindNames[k]
}

// GroupManifest is what the destination must know of many small entries of a
// tree before their bytes arrive: the opaque bytes of the engine's offer of one
// item, whose bytes are the files' bytes one after the other, in the order of
// Entries. Encoded, it is told from a Manifest by IsGroup. Decoded from a peer
// it has been validated for form: what it may write is not its business.
type GroupManifest struct {
	Job        ID
	Group      uint32 // number within the attempt's items, from 0
	Attempt    uint32 // of the job, from 1
	Owner      string // of the job, "node/token-name"
	SourceNode string
	SourceRoot string
	Root       string // at the destination
	// Base is below Root: what the paths of the entries are below. Clean as
	// Manifest.Path; empty is the root itself.
	Base      []byte
	Overwrite string // one of the Overwrite constants
	Compare   string // CompareMtime or CompareCRC
	Durable   bool
	// Final says that the tree's other entries are published: directories get
	// their mode and times now, though they exist.
	Final    bool
	Preserve []string // of the Preserve constants, in their order
	Entries  []GroupEntry
}

// GroupEntry is one entry. The zero value of what its Kind does not have is
// required.
type GroupEntry struct {
	Kind EntryKind
	Path []byte // below GroupManifest.Base, clean as Manifest.Path; "." is the base itself, for a directory
	Size int64  // of a file, bytes
	// Mode has permission bits alone: a peer must not plant a set-uid file.
	Mode     uint32 // of a directory or file
	MtimeNS  int64  // since the epoch; not of a hard link
	UID, GID uint32 // with PreserveOwner; not of a hard link
	Xattrs   []Xattr
	// Target of a symlink is any text of 1 to 4095 bytes without NUL, which is
	// stored and never followed; of a hard link, the path of another entry of
	// the tree, below Base, which was published before.
	Target []byte
	HasCRC bool // of a file: CRC32C is known, for CompareCRC
	CRC32C uint32
}

// IsGroup reports whether the opaque bytes of an item's offer are a
// GroupManifest rather than a Manifest, whose first byte is that of a JSON
// object.
func IsGroup(meta []byte) bool { return len(meta) > 0 && meta[0] != '{' }

// Bytes returns the sum of the files' sizes: the size of the item.
func (g *GroupManifest) Bytes() int64 {
	var n int64
	for i := range g.Entries {
		n += g.Entries[i].Size
	}
	return n
}

// Preserves reports whether the destination gets what, such as PreserveMode,
// from the source.
func (g *GroupManifest) Preserves(what string) bool { return slices.Contains(g.Preserve, what) }

func (g *GroupManifest) validate() error {
	switch {
	case g.Job == ID{}:
		return refuse("job", "is missing")
	case g.Attempt == 0:
		return refuse("attempt", "must be 1 or more")
	case !ownerShape.MatchString(g.Owner):
		return refuse("owner", "must be node/name")
	case !ValidName(g.SourceNode):
		return refuse("source_node", nameRule)
	case !ValidName(g.SourceRoot):
		return refuse("source_root", nameRule)
	case !ValidName(g.Root):
		return refuse("root", nameRule)
	case len(g.Base) > 0 && !cleanBelow(g.Base):
		return refuse("base", "must be a clean path below a root")
	case !slices.Contains(overwrites[:], g.Overwrite):
		return refuse("overwrite", "must be one of %s", strings.Join(overwrites[:], ", "))
	case g.Compare != CompareMtime && g.Compare != CompareCRC:
		return refuse("compare", "must be mtime or crc")
	case len(g.Entries) == 0 || len(g.Entries) > MaxGroupEntries:
		return refuse("entries", "must be 1 to %d", MaxGroupEntries)
	}
	last := -1
	for _, p := range g.Preserve {
		i := slices.Index(preserves[:], p)
		if i <= last {
			return refuse("preserve", "must be of %s, in this order, each once", strings.Join(preserves[:], ", "))
		}
		last = i
	}
	var total int64
	for i := range g.Entries {
		e := &g.Entries[i]
		if err := e.validate(len(g.Base)); err != nil {
			return err
		}
		if total += e.Size; total > MaxGroupBytes {
			return refuse("entries", "come to more than %d bytes", MaxGroupBytes)
		}
	}
	return nil
}

func (e *GroupEntry) validate(base int) error {
	switch {
	case !e.Kind.Valid():
		return refuse("entries", "one has an unknown kind")
	case !cleanBelow(e.Path) && !(e.Kind == EntryDir && string(e.Path) == ".") || base+1+len(e.Path) > maxPathBytes:
		return refuse("entries", "a path is not a clean path below a root")
	case e.Size < 0 || e.Size > MaxGroupBytes || e.Size > 0 && e.Kind != EntryFile:
		return refuse("entries", "a size must not be negative nor above %d, and belongs to a file", MaxGroupBytes)
	case e.Mode&^0o777 != 0 || e.Mode != 0 && e.Kind != EntryFile && e.Kind != EntryDir:
		return refuse("entries", "a mode must be permission bits alone, of a file or a directory")
	case e.Kind == EntryHardlink && (e.MtimeNS != 0 || e.UID != 0 || e.GID != 0 || len(e.Xattrs) > 0):
		return refuse("entries", "a hard link has no metadata of its own")
	case e.Kind == EntryHardlink && !cleanBelow(e.Target):
		return refuse("entries", "a hard link's target is not a clean path below the tree's top")
	case e.Kind == EntrySymlink && (len(e.Target) == 0 || len(e.Target) > maxPathBytes || slices.Contains(e.Target, 0)):
		return refuse("entries", "a symbolic link's target must be 1 to %d bytes without NUL", maxPathBytes)
	case len(e.Target) > 0 && e.Kind != EntrySymlink && e.Kind != EntryHardlink:
		return refuse("entries", "a target belongs to a link")
	case e.HasCRC && e.Kind != EntryFile || !e.HasCRC && e.CRC32C != 0:
		return refuse("entries", "a checksum belongs to a file")
	}
	return checkXattrs(e.Xattrs)
}

// cleanBelow is checkSub without its allocations, for the path of small files.
func cleanBelow(p []byte) bool {
	if len(p) == 0 || len(p) > maxPathBytes {
		return false
	}
	start := 0
	for i := 0; i <= len(p); i++ {
		if i < len(p) && p[i] != '/' {
			if p[i] == 0 {
				return false
			}
			continue
		}
		switch part := p[start:i]; {
		case len(part) == 0, len(part) == 1 && part[0] == '.', len(part) == 2 && part[0] == '.' && part[1] == '.':
			return false
		}
		start = i + 1
	}
	return true
}

// Outcome is what became of an entry that was not published.
type Outcome uint8

// The outcomes. The numbers travel.
const (
	EntrySkipped Outcome = 1 // by the overwrite policy
	EntryFailed  Outcome = 2
)

// GroupException is an entry that was not published. An EntrySkipped has
// neither code nor detail.
type GroupException struct {
	Index   uint32 // in Entries
	Outcome Outcome
	Code    reason.Code
	Detail  string // one sentence; Encode cuts it to MaxGroupDetail
}

// GroupDone is what the source must know of a group that the destination has
// finished: every entry that is not listed is published.
type GroupDone struct {
	Exceptions []GroupException // by Index, each once
	Durable    bool
	Verified   bool // every published file's bytes have the sender's CRC
}

func (d *GroupDone) validate() error {
	if len(d.Exceptions) > MaxGroupEntries {
		return refuse("exceptions", "has more than %d entries", MaxGroupEntries)
	}
	for i, x := range d.Exceptions {
		switch {
		case x.Index >= MaxGroupEntries || i > 0 && d.Exceptions[i-1].Index >= x.Index:
			return refuse("exceptions", "must be sorted by index, each once")
		case x.Outcome == EntrySkipped && (x.Code != "" || x.Detail != ""):
			return refuse("exceptions", "a skipped entry has no reason")
		case x.Outcome == EntryFailed && !x.Code.Valid():
			return refuse("exceptions", "a failed entry has a reason of the list")
		case x.Outcome != EntrySkipped && x.Outcome != EntryFailed:
			return refuse("exceptions", "one has an unknown outcome")
		}
	}
	return nil
}
