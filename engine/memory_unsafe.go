package engine

import "unsafe"

// addressOf is the virtual address of registered memory, for SGEs. The memory
// is mapped, not Go heap memory, so it does not move and needs no pin.
func addressOf(p []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
}
