package pairs

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRatioOrientation(t *testing.T) {
	for _, c := range []struct {
		name         string
		o            Orientation
		ours, theirs float64
		want         float64
	}{
		{"half the time is twice as good", LowerIsBetter, 1, 2, 2},
		{"three times cp's time is a third", LowerIsBetter, 3, 1, 1.0 / 3},
		{"twice the rate is twice as good", HigherIsBetter, 20, 10, 2},
		{"three quarters of the rate", HigherIsBetter, 15, 20, 0.75},
	} {
		got, err := c.o.Ratio(c.ours, c.theirs)
		if err != nil || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
}

func TestRatioRefusesNonsense(t *testing.T) {
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if r, err := LowerIsBetter.Ratio(bad, 1); err == nil {
			t.Errorf("ours %v gave %v", bad, r)
		}
		if r, err := HigherIsBetter.Ratio(1, bad); err == nil {
			t.Errorf("theirs %v gave %v", bad, r)
		}
	}
}

func TestCompare(t *testing.T) {
	target := 0.33
	e := Entry{Name: "x", Peer: "cp", Target: &target}
	if err := e.Compare(LowerIsBetter, []float64{2, 2, 4}, []float64{1, 2, 1}); err != nil {
		t.Fatal(err)
	}
	// Pair ratios are 0.5, 1, 0.25.
	if e.Ratio != 0.5 || e.Ours != 2 || e.Theirs != 1 || e.Pairs != 3 || e.Low > 0.5 || e.High < 0.5 {
		t.Errorf("got %+v", e)
	}
	if met, ok := e.Met(); !met || !ok {
		t.Errorf("0.5 against a target of 0.33: met %v, has a target %v", met, ok)
	}
	allocs := int64(0)
	e.Allocs = &allocs
	if met, _ := e.Met(); !met {
		t.Error("no allocation, and not met")
	}
	allocs = 1
	if met, _ := e.Met(); met {
		t.Error("an allocation where none is promised, and met")
	}
	e.Allocs = nil
	alone := Entry{}
	if err := alone.Compare(LowerIsBetter, nil, []float64{1, 3}); err != nil || alone.Theirs != 2 || alone.Ratio != 0 || alone.Pairs != 2 {
		t.Errorf("the peer alone: %+v, %v", alone, err)
	}
	if err := e.Compare(LowerIsBetter, []float64{1}, []float64{1, 2}); err == nil || !strings.Contains(err.Error(), "1 runs of mover but 2 of cp") {
		t.Errorf("unequal numbers of runs: %v", err)
	}
	if err := e.Compare(LowerIsBetter, nil, nil); !errors.Is(err, ErrNothing) {
		t.Errorf("no measurements: %v", err)
	}
	if err := e.Compare(LowerIsBetter, []float64{0}, []float64{1}); err == nil || !strings.Contains(err.Error(), "pair 1") {
		t.Errorf("a run of no time: %v", err)
	}
}

// TestFieldNames pins what other programs read.
func TestFieldNames(t *testing.T) {
	e := Entry{Name: "shown", Peer: "iperf3", Unit: "Gbit/s", Filesystem: "memory"}
	if err := e.Compare(HigherIsBetter, []float64{1}, []float64{1}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "new", "bench.json")
	if err := WriteFile(path, []Entry{e}); err != nil {
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
