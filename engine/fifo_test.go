package engine

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFIFOAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFIFO(rapid.IntRange(1, 5).Draw(t, "capacity"))
		var model []uint32
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			v := rapid.Uint32().Draw(t, "value")
			switch {
			case rapid.Bool().Draw(t, "push") && len(model) < len(f.at):
				f.push(v)
				model = append(model, v)
			case len(model) > 0:
				if p := f.peek(); p != model[0] {
					t.Fatalf("peek %d, want %d", p, model[0])
				}
				if p := f.pop(); p != model[0] {
					t.Fatalf("pop %d, want %d", p, model[0])
				}
				model = model[1:]
			}
			if f.n != len(model) {
				t.Fatalf("%d entries, want %d", f.n, len(model))
			}
		}
	})
}

func TestFIFOOverflowPanics(t *testing.T) {
	f := newFIFO(1)
	f.push(1)
	defer func() {
		if recover() == nil {
			t.Error("a second entry fitted a queue of one")
		}
	}()
	f.push(2)
}
