package fileio

import "golang.org/x/sys/unix"

// filesystem is what this package needs to know about the one a file is on. It
// is asked for each open file, not for each root: a root may contain mounts.
type filesystem struct {
	name string
	// direct: O_DIRECT reaches a device and can save the copy through the page
	// cache. Elsewhere it is refused, ignored, or the cache is the storage.
	direct bool
	// reserve: fallocate is a matter of metadata. On tmpfs it allocates every
	// page: 0.31 s a GiB that the writes then save again (0.51 s in all with
	// it and without), but before the first byte instead of beside the network.
	// There the free space is looked at instead, and a write can still find
	// the file system full.
	reserve bool
	// writeback: starting write-back early helps a later fsync.
	writeback bool
}

// The magic numbers of statfs(2) that x/sys does not name.
const (
	magicBcachefs = 0xca451a4e
	magicZFS      = 0x2fc12fc1
)

// filesystemOf tells file systems apart by f_type (statfs(2)). One that is not
// known gets the cautious treatment: page cache, fallocate tried.
func filesystemOf(st unix.Statfs_t) filesystem {
	// f_type is signed and of the word's width on some architectures.
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC:
		return filesystem{name: "ext4", direct: true, reserve: true, writeback: true}
	case unix.XFS_SUPER_MAGIC:
		return filesystem{name: "xfs", direct: true, reserve: true, writeback: true}
	case unix.BTRFS_SUPER_MAGIC:
		return filesystem{name: "btrfs", direct: true, reserve: true, writeback: true}
	case unix.F2FS_SUPER_MAGIC:
		return filesystem{name: "f2fs", direct: true, reserve: true, writeback: true}
	case magicBcachefs:
		return filesystem{name: "bcachefs", direct: true, reserve: true, writeback: true}
	case magicZFS:
		return filesystem{name: "zfs", reserve: true, writeback: true}
	case unix.TMPFS_MAGIC:
		return filesystem{name: "tmpfs"}
	case unix.RAMFS_MAGIC:
		return filesystem{name: "ramfs"}
	case unix.HUGETLBFS_MAGIC:
		return filesystem{name: "hugetlbfs"}
	case unix.NFS_SUPER_MAGIC:
		return filesystem{name: "nfs", reserve: true, writeback: true}
	case unix.OVERLAYFS_SUPER_MAGIC:
		return filesystem{name: "overlayfs", reserve: true, writeback: true}
	case unix.FUSE_SUPER_MAGIC:
		return filesystem{name: "fuse", reserve: true, writeback: true}
	default:
		return filesystem{name: "this file system", reserve: true, writeback: true}
	}
}
