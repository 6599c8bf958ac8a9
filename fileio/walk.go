package fileio

import (
	"context"

	"mover/reason"
)

// WalkConfig says what a walk tells to whom. All functions are called by the
// goroutine that called Walk, one at a time.
type WalkConfig struct {
	// Visit gets every directory, regular file and symlink, a directory before
	// its content and the top first, as ".". An error ends the walk, and Walk
	// returns it.
	Visit func(Entry) error
	// Leave, unless nil, gets each visited directory once more after the last
	// of its content, with what Visit got but Xattrs, so that modes and times
	// can be set when nothing in it changes any more. Errors as Visit's.
	Leave func(Entry) error
	// Problem gets what cannot be moved, and the walk goes on: a directory that
	// cannot be read (PERMISSION_DENIED, IO_ERROR), one that was removed or
	// replaced while it was read (SOURCE_CHANGED; it was visited and will be
	// left), a FIFO, socket, device or a directory mounted inside itself
	// (UNSUPPORTED_FILE_TYPE), a name or path that is too long (NAME_TOO_LONG).
	// What vanishes before it is looked at is no problem: it was never there.
	// nil makes the first problem the walk's end, as does an error it returns.
	Problem func(rel string, err *reason.Error) error
	// Skip, unless nil, leaves out rel, and all below it if it is a directory.
	// The top is not asked about.
	Skip func(rel string, dir bool) bool
	// Xattrs: read the user.* attributes, which costs an open of every file.
	Xattrs bool
}

// Walk goes through the directory rel and everything below it, depth first, in
// the order the file system has it. rel itself may lead through symlinks that
// stay inside the root, as for OpenSource; below it none is followed. Mount
// points are crossed. Partial files are left out.
//
// Memory and descriptors are bounded: directories are read in batches, at most
// walkOpenMax of them are open at once, and what a level of depth costs is
// limited by the longest path (4095 bytes from the root, see NAME_TOO_LONG).
//
// Errors: what a callback returned, as it is; SOURCE_NOT_FOUND,
// PERMISSION_DENIED, PATH_OUTSIDE_ROOT, IO_ERROR for the top; CANCELED,
// DEADLINE.
func (r *Root) Walk(ctx context.Context, rel string, cfg WalkConfig) error {
	return reason.New(reason.Internal, "walk %q: not in this build", rel)
}
