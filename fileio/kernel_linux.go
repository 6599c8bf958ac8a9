package fileio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel is everything that the package asks of the operating system, so that
// a test can let any one call fail or be lost (TestEveryCallGoesThroughKernel).
// Paths lead somewhere only below a confined root; all other names are single
// components relative to a held directory, and none is followed if it is a
// symlink.
type kernel interface {
	openRoot(path string) (confined, error)
	closeRoot(at confined) error
	realPath(path string) (string, error)
	openBelow(at confined, rel string, flags int) (int, error)
	statBelow(at confined, rel string) (fs.FileInfo, error)
	walkBelow(at confined, visit fs.WalkDirFunc) error

	openat(dirFD int, name string, flags int, mode uint32) (int, error)
	close(fd int) error
	fstat(fd int) (unix.Stat_t, error)
	lstatat(dirFD int, name string) (unix.Stat_t, error)
	fstatfs(fd int) (unix.Statfs_t, error)
	tryLock(fd int) error
	fallocate(fd int, bytes int64) error
	ftruncate(fd int, bytes int64) error
	pread(fd int, p []byte, off int64) (int, error)
	pwrite(fd int, p []byte, off int64) (int, error)
	readSequentially(fd int) error
	residency(fd int, off, bytes int64) (cachedPages, dirtyPages uint64, err error)
	startWriteback(fd int) error
	fsync(fd int) error
	flush(fd int) error
	fchmod(fd int, mode uint32) error
	fchown(fd, uid, gid int) error
	setMTime(fd int, t time.Time) error
	rename(dirFD int, from, to string, flags uint) error
	link(fromFD int, from string, toFD int, to string) error
	unlink(dirFD int, name string) error

	getdents(fd int, p []byte) (int, error)
	seek(fd int, off int64) error
	mkdir(dirFD int, name string, mode uint32) error
	symlink(target string, dirFD int, name string) error
	readlink(dirFD int, name string, p []byte) (int, error)
	chownLink(dirFD int, name string, uid, gid int) error
	setLinkMTime(dirFD int, name string, t time.Time) error
	listXattrs(fd int, p []byte) (int, error)
	getXattr(fd int, name string, p []byte) (int, error)
	setXattr(fd int, name string, value []byte) error
}

// linux is the kernel itself. Calls that a signal interrupts (signal(7); Go's
// own preemption uses SIGURG) are made again: EINTR means that nothing was
// done, fsync included, so it is not the retry that the protocol forbids.
type linux struct{}

// pageBytes is the size of a page of the page cache.
var pageBytes = os.Getpagesize()

// confined is a directory below which paths are taken by os.Root, which leads
// none of them out of it. Only the kernel looks inside.
type confined struct{ osRoot *os.Root }

// uninterrupted repeats call while it reports EINTR.
func uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func (linux) openRoot(path string) (confined, error) {
	dir, err := os.OpenRoot(path)
	return confined{dir}, err
}

func (linux) closeRoot(at confined) error { return at.osRoot.Close() }

func (linux) realPath(path string) (string, error) { return filepath.EvalSymlinks(path) }

