package numa

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// MaxCPUs bounds CPU numbers: 0 to MaxCPUs-1. It is the largest NR_CPUS that Linux can be configured with (8192, see
// CONFIG_MAXSMP in arch/x86/Kconfig).
const MaxCPUs = 8192

// ErrBadCPUList is wrapped by the errors of [ParseCPUSet].
var ErrBadCPUList = errors.New("bad CPU list")

// CPUSet is an immutable set of CPU numbers. The zero value is the empty set.
type CPUSet struct {
	words []uint64 // never changed once set; no zero word at the end
}

// CPUSetOf returns the set of the given CPUs. A number out of 0 to MaxCPUs-1 panics: numbers that come from users are
// checked by ParseCPUSet and Plan.
func CPUSetOf(cpus ...int) CPUSet {
	var s CPUSet
	for _, cpu := range cpus {
		if cpu < 0 || cpu >= MaxCPUs {
			panic(fmt.Sprintf("numa: CPU %d: must be 0 to %d", cpu, MaxCPUs-1))
		}
		s.set(cpu)
	}
	return s
}

// set is for sets that nobody else has yet.
func (s *CPUSet) set(cpu int) {
	for len(s.words) <= cpu/64 {
		s.words = append(s.words, 0)
	}
	s.words[cpu/64] |= 1 << (cpu % 64)
}

// ParseCPUSet reads the kernel's list format, such as "0-3,8" (cpuset(7), "List format"), without strides. White space
// around it is ignored; the empty list is the empty set.
func ParseCPUSet(list string) (CPUSet, error) {
	var s CPUSet
	list = strings.TrimSpace(list)
	if list == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := parseCPU(low)
		if err != nil {
			return CPUSet{}, fmt.Errorf("%w: %q in %q: %w", ErrBadCPUList, part, abbreviate(list), err)
		}
		last := first
		if isRange {
			if last, err = parseCPU(high); err != nil {
				return CPUSet{}, fmt.Errorf("%w: %q in %q: %w", ErrBadCPUList, part, abbreviate(list), err)
			}
		}
		if last < first {
			return CPUSet{}, fmt.Errorf("%w: range %q in %q runs backwards", ErrBadCPUList, part, abbreviate(list))
		}
		for cpu := first; cpu <= last; cpu++ {
			s.set(cpu)
		}
	}
	return s, nil
}

func parseCPU(text string) (int, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" { // strconv would take a sign
		return 0, errors.New(`want numbers and ranges such as "0-3,8"`)
	}
	cpu, err := strconv.Atoi(text)
	if err != nil || cpu >= MaxCPUs {
		return 0, fmt.Errorf("a CPU number is 0 to %d", MaxCPUs-1)
	}
	return cpu, nil
}

// abbreviate bounds what an error repeats of its input.
func abbreviate(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// String formats the set in the kernel's list format, which ParseCPUSet reads; "" for the empty set.
func (s CPUSet) String() string {
	var b strings.Builder
	first, last := -1, -1
	flush := func() {
		if first < 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if last > first {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(last))
		}
	}
	for cpu := range s.All() {
		if cpu != last+1 || first < 0 {
			flush()
			first = cpu
		}
		last = cpu
	}
	flush()
	return b.String()
}

// All iterates over the CPUs in ascending order.
func (s CPUSet) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// Has says whether cpu is in the set; any int may be asked for.
func (s CPUSet) Has(cpu int) bool {
	return cpu >= 0 && cpu/64 < len(s.words) && s.words[cpu/64]&(1<<(cpu%64)) != 0
}

// Len returns the number of CPUs in the set.
func (s CPUSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Empty says whether no CPU is in the set.
func (s CPUSet) Empty() bool { return len(s.words) == 0 }

// Equal says whether both sets have the same CPUs.
func (s CPUSet) Equal(o CPUSet) bool { return slices.Equal(s.words, o.words) }

// Union returns the CPUs in either set.
func (s CPUSet) Union(o CPUSet) CPUSet {
	return s.combine(o, func(a, b uint64) uint64 { return a | b })
}

// Intersect returns the CPUs in both sets.
func (s CPUSet) Intersect(o CPUSet) CPUSet {
	return s.combine(o, func(a, b uint64) uint64 { return a & b })
}

// Minus returns the CPUs in s that are not in o.
func (s CPUSet) Minus(o CPUSet) CPUSet {
	return s.combine(o, func(a, b uint64) uint64 { return a &^ b })
}

func (s CPUSet) combine(o CPUSet, op func(a, b uint64) uint64) CPUSet {
	words := make([]uint64, max(len(s.words), len(o.words)))
	for i := range words {
		var a, b uint64
		if i < len(s.words) {
			a = s.words[i]
		}
		if i < len(o.words) {
			b = o.words[i]
		}
		words[i] = op(a, b)
	}
	for len(words) > 0 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}
	if len(words) == 0 {
		words = nil // one representation of the empty set
	}
	return CPUSet{words: words}
}
