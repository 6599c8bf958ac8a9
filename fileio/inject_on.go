//go:build moverfault

package fileio

import (
	"time"

	"golang.org/x/sys/unix"

	"mover/fault"
)

func systemCalls() kernel { return injected{linux{}} }

// injected is the kernel with the faults of a test build.
type injected struct{ kernel }

func (k injected) fstat(fd int) (unix.Stat_t, error) {
	if fault.Now(fault.FstatPanics) {
		panic("a defect, injected for a test")
	}
	return k.kernel.fstat(fd)
}

func (k injected) pread(fd int, p []byte, off int64) (int, error) {
	if fault.Now(fault.ReadEIO) {
		return 0, unix.EIO
	}
	n, err := k.kernel.pread(fd, p, off)
	if n > 0 && fault.Now(fault.ReadFlips) {
		p[0] ^= 1
	}
	return n, err
}

func (k injected) pwrite(fd int, p []byte, off int64) (int, error) {
	for fault.Now(fault.WriteHangs) {
		time.Sleep(2 * time.Millisecond)
	}
	if fault.Now(fault.WriteEIO) {
		return 0, unix.EIO
	}
	return k.kernel.pwrite(fd, p, off)
}

func (k injected) fsync(fd int) error {
	if fault.Now(fault.SyncEIO) {
		return unix.EIO
	}
	return k.kernel.fsync(fd)
}
