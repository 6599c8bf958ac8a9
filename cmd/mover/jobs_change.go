package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"mover/client"
	"mover/job"
)

// actionCommand is a command that asks for one change of a job.
func actionCommand(name, usage, description string, do func(*client.Client, context.Context, job.ID) (job.Snapshot, error)) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: "ID", Description: description, Flags: serverFlags(),
		Action: ofJob(func(c *cli.Context, s *client.Client, id job.ID) error {
			snapshot, err := do(s, c.Context, id)
			if err != nil {
				return err
			}
			return printJSON(c, snapshot)
		}),
	}
}

func setCommand() *cli.Command {
	return &cli.Command{
		Name:      "set",
		Usage:     "change a job that has not ended, and print it as JSON",
		ArgsUsage: "ID",
		Description: "A new limit holds at once, also for what is under way.\n\n" +
			"   mover jobs set --bandwidth-limit 5Gbit/s ID",
		Flags: append(serverFlags(),
			&cli.IntFlag{Name: "priority", Usage: "`-100 to 100`, higher goes first"},
			&cli.StringFlag{Name: "bandwidth-limit", Usage: "at most this `RATE`, such as 20Gbit/s; none removes the limit"},
			&cli.StringFlag{Name: "deadline", Usage: "give up after this `DURATION` from now, such as 2h; none removes it"},
			&cli.StringSliceFlag{Name: "label", Usage: "`KEY=VALUE` instead of all labels it has; may be repeated"},
			&cli.Uint64Flag{Name: "if-version", Usage: "only if the job's version is still `N`"},
		),
		Action: func(c *cli.Context) error {
			patch, err := patchOf(c)
			if err != nil {
				return err
			}
			return ofJob(func(c *cli.Context, s *client.Client, id job.ID) error {
				snapshot, err := s.Patch(c.Context, id, patch, c.Uint64("if-version"))
				if err != nil {
					return err
				}
				return printJSON(c, snapshot)
			})(c)
		},
	}
}

const noLimit = "none"

func patchOf(c *cli.Context) (p job.Patch, err error) {
	if c.IsSet("priority") {
		n := c.Int("priority")
		p.Priority = &n
	}
	if c.IsSet("bandwidth-limit") {
		var rate job.Rate
		if c.String("bandwidth-limit") != noLimit {
			if rate, err = rateOf(c); err != nil {
				return p, err
			}
		}
		p.BandwidthLimit = &rate
	}
	if c.IsSet("deadline") {
		var d job.Duration
		if c.String("deadline") != noLimit {
			if d, err = deadlineOf(c); err != nil {
				return p, err
			}
		}
		p.Deadline = &d
	}
	if p.Labels, err = labelsOf(c); err != nil {
		return p, err
	}
	if p.Priority == nil && p.BandwidthLimit == nil && p.Deadline == nil && p.Labels == nil {
		return p, usagef("mover jobs set: nothing to change; give --priority, --bandwidth-limit, --deadline or --label")
	}
	return p, nil
}

func waitCommand() *cli.Command {
	return &cli.Command{
		Name:      "wait",
		Usage:     "wait until jobs have ended, and print how, a line for each",
		ArgsUsage: "ID...",
		Description: "Says nothing until then: for scripts. The exit code is that of the first job, in\n" +
			"the order given, that did not succeed. A Ctrl-C ends the waiting, not the jobs.\n" + exitCodes,
		Flags: append(serverFlags(), &cli.DurationFlag{Name: "timeout", Usage: "wait at most so `LONG`, such as 10m; then exit code 1"}),
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return wantArgs(c, "ID")
			}
			var ids []job.ID
			for _, a := range c.Args().Slice() {
				id, err := idArgument(a)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			s, err := connect(c)
			if err != nil {
				return err
			}
			defer s.Close()
			return withExit(waitJobs(c, s, ids))
		},
	}
}

