//go:build linux

package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testNode(t *testing.T) *node {
	t.Helper()
	n := &node{name: "a", dir: t.TempDir()}
	for _, sub := range []string{"data", "incoming"} {
		if err := os.Mkdir(n.path(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestASurveySeesWhatATreeIs(t *testing.T) {
	n := testNode(t)
	r := rand.New(rand.NewPCG(1, 2))
	s, err := makeTree(n, "tree", 60, r, newNoise(r))
	if err != nil {
		t.Fatal(err)
	}
	root := n.path("data", "tree")
	write(t, filepath.Join(root, "d0", ".mover.0123.partial"), "x")
	found, partials, err := look(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.has, found); diff != "" || partials != 1 {
		t.Fatalf("%d partials, and -made +seen\n%s", partials, diff)
	}
	if problem := s.has.differs(found); problem != "" {
		t.Errorf("a tree differs from itself: %s", problem)
	}
	for what, do := range map[string]func(){
		"a byte changed":        func() { write(t, filepath.Join(root, "f0000"), "y") },
		"an entry more":         func() { write(t, filepath.Join(root, "more"), "") },
		"an empty directory":    func() { os.Remove(filepath.Join(root, "empty")) },
		"a link become content": func() { os.Remove(filepath.Join(root, "link")); write(t, filepath.Join(root, "link"), "") },
	} {
		before, _, err := look(root)
		if err != nil {
			t.Fatal(err)
		}
		do()
		after, _, err := look(root)
		if err != nil {
			t.Fatal(err)
		}
		if before.differs(after) == "" {
			t.Errorf("%s is not seen", what)
		}
	}
}

func TestLessThanAllIsNoDifferenceForAJobThatFailed(t *testing.T) {
	want := survey{"a": "file 1", "b": "file 2"}
	if problem := want.hasAll(survey{"b": "file 2"}); problem != "" {
		t.Error(problem)
	}
	if want.hasAll(survey{"b": "file 1"}) == "" || want.hasAll(survey{"c": "file 1"}) == "" {
		t.Error("other content, or another name, passes")
	}
}

func TestASharedDestinationMayBeOldOrNewAndNothingElse(t *testing.T) {
	n := testNode(t)
	all, err := makeShared(n, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	s := all[0]
	wrong := func() bool {
		t.Helper()
		whole, err := s.check()
		if err != nil {
			t.Fatal(err)
		}
		glance, err := s.glance(r)
		if err != nil {
			t.Fatal(err)
		}
		if (whole == "") != (glance == "") {
			t.Fatalf("check says %q, glance %q", whole, glance)
		}
		return whole != ""
	}
	if wrong() {
		t.Error("what was there is refused")
	}
	s.allow(surveyOf([]byte("new")))
	write(t, s.path(), "new")
	if wrong() {
		t.Error("what a job may put there is refused")
	}
	write(t, s.path(), "ne")
	if !wrong() {
		t.Error("half of it passes")
	}
	if err := os.Remove(s.path()); err != nil {
		t.Fatal(err)
	}
	if !wrong() {
		t.Error("that it is gone passes")
	}
}

func TestSlopesSeeGrowthAndNotNoise(t *testing.T) {
	grows, swings := []held{}, []held{}
	for i := range 60 {
		up := float64(i)
		grows = append(grows, held{goroutines: 100 + 5*up, residentB: 1e8, stateB: 1e6, descriptors: 50})
		swings = append(swings, held{goroutines: 100 + 200*float64(i%2), residentB: 1e8 + 1e8*float64(i%3), stateB: 1e6, descriptors: 50})
	}
	if problem := slopesOf(grows).problem(); problem == "" {
		t.Errorf("growth is not seen: %v", slopesOf(grows))
	}
	if problem := slopesOf(swings).problem(); problem != "" {
		t.Errorf("noise is taken for growth: %s", problem)
	}
}
