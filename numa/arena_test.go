package numa

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// bareArena is an arena of units x 2 MiB on the fake kernel.
func bareArena(t testing.TB, units int) (*Arena, *faultyKernel) {
	t.Helper()
	k := &faultyKernel{huge: backing{kernelPageBytes: 2 * mib}}
	a, err := mapArena(ArenaConfig{NodeID: -1, Bytes: int64(units) * arenaUnitBytes, SysRoot: "/nonexistent"}, k)
	if err != nil {
		t.Fatal(err)
	}
	return a, k
}

func TestLease(t *testing.T) {
	a, k := bareArena(t, 4)
	first, err := a.Lease(1, "first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.Lease(2*arenaUnitBytes, "second")
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Leases(); got != 2 {
		t.Errorf("%d leases, want 2", got)
	}
	if first.Offset() != 0 || len(first.Bytes()) != int(arenaUnitBytes) || second.Offset() != arenaUnitBytes {
		t.Fatalf("first at %d, %d bytes; second at %d", first.Offset(), len(first.Bytes()), second.Offset())
	}
	if cap(first.Bytes()) != len(first.Bytes()) {
		t.Fatal("append would run into the next share")
	}
	first.Release()
	first.Release()
	if first.Bytes() != nil {
		t.Fatal("bytes after Release")
	}
	// Two units are free, in two pieces.
	_, err = a.Lease(arenaUnitBytes+1, "third")
	var none *NoSpaceError
	if !errors.As(err, &none) || none.Need != 2*arenaUnitBytes || none.Free != 2*arenaUnitBytes || none.Largest != arenaUnitBytes {
		t.Fatalf("got %v", err)
	}
	if want := "no space for third: need 4 MiB in one piece, 4 MiB are free, 2 MiB the largest"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q misses %q", err, want)
	}
	if err := a.Unmap(); !errors.Is(err, ErrLeased) || !strings.Contains(err.Error(), "second") || k.unmapped != 0 {
		t.Fatalf("Unmap: %v", err)
	}
	second.Release()
	if got := a.Leases(); got != 0 {
		t.Errorf("%d leases after the last Release", got)
	}
	if total, largest := a.FreeBytes(); total != 4*arenaUnitBytes || largest != total {
		t.Fatalf("%d free, %d in one piece", total, largest)
	}
	for _, bytes := range []int64{0, -1, maxArenaBytes + 1} {
		if _, err := a.Lease(bytes, "bad"); err == nil || errors.As(err, &none) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	for range 2 {
		if err := a.Unmap(); err != nil {
			t.Fatal(err)
		}
	}
	if k.unmapped != 1 {
		t.Fatalf("unmapped %d times", k.unmapped)
	}
	if _, err := a.Lease(1, "late"); !errors.Is(err, ErrUnmapped) {
		t.Fatalf("got %v", err)
	}
}

// TestLeasesNeverOverlap leases and releases at random, and compares with a model that marks every unit.
func TestLeasesNeverOverlap(t *testing.T) {
	const units = 24
	rapid.Check(t, func(r *rapid.T) {
		a, _ := bareArena(t, units)
		base := uintptr(unsafe.Pointer(unsafe.SliceData(a.Bytes())))
		var used [units]*Lease
		var out []*Lease
		r.Repeat(map[string]func(*rapid.T){
			"lease": func(r *rapid.T) {
				want := rapid.IntRange(1, units+1).Draw(r, "units")
				// First fit by the model.
				at, run := -1, 0
				for i := 0; i < units && at < 0; i++ {
					if run++; used[i] != nil {
						run = 0
					}
					if run == want {
						at = i - want + 1
					}
				}
				l, err := a.Lease(int64(want)*arenaUnitBytes-rapid.Int64Range(0, arenaUnitBytes-1).Draw(r, "less"), "x")
				if (err == nil) != (at >= 0) {
					r.Fatalf("lease of %d: %v, model says %d", want, err, at)
				}
				if err != nil {
					return
				}
				offset := int64(uintptr(unsafe.Pointer(unsafe.SliceData(l.Bytes()))) - base)
				if offset != l.Offset() || offset != int64(at)*arenaUnitBytes || len(l.Bytes()) != want*int(arenaUnitBytes) {
					r.Fatalf("lease of %d at %d (%d), %d bytes; model says %d", want, offset, l.Offset(), len(l.Bytes()), at)
				}
				for i := at; i < at+want; i++ {
					used[i] = l
				}
				out = append(out, l)
			},
			"release": func(r *rapid.T) {
				if len(out) == 0 {
					r.Skip("nothing is leased")
				}
				i := rapid.IntRange(0, len(out)-1).Draw(r, "lease")
				out[i].Release()
				for k := range used {
					if used[k] == out[i] {
						used[k] = nil
					}
				}
				out = slices.Delete(out, i, i+1)
			},
			"": func(r *rapid.T) {
				free, run, largest := 0, 0, 0
				for _, l := range used {
					if run++; l != nil {
						run = 0
					} else {
						free++
					}
					largest = max(largest, run)
				}
				if total, most := a.FreeBytes(); total != int64(free)*arenaUnitBytes || most != int64(largest)*arenaUnitBytes {
					r.Fatalf("%d free, %d in one piece; model says %d, %d", total, most, free, largest)
				}
			},
		})
		for _, l := range out {
			l.Release()
		}
		if len(a.free) != 1 || a.free[0] != (extent{0, units * arenaUnitBytes}) || len(a.leases) != 0 {
			r.Fatalf("left: %v", a.free)
		}
	})
}

func TestLeaseFromManyGoroutines(t *testing.T) {
	a, _ := bareArena(t, 16)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				l, err := a.Lease(int64(i%5+1)*arenaUnitBytes, "g")
				var none *NoSpaceError
				if errors.As(err, &none) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mem := l.Bytes()
				for k := 0; k < len(mem); k += int(arenaUnitBytes) {
					mem[k] = byte(g) // the race detector sees any overlap
				}
				l.Release()
			}
		})
	}
	wg.Wait()
	if total, largest := a.FreeBytes(); total != 16*arenaUnitBytes || largest != total {
		t.Fatalf("%d free, %d in one piece", total, largest)
	}
}
