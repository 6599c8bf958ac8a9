package fileio

import (
	"io/fs"
	"time"

	"mover/reason"
)

// GroupEntriesMax bounds the entries of a group: a group holds a descriptor for
// every file from its first byte to Publish, and one for every directory.
const GroupEntriesMax = 512

// GroupEntry is one entry of a group to be received.
type GroupEntry struct {
	Rel  string // below GroupSpec.Base; "." is Base itself, for a directory alone
	Kind Kind   // not KindOther
	Size int64  // of a file: its bytes in the group follow those of the entry before
	// CRC of a file is what GroupSpec.Sum says of its bytes; used with Sum alone.
	CRC uint32
	// Target is a symlink's content, or for a hard link the path below Base of
	// the file it is another name of, published before or in the same group.
	Target string
	// Published: PublishedGroup said that this entry has its name already. Its
	// bytes are ignored and its outcome is EntryPublished.
	Published bool

	Mode     fs.FileMode // with PreserveMode; of directories see FinishDirs
	MTime    time.Time   // with PreserveMTime, and what if_newer and if_different compare
	UID, GID int         // with PreserveOwner
	Xattrs   []Xattr     // with PreserveXattrs, of files
}

// GroupSpec describes a group of entries to be received as one item.
type GroupSpec struct {
	Base string // directory in the root, made if missing; may lead through symlinks that stay inside

	// Job, Group and Attempt name the partial files. Two groups that can be
	// alive at once must differ in one of them.
	Job     string
	Group   uint64
	Attempt uint32

	Overwrite Overwrite
	// Sum, unless nil, makes if_different compare size and checksum instead of
	// size and time. It continues a checksum over more bytes, beginning with 0.
	Sum func(sum uint32, p []byte) uint32
	// Durable: Publish returns only when files and names survive a power cut.
	Durable  bool
	Preserve Preserve
	Entries  []GroupEntry // at most GroupEntriesMax; kept, and not changed by the caller

	// Naming, unless nil, is called by Publish when everything is written and
	// synced and before the first name appears, with the inodes that will have
	// the names, for PublishedGroup. Its error ends the group. It is called again,
	// with the whole list, should an entry get another inode afterwards; an error
	// then ends that entry. The slice is the callee's.
	Naming func([]NameInode) error
}

// EntryState is how far an entry of a group got.
type EntryState uint8

const (
	EntryPending   EntryState = iota // wanted, and not published yet
	EntryPublished                   // it has its name; a directory was made
	EntrySkipped                     // the overwrite policy keeps what is there
	EntryMerged                      // a directory that existed
	EntryFailed                      // see Err
)

// EntryOutcome is what became of one entry.
type EntryOutcome struct {
	State EntryState
	// Err is why it failed. With EntryPublished it says that the directory
	// could not be synced; with EntrySkipped it wraps ErrSkipped.
	Err   *reason.Error
	Bytes int64 // of a published file
	Inode Inode // of what was written or made, once it exists
}

// size is how many of the group's bytes are entry i's.
func (s *GroupSpec) size(i int) int64 {
	if s.Entries[i].Kind != KindFile {
		return 0
	}
	return s.Entries[i].Size
}
