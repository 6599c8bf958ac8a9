package fileio

import (
	"context"

	"mover/reason"
)

// Verdict is what a group would do with an entry.
type Verdict uint8

const (
	VerdictCreate  Verdict = iota // nothing is there
	VerdictReplace                // something is there and would be replaced
	VerdictSkip                   // something is there and would be kept
	VerdictMerge                  // a directory is there
	VerdictFail                   // see Err
)

// EntryLook is the verdict on one entry.
type EntryLook struct {
	Verdict Verdict
	Err     *reason.Error // with VerdictFail
}

// Look tells what CreateGroup and Publish would do with each entry as things stand,
// and changes nothing. Of spec it uses Base, Overwrite, Sum and Entries. A Base
// that is not there is no error. Errors: as CreateGroup's, without NO_SPACE and QUOTA.
func (r *Root) Look(ctx context.Context, spec GroupSpec) ([]EntryLook, error) {
	return nil, reason.New(reason.Internal, "look at %q: not in this build", spec.Base)
}
