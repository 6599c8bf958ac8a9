package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"mover/client"
	"mover/job"
)

func planCommand() *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "say what a job would do, without doing it",
		ArgsUsage: "SRC DST",
		Description: "Takes the options of mover cp. Nothing is changed, created or reserved, so what\n" +
			"it says may be out of date at once. Exit code 1 when the job would fail, or some\n" +
			"of its items.\n\n" + placesHelp,
		Flags: append(append(serverFlags(), specFlags()...), &cli.BoolFlag{Name: "json", Usage: "print the plan as JSON"}),
		Action: func(c *cli.Context) error {
			return withSpec(c, func(s *client.Client, spec job.Spec) error { return showPlan(c, s, spec) })
		},
	}
}

func showPlan(c *cli.Context, s *client.Client, spec job.Spec) error {
	p, err := s.Plan(c.Context, spec)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		if err := printJSON(c, p); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "from\t%s\nto\t%s\n", placeText(p.Spec.Source), placeText(p.Spec.Destination))
		least := ""
		if !p.Complete {
			least = "at least "
		}
		fmt.Fprintf(w, "items\t%s%d: %d files, %d directories, %d symbolic links\n", least, p.Items, p.Files, p.Directories, p.Symlinks)
		fmt.Fprintf(w, "bytes\t%s%s\n", least, bytesText(p.Bytes))
		fmt.Fprintf(w, "space\t%s needed, %s free\n", bytesText(p.SpaceNeededBytes), bytesText(p.SpaceFreeBytes))
		fmt.Fprintf(w, "left out\t%d by --include and --exclude\n", p.Excluded)
		fmt.Fprintf(w, "existing\t%d left as they are, %d replaced\n", p.Skipped, p.Replaced)
		fmt.Fprintf(w, "would fail\t%d\n", p.Conflicts)
		for _, e := range p.Examples {
			name := e.Path
			if len(e.PathB64) > 0 {
				name = string(e.PathB64)
			}
			fmt.Fprintf(w, "\t%s: %s: %s\n", nameText(name), e.Reason.Code, e.Reason.Detail)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	switch {
	case p.Reason != nil:
		return &exitError{code: exitFailed, err: fmt.Errorf("the job would fail: %s: %s", p.Reason.Code, p.Reason.Detail)}
	case p.Conflicts > 0:
		return &exitError{code: exitFailed, err: fmt.Errorf("%s would fail; see --overwrite and --on-error", counted(p.Conflicts, "item"))}
	}
	return nil
}
