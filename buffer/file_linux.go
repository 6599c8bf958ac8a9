package buffer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// inode names a file while the host runs: numbers of tmpfs and hugetlbfs count
// up, and are not given out again. Zero is none.
type inode struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// file is an open backing file.
type file struct {
	fd    int
	path  string
	id    inode
	bytes int64 // it should have
	have  int64 // of them with memory, when it was opened
}

// createFile makes the file; it fails with ErrForeign if anything is there.
// Nobody but this user can open it yet.
func createFile(path string) (*file, error) {
	// O_EXCL follows no symbolic link, dangling or not (open(2)).
	fd, err := openat(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("create %s: %w: something of that name is there; remove it, or choose another name", path, ErrForeign)
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	f := &file{fd: fd, path: path}
	st, err := f.stat()
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	f.id = inodeOf(st)
	return f, nil
}

// openFile opens a file that was made before. Nothing at the path is
// fs.ErrNotExist, anything but the inode is ErrForeign.
func openFile(path string, id inode) (*file, error) {
	// O_NONBLOCK: opening a FIFO that somebody put there must not wait.
	fd, err := openat(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
		return nil, foreign(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := &file{fd: fd, path: path, id: id}
	st, err := f.stat()
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	if !ours(st, id) {
		return nil, errors.Join(foreign(path), f.close())
	}
	f.bytes, f.have = st.Size, st.Blocks*512
	return f, nil
}

func foreign(path string) error {
	return fmt.Errorf("%s: %w, though its name is; remove it, or delete the buffer", path, ErrForeign)
}

func openat(path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(path, flags, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func ours(st unix.Stat_t, id inode) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && inodeOf(st) == id && int(st.Uid) == unix.Geteuid()
}

func inodeOf(st unix.Stat_t) inode { return inode{uint64(st.Dev), st.Ino} }

func (f *file) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return st, fmt.Errorf("stat %s: %w", f.path, err)
	}
	return st, nil
}

// truncate gives the new file its length.
func (f *file) truncate(bytes int64) error {
	if err := unix.Ftruncate(f.fd, bytes); err != nil {
		return fmt.Errorf("ftruncate %s to %d bytes: %w", f.path, bytes, err)
	}
	f.bytes = bytes
	return nil
}

// share opens the file to those that may map it; gid -1 leaves the group.
func (f *file) share(mode fs.FileMode, gid int) error {
	st, err := f.stat()
	if err != nil {
		return err
	}
	// The group first: chown clears no bits that matter here, but the bits are meant for that group.
	if gid >= 0 && int(st.Gid) != gid {
		if err := unix.Fchown(f.fd, -1, gid); err != nil {
			return fmt.Errorf("give %s to group %d: %w; make the user mover runs as a member of the group", f.path, gid, err)
		}
	}
	if err := unix.Fchmod(f.fd, uint32(mode)); err != nil {
		return fmt.Errorf("chmod %s: %w", f.path, err)
	}
	return nil
}

// whole reports whether the file still has its length, and its name.
func (f *file) whole() error {
	st, err := f.stat()
	if err != nil {
		return err
	}
	if st.Size < f.bytes {
		return fmt.Errorf("%s: %w to %d of %d bytes; delete the buffer and create it again", f.path, ErrTruncated, st.Size, f.bytes)
	}
	if st.Nlink == 0 {
		return fmt.Errorf("%s: %w: another program removed the file; delete the buffer and create it again", f.path, ErrUnavailable)
	}
	return nil
}

func (f *file) close() error {
	if err := unix.Close(f.fd); err != nil {
		return fmt.Errorf("close %s: %w", f.path, err)
	}
	return nil
}

// removeFile removes the path if it is the inode, and reports whether it did.
// Between look and removal only this user, or the directory's owner, could put
// another file there: /dev/shm is sticky (unlink(2)).
func removeFile(path string, id inode) (bool, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stat %s: %w", path, err)
	}
	// An intent that was not carried out knows no inode. An empty file of this
	// user is then the one it made; nothing is lost with it.
	unfinished := id == inode{} && st.Size == 0 && ours(st, inodeOf(st))
	if !unfinished && !ours(st, id) {
		return false, nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("remove: %w", err)
	}
	return true, nil
}
