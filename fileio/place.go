package fileio

import (
	"strconv"
	"strings"

	"mover/reason"
)

const (
	// nameMaxBytes is NAME_MAX of every file system in common use (limits.h).
	// One that allows less says ENAMETOOLONG itself.
	nameMaxBytes = 255
	// pathMaxBytes is PATH_MAX without its NUL: a longer path could be made
	// component by component, but no ordinary program could open it.
	pathMaxBytes = 4095
	// rootNameMaxBytes bounds a root's name; it is a label in metrics.
	rootNameMaxBytes = 64
)

// Split takes a place "root/sub/path" apart into the root's name and the path
// below it. Empty and "." components are dropped and a trailing slash with
// them (ask strings.HasSuffix before, if it matters); the root alone gives ".".
//
// A place with a "..", a leading slash, a NUL byte or a malformed root name is
// PATH_OUTSIDE_ROOT; a name over 255 bytes or a path over 4095 is NAME_TOO_LONG.
// Any other byte may stand in a name. Split looks at no file system: whether
// the path leaves its root through a symlink is found when it is opened.
func Split(place string) (root, rel string, err error) {
	root, rest, _ := strings.Cut(place, "/")
	if err := checkRootName(root); err != nil {
		return "", "", reason.New(reason.PathOutsideRoot, "%q does not begin with a root's name: %w; write root/sub/path", place, err)
	}
	rel, err = clean(strings.TrimLeft(rest, "/"))
	if err != nil {
		return "", "", err
	}
	return root, rel, nil
}

// checkRootName accepts 1 to 64 letters, digits, '.', '_' and '-', not
// beginning with '.' or '-'.
func checkRootName(name string) error {
	if name == "" || len(name) > rootNameMaxBytes {
		return errRootName
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
		if !alnum && (i == 0 || c != '.' && c != '-') {
			return errRootName
		}
	}
	return nil
}

// clean checks a path relative to a root and returns it without empty and "."
// components, "." if nothing is left. ".." is refused rather than resolved: in
// front of a symlink the shell's answer and the kernel's differ.
func clean(rel string) (string, error) {
	if strings.HasPrefix(rel, "/") {
		return "", reason.New(reason.PathOutsideRoot, "%q is absolute; give a path relative to the root", rel)
	}
	if strings.IndexByte(rel, 0) >= 0 {
		return "", reason.New(reason.PathOutsideRoot, "%q contains a NUL byte, which no file name can", rel)
	}
	if len(rel) > pathMaxBytes {
		return "", reason.New(reason.NameTooLong, "the path has %d bytes, the limit is %d; shorten it", len(rel), pathMaxBytes)
	}
	parts := make([]string, 0, strings.Count(rel, "/")+1)
	for part := range strings.SplitSeq(rel, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return "", reason.New(reason.PathOutsideRoot, "%q contains \"..\"; give the path without it", rel)
		case len(part) > nameMaxBytes:
			return "", reason.New(reason.NameTooLong, "the name %.32q... has %d bytes, the limit is %d; shorten it", part, len(part), nameMaxBytes)
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return ".", nil
	}
	return strings.Join(parts, "/"), nil
}

// splitParent takes a cleaned path apart into its directory, "." for the root
// itself, and its last component.
func splitParent(rel string) (dir, name string) {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i], rel[i+1:]
	}
	return ".", rel
}

// joinRel joins two cleaned paths, either of which may be ".".
func joinRel(dir, rel string) string {
	switch {
	case dir == ".":
		return rel
	case rel == ".":
		return dir
	}
	return dir + "/" + rel
}

// quoteRel quotes a path for a message: bytes that a terminal would act upon are
// escaped, and of a path that nobody would read only the two ends are shown.
func quoteRel(rel string) string {
	const end = 100
	if len(rel) <= 3*end {
		return strconv.Quote(rel)
	}
	return strconv.Quote(rel[:end]) + "..." + strconv.Quote(rel[len(rel)-end:])
}
