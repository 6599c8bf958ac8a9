package engine

import "hash/crc32"

// CRC32C, the Castagnoli polynomial of iSCSI (RFC 3720, appendix B.4), which
// amd64 and arm64 have instructions for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// castagnoliPoly is the polynomial in the reflected form of the table.
const castagnoliPoly = 0x82f63b78

// Checksum is the CRC32C of p.
func Checksum(p []byte) uint32 { return crc32.Update(0, castagnoli, p) }

// xPow[k] is x^(2^k) modulo the polynomial; 8*2^63 bytes never need more.
var xPow = func() (t [67]uint32) {
	t[0] = 1 << 30 // x^1 in reflected form
	for k := 1; k < len(t); k++ {
		t[k] = mulMod(t[k-1], t[k-1])
	}
	return t
}()

// mulMod multiplies two polynomials over GF(2), modulo the CRC's.
func mulMod(a, b uint32) uint32 {
	var product uint32
	for m := uint32(1) << 31; m != 0; m >>= 1 {
		if a&m != 0 {
			product ^= b
		}
		if b&1 != 0 {
			b = b>>1 ^ castagnoliPoly
		} else {
			b >>= 1
		}
	}
	return product
}

// Whole is the CRC32C of parts appended in order. The zero value is of nothing.
type Whole struct{ CRC uint32 }

// Append adds a part of the given CRC32C and bytes.
func (w *Whole) Append(crc uint32, bytes int64) { w.CRC = crcShift(w.CRC, uint64(bytes)) ^ crc }

// crcShift is the contribution to a whole's CRC of a part with the given CRC
// that is followed by after bytes. A whole's CRC is the exclusive or of its
// parts' contributions, in any order: chunks need not arrive in sequence.
func crcShift(crc uint32, after uint64) uint32 {
	factor := uint32(1) << 31 // x^0
	for k := 3; after != 0; k, after = k+1, after>>1 {
		if after&1 != 0 {
			factor = mulMod(xPow[k], factor)
		}
	}
	return mulMod(factor, crc)
}
