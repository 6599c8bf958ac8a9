package fileio

import (
	"strings"
	"testing"

	"mover/reason"
)

func TestSplit(t *testing.T) {
	long := strings.Repeat("n", 255)
	cases := []struct {
		place, root, rel string
		code             reason.Code
	}{
		{"data/a", "data", "a", ""},
		{"data/a/b c/\xff", "data", "a/b c/\xff", ""},
		{"data", "data", ".", ""},
		{"data/", "data", ".", ""},
		{"data//a/./b/", "data", "a/b", ""},
		{"data/" + long, "data", long, ""},
		{"data/...", "data", "...", ""},
		{"", "", "", reason.PathOutsideRoot},
		{"/etc/passwd", "", "", reason.PathOutsideRoot},
		{"../x", "", "", reason.PathOutsideRoot},
		{".", "", "", reason.PathOutsideRoot},
		{"-x/a", "", "", reason.PathOutsideRoot},
		{"da ta/a", "", "", reason.PathOutsideRoot},
		{strings.Repeat("r", 65) + "/a", "", "", reason.PathOutsideRoot},
		{"data/..", "", "", reason.PathOutsideRoot},
		{"data/a/../b", "", "", reason.PathOutsideRoot},
		{"data/a\x00b", "", "", reason.PathOutsideRoot},
		{"data/" + long + "n", "", "", reason.NameTooLong},
		{"data/" + strings.Repeat("ab/", 1366), "", "", reason.NameTooLong},
	}
	for _, c := range cases {
		root, rel, err := Split(c.place)
		if root != c.root || rel != c.rel || reason.Of(err) != c.code {
			t.Errorf("Split(%.40q) = %q, %.40q, %v; want %q, %.40q, %s", c.place, root, rel, err, c.root, c.rel, c.code)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, s := range []string{"data/a", "data", "", "/", "data//..", "data/./a/", "data/a\x00", "..", "data/\xff/\n", ".mover./x", "a/b/c/d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, place string) {
		root, rel, err := Split(place)
		if err != nil {
			if code := reason.Of(err); code != reason.PathOutsideRoot && code != reason.NameTooLong {
				t.Fatalf("Split(%q): %v", place, err)
			}
			if root != "" || rel != "" {
				t.Fatalf("Split(%q) gives %q, %q beside an error", place, root, rel)
			}
			return
		}
		if checkRootName(root) != nil {
			t.Fatalf("Split(%q): root %q", place, root)
		}
		if len(rel) == 0 || len(rel) > pathMaxBytes || strings.ContainsRune(rel, 0) {
			t.Fatalf("Split(%q): rel %q", place, rel)
		}
		for i, part := range strings.Split(rel, "/") {
			if part == "" || part == ".." || len(part) > nameMaxBytes || part == "." && (i > 0 || rel != ".") {
				t.Fatalf("Split(%q): rel %q has the part %q", place, rel, part)
			}
		}
		// Splitting again what was split changes nothing.
		if root2, rel2, err := Split(root + "/" + rel); err != nil || root2 != root || rel2 != rel {
			t.Fatalf("Split is not stable: %q -> %q, %q, %v", rel, root2, rel2, err)
		}
	})
}

func TestIsPartial(t *testing.T) {
	name := partialName("job", 7, 3)
	if !IsPartial(name) || len(name) != 47 {
		t.Errorf("%q (%d bytes) is not taken for a partial file", name, len(name))
	}
	for _, no := range []string{"", "a", ".mover..partial", ".mover." + strings.Repeat("g", 32) + ".partial", name + "x", "x" + name, strings.ToUpper(name),
		".mover." + strings.Repeat("a", 31) + ".partial", ".mover." + strings.Repeat("a", 33) + ".partial"} {
		if IsPartial(no) {
			t.Errorf("%q is taken for a partial file", no)
		}
	}
	seen := map[string]bool{}
	for _, job := range []string{"", "a", "a1", "b"} {
		for item := range uint64(3) {
			for attempt := range uint32(3) {
				n := partialName(job, item, attempt)
				if seen[n] {
					t.Errorf("%q twice", n)
				}
				seen[n] = true
			}
		}
	}
}
