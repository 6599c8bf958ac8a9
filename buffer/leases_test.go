package buffer

import (
	"errors"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mover/reason"
)

// TestLeaseTable compares the table with one that counts readers and writers of every byte.
func TestLeaseTable(t *testing.T) {
	const bytes = 24
	rapid.Check(t, func(t *rapid.T) {
		var table leaseTable
		var readers, writers [bytes]int
		held := []*Lease{}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				offset := rapid.Int64Range(0, bytes).Draw(t, "offset")
				length := rapid.Int64Range(0, bytes-offset).Draw(t, "length")
				exclusive := rapid.Bool().Draw(t, "exclusive")
				free := true
				for i := offset; i < offset+length; i++ {
					free = free && writers[i] == 0 && (!exclusive || readers[i] == 0)
				}
				by := table.conflict(offset, length, exclusive)
				if (by == nil) != free {
					t.Fatalf("%d+%d exclusive %v: conflict %v, and free is %v", offset, length, exclusive, by, free)
				}
				if by != nil {
					i := by.info
					if i.Offset >= offset+length || offset >= i.Offset+i.Length || !exclusive && !i.Exclusive {
						t.Fatalf("%+v is not in the way of %d+%d", i, offset, length)
					}
					return
				}
				l := &Lease{info: LeaseInfo{Offset: offset, Length: length, Exclusive: exclusive}}
				table.add(l)
				held = append(held, l)
				for i := offset; i < offset+length; i++ {
					if exclusive {
						writers[i]++
					} else {
						readers[i]++
					}
				}
			},
			"remove": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("none is held")
				}
				k := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				l := held[k]
				held = append(held[:k:k], held[k+1:]...)
				table.remove(l)
				table.remove(l) // the second does nothing
				for i := l.info.Offset; i < l.info.Offset+l.info.Length; i++ {
					if l.info.Exclusive {
						writers[i]--
					} else {
						readers[i]--
					}
				}
			},
			"": func(t *rapid.T) {
				list := table.list()
				if len(list) != len(held) {
					t.Fatalf("%d are listed of %d", len(list), len(held))
				}
				for i := 1; i < len(list); i++ {
					if list[i].Offset < list[i-1].Offset {
						t.Fatalf("not in order: %+v", list)
					}
				}
			},
		})
	})
}

func TestLease(t *testing.T) {
	r, _ := newRegistry(t)
	create(t, r, small("a"))
	writer := lease(t, r, "a", 4096, 8192, true)
	reader := lease(t, r, "a", 0, 4096, false)
	lease(t, r, "a", 100, 200, false)
	lease(t, r, "a", 4096+8192, 1<<20-4096-8192, true)
	lease(t, r, "a", 5000, 0, true) // an empty one is in nobody's way
	lease(t, r, "a", 1<<20, 0, false)

	for _, c := range []struct {
		offset, length int64
		exclusive      bool
		by             *Lease
	}{{4095, 2, false, writer}, {0, 1, true, reader}, {12287, 1, true, writer}} {
		_, err := r.Lease(LeaseRequest{Name: "a", Offset: c.offset, Length: c.length, Exclusive: c.exclusive, Holder: "late"})
		var busy *BusyError
		if reason.Of(err) != reason.BufferBusy || !errors.As(err, &busy) {
			t.Fatalf("%+v: %v", c, err)
		}
		if diff := cmp.Diff(BusyError{Buffer: "a", By: c.by.Info()}, *busy); diff != "" {
			t.Error(diff)
		}
		for _, want := range []string{"job of TestLease", "since 20", "try again"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q misses %q", err, want)
			}
		}
	}
	writer.Release()
	writer.Release()
	lease(t, r, "a", 4096, 8192, true).Release()
	if writer.Memory() != nil {
		t.Error("memory after Release")
	}
	if _, err := writer.Pages(); !errors.Is(err, ErrReleased) {
		t.Error(err)
	}
	if _, err := writer.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrReleased) {
		t.Error(err)
	}
	if _, err := writer.WriteAt(make([]byte, 1), 0); !errors.Is(err, ErrReleased) {
		t.Error(err)
	}
	if err := writer.Dirty(); !errors.Is(err, ErrReleased) {
		t.Error(err)
	}
}

func TestLeaseRefuses(t *testing.T) {
	h := newHost(t)
	h.Limits.MaxLeases = 2
	r, _ := h.open(t)
	create(t, r, small("a"))
	for _, c := range []struct{ offset, length int64 }{
		{-1, 1}, {0, -1}, {0, 1<<20 + 1}, {1<<20 + 1, 0}, {1 << 20, 1}, {1, math.MaxInt64}, {math.MaxInt64, 1}, {math.MinInt64, math.MinInt64},
	} {
		for exclusive, code := range map[bool]reason.Code{false: reason.SourceNotFound, true: reason.NoSpace} {
			_, err := r.Lease(LeaseRequest{Name: "a", Offset: c.offset, Length: c.length, Exclusive: exclusive})
			var outside *RangeError
			if reason.Of(err) != code || !errors.As(err, &outside) || outside.Bytes != 1<<20 || outside.Offset != c.offset {
				t.Errorf("%+v, exclusive %v: %v", c, exclusive, err)
			}
		}
	}
	_, err := r.Lease(LeaseRequest{Name: "no"})
	wantError(t, err, reason.SourceNotFound, ErrNotFound)
	_, err = r.Lease(LeaseRequest{Name: "no", Exclusive: true})
	wantError(t, err, reason.DestNotFound, ErrNotFound)
	lease(t, r, "a", 0, 1, false)
	l := lease(t, r, "a", 0, 1, false)
	if _, err = r.Lease(LeaseRequest{Name: "a", Length: 1}); reason.Of(err) != reason.BufferBusy || !strings.Contains(err.Error(), "limit of 2") {
		t.Error(err)
	}
	l.Release()
	lease(t, r, "a", 0, 1, false)
}

