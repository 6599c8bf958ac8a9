package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// readHot reads the list of benchmarks that must exist: "package name".
func readHot(name string) (map[string]bool, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if len(f) != 2 || !strings.HasPrefix(f[1], "Benchmark") {
			return nil, fmt.Errorf("%s: %q is not a package and a benchmark", name, strings.TrimSpace(line))
		}
		seen[f[0]+" "+f[1]] = false
	}
	return seen, nil
}

// checkHot reads the output of go test -bench -benchmem: each benchmark of
// listed must be there, and no line of theirs may allocate.
func checkHot(in io.Reader, out io.Writer, listed map[string]bool) error {
	lines := bufio.NewScanner(in)
	pkg, bad := "", 0
	for lines.Scan() {
		if p, ok := strings.CutPrefix(lines.Text(), "pkg: "); ok {
			pkg = p
		}
		f := strings.Fields(lines.Text())
		if len(f) < 4 {
			continue
		}
		name, _, _ := strings.Cut(f[0], "/")
		name = pkg + " " + strings.TrimRight(strings.TrimRight(name, "0123456789"), "-")
		if _, isListed := listed[name]; !isListed {
			continue
		}
		for i := 2; i < len(f); i++ {
			if f[i] != "allocs/op" {
				continue
			}
			n, err := strconv.ParseInt(f[i-1], 10, 64)
			if err != nil {
				return fmt.Errorf("%s: %w", lines.Text(), err)
			}
			listed[name] = true
			word := "ok"
			if n > 0 {
				word, bad = "ALLOCATES", bad+1
			}
			fmt.Fprintf(out, "   %-9s %d allocs/op  %s %s\n", word, n, pkg, f[0])
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	missing := 0
	for name, ran := range listed {
		if !ran {
			missing++
			fmt.Fprintf(out, "   MISSING   %s\n", name)
		}
	}
	if bad > 0 || missing > 0 || len(listed) == 0 {
		return fmt.Errorf("of %d hot paths, %d did not run; %d measurements allocate", len(listed), missing, bad)
	}
	return nil
}
