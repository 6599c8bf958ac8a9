package numa

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrLeased is returned by [Arena.Unmap] while parts of the arena are leased.
var ErrLeased = errors.New("arena is leased")

// ErrUnmapped is returned by [Arena.Lease] on an arena that was unmapped.
var ErrUnmapped = errors.New("arena is unmapped")

// NoSpaceError says that no part of an arena is large enough for a lease.
type NoSpaceError struct {
	What    string // who asked
	Need    int64  // bytes, rounded up
	Free    int64  // bytes, in pieces
	Largest int64  // the largest piece
}

// Error names need and what is free.
func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("arena: no space for %s: need %d MiB in one piece, %d MiB are free, %d MiB the largest piece",
		e.What, e.Need>>20, e.Free>>20, e.Largest>>20)
}

// Arena is populated memory of one NUMA node, given out in contiguous shares. Any goroutine may call its methods.
type Arena struct {
	kernel  kernel
	mapping mapping
	report  ArenaReport

	mu     sync.Mutex
	free   []extent // by offset; never adjacent, never empty
	leases map[*Lease]struct{}
	gone   bool
}

// extent is a part of the arena; both numbers are multiples of arenaUnitBytes.
type extent struct{ offset, bytes int64 }

func newArena(k kernel, m mapping, report ArenaReport) *Arena {
	return &Arena{
		kernel:  k,
		mapping: m,
		report:  report,
		free:    []extent{{0, int64(len(m.mem))}},
		leases:  map[*Lease]struct{}{},
	}
}

// Bytes returns the whole arena, also what is leased; for registering all of it at once. It must not be touched after
// Unmap: that faults, whoever does it.
func (a *Arena) Bytes() []byte { return a.mapping.mem }

// Report says what was obtained. The caller must not change its Steps.
func (a *Arena) Report() ArenaReport { return a.report }

// Lease gives out bytes (at least 1; rounded up to 2 MiB) of contiguous memory, aligned to 2 MiB, from the first place
// that has room. what names the purpose, for errors and for Unmap. Without room it returns a *NoSpaceError. The
// memory holds whatever was there before; it is the caller's until Release.
func (a *Arena) Lease(bytes int64, what string) (*Lease, error) {
	if bytes < 1 || bytes > maxArenaBytes {
		return nil, fmt.Errorf("arena: lease of %d bytes for %s: must be 1 to %d", bytes, what, maxArenaBytes)
	}
	need := roundUp64(bytes, arenaUnitBytes)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return nil, fmt.Errorf("lease for %s: %w", what, ErrUnmapped)
	}
	i := slices.IndexFunc(a.free, func(e extent) bool { return e.bytes >= need })
	if i < 0 {
		err := &NoSpaceError{What: what, Need: need}
		for _, e := range a.free {
			err.Free += e.bytes
			err.Largest = max(err.Largest, e.bytes)
		}
		return nil, err
	}
	l := &Lease{arena: a, what: what, extent: extent{a.free[i].offset, need}}
	l.mem = a.mapping.mem[l.extent.offset:][:need:need]
	if a.free[i].bytes == need {
		a.free = slices.Delete(a.free, i, i+1)
	} else {
		a.free[i].offset += need
		a.free[i].bytes -= need
	}
	a.leases[l] = struct{}{}
	return l, nil
}

// put gives an extent back and joins it with its neighbours; mu is held.
func (a *Arena) put(e extent) {
	i, _ := slices.BinarySearchFunc(a.free, e.offset, func(f extent, offset int64) int {
		return cmp.Compare(f.offset, offset)
	})
	a.free = slices.Insert(a.free, i, e)
	if i+1 < len(a.free) && a.free[i].offset+a.free[i].bytes == a.free[i+1].offset {
		a.free[i].bytes += a.free[i+1].bytes
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].offset+a.free[i-1].bytes == a.free[i].offset {
		a.free[i-1].bytes += a.free[i].bytes
		a.free = slices.Delete(a.free, i, i+1)
	}
}

// FreeBytes returns how much is not leased, and the largest piece of it.
func (a *Arena) FreeBytes() (total, largest int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.free {
		total += e.bytes
		largest = max(largest, e.bytes)
	}
	return total, largest
}

// Leases returns how many shares are out.
func (a *Arena) Leases() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.leases)
}

// Unmap gives the memory back to the system. It refuses with ErrLeased while a lease is out, since a device may still
// write to it; registrations of the whole arena must be gone, too. Later calls return nil.
func (a *Arena) Unmap() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return nil
	}
	for l := range a.leases {
		return fmt.Errorf("unmap: %w: %d leases, one for %s", ErrLeased, len(a.leases), l.what)
	}
	if err := a.kernel.unmap(a.mapping); err != nil {
		return fmt.Errorf("arena: munmap: %w", err)
	}
	a.gone, a.free = true, nil
	return nil
}

// Lease is a contiguous share of an arena. Any goroutine may call its methods.
type Lease struct {
	arena    *Arena
	what     string
	extent   extent
	mem      []byte
	released bool // guarded by arena.mu
}

// Bytes returns the share, nil after Release. The slice and what was cut from it must not be used after Release: the
// memory is somebody else's then.
func (l *Lease) Bytes() []byte {
	l.arena.mu.Lock()
	defer l.arena.mu.Unlock()
	if l.released {
		return nil
	}
	return l.mem
}

// Offset returns where the share begins in the arena, in bytes, a multiple of 2 MiB.
func (l *Lease) Offset() int64 { return l.extent.offset }

// Release gives the share back. The caller has deregistered it and drained every QP that could still write to it.
// Later calls do nothing.
func (l *Lease) Release() {
	l.arena.mu.Lock()
	defer l.arena.mu.Unlock()
	if l.released {
		return
	}
	l.released = true
	delete(l.arena.leases, l)
	l.arena.put(l.extent)
}
