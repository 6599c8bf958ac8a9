package main

import (
	"math/rand/v2"
	"slices"
)

const (
	// bootstrapSeed makes the interval a function of the pairs alone.
	bootstrapSeed = 20240229
	// bootstrapResamples leaves 50 resamples in each 2.5 % tail: plenty where
	// the median of n pairs takes no more than n values.
	bootstrapResamples = 2000
	// bootstrapConfidence is the share of resamples inside the interval.
	bootstrapConfidence = 0.95
)

// median returns the middle of values, the mean of the two middle ones when
// their number is even. It does not change values. It panics when there are
// none: every caller has measured at least one pair.
func median(values []float64) float64 {
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

// bootstrap returns the 95 % percentile-bootstrap interval of the median of
// ratios (Efron 1979): the pairs are drawn with replacement, the median taken,
// many times, and the interval is what the middle 95 % of these medians span.
// Pairs are resampled whole, as ratios, because the two sides of a pair share
// the machine's mood. It panics on an empty slice.
func bootstrap(ratios []float64) (low, high float64) {
	rng := rand.New(rand.NewPCG(bootstrapSeed, uint64(len(ratios))))
	medians := make([]float64, bootstrapResamples)
	draw := make([]float64, len(ratios))
	for i := range medians {
		for j := range draw {
			draw[j] = ratios[rng.IntN(len(ratios))]
		}
		slices.Sort(draw)
		medians[i] = medianSorted(draw)
	}
	slices.Sort(medians)
	tail := (1 - bootstrapConfidence) / 2
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
