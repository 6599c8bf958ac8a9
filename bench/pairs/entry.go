package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// entry is one line of the result file. Field names and the orientation of
// ratio are read by other programs; new fields may be added at the end.
type entry struct {
	// Name identifies the figure, for example "file2g-tmpfs-cp".
	Name string `json:"name"`
	// Peer is what mover was compared with.
	Peer string `json:"peer"`
	// Ours and Theirs are the medians over all pairs, in Unit. They are 0 in
	// a run with -baseline for the side that was not measured.
	Ours   float64 `json:"ours"`
	Theirs float64 `json:"theirs"`
	// Unit is "Gbit/s" (decimal), "s" or "MiB".
	Unit string `json:"unit"`
	// Ratio is the median of the pair ratios; > 1 means mover is ahead. It is
	// close to, but not, the ratio of the two medians.
	Ratio float64 `json:"ratio"`
	// Low and High bound the 95 % bootstrap interval of Ratio.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Filesystem is the type the kernel names ("tmpfs", "ext4"), or "memory".
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
}

// met says whether the target was reached; ok is false without a target.
func (e entry) met() (met, ok bool) {
	if e.Target == nil {
		return false, false
	}
	return e.Ratio >= *e.Target, true
}

// orientation says which direction of a unit is good.
type orientation int

const (
	lowerIsBetter  orientation = iota // times, memory: ratio is theirs/ours
	higherIsBetter                    // rates: ratio is ours/theirs
)

// ratio orients one pair so that more than 1 means mover is ahead. A
// measurement that is zero, negative or not finite is an error: it is a run
// that did not measure anything, not a very good one.
func (o orientation) ratio(ours, theirs float64) (float64, error) {
	for _, v := range []float64{ours, theirs} {
		if !(v > 0) || math.IsInf(v, 1) {
			return 0, fmt.Errorf("measurement %v is not a positive number (ours %v, theirs %v)", v, ours, theirs)
		}
	}
	if o == higherIsBetter {
		return ours / theirs, nil
	}
	return theirs / ours, nil
}

// writeJSON writes v to path, indented, through a temporary file in the same
// directory and a rename, so that a reader never sees half a result and an
// interrupted run leaves the previous one.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of %s: %w", path, err)
	}
	f, err := os.CreateTemp(dir, ".bench-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(f.Name()) // fails once renamed, which is the good case
	_, err = f.Write(append(data, '\n'))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
