package config

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, never negative.
type Size int64

// Rate is a number of bits per second, never negative.
type Rate int64

type unit struct {
	name  string
	scale int64
}

// Largest first: String takes the first that divides.
var sizeUnits = []unit{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1},
}

// Bits first, so that String writes bits.
var rateUnits = []unit{
	{"Tbit/s", 1e12}, {"Gbit/s", 1e9}, {"Mbit/s", 1e6}, {"kbit/s", 1e3}, {"bit/s", 1},
	{"GiB/s", 8 << 30}, {"MiB/s", 8 << 20}, {"KiB/s", 8 << 10},
	{"GB/s", 8e9}, {"MB/s", 8e6}, {"kB/s", 8e3}, {"B/s", 8},
}

const (
	sizeAllowed     = "a number with one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, such as 512MiB"
	rateAllowed     = "a number with one of bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s, kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s, such as 100Gbit/s"
	durationAllowed = "a number with one of ns, us, ms, s, m, h, d, such as 1m30s"
)

// ParseSize reads a size such as "512MiB" or "1.5 GB". Units keep their case
// (MB is a million bytes, Mb is refused); only 0 may go without one. The
// result is a whole number of bytes.
func ParseSize(s string) (Size, error) {
	n, err := parseUnits(s, sizeUnits, "size")
	return Size(n), err
}

// ParseRate reads a rate such as "100Gbit/s" or "12.5GB/s", explicit about
// bits and bytes. Only 0 may go without a unit. The result is bits per second.
func ParseRate(s string) (Rate, error) {
	n, err := parseUnits(s, rateUnits, "rate")
	return Rate(n), err
}

// maxNumberDigits keeps big.Rat's work bounded whatever is written.
const maxNumberDigits = 24

func parseUnits(s string, units []unit, what string) (int64, error) {
	s = strings.TrimSpace(s)
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || s[end] == '.') {
		end++
	}
	number, name := s[:end], strings.TrimSpace(s[end:])
	if number == "" || len(number) > maxNumberDigits || strings.HasPrefix(number, ".") || strings.HasSuffix(number, ".") {
		return 0, fmt.Errorf("%q is not a %s", s, what)
	}
	value, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%q is not a %s", s, what)
	}
	if name == "" {
		if value.Sign() == 0 {
			return 0, nil
		}
		return 0, fmt.Errorf("%q has no unit", s)
	}
	for _, u := range units {
		if u.name != name {
			continue
		}
		value.Mul(value, new(big.Rat).SetInt64(u.scale))
		if !value.IsInt() {
			return 0, fmt.Errorf("%q is not a whole number of %s", s, countedIn(what))
		}
		if !value.Num().IsInt64() {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return value.Num().Int64(), nil
	}
	return 0, fmt.Errorf("%q has an unknown unit %q", s, name)
}

// countedIn names the unit that a quantity is counted in.
func countedIn(what string) string {
	if what == "rate" {
		return "bits per second"
	}
	return "bytes"
}

// String is exact and is read back by ParseSize.
func (s Size) String() string { return formatUnits(int64(s), sizeUnits) }

// String is exact and is read back by ParseRate.
func (r Rate) String() string { return formatUnits(int64(r), rateUnits[:5]) }

// MarshalYAML writes the size with its unit.
func (s Size) MarshalYAML() (any, error) { return s.String(), nil }

// MarshalYAML writes the rate with its unit.
func (r Rate) MarshalYAML() (any, error) { return r.String(), nil }

// BytesPerSecond is the rate in whole bytes.
func (r Rate) BytesPerSecond() int64 { return int64(r) / 8 }

func formatUnits(n int64, units []unit) string {
	if n != 0 {
		for _, u := range units {
			if n%u.scale == 0 {
				return strconv.FormatInt(n/u.scale, 10) + u.name
			}
		}
	}
	return strconv.FormatInt(n, 10) + units[len(units)-1].name
}

// parseDuration is time.ParseDuration with whole days in front, of 24 hours:
// what is kept for a month reads badly in hours.
func parseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	bad := fmt.Errorf("%q is not a duration", s)
	var days time.Duration
	rest := s
	if number, after, found := strings.Cut(s, "d"); found {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, bad
		}
		days, rest = time.Duration(n)*24*time.Hour, after
	}
	if rest == "" && days > 0 {
		return days, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > math.MaxInt64-days {
		return 0, bad
	}
	return days + d, nil
}
