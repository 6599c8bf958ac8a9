package fileio

import (
	"context"
	"io/fs"
	"time"

	"mover/reason"
)

// DirEntry is a directory that gets its attributes.
type DirEntry struct {
	Rel      string      // below the base; "." is the base itself
	Mode     fs.FileMode // with PreserveMode; permission bits
	MTime    time.Time   // with PreserveMTime
	UID, GID int         // with PreserveOwner
	Xattrs   []Xattr     // with PreserveXattrs
}

// FinishDirs gives directories below base their final attributes, once nothing in
// them will be published any more: a new name changes the time, and a mode
// without write permission would refuse it. Give them as Walk's Leave does,
// the content of a directory before itself. With durable each is synced, after which also the names of
// directories made in them survive a power cut.
//
// A directory that fails is in the list and no error. Errors: those of opening
// base, CANCELED, DEADLINE.
func (r *Root) FinishDirs(ctx context.Context, base string, dirs []DirEntry, preserve Preserve, durable bool) ([]EntryError, error) {
	return nil, reason.New(reason.Internal, "finish directories in %q: not in this build", base)
}
