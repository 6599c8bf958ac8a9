package engine

import (
	"testing"

	"pgregory.net/rapid"
)

func TestImmediateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := immKind(rapid.IntRange(0, 3).Draw(t, "kind"))
		generation := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, generationMask - 1, generationMask,
			generationMask + 1, 1<<32 - 1, 1 << 32, 1<<64 - 1})).Draw(t, "generation")
		index := rapid.Uint32Range(0, indexMask).Draw(t, "index")
		k, g, i := splitImmediate(immediate(kind, generation, index))
		if k != kind || i != index || !sameGeneration(g, generation) {
			t.Fatalf("kind %d generation %d index %d came back as %d %d %d", kind, generation, index, k, g, i)
		}
		if sameGeneration(g, generation+1) || sameGeneration(g, generation-1) {
			t.Fatalf("generation %d equals its neighbour", generation)
		}
		if ref := slotRef(index, generation); ref.Generation > generationMask || !sameGeneration(ref.Generation, generation) {
			t.Fatalf("slotRef %+v of generation %d", ref, generation)
		}
	})
}

func TestNextGenerationWraps(t *testing.T) {
	if got := nextGeneration(SlotRef{3, generationMask}); got != (SlotRef{3, 0}) {
		t.Errorf("after the last generation: %+v", got)
	}
	if got := nextGeneration(SlotRef{3, 8}); got != (SlotRef{3, 9}) {
		t.Errorf("%+v", got)
	}
}

func TestWRIDRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := wrKind(rapid.IntRange(1, 5).Draw(t, "kind"))
		l := &lane{index: rapid.Uint16().Draw(t, "lane"), epoch: rapid.Uint32().Draw(t, "epoch")}
		index := rapid.Uint32().Draw(t, "index")
		k, epoch, lane, i := splitWRID(wrID(kind, l, index))
		if k != kind || epoch != uint8(l.epoch) || lane != l.index || i != index {
			t.Fatalf("kind %d epoch %d lane %d index %d came back as %d %d %d %d", kind, uint8(l.epoch), l.index, index, k, epoch, lane, i)
		}
	})
}
