package fabric

import (
	"encoding/binary"
	"fmt"
)

// pattern is the content of all source slots of a run: 8-byte words, each a
// function of the run's seed, the QP, the slot and the position in it.
type pattern struct {
	seed uint64
}

// word is splitmix64's finisher over the coordinates, so that neighbours in
// any direction have nothing in common.
func (p pattern) word(qp, slot, index int) uint64 {
	x := p.seed + uint64(qp)<<52 + uint64(slot)<<36 + uint64(index)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes a slot's content.
func (p pattern) fill(b []byte, qp, slot int) {
	i := 0
	for ; len(b) >= 8; i++ {
		binary.LittleEndian.PutUint64(b, p.word(qp, slot, i))
		b = b[8:]
	}
	var tail [8]byte
	binary.LittleEndian.PutUint64(tail[:], p.word(qp, slot, i))
	copy(b, tail[:])
}

// mismatch is the position of the first byte that is not the slot's, or -1.
func (p pattern) mismatch(b []byte, qp, slot int) int {
	i := 0
	for ; len(b)-8*i >= 8; i++ {
		if binary.LittleEndian.Uint64(b[8*i:]) != p.word(qp, slot, i) {
			return 8*i + p.mismatchIn(b[8*i:8*i+8], qp, slot, i)
		}
	}
	if n := p.mismatchIn(b[8*i:], qp, slot, i); n >= 0 {
		return 8*i + n
	}
	return -1
}

func (p pattern) mismatchIn(b []byte, qp, slot, index int) int {
	var want [8]byte
	binary.LittleEndian.PutUint64(want[:], p.word(qp, slot, index))
	for n := range b {
		if b[n] != want[n] {
			return n
		}
	}
	return -1
}

// explain says what a place holds instead of a slot's content.
func (p pattern) explain(b []byte, qp, slot, sources int) string {
	at := p.mismatch(b, qp, slot)
	if len(b) >= 8 { // shorter ones fit too many slots
		for other := range sources {
			if other != slot && p.mismatch(b, qp, other) < 0 {
				return fmt.Sprintf("it holds another message, from source slot %d instead of %d: stale or misplaced", other, slot)
			}
		}
	}
	var want [8]byte
	binary.LittleEndian.PutUint64(want[:], p.word(qp, slot, at/8))
	return fmt.Sprintf("byte %d is %#02x, not %#02x", at, b[at], want[at%8])
}
