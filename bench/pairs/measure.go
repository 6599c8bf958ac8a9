package pairs

import (
	"context"
	"fmt"
)

// Measurement runs one side once and returns its value in the figure's unit.
// run counts from 0 within the figure.
type Measurement func(ctx context.Context, run int) (float64, error)

// Measure runs n pairs of ours and theirs, swapping the order from pair to
// pair: whatever the first run of a pair leaves behind (dirty pages, a warm
// CPU, a throttled clock) then helps or hurts both sides equally often. A nil
// ours measures the peer alone. The first error ends it.
func Measure(ctx context.Context, n int, ours, theirs Measurement) (oursAll, theirsAll []float64, err error) {
	side := func(name string, m Measurement, run int, all *[]float64) error {
		if m == nil {
			return nil
		}
		v, err := m(ctx, run)
		if err != nil {
			return fmt.Errorf("pair %d of %d, %s: %w", run+1, n, name, err)
		}
		*all = append(*all, v)
		return nil
	}
	for i := range n {
		first := func() error { return side("mover", ours, i, &oursAll) }
		second := func() error { return side("peer", theirs, i, &theirsAll) }
		if i%2 == 1 {
			first, second = second, first
		}
		if err := first(); err != nil {
			return nil, nil, err
		}
		if err := second(); err != nil {
			return nil, nil, err
		}
	}
	return oursAll, theirsAll, nil
}

// calibrationRounds is how often the warm-up tries every setting of a peer.
// The first round also pays for first touch, so fewer than two would compare
// cold settings with warm ones.
const calibrationRounds = 2

// Calibrate runs every setting (0..settings-1) calibrationRounds times, round
// by round, and returns the one with the best single value. It is the peer's
// warm-up as well. With one setting that setting is returned, after its runs.
func Calibrate(ctx context.Context, settings int, o Orientation, try func(ctx context.Context, setting int) (float64, error)) (int, error) {
	best, bestValue := -1, 0.0
	for range calibrationRounds {
		for s := range settings {
			v, err := try(ctx, s)
			if err != nil {
				return 0, fmt.Errorf("warm-up, setting %d of %d: %w", s+1, settings, err)
			}
			better := v < bestValue
			if o == HigherIsBetter {
				better = v > bestValue
			}
			if best < 0 || better {
				best, bestValue = s, v
			}
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("warm-up: the peer has no settings")
	}
	return best, nil
}
