package fileio

import (
	"bytes"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// xattrPrefix is the only namespace that is read and written. The others speak
// of this host (security.*, system.*: labels, ACLs with local ids) or need
// privileges that a peer must not borrow (trusted.*).
const xattrPrefix = "user."

// xattrNameMax is XATTR_NAME_MAX (limits.h).
const xattrNameMax = 255

// checkXattrs refuses attributes that a peer may not set.
func checkXattrs(list []Xattr) error {
	total := 0
	for _, x := range list {
		if !strings.HasPrefix(x.Name, xattrPrefix) || len(x.Name) == len(xattrPrefix) || len(x.Name) > xattrNameMax || strings.IndexByte(x.Name, 0) >= 0 {
			return reason.New(reason.PermissionDenied, "the extended attribute %.300q cannot be set; only those of the namespace user. are moved", x.Name)
		}
		total += len(x.Name) + len(x.Value)
	}
	if total > XattrBytesMax {
		return tooManyXattrs(total)
	}
	return nil
}

func tooManyXattrs(total int) error {
	return reason.New(reason.UnsupportedFileType, "its extended attributes have %d bytes, the limit is %d; leave xattrs out of preserve", total, XattrBytesMax)
}

// xattrReader reads attributes through memory that it keeps. The zero value is
// ready; one goroutine at a time.
type xattrReader struct{ names, value []byte }

// read returns the user.* attributes of an open file or directory, none where
// the file system has none. Attributes removed meanwhile are left out.
func (x *xattrReader) read(k kernel, fd int) ([]Xattr, error) {
	if x.names == nil {
		// XATTR_LIST_MAX and XATTR_SIZE_MAX are both 64 KiB (limits.h).
		x.names, x.value = make([]byte, XattrBytesMax), make([]byte, XattrBytesMax)
	}
	n, err := k.listXattrs(fd, x.names)
	if n == 0 && err == nil || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Xattr
	total := 0
	for name := range bytes.SplitSeq(x.names[:n], []byte{0}) {
		if !bytes.HasPrefix(name, []byte(xattrPrefix)) {
			continue
		}
		m, err := k.getXattr(fd, string(name), x.value)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if total += len(name) + m; total > XattrBytesMax {
			return nil, tooManyXattrs(total)
		}
		found = append(found, Xattr{Name: string(name), Value: bytes.Clone(x.value[:m])})
	}
	return found, nil
}

// writeXattrs sets the attributes of an open file or directory.
func writeXattrs(k kernel, fd int, list []Xattr) error {
	for _, x := range list {
		if err := k.setXattr(fd, x.Name, x.Value); err != nil {
			return err
		}
	}
	return nil
}
