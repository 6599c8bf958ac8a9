package fileio

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// alignBytes is the alignment of memory, offset and length for O_DIRECT. Slots
// and arenas are aligned to it, and it is a multiple of the logical block size
// of the disks in use (512, 4096). Where more is needed the first read or write
// fails with EINVAL and the file goes through the page cache from then on.
const alignBytes = 4096

// directMinBytes is the smallest file for which a second, direct, descriptor
// is worth its open(2): below it the kernel's read-ahead gets the file in one
// device request anyway.
const directMinBytes = 1 << 20

// DirectPolicy says when files are read and written with O_DIRECT.
//
// Measured on ext4 on a virtual disk; 1 MiB a call, GiB/s. The disk's rate is
// limited in bursts, and single runs differed by far more than the columns do:
// take the first row as certain and the others as hints.
//
//	                                    buffered   direct
//	read, in the page cache, 2 readers   11-15     0.7-0.9
//	read, not in it, 1 reader             1.3      1.3
//	read, not in it, 2 readers            1.2      1.6
//	write 1 GiB and fsync, 2 writers      1.2-1.5  1.1-1.2  (2.0-2.2 buffered with early write-back)
//	write 64 MiB and fsync, 1 writer      0.8      0.8      (buffered with early write-back)
//
// (BenchmarkReadCold and BenchmarkPublish repeat rows 2, 3 and 5.) So auto asks
// the kernel, range by range, whether a source's pages are in the cache
// (cachestat(2), half a microsecond), reads those through it, and the rest with
// O_DIRECT, which costs no second copy and does not push other people's files
// out of memory. A checkpoint that was just written is in the cache; a data set
// of last month is not. Auto writes through the cache, with write-back started
// early: no clear loss on this disk, and a slot is free again after a copy
// rather than after the disk. A node uses auto; the others are for comparing
// and for tests.
type DirectPolicy uint8

const (
	DirectAuto DirectPolicy = iota // by file system and page cache, see above
	DirectOn                       // wherever the file system accepts it
	DirectOff                      // never
)

// String is the policy in errors and names of benchmarks.
func (p DirectPolicy) String() string {
	switch p {
	case DirectAuto:
		return "auto"
	case DirectOn:
		return "on"
	case DirectOff:
		return "off"
	}
	return fmt.Sprintf("DirectPolicy(%d)", uint8(p))
}

// path is how a file's bytes travel, for logs: "direct", or "buffered" and why.
// The reason changes at most once, when O_DIRECT turns out not to work.
type path struct{ note atomic.Pointer[string] }

func (p *path) set(note string) { p.note.Store(&note) }

func (p *path) String() string {
	if n := p.note.Load(); n != nil {
		return *n
	}
	return "buffered"
}

// directPrefix splits p at off for O_DIRECT: the length of the prefix that can go
// direct, 0 if none can. The rest goes through the page cache of the same
// inode, which the kernel keeps coherent for pages the direct part does not
// touch; nothing is ever read or written outside p, so what stands behind it in
// a slot is safe.
func directPrefix(p []byte, off int64) int {
	if len(p) < alignBytes || off%alignBytes != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(p)))%alignBytes != 0 {
		return 0
	}
	return len(p) &^ (alignBytes - 1)
}
