package job

import (
	"encoding/binary"
	"unicode/utf8"
)

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func bit(set bool, b byte) byte {
	if set {
		return b
	}
	return 0
}

// cutDetail bounds a text at the end of a rune.
func cutDetail(s string) string {
	s = cleanDetail(s)
	for len(s) > MaxGroupDetail {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// reader takes a binary description apart. After the first thing that is wrong
// everything it returns is zero, and end says so.
type reader struct {
	rest []byte
	bad  bool
}

func newReader(data []byte, version byte) (*reader, error) {
	if len(data) == 0 || len(data) > MaxGroupMetaBytes {
		return nil, errGroup
	}
	if data[0] != version {
		return nil, ErrManifestVersion
	}
	return &reader{rest: data[1:]}, nil
}

func (r *reader) end() error {
	if r.bad || len(r.rest) > 0 {
		return errGroup
	}
	return nil
}

// take returns the next n bytes, without room behind them for an append.
func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	if r.bad {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	// The last byte of a number in its shortest form is 0 only in 0 itself.
	if n <= 0 || n > 1 && r.rest[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > 1<<32-1 {
		r.bad = true
		return 0
	}
	return uint32(v)
}

// count reads a number from 0 to most.
func (r *reader) count(most int) int {
	v := r.uvarint()
	if most < 0 || v > uint64(most) {
		r.bad = true
		return 0
	}
	return int(v)
}

// text reads bytes with their length before them, nil if there are none.
func (r *reader) text(most int) []byte {
	n := r.count(most)
	if n == 0 {
		return nil
	}
	return r.take(n)
}

func (r *reader) flags(known byte) byte {
	f := r.byte()
	if f&^known != 0 {
		r.bad = true
		return 0
	}
	return f
}

func (r *reader) choice(values []string) string {
	i := int(r.byte())
	if i >= len(values) {
		r.bad = true
		return ""
	}
	return values[i]
}