func waitJobs(c *cli.Context, s server, ids []job.ID) error {
	ctx := c.Context
	if limit := c.Duration("timeout"); limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	var first error
	for _, id := range ids {
		snapshot, err := s.Wait(ctx, id, nil)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil && c.Context.Err() == nil {
			err = fmt.Errorf("job %s has not ended within %v, and goes on", id, c.Duration("timeout"))
		}
		if err != nil {
			return err
		}
		text := string(snapshot.State)
		if snapshot.LastReason != nil && snapshot.State != job.Succeeded {
			text += " " + string(snapshot.LastReason.Code)
		}
		fmt.Fprintf(c.App.Writer, "%s %s\n", id, text)
		if err := endingError(snapshot); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func itemsCommand() *cli.Command {
	return &cli.Command{
		Name:      "items",
		Usage:     "print what became of a job's items: files, directories, links",
		ArgsUsage: "ID",
		Description: "Items are printed in the order in which they ended. A node need not remember\n" +
			"those of old jobs.\n\n" +
			"   mover jobs items --state failed ID",
		Flags: append(serverFlags(),
			&cli.StringFlag{Name: "state", Usage: "only those that are `succeeded, skipped or failed`"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object a line"},
		),
		Action: func(c *cli.Context) error {
			o := client.ItemOptions{State: job.ItemState(c.String("state")), Limit: job.MaxPage}
			if o.State != "" && !o.State.Valid() {
				return usagef("--state: %q; allowed: %s, %s, %s", o.State, job.ItemSucceeded, job.ItemSkipped, job.ItemFailed)
			}
			return ofJob(func(c *cli.Context, s *client.Client, id job.ID) error {
				for item, err := range s.AllItems(c.Context, id, o) {
					if err != nil {
						return err
					}
					if err := printItem(c, item); err != nil {
						return err
					}
				}
				return nil
			})(c)
		},
	}
}

func printItem(c *cli.Context, item job.ItemRecord) error {
	if c.Bool("json") {
		return printLine(c, item)
	}
	text := fmt.Sprintf("%-9s %-8s %9s  %s", item.State, item.Kind, bytesText(item.Bytes), nameText(string(item.Path)))
	if item.Reason != nil {
		text += fmt.Sprintf("  %s: %s", item.Reason.Code, item.Reason.Detail)
	}
	_, err := fmt.Fprintln(c.App.Writer, text)
	return err
}

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name:      "events",
		Usage:     "print what happened to a job, or to all jobs of the node",
		ArgsUsage: "[ID]",
		Flags: append(serverFlags(),
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with what happens from then on, until a Ctrl-C; of one job, until it has ended"},
			&cli.Uint64Flag{Name: "after", Usage: "only what came after the event `SEQ`"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object a line"},
		),
		Action: func(c *cli.Context) error {
			o := client.EventOptions{After: c.Uint64("after"), Limit: job.MaxPage}
			names := []string{}
			if c.NArg() > 0 {
				id, err := idArgument(c.Args().First())
				if err != nil {
					return err
				}
				o.Job, names = &id, []string{"ID"}
			}
			return asking(func(c *cli.Context, s *client.Client) error {
				if c.Bool("follow") {
					return followEvents(c, s, o)
				}
				return listEvents(c, s, o)
			}, names...)(c)
		},
	}
}

func listEvents(c *cli.Context, s *client.Client, o client.EventOptions) error {
	for {
		page, err := s.Events(c.Context, o)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if err := printEvent(c, e); err != nil {
				return err
			}
		}
		if len(page.Events) == 0 || page.NextAfter <= o.After {
			return nil
		}
		o.After = page.NextAfter
	}
}

func followEvents(c *cli.Context, s *client.Client, o client.EventOptions) error {
	ctx, stop := untilInterrupt(c.Context)
	defer stop()
	for e, err := range s.Follow(ctx, o) {
		if ctx.Err() != nil && c.Context.Err() == nil {
			return nil // a Ctrl-C is how one leaves
		}
		if err != nil {
			return err
		}
		if err := printEvent(c, e); err != nil {
			return err
		}
		if o.Job != nil && e.Type == job.EventState && e.State.Terminal() {
			return nil
		}
	}
	return nil
}

func printEvent(c *cli.Context, e job.Event) error {
	if c.Bool("json") {
		return printLine(c, e)
	}
	text := fmt.Sprintf("%6d  %s  %s  %-9s  %s", e.Seq, e.At.Format(time.RFC3339), e.Job, e.Type, e.State)
	if e.Reason != nil {
		text += fmt.Sprintf("  %s: %s", e.Reason.Code, e.Reason.Detail)
	}
	_, err := fmt.Fprintln(c.App.Writer, text)
	return err
}
