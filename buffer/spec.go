package buffer

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"slices"
	"strconv"

	"mover/numa"
)

// PageSize is the size of page a buffer is wanted in.
type PageSize string

// Page sizes. "" is PageAuto.
const (
	// PageAuto is 2 MiB when a hugetlbfs mount of that size has the pages free
	// and the buffer is at least one page long, else the base page.
	// Info.PageReason tells which, and why.
	PageAuto PageSize = "auto"
	// PageBase is the kernel's base page, in /dev/shm: 4 KiB on amd64 and on
	// most arm64 kernels.
	PageBase PageSize = "4KiB"
	Page2M   PageSize = "2MiB"
	Page1G   PageSize = "1GiB"
)

// hugeBytes is the size of a huge page, 0 for the others.
func (p PageSize) hugeBytes() int64 {
	switch p {
	case Page2M:
		return 2 << 20
	case Page1G:
		return 1 << 30
	}
	return 0
}

// AnyNode is a NUMANode that leaves the place to the kernel.
const AnyNode = -1

const (
	// MaxBytes bounds a buffer: far above any host's memory, it keeps sums from
	// wrapping.
	MaxBytes = int64(1) << 46
	// maxNames bounds each of Spec.Read and Spec.Write.
	maxNames = 1024
	// maxOwnerBytes bounds Spec.Owner.
	maxOwnerBytes = 256
)

// Spec is what is asked of a buffer.
type Spec struct {
	Name     string   // 1 to 64 letters, digits, '.', '_', '-'; begins with a letter, a digit or '_'
	Bytes    int64    // 1 to MaxBytes
	PageSize PageSize // "" is PageAuto
	// NUMANode is where the memory should be, AnyNode or 0 to numa.MaxNodes-1.
	// Info.NUMANode tells where it is. The zero value is node 0.
	NUMANode int
	// Mode are the file's permission bits, for programs that map it: read and
	// write bits only, and always 0600. 0 is 0600.
	Mode fs.FileMode
	// Group is the file's group, by name or number; "" leaves the process's.
	// mover must be root or a member of it.
	Group string
	// Read and Write are the nodes that jobs may take the content to, and may
	// bring it from; "*" is all. The node itself is a node like others.
	Read, Write []string
	// Owner is who created it, at most 256 bytes. It does not count when specs are compared.
	Owner string
}

// normal is the spec with its defaults, in a form that can be compared and
// kept; or an error that wraps ErrBadSpec.
func (s Spec) normal() (Spec, error) {
	if !validName(s.Name) {
		return s, fmt.Errorf("%w: name: 1 to 64 letters, digits, '.', '_' or '-', and a letter, a digit or '_' first", ErrBadSpec)
	}
	if s.PageSize == "" {
		s.PageSize = PageAuto
	}
	if s.Mode == 0 {
		s.Mode = 0o600
	}
	switch {
	case s.Bytes < 1 || s.Bytes > MaxBytes:
		return s, fmt.Errorf("%w: bytes: %d is not between 1 and %d", ErrBadSpec, s.Bytes, MaxBytes)
	case !slices.Contains([]PageSize{PageAuto, PageBase, Page2M, Page1G}, s.PageSize):
		return s, fmt.Errorf("%w: page_size: must be %s, %s, %s or %s", ErrBadSpec, PageAuto, PageBase, Page2M, Page1G)
	case s.NUMANode < AnyNode || s.NUMANode >= numa.MaxNodes:
		return s, fmt.Errorf("%w: numa_node: %d is not between %d (any) and %d", ErrBadSpec, s.NUMANode, AnyNode, numa.MaxNodes-1)
	case s.Mode&^0o666 != 0 || s.Mode&0o600 != 0o600:
		return s, fmt.Errorf("%w: mode: read and write bits only, 0600 among them, such as 0660", ErrBadSpec)
	case len(s.Owner) > maxOwnerBytes:
		return s, fmt.Errorf("%w: owner: longer than %d bytes", ErrBadSpec, maxOwnerBytes)
	case len(s.Group) > maxOwnerBytes:
		return s, fmt.Errorf("%w: group: longer than %d bytes", ErrBadSpec, maxOwnerBytes)
	}
	var err error
	if s.Read, err = normalNames("read", s.Read); err != nil {
		return s, err
	}
	s.Write, err = normalNames("write", s.Write)
	return s, err
}

// normalNames sorts a list of nodes, without repeats, into memory of its own.
func normalNames(what string, names []string) ([]string, error) {
	if len(names) > maxNames {
		return nil, fmt.Errorf("%w: %s: more than %d nodes", ErrBadSpec, what, maxNames)
	}
	for _, n := range names {
		if n != "*" && !validName(n) {
			return nil, fmt.Errorf("%w: %s: %.80q is neither a node's name nor \"*\"", ErrBadSpec, what, n)
		}
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// same reports whether two normal specs ask for the same buffer.
func (s Spec) same(o Spec) bool {
	return s.Name == o.Name && s.Bytes == o.Bytes && s.PageSize == o.PageSize && s.NUMANode == o.NUMANode &&
		s.Mode == o.Mode && s.Group == o.Group && slices.Equal(s.Read, o.Read) && slices.Equal(s.Write, o.Write)
}

// gid is the number of the group, -1 for none.
func (s Spec) gid() (int, error) {
	if s.Group == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(s.Group, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(s.Group)
	var unknown user.UnknownGroupError
	if errors.As(err, &unknown) {
		return 0, fmt.Errorf("%w: group: this host has no group %.80q", ErrBadSpec, s.Group)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: group: look up %.80q: %w", ErrBadSpec, s.Group, err)
	}
	return strconv.Atoi(g.Gid)
}

// validName keeps names usable as part of a file's name, a URL and a label, and
// out of ambiguity with "." and "..".
func validName(name string) bool {
	if len(name) < 1 || len(name) > 64 {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case (c == '.' || c == '-') && i > 0:
		default:
			return false
		}
	}
	return true
}
