package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// readAllowed reads the list of tests that may be skipped.
func readAllowed(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var allowed []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		pattern, why, _ := strings.Cut(line, " ")
		if strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%s: %s has no reason", name, pattern)
		}
		allowed = append(allowed, pattern)
	}
	return allowed, lines.Err()
}

func isAllowed(name string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(pattern string) bool {
		prefix, wild := strings.CutSuffix(pattern, "*")
		return name == pattern || wild && strings.HasPrefix(name, prefix)
	})
}

// checkSkips lists the tests that were skipped in every run they were in.
func (r *results) checkSkips(out io.Writer, allowed []string, ci bool) error {
	var names []string
	reasons := map[string]string{}
	for id, reason := range r.skipped {
		if !r.passed[id] {
			names = append(names, id.String())
			reasons[id.String()] = reason
		}
	}
	slices.Sort(names)
	bad := 0
	for _, name := range names {
		word := "allowed"
		if !isAllowed(name, allowed) {
			word = "UNEXPECTED"
			bad++
		}
		fmt.Fprintf(out, "   skipped (%s): %s: %s\n", word, name, reasons[name])
	}
	if bad > 0 && ci {
		return fmt.Errorf("%d tests were skipped that CI provides for", bad)
	}
	return nil
}
