package pairs

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{1, 4}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{1, 1, 1, 1000, 1}, 1}, // one disturbed pair decides nothing
	} {
		before := append([]float64{}, c.values...)
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
		for i := range before {
			if before[i] != c.values[i] {
				t.Fatalf("median reordered its argument: %v", c.values)
			}
		}
	}
}

func TestQuantile(t *testing.T) {
	sorted := []float64{0, 1, 2, 3, 4}
	for _, c := range []struct{ q, want float64 }{{0, 0}, {1, 4}, {0.5, 2}, {0.125, 0.5}, {0.9, 3.6}} {
		if got := quantileSorted(sorted, c.q); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("quantile %v = %v, want %v", c.q, got, c.want)
		}
	}
}

func TestBootstrapProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ratios := rapid.SliceOfN(rapid.Float64Range(0.01, 100), 1, 9).Draw(t, "ratios")
		low, high := Bootstrap(ratios)
		m := Median(ratios)
		least, most := ratios[0], ratios[0]
		for _, r := range ratios {
			least, most = min(least, r), max(most, r)
		}
		if !(least <= low && low <= m && m <= high && high <= most) {
			t.Fatalf("Bootstrap(%v) = %v, %v; median %v", ratios, low, high, m)
		}
		if l, h := Bootstrap(ratios); l != low || h != high {
			t.Fatalf("the interval is not a function of the pairs: %v %v, then %v %v", low, high, l, h)
		}
	})
}

func TestBootstrapConstant(t *testing.T) {
	if low, high := Bootstrap([]float64{2, 2, 2, 2, 2, 2, 2}); low != 2 || high != 2 {
		t.Errorf("interval of equal ratios is %v .. %v", low, high)
	}
}

// TestBootstrapCoverage draws samples from a population whose median is known:
// an interval that is too narrow, or of something else, misses it too often.
// Percentile intervals of a median of 15 cover somewhat more or less than they
// say; 85 % is far from both 95 % and from what a wrong tail gives.
func TestBootstrapCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const samples = 60
	inside := 0
	for range samples {
		ratios := make([]float64, 15)
		for i := range ratios {
			ratios[i] = math.Exp(rng.NormFloat64() * 0.2) // median 1
		}
		if low, high := Bootstrap(ratios); low <= 1 && 1 <= high {
			inside++
		}
	}
	if inside < samples*85/100 {
		t.Errorf("the interval covers the true median in %d of %d samples", inside, samples)
	}
}

func TestBootstrapSpreads(t *testing.T) {
	low, high := Bootstrap([]float64{0.5, 0.7, 0.9, 1, 1.1, 1.3, 1.5})
	if low > 0.9 || high < 1.1 || low < 0.5 || high > 1.5 {
		t.Errorf("interval of widely spread ratios is %v .. %v", low, high)
	}
}
