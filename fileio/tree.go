package fileio

import (
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// Kind is what an entry of a tree is.
type Kind uint8

const (
	KindFile     Kind = iota // a regular file
	KindDir                  // a directory
	KindSymlink              // a symbolic link, moved as such
	KindHardLink             // another name of a file published before; a walk never says so, its caller does by Inode and NLink
	KindOther                // FIFO, socket, device: never moved, only found in the way
)

var kindNames = [...]string{"file", "directory", "symlink", "hard link", "device, FIFO or socket"}

// String names the kind for messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// XattrBytesMax bounds the names and values of one entry's extended
// attributes, in bytes: more is a problem of that entry.
const XattrBytesMax = 64 << 10

// Xattr is one extended attribute of the user's namespace.
type Xattr struct {
	Name  string // with its "user." in front
	Value []byte
}

// Entry is something that a walk found, as it was when it was looked at.
type Entry struct {
	Rel    string      // below the walk's top, "." for the top itself; any bytes but NUL
	Kind   Kind        // KindFile, KindDir or KindSymlink
	Size   int64       // of a file, in bytes; else 0
	Mode   fs.FileMode // permission bits alone
	MTime  time.Time
	UID    int
	GID    int
	Inode  Inode
	NLink  uint64  // names that the inode has
	Target string  // of a symlink, as it stands there
	Xattrs []Xattr // of files and directories, if asked for; the receiver's to keep
}

// EntryError is what went wrong with one entry of a list.
type EntryError struct {
	Index int // in the list
	Err   *reason.Error
}

// kindOf returns what st is of.
func kindOf(st unix.Stat_t) Kind {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return KindFile
	case unix.S_IFDIR:
		return KindDir
	case unix.S_IFLNK:
		return KindSymlink
	}
	return KindOther
}

// modeOf returns the type bits of something that is KindOther.
func modeOf(st unix.Stat_t) fs.FileMode {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFBLK, unix.S_IFCHR:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}

func entryOf(rel string, kind Kind, st unix.Stat_t) Entry {
	e := Entry{
		Rel: rel, Kind: kind, Mode: fs.FileMode(st.Mode & 0o777), MTime: time.Unix(st.Mtim.Unix()),
		UID: int(st.Uid), GID: int(st.Gid), Inode: Inode{uint64(st.Dev), st.Ino}, NLink: uint64(st.Nlink),
	}
	if kind == KindFile {
		e.Size = st.Size
	}
	return e
}
