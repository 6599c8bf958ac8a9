package engine

import (
	"hash/crc32"
	"runtime/debug"
	"unsafe"

	"mover/reason"
)

// addressOf is the virtual address of registered memory, for SGEs. The memory
// is mapped, not Go heap memory, so it does not move and needs no pin.
func addressOf(p []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
}

// updateGuarded goes on with a CRC32C. The memory of a direct item is mapped by
// others as well, and a program that makes its file shorter takes pages away
// (SIGBUS, mmap(2)): that ends the item, and not the process; ok is false then.
func updateGuarded(crc uint32, p []byte) (_ uint32, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		at, is := fault.(interface{ Addr() uintptr }) // of the runtime's error, see debug.SetPanicOnFault
		if first := uintptr(addressOf(p)); !is || at.Addr() < first || at.Addr()-first >= uintptr(len(p)) {
			panic(fault)
		}
		ok = false
	}()
	return crc32.Update(crc, castagnoli, p), true
}

// lostMemory is why an item ends whose memory could not be read; nil if it was.
func lostMemory(lost bool) *reason.Error {
	if !lost {
		return nil
	}
	return reason.New(reason.IOError, "another program truncated the file of the item's memory while it was moved; delete the buffer and create it again")
}
