package fileio

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// call is a system call about to be made.
type call struct {
	op    string
	fd    int
	name  string
	flags uint
}

// What a hook may answer besides an errno, which the call returns without
// being made.
var (
	errHalf    = errors.New("read or write half of it")
	errDropped = errors.New("say that it was written, and lose it")
)

// doneThen makes the call and returns the errno all the same: an answer that got
// lost between a server and its client.
type doneThen unix.Errno

func (d doneThen) Error() string { return "done, and then " + unix.Errno(d).Error() }

// faulty is a kernel with a hook before each call.
type faulty struct {
	kernel
	before func(call) error
}

// do asks the hook, and makes the call if it may.
func (f *faulty) do(c call, act func() error) error {
	err := f.before(c)
	if err == nil {
		return act()
	}
	if d, ok := err.(doneThen); ok {
		if err := act(); err != nil {
			return err
		}
		return unix.Errno(d)
	}
	return err
}

func (f *faulty) openRoot(path string) (at confined, err error) {
	err = f.do(call{op: "openroot", name: path}, func() error { at, err = f.kernel.openRoot(path); return err })
	return at, err
}

func (f *faulty) openBelow(at confined, rel string, flags int) (int, error) {
	fd := -1
	err := f.do(call{op: "openbelow", name: rel, flags: uint(flags)}, func() (err error) { fd, err = f.kernel.openBelow(at, rel, flags); return err })
	return f.opened(fd, err)
}

// opened does not leak what was opened although the answer is an error.
func (f *faulty) opened(fd int, err error) (int, error) {
	if err != nil && fd >= 0 {
		_ = f.kernel.close(fd)
		fd = -1
	}
	return fd, err
}

func (f *faulty) statBelow(at confined, rel string) (info fs.FileInfo, err error) {
	err = f.do(call{op: "statbelow", name: rel}, func() error { info, err = f.kernel.statBelow(at, rel); return err })
	return info, err
}

func (f *faulty) walkBelow(at confined, visit fs.WalkDirFunc) error {
	return f.do(call{op: "walkbelow"}, func() error { return f.kernel.walkBelow(at, visit) })
}

func (f *faulty) openat(dirFD int, name string, flags int, mode uint32) (int, error) {
	fd := -1
	err := f.do(call{op: "openat", fd: dirFD, name: name, flags: uint(flags)}, func() (err error) { fd, err = f.kernel.openat(dirFD, name, flags, mode); return err })
	return f.opened(fd, err)
}

// close always closes: the hook only watches.
func (f *faulty) close(fd int) error {
	err := f.before(call{op: "close", fd: fd})
	if real := f.kernel.close(fd); real != nil {
		return real
	}
	return err
}

func (f *faulty) fstat(fd int) (st unix.Stat_t, err error) {
	err = f.do(call{op: "fstat", fd: fd}, func() error { st, err = f.kernel.fstat(fd); return err })
	return st, err
}

func (f *faulty) lstatat(dirFD int, name string) (st unix.Stat_t, err error) {
	err = f.do(call{op: "lstatat", fd: dirFD, name: name}, func() error { st, err = f.kernel.lstatat(dirFD, name); return err })
	return st, err
}

func (f *faulty) fstatfs(fd int) (st unix.Statfs_t, err error) {
	err = f.do(call{op: "fstatfs", fd: fd}, func() error { st, err = f.kernel.fstatfs(fd); return err })
	return st, err
}

func (f *faulty) tryLock(fd int) error {
	return f.do(call{op: "flock", fd: fd}, func() error { return f.kernel.tryLock(fd) })
}

func (f *faulty) fallocate(fd int, bytes int64) error {
	return f.do(call{op: "fallocate", fd: fd}, func() error { return f.kernel.fallocate(fd, bytes) })
}

func (f *faulty) ftruncate(fd int, bytes int64) error {
	return f.do(call{op: "ftruncate", fd: fd}, func() error { return f.kernel.ftruncate(fd, bytes) })
}

func (f *faulty) pread(fd int, p []byte, off int64) (int, error) {
	switch err := f.before(call{op: "pread", fd: fd}); err {
	case nil:
	case errHalf:
		p = p[:(len(p)+1)/2]
	default:
		return 0, err
	}
	return f.kernel.pread(fd, p, off)
}

func (f *faulty) pwrite(fd int, p []byte, off int64) (int, error) {
	switch err := f.before(call{op: "pwrite", fd: fd}); err {
	case nil:
	case errHalf:
		p = p[:(len(p)+1)/2]
	case errDropped:
		return len(p), nil
	default:
		return 0, err
	}
	return f.kernel.pwrite(fd, p, off)
}

