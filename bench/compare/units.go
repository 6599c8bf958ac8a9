package main

import (
	"fmt"
	"strconv"
	"strings"
)

// binaryUnits are the suffixes -size takes, longest first so that "MiB" is
// not read as "B".
var binaryUnits = []struct {
	suffix string
	bytes  int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
}

// parseBytes reads a size such as "2GiB" or "64MiB": a whole number and a
// binary unit, more than zero.
func parseBytes(s string) (int64, error) {
	for _, u := range binaryUnits {
		digits, ok := strings.CutSuffix(strings.TrimSpace(s), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n <= 0 || n > (1<<62)/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a size: write a whole number and KiB, MiB or GiB, for example 2GiB", s)
}

// formatBytes prints a number of bytes with one decimal and a binary unit.
func formatBytes(n int64) string {
	for _, u := range binaryUnits {
		if n >= u.bytes && u.bytes > 1 {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.bytes), u.suffix)
		}
	}
	return fmt.Sprintf("%d B", n)
}
