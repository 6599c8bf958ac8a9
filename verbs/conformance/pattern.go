package conformance

import (
	"bytes"
	"math/rand/v2"
)

// patternPeriod is a prime, so that a piece misplaced by packets, pages or any
// power of two shows.
const patternPeriod = 65521

var patternTable = func() []byte {
	rng := rand.New(rand.NewPCG(65521, 1))
	table := make([]byte, patternPeriod)
	for i := range table {
		table[i] = byte(rng.Uint32())
	}
	return table
}()

// patternRun is the pattern from position i on, at most n bytes of it.
func patternRun(i, seed, n int) []byte {
	at := (i + seed*7919) % patternPeriod
	return patternTable[at:min(at+n, patternPeriod)]
}

// fill writes a pattern in which neighbouring positions differ at random, so
// that a misplaced or torn piece shows.
func fill(b []byte, seed int) {
	for i := 0; i < len(b); {
		i += copy(b[i:], patternRun(i, seed, len(b)-i))
	}
}

// mismatch is the first index at which b is not fill's pattern, or -1.
func mismatch(b []byte, seed int) int { return mismatchAt(b, 0, seed) }

// mismatchAt is mismatch for bytes that start at a position of the pattern.
func mismatchAt(b []byte, pos, seed int) int {
	for i := 0; i < len(b); {
		want := patternRun(pos+i, seed, len(b)-i)
		if !bytes.Equal(b[i:i+len(want)], want) {
			for j := range want {
				if b[i+j] != want[j] {
					return i + j
				}
			}
		}
		i += len(want)
	}
	return -1
}

var zeroes [64 << 10]byte

func isZero(b []byte) bool {
	for ; len(b) > len(zeroes); b = b[len(zeroes):] {
		if !bytes.Equal(b[:len(zeroes)], zeroes[:]) {
			return false
		}
	}
	return bytes.Equal(b, zeroes[:len(b)])
}
