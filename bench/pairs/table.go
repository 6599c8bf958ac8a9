package pairs

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Table writes the entries for people: one line a figure, with its target and
// whether it was met.
func Table(w io.Writer, entries []Entry) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FIGURE\tFILE SYSTEM\tMOVER\tPEER\tUNIT\tRATIO\t95 % INTERVAL\tTARGET\t\tPEER RAN AS")
	for _, e := range entries {
		setting, filesystem := e.Setting, e.Filesystem
		if setting == "" {
			setting = e.Peer
		}
		if filesystem == "" {
			filesystem = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Name, filesystem,
			measured(e.Ours), e.Theirs, e.Unit, measured(e.Ratio), e.interval(), e.targetText(), e.verdict(), setting)
	}
	return tw.Flush()
}

// measured prints a value, or a dash where nothing was measured.
func measured(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func (e Entry) interval() string {
	if e.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f .. %.2f", e.Low, e.High)
}

func (e Entry) targetText() string {
	if e.Target == nil {
		return "-"
	}
	return fmt.Sprintf(">= %.2f", *e.Target)
}

func (e Entry) verdict() string {
	met, ok := e.Met()
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
