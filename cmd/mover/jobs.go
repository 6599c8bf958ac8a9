package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"mover/client"
	"mover/job"
)

func jobsCommand() *cli.Command {
	return &cli.Command{
		Name:  "jobs",
		Usage: "look at jobs, and cancel them",
		Subcommands: []*cli.Command{
			{
				Name:      "get",
				Usage:     "print a job as JSON; with --wait, when it has ended",
				ArgsUsage: "ID",
				Description: "With --wait the exit code tells how the job ended; without, 0 means only that\n" +
					"the job is known. A Ctrl-C ends the waiting, not the job. " + exitCodes,
				Flags:  append(serverFlags(), &cli.BoolFlag{Name: "wait", Usage: "wait for the job to end, showing its progress"}),
				Action: ofJob(getJob),
			},
			{
				Name:      "cancel",
				Usage:     "cancel a job and print it as JSON",
				ArgsUsage: "ID",
				Description: "A job under way is first canceling and ends within seconds; mover jobs get\n" +
					"--wait ID waits for that. 0 means that the job is, or will be, canceled; 1\n" +
					"that it had ended otherwise. Canceling takes its owner's token, or an admin's.",
				Flags: serverFlags(),
				Action: ofJob(func(c *cli.Context, s *client.Client, id job.ID) error {
					snapshot, err := s.Cancel(c.Context, id)
					if err != nil {
						return err
					}
					return printJSON(c, snapshot)
				}),
			},
			{
				Name:  "list",
				Usage: "print the node's jobs, newest first",
				Flags: append(serverFlags(),
					&cli.StringSliceFlag{Name: "state", Usage: "only those that are `STATE`, such as running; may be repeated"},
					&cli.StringFlag{Name: "owner", Usage: "only those of `NODE/TOKEN`"},
					&cli.StringFlag{Name: "label", Usage: "only those with the label `KEY=VALUE`"},
					&cli.IntFlag{Name: "limit", Usage: fmt.Sprintf("at most `N`, 1 to %d", job.MaxPage), Value: 50},
					&cli.BoolFlag{Name: "json", Usage: "print a JSON array of whole jobs"},
				),
				Action: listJobs,
			},
		},
	}
}

// ofJob is the action of a command about one job.
func ofJob(do func(*cli.Context, *client.Client, job.ID) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := wantArgs(c, "ID"); err != nil {
			return err
		}
		id, err := job.ParseID(c.Args().First())
		if err != nil {
			return usagef("%q is not a job's ID: it is 36 characters, as `mover cp --detach` and `mover jobs list` print it", c.Args().First())
		}
		s, err := connect(c)
		if err != nil {
			return err
		}
		defer s.Close()
		return withExit(do(c, s, id))
	}
}

func getJob(c *cli.Context, s *client.Client, id job.ID) error {
	var ended error
	if c.Bool("wait") {
		ended = follow(c.Context, c.App.ErrWriter, s, id, false)
	}
	snapshot, err := s.Get(c.Context, id)
	if err != nil {
		return err
	}
	if err := printJSON(c, snapshot); err != nil {
		return err
	}
	return ended
}

func listJobs(c *cli.Context) error {
	if err := wantArgs(c); err != nil {
		return err
	}
	o := client.ListOptions{Owner: c.String("owner"), Label: c.String("label"), Limit: c.Int("limit")}
	if o.Limit < 1 || o.Limit > job.MaxPage {
		return usagef("--limit: %d; allowed: 1 to %d", o.Limit, job.MaxPage)
	}
	for _, name := range c.StringSlice("state") {
		state := job.State(name)
		if !state.Valid() {
			return usagef("--state: %q; allowed: %s", name, strings.Trim(fmt.Sprint(job.States()), "[]"))
		}
		o.States = append(o.States, state)
	}
	s, err := connect(c)
	if err != nil {
		return err
	}
	defer s.Close()
	page, err := s.List(c.Context, o)
	if err != nil {
		return withExit(err)
	}
	if c.Bool("json") {
		err = printJSON(c, page.Jobs)
	} else {
		err = printTable(c, page.Jobs)
	}
	if err == nil && page.NextPageToken != "" {
		fmt.Fprintf(c.App.ErrWriter, "these are the newest %d; there are more\n", len(page.Jobs))
	}
	return err
}

func printTable(c *cli.Context, jobs []job.Snapshot) error {
	out := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "ID\tSTATE\tDONE\tREASON\tCREATED\tSOURCE\tDESTINATION")
	for _, s := range jobs {
		done, why := "-", "-"
		if p := s.Progress; p.BytesTotal > 0 || s.State == job.Succeeded {
			done = bytesText(p.BytesDone) + " of " + bytesText(p.BytesTotal)
		}
		if s.LastReason != nil {
			why = string(s.LastReason.Code)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, s.State, done, why,
			s.CreatedAt.Format(time.RFC3339), placeText(s.Spec.Source), placeText(s.Spec.Destination))
	}
	return out.Flush()
}

func printJSON(c *cli.Context, v any) error {
	out := json.NewEncoder(c.App.Writer)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
