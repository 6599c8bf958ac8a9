package node

import (
	"slices"
	"testing"

	"mover/job"
)

// TestPhasesAreToldOnceAndInOrder: a publication that takes long is looked at
// many times, and the item is verified all the while.
func TestPhasesAreToldOnceAndInOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks [][2]bool // verifying, publishing
		want  []job.State
	}{
		{"every phase seen", [][2]bool{{false, false}, {true, false}, {true, false}, {true, true}, {true, true}}, []job.State{job.Verifying, job.Publishing}},
		{"verifying missed", [][2]bool{{false, false}, {true, true}, {true, true}}, []job.State{job.Publishing}},
		{"ended early", [][2]bool{{false, false}, {false, false}}, nil},
	} {
		var got []job.State
		sh := &shipping{attempt: &job.Attempt{Phase: func(s job.State) { got = append(got, s) }}}
		for _, l := range c.looks {
			sh.reached(l[0], l[1])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: told %v, want %v", c.name, got, c.want)
		}
	}
}
