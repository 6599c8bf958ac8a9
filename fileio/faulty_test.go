package fileio

import (
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

// faulty is the real kernel with a hook before each call that matters: an error
// from it is what the call returns, without being made.
type faulty struct {
	kernel
	before func(call) error
}

func (f *faulty) openat(dirFD int, name string, flags int, mode uint32) (int, error) {
	if err := f.before(call{op: "openat", fd: dirFD, name: name, flags: uint(flags)}); err != nil {
		return -1, err
	}
	return f.kernel.openat(dirFD, name, flags, mode)
}

// close always closes: the hook only watches.
func (f *faulty) close(fd int) error {
	err := f.before(call{op: "close", fd: fd})
	if real := f.kernel.close(fd); real != nil {
		return real
	}
	return err
}

func (f *faulty) tryLock(fd int) error {
	if err := f.before(call{op: "flock", fd: fd}); err != nil {
		return err
	}
	return f.kernel.tryLock(fd)
}

func (f *faulty) fallocate(fd int, bytes int64) error {
	if err := f.before(call{op: "fallocate", fd: fd}); err != nil {
		return err
	}
	return f.kernel.fallocate(fd, bytes)
}

func (f *faulty) ftruncate(fd int, bytes int64) error {
	if err := f.before(call{op: "ftruncate", fd: fd}); err != nil {
		return err
	}
	return f.kernel.ftruncate(fd, bytes)
}

func (f *faulty) pread(fd int, p []byte, off int64) (int, error) {
	if err := f.before(call{op: "pread", fd: fd}); err != nil {
		return 0, err
	}
	return f.kernel.pread(fd, p, off)
}

func (f *faulty) pwrite(fd int, p []byte, off int64) (int, error) {
	if err := f.before(call{op: "pwrite", fd: fd}); err != nil {
		return 0, err
	}
	return f.kernel.pwrite(fd, p, off)
}

func (f *faulty) startWriteback(fd int) error {
	if err := f.before(call{op: "sync_file_range", fd: fd}); err != nil {
		return err
	}
	return f.kernel.startWriteback(fd)
}

func (f *faulty) fsync(fd int) error {
	if err := f.before(call{op: "fsync", fd: fd}); err != nil {
		return err
	}
	return f.kernel.fsync(fd)
}

func (f *faulty) flush(fd int) error {
	if err := f.before(call{op: "flush", fd: fd}); err != nil {
		return err
	}
	return f.kernel.flush(fd)
}

func (f *faulty) fchmod(fd int, mode uint32) error {
	if err := f.before(call{op: "fchmod", fd: fd}); err != nil {
		return err
	}
	return f.kernel.fchmod(fd, mode)
}

func (f *faulty) setMTime(fd int, t time.Time) error {
	if err := f.before(call{op: "utimensat", fd: fd}); err != nil {
		return err
	}
	return f.kernel.setMTime(fd, t)
}

func (f *faulty) rename(dirFD int, from, to string, flags uint) error {
	if err := f.before(call{op: "renameat2", fd: dirFD, name: to, flags: flags}); err != nil {
		return err
	}
	return f.kernel.rename(dirFD, from, to, flags)
}

func (f *faulty) link(fromFD int, from string, toFD int, to string) error {
	if err := f.before(call{op: "linkat", fd: toFD, name: to}); err != nil {
		return err
	}
	return f.kernel.link(fromFD, from, toFD, to)
}

func (f *faulty) getdents(fd int, p []byte) (int, error) {
	if err := f.before(call{op: "getdents", fd: fd}); err != nil {
		return 0, err
	}
	return f.kernel.getdents(fd, p)
}

func (f *faulty) lstatat(dirFD int, name string) (unix.Stat_t, error) {
	if err := f.before(call{op: "lstatat", fd: dirFD, name: name}); err != nil {
		return unix.Stat_t{}, err
	}
	return f.kernel.lstatat(dirFD, name)
}

func (f *faulty) mkdir(dirFD int, name string, mode uint32) error {
	if err := f.before(call{op: "mkdirat", fd: dirFD, name: name}); err != nil {
		return err
	}
	return f.kernel.mkdir(dirFD, name, mode)
}

func (f *faulty) symlink(target string, dirFD int, name string) error {
	if err := f.before(call{op: "symlinkat", fd: dirFD, name: name}); err != nil {
		return err
	}
	return f.kernel.symlink(target, dirFD, name)
}

func (f *faulty) readlink(dirFD int, name string, p []byte) (int, error) {
	if err := f.before(call{op: "readlinkat", fd: dirFD, name: name}); err != nil {
		return 0, err
	}
	return f.kernel.readlink(dirFD, name, p)
}

func (f *faulty) setXattr(fd int, name string, value []byte) error {
	if err := f.before(call{op: "fsetxattr", fd: fd, name: name}); err != nil {
		return err
	}
	return f.kernel.setXattr(fd, name, value)
}

func (f *faulty) getXattr(fd int, name string, p []byte) (int, error) {
	if err := f.before(call{op: "fgetxattr", fd: fd, name: name}); err != nil {
		return 0, err
	}
	return f.kernel.getXattr(fd, name, p)
}

func (f *faulty) unlink(dirFD int, name string) error {
	if err := f.before(call{op: "unlinkat", fd: dirFD, name: name}); err != nil {
		return err
	}
	return f.kernel.unlink(dirFD, name)
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
