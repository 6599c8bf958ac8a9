package main

import (
	"fmt"
	"io"
	"strings"

	"mover/bench/pairs"
)

// printTable writes the entries for people: one line a figure, with its
// target and whether it was met.
func printTable(w io.Writer, h hostFacts, entries []pairs.Entry) error {
	if err := printHeader(w, h); err != nil {
		return err
	}
	return pairs.Table(w, entries)
}

func printHeader(w io.Writer, h hostFacts) error {
	var packages []string
	for _, p := range h.Packages {
		packages = append(packages, p.Name+" "+p.Version)
	}
	_, err := fmt.Fprintf(w, "%s\n%s, %d CPUs, %s, Linux %s %s, TCP %s, file of %s, %d pairs\n%s\n\n",
		h.Mover, h.CPU, h.CPUs, formatBytes(h.MemoryBytes), h.Kernel, h.Arch, h.TCPCongestion,
		formatBytes(h.SizeBytes), h.Pairs, strings.Join(packages, ", "))
	if err == nil && h.Pairs < pairs.Quotable {
		_, err = fmt.Fprintf(w, "fewer than %d pairs: good for a look, not for quoting\n\n", pairs.Quotable)
	}
	return err
}
