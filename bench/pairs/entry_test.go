package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRatioOrientation(t *testing.T) {
	for _, c := range []struct {
		name         string
		o            orientation
		ours, theirs float64
		want         float64
	}{
		{"half the time is twice as good", lowerIsBetter, 1, 2, 2},
		{"three times cp's time is a third", lowerIsBetter, 3, 1, 1.0 / 3},
		{"twice the rate is twice as good", higherIsBetter, 20, 10, 2},
		{"three quarters of the rate", higherIsBetter, 15, 20, 0.75},
	} {
		got, err := c.o.ratio(c.ours, c.theirs)
		if err != nil || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}

func TestRatioRefusesNonsense(t *testing.T) {
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if r, err := lowerIsBetter.ratio(bad, 1); err == nil {
			t.Errorf("ours %v gave %v", bad, r)
		}
		if r, err := higherIsBetter.ratio(1, bad); err == nil {
			t.Errorf("theirs %v gave %v", bad, r)
		}
	}
}

func TestFigureResult(t *testing.T) {
	f := figure{name: "x", kind: fileFigure, peer: "cp", target: 0.33}
	e, err := f.result("ext4", "cp -x", []float64{2, 2, 4}, []float64{1, 2, 1})
	if err != nil {
		t.Fatal(err)
	}
	// Pair ratios are 0.5, 1, 0.25.
	if e.Ratio != 0.5 || e.Ours != 2 || e.Theirs != 1 || e.Pairs != 3 || e.Unit != "s" {
		t.Errorf("got %+v", e)
	}
	if met, ok := e.met(); !met || !ok {
		t.Errorf("0.5 against a target of 0.33: met %v, has a target %v", met, ok)
	}
	if _, err := f.result("ext4", "", []float64{1}, []float64{1, 2}); err == nil {
		t.Error("unequal numbers of runs were accepted")
	}
	if _, err := f.result("ext4", "", nil, nil); err == nil {
		t.Error("no measurements were accepted")
	}
	if _, err := f.result("ext4", "", []float64{0}, []float64{1}); err == nil {
		t.Error("a run of no time was accepted")
	}
}

// TestFieldNames pins what other programs read.
func TestFieldNames(t *testing.T) {
	f := figure{name: "shown", kind: memoryFigure, peer: "iperf3"}
	e, err := f.result("memory", "", []float64{1}, []float64{1})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "new", "bench.json")
	if err := writeJSON(path, []entry{e}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{
		"name": "shown", "peer": "iperf3", "ours": 1.0, "theirs": 1.0, "unit": "Gbit/s", "ratio": 1.0,
		"low": 1.0, "high": 1.0, "filesystem": "memory", "pairs": 1.0,
		"ours_all": []any{1.0}, "theirs_all": []any{1.0},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bench.json (-want +got):\n%s", diff)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left beside the result: %v, %v", left, err)
	}
}
