package pairs

import (
	"math/rand/v2"
	"slices"
)

const (
	// BootstrapSeed makes the interval a function of the pairs alone.
	BootstrapSeed = 20240229
	// Resamples leaves 50 resamples in each 2.5 % tail: plenty where the
	// median of n pairs takes no more than n values.
	Resamples = 2000
	// Confidence is the share of resamples inside the interval.
	Confidence = 0.95
)

// Median returns the middle of values, the mean of the two middle ones when
// their number is even. It does not change values. It panics when there are
// none: every caller has measured at least one pair.
func Median(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return medianSorted(sorted)
}

func medianSorted(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// Bootstrap returns the 95 % percentile-bootstrap interval of the median of
// ratios (Efron 1979): the pairs are drawn with replacement, the median taken,
// many times, and the interval is what the middle 95 % of these medians span.
// Pairs are resampled whole, as ratios, because the two sides of a pair share
// the machine's mood. It panics on an empty slice.
func Bootstrap(ratios []float64) (low, high float64) {
	rng := rand.New(rand.NewPCG(BootstrapSeed, uint64(len(ratios))))
	medians := make([]float64, Resamples)
	draw := make([]float64, len(ratios))
	for i := range medians {
		for j := range draw {
			draw[j] = ratios[rng.IntN(len(ratios))]
		}
		slices.Sort(draw)
		medians[i] = medianSorted(draw)
	}
	slices.Sort(medians)
	tail := (1 - Confidence) / 2
	return quantileSorted(medians, tail), quantileSorted(medians, 1-tail)
}

// quantileSorted returns the q-quantile (0..1) of sorted, linear between
// neighbours (type 7 of Hyndman and Fan, the usual default).
func quantileSorted(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	// In this form equal neighbours give exactly their value.
	return sorted[i] + (sorted[i+1]-sorted[i])*(at-float64(i))
}
