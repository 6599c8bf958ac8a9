package ring

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func TestMPMCAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := 1 << rapid.IntRange(1, 5).Draw(t, "log2 capacity")
		q := newMPMC[int](capacity, starts().Draw(t, "start"))
		if q.Cap() != capacity {
			t.Fatalf("Cap: got %d, want %d", q.Cap(), capacity)
		}
		var want []int
		next := 1
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				if got := q.TryPush(next); got != (len(want) < capacity) {
					t.Fatalf("TryPush: got %v with %d of %d", got, len(want), capacity)
				} else if got {
					want = append(want, next)
					next++
				}
			},
			"pop": func(t *rapid.T) {
				v, ok := q.TryPop()
				if ok != (len(want) > 0) || ok && v != want[0] {
					t.Fatalf("TryPop: got %d, %v of %v", v, ok, want)
				}
				if ok {
					want = want[1:]
				}
			},
			"": func(t *rapid.T) {
				if got := q.Len(); got != len(want) {
					t.Fatalf("Len: got %d, want %d", got, len(want))
				}
				live := 0
				for i := range q.cells {
					if q.cells[i].value != 0 {
						live++
					}
				}
				if live != len(want) {
					t.Fatalf("%d cells hold a value, want %d", live, len(want))
				}
			},
		})
	})
}

// TestMPMCThreads checks that every entry comes out exactly once, and those of one producer in order for each
// consumer, across the 64-bit wrap.
func TestMPMCThreads(t *testing.T) {
	const producers, consumers, each = 3, 3, 20_000
	q := newMPMC[[2]int](32, math.MaxUint64-1000)
	var count [producers][each]atomic.Uint32
	var taken atomic.Int64
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for i := 0; i < each; {
				if q.TryPush([2]int{p, i}) {
					i++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	for range consumers {
		wg.Go(func() {
			last := [producers]int{-1, -1, -1}
			for taken.Load() < producers*each {
				v, ok := q.TryPop()
				if !ok {
					runtime.Gosched()
					continue
				}
				taken.Add(1)
				count[v[0]][v[1]].Add(1)
				if v[1] <= last[v[0]] {
					t.Errorf("producer %d: entry %d after %d", v[0], v[1], last[v[0]])
				}
				last[v[0]] = v[1]
				if n := q.Len(); n < 0 || n > q.Cap() {
					t.Errorf("Len: %d of %d", n, q.Cap())
				}
			}
		})
	}
	wg.Wait()
	for p := range count {
		for i := range count[p] {
			if got := count[p][i].Load(); got != 1 {
				t.Fatalf("producer %d, entry %d came out %d times", p, i, got)
			}
		}
	}
}

// TestMPMCHole shows the case that TryPopWake is for: an unfilled cell hides filled ones behind it.
func TestMPMCHole(t *testing.T) {
	q := NewMPMC[int](4)
	q.enq.Add(1) // a producer has claimed the first cell and was interrupted
	if !q.TryPush(2) {
		t.Fatal("the second push failed")
	}
	if v, ok := q.TryPop(); ok {
		t.Fatalf("popped %d over the hole", v)
	}
	q.cells[0].value = 1
	q.cells[0].seq.Store(1)
	for want := 1; want <= 2; want++ {
		if v, ok := q.TryPop(); !ok || v != want {
			t.Fatalf("got %d, %v, want %d", v, ok, want)
		}
	}
}

func BenchmarkMPMC(b *testing.B) {
	q := NewMPMC[entry](256)
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			q.TryPush(entry{})
			q.TryPop()
		}
	})
	b.Run("contended", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				q.TryPush(entry{})
				q.TryPop()
			}
		})
	})
}
