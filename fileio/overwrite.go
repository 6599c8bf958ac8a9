package fileio

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Overwrite says what happens when the destination's name exists already.
type Overwrite uint8

const (
	OverwriteFail        Overwrite = iota // DEST_EXISTS; the default
	OverwriteSkip                         // keep it: ErrSkipped
	OverwriteAlways                       // replace it
	OverwriteIfNewer                      // replace it if the source's mtime is later, else keep it
	OverwriteIfDifferent                  // replace it if size or mtime differ, else keep it
)

var overwriteNames = [...]string{"fail", "skip", "always", "if_newer", "if_different"}

// String returns the policy as the API spells it.
func (o Overwrite) String() string {
	if int(o) < len(overwriteNames) {
		return overwriteNames[o]
	}
	return fmt.Sprintf("Overwrite(%d)", uint8(o))
}

// ParseOverwrite reads a policy as the API spells it; "" is fail.
func ParseOverwrite(s string) (Overwrite, error) {
	if s == "" {
		return OverwriteFail, nil
	}
	for i, name := range overwriteNames {
		if s == name {
			return Overwrite(i), nil
		}
	}
	return 0, fmt.Errorf("overwrite: %q is not one of fail, skip, always, if_newer, if_different", s)
}

// replaces reports whether the policy may replace an existing file at all, and
// so whether publishing may use a rename that overwrites.
func (o Overwrite) replaces() bool { return o >= OverwriteAlways }

// keeps reports whether the policy keeps the file st rather than receive one of
// size bytes modified at mtime. Only for a policy that replaces.
func (o Overwrite) keeps(st unix.Stat_t, size int64, mtime time.Time) bool {
	theirs := time.Unix(st.Mtim.Unix())
	ours := mtime
	if theirs.Nanosecond() == 0 || ours.Nanosecond() == 0 {
		// One side's file system keeps whole seconds only.
		theirs, ours = theirs.Truncate(time.Second), ours.Truncate(time.Second)
	}
	switch o {
	case OverwriteIfNewer:
		return !ours.After(theirs)
	case OverwriteIfDifferent:
		return st.Size == size && ours.Equal(theirs)
	}
	return false
}