func (f *faulty) readSequentially(fd int) error {
	return f.do(call{op: "fadvise", fd: fd}, func() error { return f.kernel.readSequentially(fd) })
}

func (f *faulty) residency(fd int, off, bytes int64) (cached, dirty uint64, err error) {
	err = f.do(call{op: "cachestat", fd: fd}, func() error { cached, dirty, err = f.kernel.residency(fd, off, bytes); return err })
	return cached, dirty, err
}

func (f *faulty) startWriteback(fd int) error {
	return f.do(call{op: "sync_file_range", fd: fd}, func() error { return f.kernel.startWriteback(fd) })
}

func (f *faulty) fsync(fd int) error {
	return f.do(call{op: "fsync", fd: fd}, func() error { return f.kernel.fsync(fd) })
}

func (f *faulty) flush(fd int) error {
	return f.do(call{op: "flush", fd: fd}, func() error { return f.kernel.flush(fd) })
}

func (f *faulty) fchmod(fd int, mode uint32) error {
	return f.do(call{op: "fchmod", fd: fd}, func() error { return f.kernel.fchmod(fd, mode) })
}

func (f *faulty) fchown(fd, uid, gid int) error {
	return f.do(call{op: "fchown", fd: fd}, func() error { return f.kernel.fchown(fd, uid, gid) })
}

func (f *faulty) setMTime(fd int, t time.Time) error {
	return f.do(call{op: "utimensat", fd: fd}, func() error { return f.kernel.setMTime(fd, t) })
}

func (f *faulty) rename(dirFD int, from, to string, flags uint) error {
	return f.do(call{op: "renameat2", fd: dirFD, name: to, flags: flags}, func() error { return f.kernel.rename(dirFD, from, to, flags) })
}

func (f *faulty) link(fromFD int, from string, toFD int, to string) error {
	return f.do(call{op: "linkat", fd: toFD, name: to}, func() error { return f.kernel.link(fromFD, from, toFD, to) })
}

func (f *faulty) unlink(dirFD int, name string) error {
	return f.do(call{op: "unlinkat", fd: dirFD, name: name}, func() error { return f.kernel.unlink(dirFD, name) })
}

func (f *faulty) getdents(fd int, p []byte) (n int, err error) {
	err = f.do(call{op: "getdents", fd: fd}, func() error { n, err = f.kernel.getdents(fd, p); return err })
	return n, err
}

func (f *faulty) seek(fd int, off int64) error {
	return f.do(call{op: "lseek", fd: fd}, func() error { return f.kernel.seek(fd, off) })
}

func (f *faulty) mkdir(dirFD int, name string, mode uint32) error {
	return f.do(call{op: "mkdirat", fd: dirFD, name: name}, func() error { return f.kernel.mkdir(dirFD, name, mode) })
}

func (f *faulty) symlink(target string, dirFD int, name string) error {
	return f.do(call{op: "symlinkat", fd: dirFD, name: name}, func() error { return f.kernel.symlink(target, dirFD, name) })
}

func (f *faulty) readlink(dirFD int, name string, p []byte) (n int, err error) {
	err = f.do(call{op: "readlinkat", fd: dirFD, name: name}, func() error { n, err = f.kernel.readlink(dirFD, name, p); return err })
	return n, err
}

func (f *faulty) chownLink(dirFD int, name string, uid, gid int) error {
	return f.do(call{op: "fchownat", fd: dirFD, name: name}, func() error { return f.kernel.chownLink(dirFD, name, uid, gid) })
}

func (f *faulty) setLinkMTime(dirFD int, name string, t time.Time) error {
	return f.do(call{op: "utimensat", fd: dirFD, name: name}, func() error { return f.kernel.setLinkMTime(dirFD, name, t) })
}

func (f *faulty) listXattrs(fd int, p []byte) (n int, err error) {
	err = f.do(call{op: "flistxattr", fd: fd}, func() error { n, err = f.kernel.listXattrs(fd, p); return err })
	return n, err
}

func (f *faulty) getXattr(fd int, name string, p []byte) (n int, err error) {
	err = f.do(call{op: "fgetxattr", fd: fd, name: name}, func() error { n, err = f.kernel.getXattr(fd, name, p); return err })
	return n, err
}

func (f *faulty) setXattr(fd int, name string, value []byte) error {
	return f.do(call{op: "fsetxattr", fd: fd, name: name}, func() error { return f.kernel.setXattr(fd, name, value) })
}

// failOp makes the nth call of op, from 1, and all after it fail with errno.
func failOp(r *Root, op string, nth int, errno unix.Errno) {
	seen := 0
	r.k = &faulty{kernel: r.k, before: func(c call) error {
		if c.op != op {
			return nil
		}
		if seen++; seen >= nth {
			return errno
		}
		return nil
	}}
}
