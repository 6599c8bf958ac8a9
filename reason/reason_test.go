package reason

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden is what other nodes, journals and scripts already hold. A change here
// is a change of protocol: lines may only be added.
var golden = []struct {
	wire  uint16
	code  Code
	retry bool
}{
	{1, "SOURCE_NOT_FOUND", false},
	{2, "SOURCE_CHANGED", true},
	{3, "PERMISSION_DENIED", false},
	{4, "DEST_EXISTS", false},
	{5, "NO_SPACE", false},
	{6, "QUOTA", false},
	{7, "CHECKSUM_MISMATCH", true},
	{8, "PATH_OUTSIDE_ROOT", false},
	{9, "UNSUPPORTED_FILE_TYPE", false},
	{10, "NAME_TOO_LONG", false},
	{11, "SAME_FILE", false},
	{12, "PEER_UNREACHABLE", true},
	{13, "PEER_REFUSED", true},
	{14, "TRANSPORT_ERROR", true},
	{15, "STALLED", true},
	{16, "DEADLINE", false},
	{17, "CANCELED", false},
	{18, "IO_ERROR", false},
	{19, "UNSUPPORTED_FILESYSTEM", false},
	{20, "DEST_NOT_FOUND", false},
	{21, "BUFFER_BUSY", true},
	{22, "NOT_AUTHORIZED", false},
	{23, "INTERNAL", false},
}

func TestTableIsWhatPeersKnow(t *testing.T) {
	if len(golden) != len(table) {
		t.Fatalf("table has %d reasons, the protocol %d", len(table), len(golden))
	}
	for _, g := range golden {
		if !g.code.Valid() {
			t.Errorf("%s is not in the table", g.code)
		}
		if got := g.code.Retryable(); got != g.retry {
			t.Errorf("%s.Retryable() = %v, want %v", g.code, got, g.retry)
		}
		if got := g.code.Wire(); got != g.wire {
			t.Errorf("%s.Wire() = %d, want %d: numbers never change", g.code, got, g.wire)
		}
		if got, ok := FromWire(g.wire); !ok || got != g.code {
			t.Errorf("FromWire(%d) = %q, %v, want %s", g.wire, got, ok, g.code)
		}
	}
}

func TestEveryCodeIsDecidedAndUnique(t *testing.T) {
	shape := regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)
	codes, wires := map[Code]bool{}, map[uint16]bool{}
	for _, r := range table {
		if r.when != retry && r.when != final {
			t.Errorf("%s lacks a decision whether it is retryable", r.code)
		}
		if !shape.MatchString(string(r.code)) {
			t.Errorf("%q is not an upper-case name", r.code)
		}
		if r.wire == 0 || codes[r.code] || wires[r.wire] {
			t.Errorf("%s = %d: zero or used twice", r.code, r.wire)
		}
		codes[r.code], wires[r.wire] = true, true
	}
}

func TestUnknown(t *testing.T) {
	for _, c := range []Code{"", "NOPE", "no_space"} {
		if c.Valid() || c.Retryable() {
			t.Errorf("%q is taken for a reason", c)
		}
	}
	if got := Code("").Wire(); got != 0 {
		t.Errorf("no reason travels as %d, want 0", got)
	}
	if got := Code("NOPE").Wire(); got != Internal.Wire() {
		t.Errorf("an unknown reason travels as %d, want INTERNAL", got)
	}
	for _, n := range []uint16{0, uint16(len(table) + 1), 65535} {
		if c, ok := FromWire(n); ok || c != "" {
			t.Errorf("FromWire(%d) = %q, %v", n, c, ok)
		}
	}
}

func TestAllIsACopy(t *testing.T) {
	want := All()
	All()[0] = "X"
	if diff := cmp.Diff(want, All()); diff != "" {
		t.Error(diff)
	}
}

func TestOf(t *testing.T) {
	inner := New(NoSpace, "write chunk: %w", syscall.ENOSPC)
	cases := []struct {
		name string
		err  error
		want Code
	}{
		{"nil", nil, ""},
		{"plain", io.EOF, Internal},
		{"errno is not guessed", syscall.ENOENT, Internal},
		{"not exist is not guessed", fs.ErrNotExist, Internal},
		{"own", inner, NoSpace},
		{"wrapped", fmt.Errorf("item 7: %w", inner), NoSpace},
		{"joined", errors.Join(io.EOF, inner), NoSpace},
		{"outermost wins", New(Quota, "root data: %w", inner), Quota},
		{"code outside the list", &Error{Code: "NOPE"}, Internal},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Of(c.err); got != c.want {
				t.Errorf("Of(%v) = %q, want %q", c.err, got, c.want)
			}
		})
	}
}

func TestErrorTextAndChain(t *testing.T) {
	e := New(NoSpace, "write %s: %w", "a", syscall.ENOSPC)
	if got, want := e.Error(), "NO_SPACE: write a: no space left on device"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if !errors.Is(e, syscall.ENOSPC) {
		t.Error("the cause is lost")
	}
	if !errors.Is(e, &Error{Code: NoSpace}) || errors.Is(e, &Error{Code: Quota}) {
		t.Error("errors.Is by code is wrong")
	}
	if two := New(IOError, "%w and %w", io.EOF, syscall.EIO); !errors.Is(two, io.EOF) || !errors.Is(two, syscall.EIO) {
		t.Error("one of two causes is lost")
	}
	if none := New(Stalled, "no progress"); none.Unwrap() != nil {
		t.Error("a cause out of nothing")
	}
	if got, want := (&Error{Code: IOError, Err: io.EOF}).Error(), "IO_ERROR: EOF"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if got, want := (&Error{Code: IOError}).Error(), "IO_ERROR"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}
