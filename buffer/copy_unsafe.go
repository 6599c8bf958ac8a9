package buffer

import "unsafe"

// inside reports whether an address is of memory, which is not on the Go heap.
func inside(memory []byte, address uintptr) bool {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	return address >= first && address-first < uintptr(len(memory))
}
