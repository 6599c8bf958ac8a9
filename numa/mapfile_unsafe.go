package numa

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps the file alone: its neighbours in the address space are whatever the kernel puts there.
func (linux) mapFile(fd int, bytes int64) (mapping, error) {
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return mapping{}, err
	}
	mem := unsafe.Slice((*byte)(p), bytes)
	return mapping{whole: mem, mem: mem}, nil
}

func (linux) allocate(fd int, offset, bytes int64) error { return unix.Fallocate(fd, 0, offset, bytes) }

func (linux) look(mem []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("page fault: %v: %w", fault, unix.EFAULT)
		}
	}()
	var all byte
	for i := 0; i < len(mem); i += os.Getpagesize() {
		all |= mem[i]
	}
	runtime.KeepAlive(all) // the reads are the point
	return nil
}
