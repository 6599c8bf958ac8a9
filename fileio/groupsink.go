package fileio

import (
	"context"
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
	Xattrs   []Xattr     // with PreserveXattrs
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
	// the names, for PublishedGroup. Its error ends the group.
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
	// could not be synced.
	Err   *reason.Error
	Bytes int64 // written under the name
	Inode Inode // once it exists
}

// GroupSink is one attempt at receiving one group. WriteAt may be called by any
// number of goroutines, which wait for each other; Publish and Discard by any
// goroutine. A failed entry never fails the others.
type GroupSink struct{}

// CreateGroup begins to receive a group: it opens or makes the directories, decides
// for every entry by what stands under its name, and reserves space for
// those that are wanted, all at once. The caller must end the GroupSink with Publish or Discard.
//
// An entry that cannot be received is EntryFailed in Outcomes and no error here:
// DEST_EXISTS (policy fail, a directory where a file should be or the reverse),
// PATH_OUTSIDE_ROOT, NAME_TOO_LONG, PERMISSION_DENIED.
//
// Errors: those of opening or making Base, NO_SPACE, QUOTA, CANCELED, DEADLINE,
// INTERNAL for a bad spec.
func (r *Root) CreateGroup(ctx context.Context, spec GroupSpec) (*GroupSink, error) {
	return nil, reason.New(reason.Internal, "create a group in %q: not in this build", spec.Base)
}

// Size is the sum of all files' sizes, wanted or not, in bytes.
func (g *GroupSink) Size() int64 { return 0 }

// Wanted returns how many entries are still to be published, and the bytes of the
// files among them. With no entries there is nothing to send.
func (g *GroupSink) Wanted() (entries int, bytes int64) { return 0, 0 }

// WriteAt writes the bytes p at off of all files in a row, each file's part
// under its own partial name. Ranges may come in any order and more than once. Bytes of
// entries that are not wanted, or have failed, are dropped. A failed write is that
// entry's end, recorded in Outcomes: WriteAt itself fails, with INTERNAL, only for a range
// outside the group and after Publish or Discard.
func (g *GroupSink) WriteAt(p []byte, off int64) (int, error) { return 0, nil }

// Publish gives every wanted entry its name: attributes, sync of all, rename of
// all, sync of each directory once. It waits for writes in progress, as long as ctx allows.
// Entries fail each for itself; an error here means that the group as a
// whole ended: CANCELED or DEADLINE before the first name, or what Naming
// returned. Calling it again returns the same.
func (g *GroupSink) Publish(ctx context.Context) error { return nil }

// Outcomes tells what became of each entry, by index. The slice is the caller's.
func (g *GroupSink) Outcomes() []EntryOutcome { return nil }

// Discard gives the attempt up and removes its own partial files. After Publish
// it does nothing. Directories that were made stay.
func (g *GroupSink) Discard() error { return nil }