// TestPages: what is registered for others to write has no byte of somebody else's.
func TestPages(t *testing.T) {
	r, _ := newRegistry(t)
	s := small("a")
	page := int64(os.Getpagesize())
	s.Bytes = 3*page + 10
	create(t, r, s)
	for _, c := range []struct {
		offset, length int64
		exclusive      bool
		want           int64 // -1: unaligned
	}{
		{0, page, true, page}, {page, 2 * page, true, 2 * page}, {page, 1, false, page}, {page, 1, true, -1}, {1, page, false, -1},
		{1, page - 1, true, -1}, {3 * page, 10, true, page}, {0, s.Bytes, true, 4 * page}, {2 * page, page + 9, true, -1}, {page, 0, true, 0},
	} {
		l := lease(t, r, "a", c.offset, c.length, c.exclusive)
		pages, err := l.Pages()
		switch {
		case c.want < 0:
			if !errors.Is(err, ErrUnaligned) {
				t.Errorf("%+v: %d bytes, %v", c, len(pages), err)
			}
		case err != nil || int64(len(pages)) != c.want || cap(pages) != len(pages) || c.want > 0 && c.length > 0 && &pages[0] != &l.Memory()[0]:
			t.Errorf("%+v: %d bytes, %v", c, len(pages), err)
		}
		l.Release()
	}
}

func TestGeneration(t *testing.T) {
	h := newHost(t)
	clock := time.Unix(1_700_000_000, 0)
	var mu sync.Mutex
	h.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return clock }
	set := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); clock = clock.Add(d) }
	r, _ := h.open(t)
	generation := create(t, r, small("a")).Generation
	check := func(what string, changes bool) {
		t.Helper()
		info, err := r.Get("a")
		if err != nil {
			t.Fatal(err)
		}
		if changes != (info.Generation > generation) || info.Generation < generation {
			t.Errorf("%s: %d, then %d", what, generation, info.Generation)
		}
		generation = info.Generation
	}
	l := lease(t, r, "a", 0, 10, false)
	if err := l.Dirty(); !errors.Is(err, ErrShared) {
		t.Error(err)
	}
	if _, err := l.WriteAt([]byte{1}, 0); !errors.Is(err, ErrShared) {
		t.Error(err)
	}
	l.Release()
	check("read", false)
	lease(t, r, "a", 0, 10, true).Release()
	check("leased to write and not written", false)
	for range 3 { // the clock stands still
		l = lease(t, r, "a", 0, 10, true)
		if err := errors.Join(l.Dirty(), l.Dirty()); err != nil {
			t.Fatal(err)
		}
		check("not yet released", false)
		l.Release()
		check("written", true)
	}
	set(-time.Hour)
	l = lease(t, r, "a", 0, 10, true)
	if _, err := l.WriteAt([]byte{1}, 0); err != nil {
		t.Fatal(err)
	}
	l.Release()
	check("clock set back", true)
	set(2 * time.Hour)
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	create(t, r, small("a"))
	check("deleted and created", true)
}

// TestConcurrentLeases: who has an exclusive lease sees nobody else's bytes, while buffers come and go around it.
func TestConcurrentLeases(t *testing.T) {
	r, h := newRegistry(t)
	s := small("a")
	s.Bytes = 64 << 10
	create(t, r, s)
	var all sync.WaitGroup
	for k := range byte(8) {
		all.Go(func() {
			mine, got := make([]byte, 8192), make([]byte, 8192)
			for i := range mine {
				mine[i] = k + 1
			}
			for turn := range int64(200) {
				offset := (turn*7919 + int64(k)*104729) % (s.Bytes - 8192)
				exclusive := (turn+int64(k))%3 != 0
				l, err := r.Lease(LeaseRequest{Name: "a", Offset: offset, Length: 8192, Exclusive: exclusive, Holder: "x"})
				if reason.Of(err) == reason.BufferBusy {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if exclusive {
					if _, err := l.WriteAt(mine, 0); err != nil {
						t.Error(err)
					}
				}
				before, err := l.Checksum()
				if err != nil {
					t.Error(err)
				}
				if _, err := l.ReadAt(got, 0); err != nil || exclusive && string(got) != string(mine) {
					t.Errorf("another's bytes, or %v", err)
				}
				if err := l.Verify(before); err != nil {
					t.Error(err)
				}
				l.Release()
			}
		})
	}
	all.Go(func() {
		for range 20 {
			if _, _, err := r.Create(t.Context(), small("b")); err != nil {
				t.Error(err)
			}
			r.List()
			if err := r.Delete(t.Context(), "b"); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	if info, err := r.Get("a"); err != nil || len(info.Leases) != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	h.wantFiles(t, "a")
}
