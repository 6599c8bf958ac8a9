package engine

import (
	"bytes"
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"
)

// TestChecksumIsCastagnoli: the vector of RFC 3720, appendix B.4.
func TestChecksumIsCastagnoli(t *testing.T) {
	if got := Checksum(make([]byte, 32)); got != 0x8a9136aa {
		t.Errorf("CRC32C of 32 zeros: %08x", got)
	}
	if got := Checksum(nil); got != 0 {
		t.Errorf("CRC32C of nothing: %08x", got)
	}
}

// TestCRCShiftCombines: the parts' contributions give the whole's CRC,
// whatever the parts and the order they come in.
func TestCRCShiftCombines(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.SliceOfN(rapid.Byte(), 0, 4096).Draw(t, "whole")
		type part struct{ from, to int }
		var parts []part
		for at := 0; at < len(whole); {
			n := rapid.IntRange(1, len(whole)-at).Draw(t, "bytes")
			parts = append(parts, part{at, at + n})
			at += n
		}
		var got uint32
		for _, p := range rapid.Permutation(parts).Draw(t, "order") {
			got ^= crcShift(crc32.Checksum(whole[p.from:p.to], table), uint64(len(whole)-p.to))
		}
		if want := crc32.Checksum(whole, table); got != want {
			t.Fatalf("%d parts: %08x, want %08x", len(parts), got, want)
		}
	})
}

// TestCRCShiftFar: shifts of more bytes than memory holds compose.
func TestCRCShiftFar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		crc := rapid.Uint32().Draw(t, "crc")
		a := rapid.Uint64Range(0, 1<<62).Draw(t, "a")
		b := rapid.Uint64Range(0, 1<<62).Draw(t, "b")
		if one, two := crcShift(crc, a+b), crcShift(crcShift(crc, a), b); one != two {
			t.Fatalf("%08x in one, %08x in two", one, two)
		}
	})
	// A part of all of 1 MiB followed by zeros, against the real thing.
	p := append(bytes.Repeat([]byte{7, 1}, 999), make([]byte, 1<<20)...)
	zeros := Checksum(p[1998:])
	if got := crcShift(Checksum(p[:1998]), 1<<20) ^ zeros; got != Checksum(p) {
		t.Errorf("%08x, want %08x", got, Checksum(p))
	}
}
