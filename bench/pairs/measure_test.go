package pairs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPairsAlternate(t *testing.T) {
	var order []string
	side := func(name string, base float64) Measurement {
		return func(_ context.Context, run int) (float64, error) {
			order = append(order, fmt.Sprint(name, run))
			return base + float64(run), nil
		}
	}
	ours, theirs, err := Measure(t.Context(), 3, side("o", 10), side("t", 20))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"o0", "t0", "t1", "o1", "o2", "t2"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if !slices.Equal(ours, []float64{10, 11, 12}) || !slices.Equal(theirs, []float64{20, 21, 22}) {
		t.Errorf("values are not in pair order: %v %v", ours, theirs)
	}
}

func TestPairsEndAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	runs := 0
	m := func(context.Context, int) (float64, error) {
		runs++
		if runs == 3 {
			return 0, broken
		}
		return 1, nil
	}
	_, _, err := Measure(t.Context(), 7, m, m)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "pair 2 of 7") || runs != 3 {
		t.Errorf("after %d runs: %v", runs, err)
	}
}

func TestPairsOfThePeerAlone(t *testing.T) {
	ours, theirs, err := Measure(t.Context(), 2, nil, func(context.Context, int) (float64, error) { return 1, nil })
	if err != nil || len(ours) != 0 || len(theirs) != 2 {
		t.Errorf("%v %v %v", ours, theirs, err)
	}
}

func TestCalibrate(t *testing.T) {
	// The first round is cold: every value is worse in both directions.
	values := [][]float64{{9, 8, 7}, {1, 5, 3}}
	for _, c := range []struct {
		o    Orientation
		want int
	}{{LowerIsBetter, 0}, {HigherIsBetter, 0}} {
		calls := 0
		got, err := Calibrate(t.Context(), 3, c.o, func(_ context.Context, s int) (float64, error) {
			v := values[calls/3][s]
			calls++
			return v, nil
		})
		if err != nil || got != c.want || calls != 3*calibrationRounds {
			t.Errorf("orientation %v: setting %d after %d calls, %v", c.o, got, calls, err)
		}
	}
	got, err := Calibrate(t.Context(), 4, HigherIsBetter, func(_ context.Context, s int) (float64, error) {
		return []float64{2, 4, 8, 6}[s], nil
	})
	if err != nil || got != 2 {
		t.Errorf("the highest rate is setting 2, got %d, %v", got, err)
	}
	if _, err := Calibrate(t.Context(), 0, LowerIsBetter, nil); err == nil {
		t.Error("a peer without settings was accepted")
	}
	if _, err := Calibrate(t.Context(), 1, LowerIsBetter, func(context.Context, int) (float64, error) { return 0, errors.New("no") }); err == nil {
		t.Error("a failing setting was accepted")
	}
}
