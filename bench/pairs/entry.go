package pairs

import (
	"errors"
	"fmt"
	"math"
)

// Entry is one line of the result file. Field names and the orientation of
// Ratio are read by other programs; new fields may be added at the end.
type Entry struct {
	// Name identifies the figure, for example "file2g-tmpfs-cp".
	Name string `json:"name"`
	// Peer is what mover was compared with.
	Peer string `json:"peer"`
	// Ours and Theirs are the medians over all pairs, in Unit. They are 0 in
	// a run with -baseline for the side that was not measured.
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs"`
	// Unit is "Gbit/s" (decimal), "s", "us", "ns" or "MiB".
	Unit string `json:"unit"`
	// Ratio is the median of the pair ratios; > 1 means mover is ahead. It is
	// close to, but not, the ratio of the two medians.
	Ratio float64 `json:"ratio"`
	// Low and High bound the 95 % bootstrap interval of Ratio.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Filesystem is the type the kernel names ("tmpfs", "ext4"), or "memory";
	// empty for what touches neither.
	Filesystem string `json:"filesystem"`
	// Target is the ratio aimed at; absent when the figure is only shown.
	Target *float64 `json:"target,omitempty"`
	// Pairs is how many pairs the figure rests on.
	Pairs int `json:"pairs"`
	// Setting is the peer's setting that won the warm-up.
	Setting string `json:"setting,omitempty"`
	// OursAll and TheirsAll are the single measurements, pair by pair.
	OursAll   []float64 `json:"ours_all,omitempty"`
	TheirsAll []float64 `json:"theirs_all,omitempty"`
	// Allocs are mover's heap allocations in a round, for figures that promise
	// none.
	Allocs *int64 `json:"allocs,omitempty"`
}

// ErrNothing means that there is no measurement to compare.
var ErrNothing = errors.New("nothing was measured")

// Compare fills in what follows from the single measurements, which are in
// pair order; it keeps both slices. Without ours, those of a run of the peer
// alone, there is no ratio.
func (e *Entry) Compare(o Orientation, ours, theirs []float64) error {
	if len(theirs) == 0 {
		return ErrNothing
	}
	e.Pairs, e.OursAll, e.TheirsAll = len(theirs), ours, theirs
	e.Theirs = Median(theirs)
	if len(ours) == 0 {
		return nil
	}
	if len(ours) != len(theirs) {
		return fmt.Errorf("%d runs of mover but %d of %s", len(ours), len(theirs), e.Peer)
	}
	e.Ours = Median(ours)
	ratios := make([]float64, len(ours))
	for i := range ours {
		r, err := o.Ratio(ours[i], theirs[i])
		if err != nil {
			return fmt.Errorf("pair %d: %w", i+1, err)
		}
		ratios[i] = r
	}
	e.Ratio = Median(ratios)
	e.Low, e.High = Bootstrap(ratios)
	return nil
}

// Met says whether the target was reached, without an allocation where none is
// promised; ok is false without a target.
func (e Entry) Met() (met, ok bool) {
	if e.Target == nil {
		return false, false
	}
	return e.Ratio >= *e.Target && (e.Allocs == nil || *e.Allocs == 0), true
}

// Orientation says which direction of a unit is good.
type Orientation int

// The orientations.
const (
	LowerIsBetter  Orientation = iota // times, memory: ratio is theirs/ours
	HigherIsBetter                    // rates: ratio is ours/theirs
)

// Ratio orients one pair so that more than 1 means mover is ahead. A
// measurement that is zero, negative or not finite is an error: it is a run
// that did not measure anything, not a very good one.
func (o Orientation) Ratio(ours, theirs float64) (float64, error) {
	for _, v := range []float64{ours, theirs} {
		if !(v > 0) || math.IsInf(v, 1) {
			return 0, fmt.Errorf("measurement %v is not a positive number (ours %v, theirs %v)", v, ours, theirs)
		}
	}
	if o == HigherIsBetter {
		return ours / theirs, nil
	}
	return theirs / ours, nil
}
