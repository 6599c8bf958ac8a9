package job

import (
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		rules   string // separated by spaces
		rel     string // ends in / for a directory
		matched bool
		negated bool
	}{
		{"*.go", "a/b/x.go", true, false}, {"*.go", "a/b/x.c", false, false}, {"/*.go", "a/x.go", false, false},
		{"/*.go", "x.go", true, false}, {"b/x", "a/b/x", true, false}, {"/b/x", "a/b/x", false, false},
		{"tmp/", "a/tmp/", true, false}, {"tmp/", "a/tmp", false, false}, {"a/**/x", "a/x", true, false},
		{"a/**/x", "a/b/c/x", true, false}, {"a/**", "a/b/c", true, false}, {"/**/x", "x", true, false},
		{"[ab]?", "a1", true, false}, {"[^a]", "a", false, false}, {`\*`, "*", true, false}, {`\*`, "x", false, false},
		{"*.go !x.go", "x.go", true, true}, {"!x.go *.go", "x.go", true, false}, {"", "x", false, false},
		{"/a/**/b/**/c", "a/b/b/x/c", true, false}, {"/a/**/b/**/c", "a/b/b/x/d", false, false}, {"?", "\xff", true, false},
	} {
		p, err := ParsePatterns(strings.Fields(c.rules))
		if err != nil {
			t.Errorf("%q: %v", c.rules, err)
			continue
		}
		rel, dir := strings.CutSuffix(c.rel, "/")
		if m, n := p.Match(rel, dir); m != c.matched || n != c.negated {
			t.Errorf("%q of %q: %v %v", c.rules, c.rel, m, n)
		}
	}
	for _, bad := range []string{"", "/", "!", "!/", "a//b", "a/./b", "../a", "[", "a**", `x\`, "a\x00", strings.Repeat("x", MaxPatternBytes+1)} {
		if _, err := ParsePatterns([]string{"x", bad}); err == nil || !strings.HasPrefix(err.Error(), "entry 1 ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ParsePatterns(make([]string, MaxPatterns+1)); err == nil {
		t.Error("too many accepted")
	}
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		include, exclude string
		rel              string
		take, descend    bool
	}{
		{"", "", "a", true, false}, {"", "", "a/", true, true}, {"*.go", "", "x.c", false, false},
		{"*.go", "", "d/", false, true}, {"src/", "", "src/a/b", true, false}, {"src/ !*.o", "", "src/a.o", false, false},
		{"", "tmp/", "a/tmp/", false, false}, {"", "tmp/", "tmp", true, false}, {"*.go", "x*", "x.go", false, false},
		{"", "*.o !keep.o", "keep.o", true, false}, {"", "*.o !keep.o", "x.o", false, false},
	} {
		s, err := ParseSelection(strings.Fields(c.include), strings.Fields(c.exclude))
		if err != nil {
			t.Fatal(err)
		}
		rel, dir := strings.CutSuffix(c.rel, "/")
		if take, descend := s.Take(rel, dir); take != c.take || descend != c.descend {
			t.Errorf("%+v: %v %v", c, take, descend)
		}
	}
}

// FuzzPatterns: no rule panics or takes long, and a rule that is a plain name
// matches itself.
func FuzzPatterns(f *testing.F) {
	f.Add("*.go", "a/b.go", false)
	f.Add("!/a/**/[x-z]/", "a/b/y", true)
	f.Fuzz(func(t *testing.T, rule, rel string, dir bool) {
		p, err := ParsePatterns([]string{rule})
		if err != nil {
			return
		}
		p.Match(rel, dir)
		if plain := strings.Trim(rule, "/"); !strings.ContainsAny(rule, `*?[\!`) && !strings.HasSuffix(rule, "/") {
			if m, _ := p.Match(plain, dir); !m {
				t.Fatalf("%q does not match itself", rule)
			}
		}
	})
}
