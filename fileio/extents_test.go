package fileio

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestExtentsAgainstBitmap compares the set with one bit a byte.
func TestExtentsAgainstBitmap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 64
		var bits [size]bool
		e := newExtents()
		for range rapid.IntRange(1, 40).Draw(t, "writes") {
			start := rapid.IntRange(0, size).Draw(t, "start")
			end := rapid.IntRange(0, size).Draw(t, "end")
			var want int64
			for i := start; i < end; i++ {
				if !bits[i] {
					bits[i] = true
					want++
				}
			}
			if got, err := e.add(int64(start), int64(end)); err != nil || got != want {
				t.Fatalf("add(%d, %d) = %d, %v, want %d", start, end, got, err, want)
			}
			var covered int64
			for _, b := range bits {
				if b {
					covered++
				}
			}
			if e.bytes() != covered {
				t.Fatalf("covers %d, want %d", e.bytes(), covered)
			}
			for i, x := range e.set {
				if x.start >= x.end || i > 0 && e.set[i-1].end >= x.start {
					t.Fatalf("not sorted, disjoint and merged: %v", e.set)
				}
			}
		}
	})
}

func TestExtentsAreBounded(t *testing.T) {
	e := newExtents()
	for i := range int64(extentsMax) {
		if _, err := e.add(2*i, 2*i+1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.add(1<<40, 1<<40+1); !errors.Is(err, errConfetti) {
		t.Errorf("one more piece: %v, want errConfetti", err)
	}
	if n, err := e.add(0, 1<<30); err != nil || n != 1<<30-extentsMax {
		t.Errorf("a piece that merges all: %d, %v", n, err)
	}
}
