package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// result is a line of results.json. Fields are only ever added.
type result struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	CI      bool    `json:"ci"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
	tooSoon bool    // errTooSoon
}

// report is results.json.
type report struct {
	Kernel    string   `json:"kernel"`   // package and version
	Emulated  bool     `json:"emulated"` // no virtualization of the host's
	Seconds   float64  `json:"seconds"`  // all together, with the boot
	Scenarios []result `json:"scenarios"`
}

func (r report) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// print is the table at the end; it returns how many failed.
func (r report) print(w io.Writer) (failed int) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "scenario\tresult\tseconds\t")
	for _, s := range r.Scenarios {
		verdict, first := "ok", ""
		if !s.Passed {
			failed++
			verdict = "FAILED"
			first, _, _ = strings.Cut(s.Error, "\n")
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f\t%s\n", s.Name, verdict, s.Seconds, first)
	}
	_ = table.Flush() // to the terminal
	return failed
}
