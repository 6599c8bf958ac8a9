package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// quotablePairs is the number of pairs below which a figure is for trying
// things out and not for quoting.
const quotablePairs = 7

// printTable writes the entries for people: one line a figure, with its
// target and whether it was met.
func printTable(w io.Writer, h hostFacts, entries []entry) error {
	if err := printHeader(w, h); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FIGURE\tFILE SYSTEM\tMOVER\tPEER\tUNIT\tRATIO\t95 % INTERVAL\tTARGET\t\tPEER RAN AS")
	for _, e := range entries {
		setting := e.Setting
		if setting == "" {
			setting = e.Peer
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Name, e.Filesystem,
			measured(e.Ours), e.Theirs, e.Unit, measured(e.Ratio), interval(e), targetText(e), verdict(e), setting)
	}
	return tw.Flush()
}

func printHeader(w io.Writer, h hostFacts) error {
	var packages []string
	for _, p := range h.Packages {
		packages = append(packages, p.Name+" "+p.Version)
	}
	_, err := fmt.Fprintf(w, "%s\n%s, %d CPUs, %s, Linux %s %s, TCP %s, file of %s, %d pairs\n%s\n\n",
		h.Mover, h.CPU, h.CPUs, formatBytes(h.MemoryBytes), h.Kernel, h.Arch, h.TCPCongestion,
		formatBytes(h.SizeBytes), h.Pairs, strings.Join(packages, ", "))
	if err == nil && h.Pairs < quotablePairs {
		_, err = fmt.Fprintf(w, "fewer than %d pairs: good for a look, not for quoting\n\n", quotablePairs)
	}
	return err
}

// measured prints a value, or a dash where nothing was measured.
func measured(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func interval(e entry) string {
	if e.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f .. %.2f", e.Low, e.High)
}

func targetText(e entry) string {
	if e.Target == nil {
		return "-"
	}
	return fmt.Sprintf(">= %.2f", *e.Target)
}

func verdict(e entry) string {
	met, ok := e.met()
	switch {
	case e.Ratio == 0:
		return "" // not measured
	case !ok:
		return "shown"
	case met:
		return "met"
	}
	return "short"
}
