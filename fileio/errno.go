package fileio

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"mover/reason"
)

var errRootName = errors.New("a root's name is 1 to 64 letters, digits, '.', '_' or '-', and begins with a letter, a digit or '_'")

// ErrSkipped is what Create or Publish returns, wrapped in a *reason.Error with
// the code DEST_EXISTS, when the overwrite policy keeps the file that is there.
// The item is then done, not failed: test with errors.Is before looking at the
// reason.
var ErrSkipped = errors.New("kept the existing file, as the overwrite policy says")

// advice is what to do next, by reason.
var advice = map[reason.Code]string{
	reason.SourceNotFound:        "check the path and the root's name",
	reason.DestNotFound:          "create the directory, or check the path and the root's name",
	reason.PermissionDenied:      "give the user mover runs as access, or remount the file system writable",
	reason.DestExists:            "choose another name, remove what is there, or set overwrite",
	reason.NoSpace:               "free space there, or choose another root",
	reason.Quota:                 "free space there, or raise the quota",
	reason.PathOutsideRoot:       "give a path inside the root; symlinks must be relative and stay inside",
	reason.NameTooLong:           "shorten the name",
	reason.UnsupportedFilesystem: "choose a root on a file system with hard links or renameat2, and large files",
	reason.UnsupportedFileType:   "only regular files can be moved",
	reason.SourceChanged:         "submit again when nobody writes the file",
	reason.IOError:               "see the kernel's log for this disk or server",
}

// failure wraps err from doing op to rel with the reason it means. notFound is
// the reason for a name that is not there: it depends on the side.
func (r *Root) failure(notFound reason.Code, op, rel string, err error) *reason.Error {
	var known *reason.Error
	if errors.As(err, &known) {
		return known
	}
	code := r.codeOf(err, notFound)
	// Keep the errno and drop the path that os puts in front of it, which
	// repeats rel without quoting its control characters.
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	text := fmt.Sprintf("%s %q in root %s", op, rel, r.cfg.Name)
	if code == reason.Internal {
		return reason.New(code, "%s: %w; %s", text, err, internalAdvice(err))
	}
	return reason.New(code, "%s: %w; %s", text, err, advice[code])
}

// internalAdvice is what to do about what is no fault of the file's.
func internalAdvice(err error) string {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return "raise the limit of open files (LimitNOFILE, ulimit -n)"
	}
	return "this is a defect of mover: report it with the node's log"
}

// also adds what went wrong while cleaning up to err, whose reason stays.
func also(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return reason.New(reason.Of(err), "%w; and then: %w", err, cleanup)
}

// codeOf maps an errno of a file operation to its reason.
func (r *Root) codeOf(err error, notFound reason.Code) reason.Code {
	if r.escapes != nil && errors.Is(err, r.escapes) {
		return reason.PathOutsideRoot
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return reason.Deadline
	case errors.Is(err, context.Canceled):
		return reason.Canceled
	}
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return reason.Internal
	}
	switch errno {
	case unix.ENOENT:
		return notFound
	case unix.ENOTDIR, unix.EISDIR, unix.EEXIST, unix.ENOTEMPTY:
		// A file where the path needs a directory, or the reverse.
		if notFound == reason.SourceNotFound {
			return notFound
		}
		return reason.DestExists
	case unix.ELOOP:
		// A loop of symlinks, or a symlink where none is followed, resolves to
		// no place inside the root.
		return reason.PathOutsideRoot
	case unix.EACCES, unix.EPERM, unix.EROFS, unix.ETXTBSY:
		return reason.PermissionDenied
	case unix.ENAMETOOLONG:
		return reason.NameTooLong
	case unix.ENOSPC:
		return reason.NoSpace
	case unix.EDQUOT:
		return reason.Quota
	case unix.EFBIG, unix.EOPNOTSUPP, unix.ENOSYS:
		return reason.UnsupportedFilesystem
	case unix.ENXIO, unix.ENODEV:
		return reason.UnsupportedFileType
	case unix.EMFILE, unix.ENFILE, unix.EBADF, unix.EFAULT:
		return reason.Internal
	default:
		return reason.IOError
	}
}
