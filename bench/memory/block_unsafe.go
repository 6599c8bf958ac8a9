package memory

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// block is memory for an item: a range of addresses behind which one block of
// memory repeats. That is how iperf3 uses memory, which sends one block over
// and over and receives into one, so it is what a comparison of the two needs:
// both then copy what is in the CPU's cache. Every repetition has the same
// content, at both ends, so that checksums hold whatever the order of arrival.
type block struct {
	base  unsafe.Pointer
	bytes int
}

// newBlock maps blockBytes repeatedly over bytes, a multiple of it.
func newBlock(bytes, blockBytes int) (_ *block, err error) {
	fd, err := unix.MemfdCreate("mover-bench-block", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("block of the benchmark: %w", err)
	}
	defer unix.Close(fd) // the mappings keep it
	if err := unix.Ftruncate(fd, int64(blockBytes)); err != nil {
		return nil, fmt.Errorf("block of the benchmark: %w", err)
	}
	b := &block{bytes: bytes}
	// Reserve the whole range first, so that the pieces replace only what is ours.
	if b.base, err = unix.MmapPtr(-1, 0, nil, uintptr(bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return nil, fmt.Errorf("addresses of the benchmark's block: %w", err)
	}
	for at := 0; at < bytes; at += blockBytes {
		if _, err := unix.MmapPtr(fd, 0, unsafe.Add(b.base, at), uintptr(blockBytes), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE); err != nil {
			return nil, fmt.Errorf("mapping the benchmark's block: %w", err)
		}
	}
	return b, nil
}

func (b *block) Bytes() []byte { return unsafe.Slice((*byte)(b.base), b.bytes) }

// Release unmaps the range; nothing registered uses it any more.
func (b *block) Release() { _ = unix.MunmapPtr(b.base, uintptr(b.bytes)) }