// openBelow returns a bare descriptor that the caller owns. os.File is left
// behind because system calls on its number are safe only while it is reachable
// and open.
func (linux) openBelow(at confined, rel string, flags int) (int, error) {
	f, err := at.osRoot.OpenFile(rel, flags, 0)
	if err != nil {
		return -1, err
	}
	fd := -1
	conn, err := f.SyscallConn()
	if err == nil {
		var dupErr error
		err = conn.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
		if err == nil {
			err = dupErr
		}
	}
	_ = f.Close() // nothing was written through it
	if err != nil {
		return -1, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return fd, nil
}

// statBelow follows symlinks that stay inside the root.
func (linux) statBelow(at confined, rel string) (fs.FileInfo, error) { return at.osRoot.Stat(rel) }

func (linux) walkBelow(at confined, visit fs.WalkDirFunc) error {
	return fs.WalkDir(at.osRoot.FS(), ".", visit)
}

func (linux) openat(dirFD int, name string, flags int, mode uint32) (fd int, err error) {
	err = uninterrupted(func() error {
		fd, err = unix.Openat(dirFD, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
		return err
	})
	return fd, err
}

// close is not repeated on EINTR: on Linux the descriptor is gone (close(2)).
func (linux) close(fd int) error { return unix.Close(fd) }

func (linux) fstat(fd int) (st unix.Stat_t, err error) {
	err = uninterrupted(func() error { return unix.Fstat(fd, &st) })
	return st, err
}

func (linux) lstatat(dirFD int, name string) (st unix.Stat_t, err error) {
	err = uninterrupted(func() error { return unix.Fstatat(dirFD, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

func (linux) fstatfs(fd int) (st unix.Statfs_t, err error) {
	err = uninterrupted(func() error { return unix.Fstatfs(fd, &st) })
	return st, err
}

func (linux) tryLock(fd int) error {
	return uninterrupted(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
}

func (linux) fallocate(fd int, bytes int64) error {
	return uninterrupted(func() error { return unix.Fallocate(fd, 0, 0, bytes) })
}

func (linux) ftruncate(fd int, bytes int64) error {
	return uninterrupted(func() error { return unix.Ftruncate(fd, bytes) })
}

// pread and pwrite loop by hand: a closure would put p's header on the heap
// for every chunk.
func (linux) pread(fd int, p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(fd, p, off)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

func (linux) pwrite(fd int, p []byte, off int64) (int, error) {
	for {
		n, err := unix.Pwrite(fd, p, off)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// readSequentially doubles the read-ahead (posix_fadvise(2)).
func (linux) readSequentially(fd int) error {
	return unix.Fadvise(fd, 0, 0, unix.FADV_SEQUENTIAL)
}

// residency is cachestat(2), Linux 6.5; about half a microsecond a MiB. Dirty
// counts pages under write-back too.
func (linux) residency(fd int, off, bytes int64) (cached, dirty uint64, err error) {
	span := unix.CachestatRange{Off: uint64(off), Len: uint64(bytes)}
	var st unix.Cachestat_t
	if err := unix.Cachestat(uint(fd), &span, &st, 0); err != nil {
		return 0, 0, err
	}
	return st.Cache, st.Dirty + st.Writeback, nil
}

// startWriteback asks for all dirty pages to be written and does not wait for
// them (sync_file_range(2); offset 0 and length 0 are the whole file).
func (linux) startWriteback(fd int) error {
	for {
		err := unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		if err != unix.EINTR {
			return err
		}
	}
}

func (linux) fsync(fd int) error {
	return uninterrupted(func() error { return unix.Fsync(fd) })
}

// flush closes a duplicate of fd. That runs the file system's flush method,
// with which NFS and FUSE report a write that the server refused; the
// descriptor itself stays open.
func (linux) flush(fd int) error {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Close(dup); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}

func (linux) fchmod(fd int, mode uint32) error {
	return uninterrupted(func() error { return unix.Fchmod(fd, mode) })
}

func (linux) fchown(fd, uid, gid int) error {
	return uninterrupted(func() error { return unix.Fchown(fd, uid, gid) })
}

// setMTime is futimens(3): utimensat(2) with a null path acts on fd itself. The
// access time is left alone.
func (linux) setMTime(fd int, t time.Time) error {
	mtime, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	return uninterrupted(func() error {
		_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		return nil
	})
}

func (linux) rename(dirFD int, from, to string, flags uint) error {
	return uninterrupted(func() error { return unix.Renameat2(dirFD, from, dirFD, to, flags) })
}

func (linux) link(fromFD int, from string, toFD int, to string) error {
	return uninterrupted(func() error { return unix.Linkat(fromFD, from, toFD, to, 0) })
}

func (linux) unlink(dirFD int, name string) error {
	return uninterrupted(func() error { return unix.Unlinkat(dirFD, name, 0) })
}

// getdents reads whole records of directory entries into p (getdents64(2)).
func (linux) getdents(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Getdents(fd, p)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// seek goes to a position that a directory entry gave as the next one's
// (d_off): it is valid in any descriptor of the directory.
func (linux) seek(fd int, off int64) error {
	_, err := unix.Seek(fd, off, unix.SEEK_SET)
	return err
}

func (linux) mkdir(dirFD int, name string, mode uint32) error {
	return uninterrupted(func() error { return unix.Mkdirat(dirFD, name, mode) })
}

func (linux) symlink(target string, dirFD int, name string) error {
	return uninterrupted(func() error { return unix.Symlinkat(target, dirFD, name) })
}

func (linux) readlink(dirFD int, name string, p []byte) (n int, err error) {
	err = uninterrupted(func() error { n, err = unix.Readlinkat(dirFD, name, p); return err })
	return n, err
}

func (linux) chownLink(dirFD int, name string, uid, gid int) error {
	return uninterrupted(func() error { return unix.Fchownat(dirFD, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
}

func (linux) setLinkMTime(dirFD int, name string, t time.Time) error {
	mtime, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, mtime}
	return uninterrupted(func() error { return unix.UtimesNanoAt(dirFD, name, times, unix.AT_SYMLINK_NOFOLLOW) })
}

func (linux) listXattrs(fd int, p []byte) (n int, err error) {
	err = uninterrupted(func() error { n, err = unix.Flistxattr(fd, p); return err })
	return n, err
}

func (linux) getXattr(fd int, name string, p []byte) (n int, err error) {
	err = uninterrupted(func() error { n, err = unix.Fgetxattr(fd, name, p); return err })
	return n, err
}

func (linux) setXattr(fd int, name string, value []byte) error {
	return uninterrupted(func() error { return unix.Fsetxattr(fd, name, value, 0) })
}
