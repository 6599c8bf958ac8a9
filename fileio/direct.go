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
// Measured on ext4 on a virtual disk whose rate is limited now and then, so
// that single runs differ by a factor of two; 1 MiB a call, GiB/s, best of
// several runs (BenchmarkReadCold, BenchmarkReadAt, BenchmarkPublish):
//
//	read, in the page cache       11-15 buffered, two readers  0.7-0.9 direct
//	read, not in it, one reader    1.3  buffered               1.3     direct
//	read, not in it, two readers   1.2  buffered               1.6     direct
//	write 1 GiB and fsync          1.5  buffered, 2.2 with early write-back, 1.2 direct
//
// so auto asks the kernel, range by range, whether a source's pages are in the
// cache (cachestat(2), half a microsecond), reads those through it, and the
// rest with O_DIRECT: that is no slower, costs no second copy and does not push
// other people's files out of memory. A checkpoint that was just written is in
// the cache; a data set of last month is not. Auto writes through the cache
// with write-back started early. On arrays that need more requests in flight
// than write-back gives them, or hosts short of memory, `on` may win: measure.
type DirectPolicy uint8

const (
	DirectAuto DirectPolicy = iota // by file system and page cache, see above
	DirectOn                       // wherever the file system accepts it
	DirectOff                      // never
)

// String returns the policy as the configuration spells it.
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

// ParseDirectPolicy reads auto, on or off; "" is auto.
func ParseDirectPolicy(s string) (DirectPolicy, error) {
	switch s {
	case "", "auto":
		return DirectAuto, nil
	case "on":
		return DirectOn, nil
	case "off":
		return DirectOff, nil
	}
	return 0, fmt.Errorf("direct: %q is not one of auto, on, off", s)
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
