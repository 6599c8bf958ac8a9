package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// checkHot reads the output of go test -bench -benchmem.
func checkHot(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	pkg, found, bad := "", 0, 0
	for lines.Scan() {
		if p, ok := strings.CutPrefix(lines.Text(), "pkg: "); ok {
			pkg = p
		}
		f := strings.Fields(lines.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
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
			found++
			word := "ok"
			if n > 0 {
				word, bad = "ALLOCATES", bad+1
			}
			fmt.Fprintf(out, "   %-9s %d allocs/op  %s %s\n", word, n, pkg, f[0])
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return err
	case found == 0:
		return fmt.Errorf("no benchmark of a hot path was found")
	case bad > 0:
		return fmt.Errorf("%d of %d hot paths allocate", bad, found)
	}
	return nil
}
