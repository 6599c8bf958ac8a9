package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

type testID struct{ pkg, test string }

func (id testID) String() string { return id.pkg + "." + id.test }

// results are those of one or several runs together.
type results struct {
	packages []event // the last event of each package, in order of ending
	passed   map[testID]bool
	failed   []testID
	skipped  map[testID]string // with the reason it gave
	output   map[testID][]string
	builds   []string // output of failed builds
}

// keepLines bounds the output kept of a test: the end says how it failed.
const keepLines = 200

func readResults(files []string) (*results, error) {
	r := &results{passed: map[testID]bool{}, skipped: map[testID]string{}, output: map[testID][]string{}}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = r.read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

func (r *results) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 || lines.Bytes()[0] != '{' {
			r.builds = append(r.builds, lines.Text()+"\n") // what go itself says
			continue
		}
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("not the output of go test -json: %w", err)
		}
		r.add(e)
	}
	return lines.Err()
}

func (r *results) add(e event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.builds = append(r.builds, e.Output)
	case "output":
		kept := append(r.output[id], e.Output)
		r.output[id] = kept[max(0, len(kept)-keepLines):]
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packages = append(r.packages, e)
		}
		switch {
		case e.Action == "fail":
			r.failed = append(r.failed, id)
		case e.Test == "":
		case e.Action == "pass":
			r.passed[id] = true
			delete(r.output, id) // the bulk of a long run
		case e.Action == "skip":
			r.skipped[id] = strings.TrimSpace(strings.Join(slices.DeleteFunc(r.output[id], isFrame), " "))
		}
	}
}

// isFrame tells what the testing package prints around a test.
func isFrame(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ")
}

// summarise prints a line per package and the output of what failed.
func (r *results) summarise(out io.Writer) error {
	for _, p := range r.packages {
		if p.Action != "skip" { // no test files
			fmt.Fprintf(out, "   %-4s %-34s %6.1f s\n", p.Action, p.Package, p.Elapsed)
		}
	}
	fmt.Fprintf(out, "   %d tests passed, %d skipped, %d packages\n", len(r.passed), len(r.skipped), len(r.packages))
	for _, id := range r.failed {
		fmt.Fprintf(out, "\n--- FAILED %s\n%s", id, strings.Join(r.output[id], ""))
	}
	if len(r.failed) > 0 {
		fmt.Fprint(out, strings.Join(r.builds, ""))
		return fmt.Errorf("%d tests or packages failed", len(r.failed))
	}
	if len(r.passed) == 0 {
		fmt.Fprint(out, strings.Join(r.builds, ""))
		return fmt.Errorf("no test ran")
	}
	return nil
}
