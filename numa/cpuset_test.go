package numa

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseCPUSet(t *testing.T) {
	for list, want := range map[string]string{
		"":              "",
		" \n":           "",
		"0\n":           "0",
		"0-3,8":         "0-3,8",
		"8,0-3":         "0-3,8",
		"0,1,2,63,64":   "0-2,63-64",
		"5-5":           "5",
		"0-3,2-6":       "0-6",
		"8191":          "8191",
		"000-1":         "0-1",
		"0-2,4-63,8000": "0-2,4-63,8000",
	} {
		got, err := ParseCPUSet(list)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %q, %v, want %q", list, got, err, want)
		}
	}
	for _, list := range []string{
		"x", "-1", "1-", "-", ",", "1,", ",1", "3-1", "1-2-3", "8192", "0-8192", "+1", "1 2", "0-3:1/2", "0x1",
		"99999999999999999999", strings.Repeat("1,", 1000) + "x",
	} {
		got, err := ParseCPUSet(list)
		if !errors.Is(err, ErrBadCPUList) || !got.Empty() {
			t.Errorf("%.20q: got %q, %v", list, got, err)
		} else if len(err.Error()) > 300 {
			t.Errorf("%.20q: error of %d bytes", list, len(err.Error()))
		}
	}
}

func FuzzParseCPUSet(f *testing.F) {
	for _, seed := range []string{"", "0", "0-3,8", "8191", "7-3", "1,,2", "0-8191", "\n", "4294967296-1", "0-3:1/2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s, err := ParseCPUSet(list)
		if err != nil {
			return
		}
		again, err := ParseCPUSet(s.String())
		if err != nil || !again.Equal(s) || again.String() != s.String() {
			t.Fatalf("%q became %q, %v, and that %q", list, s, err, again)
		}
		n := 0
		for cpu := range s.All() {
			if !s.Has(cpu) || cpu < 0 || cpu >= MaxCPUs {
				t.Fatalf("%q has CPU %d", list, cpu)
			}
			n++
		}
		if n != s.Len() || s.Empty() != (n == 0) {
			t.Fatalf("%q: %d CPUs, Len %d, Empty %v", list, n, s.Len(), s.Empty())
		}
	})
}

func TestCPUSetAlgebra(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (CPUSet, map[int]bool) {
			list := rapid.SliceOf(rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, MaxCPUs-1))).Draw(t, name)
			m := map[int]bool{}
			for _, cpu := range list {
				m[cpu] = true
			}
			return CPUSetOf(list...), m
		}
		a, inA := draw("a")
		b, inB := draw("b")
		check := func(op string, got CPUSet, keep func(cpu int) bool) {
			want := map[int]bool{}
			for _, m := range []map[int]bool{inA, inB} {
				for cpu := range m {
					if keep(cpu) {
						want[cpu] = true
					}
				}
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Collect(got.All())); diff != "" {
				t.Fatalf("%s: %s", op, diff)
			}
			if got.Empty() != (len(want) == 0) || !got.Equal(CPUSetOf(slices.Collect(maps.Keys(want))...)) {
				t.Fatalf("%s: %q is not in normal form", op, got)
			}
		}
		check("union", a.Union(b), func(cpu int) bool { return true })
		check("intersect", a.Intersect(b), func(cpu int) bool { return inA[cpu] && inB[cpu] })
		check("minus", a.Minus(b), func(cpu int) bool { return inA[cpu] && !inB[cpu] })
		for _, cpu := range []int{-1, MaxCPUs, 1 << 40} {
			if a.Has(cpu) {
				t.Fatalf("has CPU %d", cpu)
			}
		}
	})
}

func TestCPUSetOfPanics(t *testing.T) {
	for _, cpu := range []int{-1, MaxCPUs} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("took CPU %d", cpu)
				}
			}()
			CPUSetOf(cpu)
		}()
	}
}
