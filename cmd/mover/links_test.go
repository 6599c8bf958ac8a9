package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"mover/job"
)

// fill makes a file of size bytes, and the directories it is in.
func fill(t *testing.T, name string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, bytes.Repeat([]byte(filepath.Base(name)), size), 0o644); err != nil {
		t.Fatal(err)
	}
}

// threeNames makes a file with three names in data/dir and returns them in the
// order in which a walk finds them.
func threeNames(t *testing.T, n *testNode, dir string, size int) []string {
	t.Helper()
	fill(t, n.path("data", dir, "a"), size)
	for _, other := range []string{"b", "c"} {
		if err := os.Link(n.path("data", dir, "a"), n.path("data", dir, other)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := os.Open(n.path("data", dir))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil || len(names) != 3 {
		t.Fatal(names, err)
	}
	return names
}

// mustHaveNames fails unless all names are of one file with the content of
// data/dir at a.
func mustHaveNames(t *testing.T, a, b *testNode, dir string, names ...string) {
	t.Helper()
	want := sha256File(t, a.path("data", dir, "a"))
	for _, name := range names {
		if sha256File(t, b.path("incoming", dir, name)) != want {
			t.Errorf("%s: %s is not what the source has", dir, name)
		}
		x, err := os.Stat(b.path("incoming", dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if y, err := os.Stat(b.path("incoming", dir, names[0])); err != nil || !os.SameFile(x, y) {
			t.Errorf("%s: %s and %s are two files (%v)", dir, names[0], name, err)
		}
	}
}

// TestHardLinksToWhatWasKept: a name at the destination that a job leaves as it
// is has other content than the source, so no other name becomes a link to it.
func TestHardLinksToWhatWasKept(t *testing.T) {
	a, b := pair(t, "")
	for _, c := range []struct {
		dir, overwrite, onError string
		size                    int
	}{
		{"skip", "skip", "stop", 100}, {"skip-large", "skip", "stop", 300 << 10},
		{"newer", "if_newer", "stop", 100}, {"continue", "fail", "continue", 100}, {"continue-large", "fail", "continue", 300 << 10},
	} {
		names := threeNames(t, a, c.dir, c.size)
		old := func(name string) string {
			fill(t, b.path("incoming", c.dir, name), 5)
			return sha256File(t, b.path("incoming", c.dir, name))
		}
		first := old(names[0])
		spec := map[string]any{"source": map[string]string{"path": "data/" + c.dir}, "recursive": true, "overwrite": c.overwrite,
			"destination": map[string]string{"node": "b", "path": "incoming/" + c.dir}, "on_error": c.onError,
			"preserve": []string{"mode", "hardlinks"}}
		s := a.ended(t, a.submitJob(t, spec))
		if s.State != job.Succeeded && (s.State != job.Partial || s.Result.ItemsFailed != 1) {
			t.Fatalf("%s: %s, %+v", c.dir, s.State, s.LastReason)
		}
		mustHaveNames(t, a, b, c.dir, names[1], names[2])
		// The next name is kept as well.
		for _, name := range names[1:] {
			if err := os.Remove(b.path("incoming", c.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		second := old(names[1])
		s = a.ended(t, a.submitJob(t, spec))
		if s.State != job.Succeeded && (s.State != job.Partial || s.Result.ItemsFailed != 2) {
			t.Fatalf("%s again: %s, %+v", c.dir, s.State, s.LastReason)
		}
		mustHaveNames(t, a, b, c.dir, names[2])
		for i, was := range []string{first, second} {
			if sha256File(t, b.path("incoming", c.dir, names[i])) != was {
				t.Errorf("%s: %s was changed", c.dir, names[i])
			}
		}
	}
	noPartials(t, b.path("incoming"))
}

// TestHardLinksOfALaterAttempt: the name that is a file travelled with an
// earlier attempt; the others are links to it all the same.
func TestHardLinksOfALaterAttempt(t *testing.T) {
	a, b := pair(t, "")
	names := threeNames(t, a, "tree", 100)
	fill(t, b.path("incoming/tree", names[1]), 5)
	id := a.submitJob(t, map[string]any{"source": map[string]string{"path": "data/tree"}, "recursive": true,
		"destination": map[string]string{"node": "b", "path": "incoming/tree"}, "preserve": []string{"hardlinks"}})
	wantReason(t, a.ended(t, id), job.Failed, "DEST_EXISTS")
	mustHaveNames(t, a, b, "tree", names[0])
	if err := os.Remove(b.path("incoming/tree", names[1])); err != nil {
		t.Fatal(err)
	}
	if status, _, answer := a.call(t, http.MethodPost, "/v1/jobs/"+id+"/retry", ""); status != http.StatusOK {
		t.Fatalf("retry: %d %s", status, answer)
	}
	if s := a.ended(t, id); s.State != job.Succeeded {
		t.Fatalf("%s, %+v", s.State, s.LastReason)
	}
	mustHaveNames(t, a, b, "tree", names...)
}
