package job

import (
	"path"
	"strings"
)

// Limits of include and exclude, each.
const (
	MaxPatterns     = 256
	MaxPatternBytes = 1024
)

// Patterns is an ordered list of rules for names in a tree; the last that
// matches decides. A rule is components with `*`, `?`, `[..]` and `\` as in
// path.Match, or `**` for any number of components. A leading / anchors it at
// the top of the tree, else it may begin at any component; a trailing / makes
// it match directories alone; a leading ! turns it round. It is immutable and
// safe for concurrent use; the zero value has no rule.
type Patterns struct{ rules []rule }

type rule struct {
	parts     []string
	dirOnly   bool
	negated   bool
	anyPrefix bool // not anchored
}

// ParsePatterns reads rules. The error is a *FieldError without a field, whose
// text does not repeat the rule but says which it is, from 0.
func ParsePatterns(list []string) (Patterns, error) {
	if len(list) > MaxPatterns {
		return Patterns{}, refuse("", "has more than %d entries", MaxPatterns)
	}
	var p Patterns
	for i, text := range list {
		r, problem := parseRule(text)
		if problem != "" {
			return Patterns{}, refuse("", "entry %d %s", i, problem)
		}
		p.rules = append(p.rules, r)
	}
	return p, nil
}

func parseRule(text string) (r rule, problem string) {
	if len(text) > MaxPatternBytes {
		return r, "is longer than 1024 bytes"
	}
	if strings.IndexByte(text, 0) >= 0 {
		return r, "has a NUL byte"
	}
	text, r.negated = strings.CutPrefix(text, "!")
	var anchored bool
	text, anchored = strings.CutPrefix(text, "/")
	text, r.dirOnly = strings.CutSuffix(text, "/")
	r.anyPrefix = !anchored
	if text == "" {
		return r, "is empty"
	}
	for part := range strings.SplitSeq(text, "/") {
		switch {
		case part == "" || part == "." || part == "..":
			return r, "has an empty, . or .. component"
		case part == "**":
			if n := len(r.parts); n > 0 && r.parts[n-1] == "**" {
				continue // the same, and cheaper to match
			}
		case strings.Contains(part, "**"):
			return r, "has ** beside other characters; ** stands alone between slashes"
		default:
			if _, err := path.Match(part, ""); err != nil {
				return r, "is not a valid pattern; look at its brackets and backslashes"
			}
		}
		r.parts = append(r.parts, part)
	}
	return r, ""
}

// Match tells what the rules say of rel, a clean path below the tree's top
// without a leading slash; dir is whether it is a directory. matched is false
// when no rule matches; negated is whether the last that does begins with !.
func (p Patterns) Match(rel string, dir bool) (matched, negated bool) {
	if len(p.rules) == 0 {
		return false, false
	}
	return p.match(strings.Split(rel, "/"), dir)
}

func (p Patterns) match(parts []string, dir bool) (matched, negated bool) {
	for i := len(p.rules) - 1; i >= 0; i-- {
		if r := &p.rules[i]; r.match(parts, dir) {
			return true, r.negated
		}
	}
	return false, false
}

func (r *rule) match(parts []string, dir bool) bool {
	if r.dirOnly && !dir {
		return false
	}
	if !r.anyPrefix {
		return matchParts(r.parts, parts)
	}
	for from := range parts {
		if matchParts(r.parts, parts[from:]) {
			return true
		}
	}
	return false
}

// matchParts matches component by component. As with * in a component, only
// the last ** seen has to be tried again, so the time is bounded by the product
// of the lengths whatever the rule is.
func matchParts(rule, parts []string) bool {
	ri, pi := 0, 0
	starRule, starPart := -1, 0
	for pi < len(parts) {
		switch {
		case ri < len(rule) && rule[ri] == "**":
			starRule, starPart = ri, pi
			ri++
			continue
		case ri < len(rule):
			// The syntax was checked, so there is no error.
			if ok, _ := path.Match(rule[ri], parts[pi]); ok {
				ri, pi = ri+1, pi+1
				continue
			}
		}
		if starRule < 0 {
			return false
		}
		starPart++
		ri, pi = starRule+1, starPart
	}
	for ri < len(rule) && rule[ri] == "**" {
		ri++
	}
	return ri == len(rule)
}

// Selection is include and exclude together: what a tree job takes. It is
// immutable and safe for concurrent use; the zero value takes everything.
type Selection struct{ include, exclude Patterns }

// ParseSelection reads both lists. The error is a *FieldError whose field is
// "include" or "exclude".
func ParseSelection(include, exclude []string) (s Selection, err error) {
	if s.include, err = ParsePatterns(include); err != nil {
		return Selection{}, inField("include", err)
	}
	if s.exclude, err = ParsePatterns(exclude); err != nil {
		return Selection{}, inField("exclude", err)
	}
	return s, nil
}

func inField(field string, err error) error {
	return &FieldError{Field: field, Problem: err.Error()}
}

// All reports whether everything is taken, so that a walk need not ask.
func (s Selection) All() bool { return len(s.include.rules) == 0 && len(s.exclude.rules) == 0 }

// Take decides about one entry of the tree, see Patterns.Match for rel and
// dir. An entry is taken if it is not excluded and include is empty or, of the
// entry and the directories above it, the nearest that a rule matches is
// included: what names a directory names what is in it. descend is whether the
// walk must look into a directory, which is always so unless it is excluded:
// what is below an excluded directory is never asked about.
func (s Selection) Take(rel string, dir bool) (take, descend bool) {
	if s.All() {
		return true, dir
	}
	parts := strings.Split(rel, "/")
	if matched, negated := s.exclude.match(parts, dir); matched && !negated {
		return false, false
	}
	return s.included(parts, dir), dir
}

func (s Selection) included(parts []string, dir bool) bool {
	if len(s.include.rules) == 0 {
		return true
	}
	for n := len(parts); n > 0; n-- {
		if matched, negated := s.include.match(parts[:n], dir || n < len(parts)); matched {
			return !negated
		}
	}
	return false
}
