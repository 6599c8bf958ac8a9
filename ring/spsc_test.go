package ring

import (
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCapacityIsChecked(t *testing.T) {
	for _, capacity := range []int{-1, 0, 1, 3, 6, 1 << 21} {
		for name, make := range map[string]func(){
			"spsc": func() { NewSPSC[int](capacity) },
			"mpmc": func() { NewMPMC[int](capacity) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s of %d entries was made", name, capacity)
					}
				}()
				make()
			}()
		}
	}
}

// starts are counts shortly before the 64-bit wrap, at it, and far from it.
func starts() *rapid.Generator[uint64] {
	return rapid.OneOf(rapid.Just[uint64](0), rapid.Uint64Range(math.MaxUint64-40, math.MaxUint64), rapid.Uint64())
}

func TestSPSCAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := 1 << rapid.IntRange(1, 5).Draw(t, "log2 capacity")
		tx, rx := newSPSC[int](capacity, starts().Draw(t, "start"))
		var published, staged []int
		next := 1
		stage := func(t *rapid.T, push bool) {
			want := len(published)+len(staged) < capacity
			got := false
			if push {
				got = tx.Push(next)
			} else {
				got = tx.Stage(next)
			}
			if got != want {
				t.Fatalf("stage or push: got %v with %d published and %d staged", got, len(published), len(staged))
			}
			if got {
				staged = append(staged, next)
				next++
			}
			if got && push {
				published, staged = append(published, staged...), nil
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"stage": func(t *rapid.T) { stage(t, false) },
			"push":  func(t *rapid.T) { stage(t, true) },
			"publish": func(t *rapid.T) {
				if got := tx.Publish(); got != len(staged) {
					t.Fatalf("Publish: got %d, want %d", got, len(staged))
				}
				published, staged = append(published, staged...), nil
			},
			"pop": func(t *rapid.T) {
				v, ok := rx.Pop()
				if ok != (len(published) > 0) || ok && v != published[0] {
					t.Fatalf("Pop: got %d, %v of %v", v, ok, published)
				}
				if ok {
					published = published[1:]
				}
			},
			"peek": func(t *rapid.T) {
				v, ok := rx.Peek()
				if ok != (len(published) > 0) || ok && v != published[0] {
					t.Fatalf("Peek: got %d, %v of %v", v, ok, published)
				}
			},
			"popBatch": func(t *rapid.T) {
				dst := make([]int, rapid.IntRange(0, capacity+2).Draw(t, "len"))
				n := rx.PopBatch(dst)
				// A ring that knows of some entries may leave later ones for the next call only if dst is full.
				if n != min(len(dst), len(published)) {
					t.Fatalf("PopBatch: got %d of %d for %d", n, len(published), len(dst))
				}
				if diff := cmp.Diff(published[:n], dst[:n:n], cmp.Transformer("nonNil", func(s []int) []int {
					return append([]int{}, s...)
				})); diff != "" {
					t.Fatalf("PopBatch: %s", diff)
				}
				published = published[n:]
			},
			"": func(t *rapid.T) {
				if got := rx.Len(); got != len(published) {
					t.Fatalf("Len: got %d, want %d", got, len(published))
				}
				if got, want := tx.Free(), capacity-len(published)-len(staged); got != want {
					t.Fatalf("Free: got %d, want %d", got, want)
				}
				// Everything that is not an entry is zero: nothing is kept alive.
				live := 0
				for _, v := range tx.buf {
					if v != 0 {
						live++
					}
				}
				if live != len(published)+len(staged) {
					t.Fatalf("%d slots hold a value, want %d", live, len(published)+len(staged))
				}
			},
		})
	})
}

func TestSPSCWrap(t *testing.T) {
	tx, rx := newSPSC[uint64](4, math.MaxUint64-5)
	for i := range uint64(20) {
		for k := range uint64(4) {
			if !tx.Stage(i*4 + k) {
				t.Fatalf("full at %d", i*4+k)
			}
		}
		if tx.Stage(0) {
			t.Fatal("staged a fifth entry of four")
		}
		if got := tx.Publish(); got != 4 {
			t.Fatalf("Publish: got %d", got)
		}
		for k := range uint64(4) {
			if v, ok := rx.Pop(); !ok || v != i*4+k {
				t.Fatalf("Pop: got %d, %v, want %d", v, ok, i*4+k)
			}
		}
		if _, ok := rx.Pop(); ok {
			t.Fatal("popped from an empty ring")
		}
	}
}

// TestSPSCThreads moves numbers between two goroutines; the race detector checks the ordering.
func TestSPSCThreads(t *testing.T) {
	const entries = 100_000
	tx, rx := newSPSC[uint64](64, math.MaxUint64-1000)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); i < entries; {
			for range i%7 + 1 {
				if i < entries && tx.Stage(i) {
					i++
				}
			}
			if tx.Publish() == 0 {
				runtime.Gosched()
			}
		}
	})
	var batch [5]uint64
	for want := uint64(0); want < entries; {
		n := rx.PopBatch(batch[:want%5+1])
		for _, v := range batch[:n] {
			if v != want {
				t.Fatalf("got %d, want %d", v, want)
			}
			want++
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
	if _, ok := rx.Pop(); ok || rx.Len() != 0 {
		t.Fatal("more came out than went in")
	}
}

// entry is about the size of what really travels: a few words, one of them a pointer.
type entry struct {
	words [5]uint64
	owner *int
}

var sample = entry{words: [5]uint64{1, 2, 3, 4, 5}, owner: new(int)}

func TestRingsDoNotAllocate(t *testing.T) {
	tx, rx := NewSPSC[entry](64)
	q := NewMPMC[entry](64)
	batch := make([]entry, 16)
	for name, op := range map[string]func(){
		"spsc push and pop": func() { tx.Push(sample); rx.Peek(); rx.Pop() },
		"spsc batch": func() {
			for range batch {
				tx.Stage(sample)
			}
			tx.Publish()
			rx.PopBatch(batch)
		},
		"spsc counts": func() { _ = tx.Free() + rx.Len() },
		"mpmc":        func() { q.TryPush(sample); q.TryPopWake(nil); _ = q.Len() },
	} {
		if got := testing.AllocsPerRun(100, op); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}

func BenchmarkSPSC(b *testing.B) {
	tx, rx := NewSPSC[entry](256)
	batch := make([]entry, 16)
	b.Run("one by one", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for range batch {
				tx.Push(sample)
			}
			for range batch {
				rx.Pop()
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch)), "ns/entry")
	})
	b.Run("batch of 16", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for range batch {
				tx.Stage(sample)
			}
			tx.Publish()
			rx.PopBatch(batch)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch)), "ns/entry")
	})
}

// BenchmarkSPSCThreads has producer and consumer on two CPUs; both yield when they cannot go on.
func BenchmarkSPSCThreads(b *testing.B) {
	for name, chain := range map[string]int{"publish 1": 1, "publish 16": 16} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			tx, rx := NewSPSC[entry](1024)
			var wg sync.WaitGroup
			wg.Go(func() {
				var batch [64]entry
				for taken := 0; taken < b.N; {
					n := rx.PopBatch(batch[:])
					taken += n
					if n == 0 {
						runtime.Gosched()
					}
				}
			})
			staged := 0
			for i := 0; i < b.N; {
				if !tx.Stage(sample) {
					tx.Publish()
					runtime.Gosched()
					continue
				}
				i++
				if staged++; staged == chain {
					tx.Publish()
					staged = 0
				}
			}
			tx.Publish()
			wg.Wait()
		})
	}
}
