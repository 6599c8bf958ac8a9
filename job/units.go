package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size or an offset, 0 or more. In JSON it is a whole number of
// bytes, or a string with a unit: "64MiB", "1.5GB".
type Bytes int64

// Rate is a limit in bits per second, more than 0. In JSON it is a string
// whose unit says bits or bytes: "20Gbit/s", "2.5GB/s", "300MiB/s".
type Rate int64

// Duration is a span of time, 0 or more. In JSON it is a string: "90s", "2h",
// "1h30m", "7d".
type Duration time.Duration

// Units are spelled one way only: "Mb" and "mB" are what people mean by eight
// times too much, so a unit that is not listed is refused rather than guessed.
var (
	sizeUnits = map[string]int64{
		"B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
		"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50,
	}
	bitUnits = map[string]int64{
		"bit": 1, "kbit": 1e3, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12,
		"Kibit": 1 << 10, "Mibit": 1 << 20, "Gibit": 1 << 30, "Tibit": 1 << 40,
	}
	// No sign, no exponent, bounded digits: "1e999999999" must not cost memory.
	quantity = regexp.MustCompile(`^([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-z]+)$`)
)

var (
	errSize = errors.New("must be a size with a unit, such as 64MiB or 1.5GB (B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB)")
	errRate = errors.New("must be a rate with a unit that says bits or bytes, such as 20Gbit/s, 2.5GB/s or 300MiB/s")
	errSpan = errors.New("must be a duration such as 90s, 30m, 2h, 1h30m or 7d")
)

// ParseBytes reads a size with its unit, as in "64MiB". The value must come to
// a whole number of bytes, below 2^63.
func ParseBytes(s string) (Bytes, error) {
	m := quantity.FindStringSubmatch(s)
	if m == nil {
		return 0, errSize
	}
	unit, ok := sizeUnits[m[2]]
	if !ok {
		return 0, errSize
	}
	n, err := times(m[1], unit)
	return Bytes(n), err
}

// ParseRate reads a rate, as in "20Gbit/s" or "2.5GB/s"; a byte is 8 bits. The
// value must come to a whole number of bits per second, 1 to 2^63-1.
func ParseRate(s string) (Rate, error) {
	amount, ok := strings.CutSuffix(s, "/s")
	m := quantity.FindStringSubmatch(amount)
	if !ok || m == nil {
		return 0, errRate
	}
	unit, ok := bitUnits[m[2]]
	if !ok {
		if unit, ok = sizeUnits[m[2]]; !ok {
			return 0, errRate
		}
		unit *= 8
	}
	n, err := times(m[1], unit)
	if err == nil && n == 0 {
		err = errors.New("must be more than 0; leave it out for no limit")
	}
	return Rate(n), err
}

// times multiplies exactly: floats would turn 0.1 of a unit into a near miss.
func times(decimal string, unit int64) (int64, error) {
	r, ok := new(big.Rat).SetString(decimal)
	if !ok {
		return 0, errors.New("must begin with a decimal number")
	}
	r.Mul(r, new(big.Rat).SetInt64(unit))
	if !r.IsInt() {
		return 0, errors.New("does not come to a whole number; use a smaller unit")
	}
	if !r.Num().IsInt64() {
		return 0, errors.New("is too large")
	}
	return r.Num().Int64(), nil
}

// ParseDuration reads a duration as time.ParseDuration does, and whole days
// ("7d"). Negative ones are refused.
func ParseDuration(s string) (Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, errSpan
		}
		return Duration(time.Duration(n) * 24 * time.Hour), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		return 0, errSpan
	}
	return Duration(d), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	if s, ok := jsonString(data); ok {
		n, err := ParseBytes(s)
		*b = n
		return err
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil || n < 0 {
		return errors.New("must be a whole number of bytes, or a string such as \"64MiB\"")
	}
	*b = Bytes(n)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rate) UnmarshalJSON(data []byte) error {
	s, ok := jsonString(data)
	if !ok {
		return errRate
	}
	n, err := ParseRate(s)
	*r = n
	return err
}

// rateOrNone is a Rate where 0 can be asked for: "none", or what a Rate of 0
// looks like in JSON.
type rateOrNone Rate

func (r *rateOrNone) UnmarshalJSON(data []byte) error {
	if s, ok := jsonString(data); ok && (s == "none" || s == Rate(0).String()) {
		*r = 0
		return nil
	}
	return (*Rate)(r).UnmarshalJSON(data)
}

// MarshalJSON implements json.Marshaler.
func (r Rate) MarshalJSON() ([]byte, error) { return json.Marshal(r.String()) }

// String returns the rate in the largest decimal unit that divides it.
func (r Rate) String() string {
	n, unit := int64(r), "bit/s"
	for _, next := range []string{"kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"} {
		if n == 0 || n%1000 != 0 {
			break
		}
		n, unit = n/1000, next
	}
	return fmt.Sprintf("%d%s", n, unit)
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(data []byte) error {
	s, ok := jsonString(data)
	if !ok {
		return errSpan
	}
	v, err := ParseDuration(s)
	*d = v
	return err
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

func jsonString(data []byte) (string, bool) {
	var s string
	if len(data) == 0 || data[0] != '"' || json.Unmarshal(data, &s) != nil {
		return "", false
	}
	return s, true
}
