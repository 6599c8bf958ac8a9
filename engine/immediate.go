package engine

// An immediate is kind(2) | generation(10) | index(20). It is what the peer
// claims: the receiver checks the index's range and that the slot or segment
// is granted, not yet seen, in just this generation.
const (
	generationBits = 10
	generationMask = 1<<generationBits - 1
	indexBits      = 20
	indexMask      = 1<<indexBits - 1
)

type immKind uint8

const (
	immSlot    immKind = 0 // a slot was written: index of the receiver's slot
	immSegment immKind = 1 // a segment was written: index of its segment table
	immCredit  immKind = 2 // the slot may be written again, in this generation
	immProbe   immKind = 3 // proves a new lane: the low bits of its epoch, and its index
)

// immediate packs the low bits of a 64-bit generation.
func immediate(kind immKind, generation uint64, index uint32) uint32 {
	return uint32(kind)<<30 | uint32(generation&generationMask)<<indexBits | index&indexMask
}

func splitImmediate(imm uint32) (kind immKind, generation, index uint32) {
	return immKind(imm >> 30), imm >> indexBits & generationMask, imm & indexMask
}

// sameGeneration compares a generation from the wire with a counter.
func sameGeneration(wire uint32, generation uint64) bool {
	return wire == uint32(generation&generationMask)
}

func slotRef(index uint32, generation uint64) SlotRef {
	return SlotRef{Index: index, Generation: uint32(generation & generationMask)}
}
