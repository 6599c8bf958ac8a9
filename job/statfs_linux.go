package job

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrNetworkFS is a state directory where SQLite's write-ahead log cannot
// work: it needs shared memory and locks that all users of the file see, and a
// sync that reaches a disk (https://www.sqlite.org/wal.html, "not over a
// network filesystem").
var ErrNetworkFS = errors.New("the state directory is on a network or user-space file system, where the database of jobs is not safe; set node.state_dir to a local disk")

// networkFS are the magic numbers of statfs(2) that are refused, from
// linux/magic.h and, where it has none, the file systems' own sources. FUSE is
// among them because sshfs, glusterfs and s3fs cannot be told from others.
var networkFS = map[uint32]string{
	0x6969:     "nfs",
	0x517B:     "smb",
	0xFF534D42: "cifs",
	0xFE534D42: "smb2",
	0x01021997: "9p",
	0x00C36400: "ceph",
	0x65735546: "fuse",
	0x0BD00BD0: "lustre",
	0x01161970: "gfs2",
	0x7461636F: "ocfs2",
	0x5346414F: "afs",
	0x6B414653: "afs", // kAFS
	0x73757245: "coda",
	0x564C:     "ncp",
	0x47504653: "gpfs",
	0x19830326: "beegfs",
	0x7C7C6673: "prl_fs",
	0xAAD7AAEA: "panfs",
	0x786F4256: "vboxsf",
	0x20030528: "pvfs2",
}

// checkFileSystem refuses a directory on a network file system.
func checkFileSystem(dir string) error {
	var st unix.Statfs_t
	for {
		err := unix.Statfs(dir, &st)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return fmt.Errorf("look at the state directory: %w", err)
		}
	}
	// The type is a signed word on some architectures, with the number in its
	// lower half.
	return refuseFileSystem(uint32(st.Type))
}

// NetworkFileSystem names a type of file system, by its number in statfs(2),
// on which Open refuses a state directory; is is false for any other.
func NetworkFileSystem(magic uint32) (name string, is bool) {
	name, is = networkFS[magic]
	return name, is
}

func refuseFileSystem(magic uint32) error {
	if name, is := NetworkFileSystem(magic); is {
		return fmt.Errorf("%w (it is %s)", ErrNetworkFS, name)
	}
	return nil
}
