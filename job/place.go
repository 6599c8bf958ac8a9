package job

import (
	"math"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Limits of a path, from limits.h: PATH_MAX counts the terminating NUL.
const maxPathBytes = 4095

// MaxSubBytes is the longest path below a root that a Place can have, whatever
// the root's name: one letter and a slash come before it.
const MaxSubBytes = maxPathBytes - 2

// nameShape is a node's, a root's or a buffer's name.
var nameShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const nameRule = "must be 1 to 63 of the characters A-Z a-z 0-9 . _ - and begin with a letter or digit"

// ValidName reports whether s can name a node, a root, a buffer or a token.
func ValidName(s string) bool { return nameShape.MatchString(s) }

// Place is one side of a job. Exactly one of Path, PathB64 and Buffer is set.
// After Spec.Normalize, Node is set, and PathB64 is used only for a path that
// is not UTF-8, so that equal places have equal fields.
type Place struct {
	Node    string `json:"node,omitempty"`     // "" is the node asked
	Path    string `json:"path,omitempty"`     // root/sub/path
	PathB64 []byte `json:"path_b64,omitempty"` // the same, any bytes, base64 in JSON
	Buffer  string `json:"buffer,omitempty"`
	Offset  *Bytes `json:"offset,omitempty"` // of a buffer
	Length  *Bytes `json:"length,omitempty"` // of a buffer
}

// FullPath returns the path as bytes in a string, root first, whichever field
// holds it; it may not be UTF-8.
func (p Place) FullPath() string {
	if len(p.PathB64) > 0 {
		return string(p.PathB64)
	}
	return p.Path
}

// Root returns the name of the root, the path's first component.
func (p Place) Root() string {
	root, _, _ := strings.Cut(p.FullPath(), "/")
	return root
}

// Sub returns the path below the root; "" is the root itself.
func (p Place) Sub() string {
	_, sub, _ := strings.Cut(p.FullPath(), "/")
	return sub
}

// withPath returns p with the path in the field where it belongs.
func (p Place) withPath(path string) Place {
	p.Path, p.PathB64 = path, nil
	if !utf8.ValidString(path) {
		p.Path, p.PathB64 = "", []byte(path)
	}
	return p
}

// check returns p with its path cleaned and still bearing a trailing slash if
// it had one. field is "source" or "destination".
func (p Place) check(field, node string) (Place, error) {
	if p.Node == "" {
		p.Node = node
	}
	if !ValidName(p.Node) {
		return p, refuse(field+".node", nameRule)
	}
	if p.Buffer != "" {
		if !ValidName(p.Buffer) {
			return p, refuse(field+".buffer", nameRule)
		}
		return p.checkBuffer(field)
	}
	if p.Offset != nil || p.Length != nil {
		return p, refuse(field, "offset and length belong to a buffer, not to a path")
	}
	pathField, path := field+".path", p.Path
	switch {
	case p.Path != "" && len(p.PathB64) > 0:
		return p, refuse(field, "has both path and path_b64; give one")
	case len(p.PathB64) > 0:
		pathField, path = field+".path_b64", string(p.PathB64)
	case p.Path == "":
		return p, refuse(pathField, "is missing; give it as root/sub/path")
	}
	clean, err := cleanPath(pathField, path)
	if err != nil {
		return p, err
	}
	return p.withPath(clean), nil
}

// checkBuffer is check for a buffer.
func (p Place) checkBuffer(field string) (Place, error) {
	if p.Path != "" || len(p.PathB64) > 0 {
		return p, refuse(field, "has both a buffer and a path; give one")
	}
	if p.Offset == nil {
		p.Offset = new(Bytes)
	}
	if *p.Offset < 0 {
		return p, refuse(field+".offset", "must not be negative")
	}
	if p.Length != nil && (*p.Length < 0 || *p.Length > math.MaxInt64-*p.Offset) {
		return p, refuse(field+".length", "must not be negative, and end below 2^63 with the offset")
	}
	return p, nil
}

// cleanPath drops empty and "." components and refuses what could leave the
// root. A ".." is refused rather than resolved: behind a symlink it means
// something else than its text says.
func cleanPath(field, path string) (string, error) {
	if len(path) > maxPathBytes {
		return "", refuse(field, "is longer than %d bytes", maxPathBytes)
	}
	if strings.IndexByte(path, 0) >= 0 {
		return "", refuse(field, "has a NUL byte")
	}
	if path[0] == '/' {
		return "", refuse(field, "must not begin with /; it is root/sub/path, where root is a name from this node's roots")
	}
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", refuse(field, "must not have a .. component")
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 || !ValidName(parts[0]) {
		return "", refuse(field, "must begin with a root's name; a root's name "+nameRule)
	}
	clean := strings.Join(parts, "/")
	if path[len(path)-1] == '/' {
		clean += "/"
	}
	return clean, nil
}

// checkSub is the rule for a path below a root as it travels between nodes:
// already clean, never empty.
func checkSub(field, sub string) error {
	clean, err := cleanPath(field, "r/"+sub)
	if err != nil {
		return err
	}
	if sub == "" || clean != "r/"+sub || sub[len(sub)-1] == '/' {
		return refuse(field, "must be a clean path below a root")
	}
	return nil
}

// land applies the rules of the trailing slash: a source that ends in /, or a
// root alone, is a directory; a destination that ends in / is one into which
// the source goes under its own last component, or, if the source's text ends
// in / or is a root alone, the source's entries without a component of its own.
// Neither side of the result ends in /, so that the rules apply once.
func land(source, destination Place, recursive bool) (src, dst Place, err error) {
	from, to := source.FullPath(), destination.FullPath()
	contents := from[len(from)-1] == '/' || source.Sub() == ""
	if contents && !recursive {
		return src, dst, refuse("source.path", "names a directory; set recursive: true to move what is in it")
	}
	from = strings.TrimSuffix(from, "/")
	into := to[len(to)-1] == '/'
	to = strings.TrimSuffix(to, "/")
	if into && !contents {
		to += "/" + from[strings.LastIndexByte(from, '/')+1:]
	}
	if !recursive && strings.IndexByte(to, '/') < 0 {
		return src, dst, refuse("destination.path", "names a root alone; add / to keep the source's name, or a full name")
	}
	if len(to) > maxPathBytes {
		return src, dst, refuse("destination.path", "is longer than %d bytes with the source's name appended", maxPathBytes)
	}
	return source.withPath(from), destination.withPath(to), nil
}
