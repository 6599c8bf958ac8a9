// Command testreport turns the output of `go test` into what a person or CI
// needs to see.
//
//	testreport run FILE              summarise `go test -json`; fail if a test failed
//	testreport skips ALLOWED FILE... list skipped tests; with CI=true, fail on those not allowed
//	testreport hot LISTED FILE       check that the listed benchmarks are in FILE and do not allocate
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Getenv("CI") == "true"); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer, ci bool) error {
	switch {
	case len(args) == 2 && args[0] == "run":
		r, err := readResults(args[1:])
		if err != nil {
			return err
		}
		return r.summarise(out)
	case len(args) >= 3 && args[0] == "skips":
		r, err := readResults(args[2:])
		if err != nil {
			return err
		}
		allowed, err := readAllowed(args[1])
		if err != nil {
			return err
		}
		return r.checkSkips(out, allowed, ci)
	case len(args) == 3 && args[0] == "hot":
		listed, err := readHot(args[1])
		if err != nil {
			return err
		}
		f, err := os.Open(args[2])
		if err != nil {
			return err
		}
		defer f.Close()
		return checkHot(f, out, listed)
	}
	return fmt.Errorf("usage: testreport run FILE | skips ALLOWED FILE... | hot LISTED FILE")
}
