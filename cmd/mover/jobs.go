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
		Usage: "look at jobs, wait for them, and change what they do",
		Description: "Looking takes a token of the scope read; changing a job takes its owner's, or\n" +
			"an admin's. Jobs submitted here whose source is another node are carried out\n" +
			"there: they are shown, and changed, here all the same.",
		Subcommands: []*cli.Command{
			listCommand(),
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
				Name:        "watch",
				Usage:       "show a job's progress until it has ended",
				ArgsUsage:   "ID",
				Description: "The exit code tells how the job ended. A Ctrl-C ends the watching, not the job.\n" + exitCodes,
				Flags:       serverFlags(),
				Action: ofJob(func(c *cli.Context, s *client.Client, id job.ID) error {
					return follow(c.Context, c.App.ErrWriter, s, id, false)
				}),
			},
			waitCommand(),
			actionCommand("cancel", "cancel a job and print it as JSON",
				"A job under way is first canceling and ends within seconds; mover jobs wait ID\n"+
					"waits for that. 0 means that the job is, or will be, canceled; 1 that it had\n"+
					"ended otherwise.", (*client.Client).Cancel),
			actionCommand("pause", "stop a job until it is resumed, and print it as JSON",
				"What has arrived is kept: a resumed job goes on from there. 1 means that the\n"+
					"job has ended.", (*client.Client).Pause),
			actionCommand("resume", "let a paused job go on, and print it as JSON",
				"1 means that the job has ended.", (*client.Client).Resume),
			actionCommand("retry", "bring an ended job back, or let one that backs off try at once, and print it as JSON",
				"For jobs that ended failed, canceled, expired or partial: only what is missing\n"+
					"is moved. The deadline begins anew. 1 means that the job cannot be retried.", (*client.Client).Retry),
			setCommand(),
			itemsCommand(),
			eventsCommand(),
			{
				Name:        "rm",
				Usage:       "forget a job that has ended, and its items",
				ArgsUsage:   "ID",
				Description: "What the job has moved stays. 1 means that the job has not ended.",
				Flags:       serverFlags(),
				Action: ofJob(func(c *cli.Context, s *client.Client, id job.ID) error {
					return s.Delete(c.Context, id)
				}),
			},
		},
	}
}

// idArgument reads a job's ID.
func idArgument(s string) (job.ID, error) {
	id, err := job.ParseID(s)
	if err != nil {
		return id, usagef("%q is not a job's ID: it is 36 characters, as `mover cp --detach` and `mover jobs ls` print it", s)
	}
	return id, nil
}

// ofJob is the action of a command about one job.
func ofJob(do func(*cli.Context, *client.Client, job.ID) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := wantArgs(c, "ID"); err != nil {
			return err
		}
		id, err := idArgument(c.Args().First())
		if err != nil {
			return err
		}
		return asking(func(c *cli.Context, s *client.Client) error { return do(c, s, id) }, "ID")(c)
	}
}

func getJob(c *cli.Context, s *client.Client, id job.ID) error {
	var ended error
	if c.Bool("wait") {
		ended = follow(c.Context, c.App.ErrWriter, s, id, false)
	}
	return printEnded(c, s, id, ended)
}

func listCommand() *cli.Command {
	return &cli.Command{
		Name:    "ls",
		Aliases: []string{"list"},
		Usage:   "print the node's jobs, newest first",
		Flags: append(serverFlags(),
			&cli.StringSliceFlag{Name: "state", Usage: "only those that are `STATE`, such as running; may be repeated"},
			&cli.StringFlag{Name: "owner", Usage: "only those of `NODE/TOKEN`"},
			&cli.StringFlag{Name: "label", Usage: "only those with the label `KEY=VALUE`"},
			&cli.IntFlag{Name: "limit", Usage: fmt.Sprintf("at most `N`, 1 to %d", job.MaxPage), Value: 50},
			&cli.BoolFlag{Name: "receiving", Usage: "what other nodes are bringing here, instead"},
			&cli.BoolFlag{Name: "json", Usage: "print a JSON array of whole jobs"},
		),
		Action: func(c *cli.Context) error {
			o, err := listOptions(c)
			if err != nil {
				return err
			}
			return asking(func(c *cli.Context, s *client.Client) error {
				if c.Bool("receiving") {
					return listReceiving(c, s, o)
				}
				return listJobs(c, s, o)
			})(c)
		},
	}
}

func listOptions(c *cli.Context) (client.ListOptions, error) {
	o := client.ListOptions{Owner: c.String("owner"), Label: c.String("label"), Limit: c.Int("limit")}
	if err := wantLimit(o.Limit); err != nil {
		return o, err
	}
	for _, name := range valuesOf(c, "state") {
		state := job.State(name)
		if !state.Valid() {
			return o, usagef("--state: %q; allowed: %s", name, strings.Trim(fmt.Sprint(job.States()), "[]"))
		}
		o.States = append(o.States, state)
	}
	return o, nil
}

func wantLimit(n int) error {
	if n < 1 || n > job.MaxPage {
		return usagef("--limit: %d; allowed: 1 to %d", n, job.MaxPage)
	}
	return nil
}

func listJobs(c *cli.Context, s *client.Client, o client.ListOptions) error {
	page, err := s.List(c.Context, o)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c, orEmpty(page.Jobs))
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
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, stateText(s), doneText(s.State, s.Progress), reasonCode(s.LastReason),
			s.CreatedAt.Format(time.RFC3339), placeText(s.Spec.Source), placeText(s.Spec.Destination))
	}
	return out.Flush()
}

func listReceiving(c *cli.Context, s *client.Client, o client.ListOptions) error {
	page, err := s.Receiving(c.Context, o)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, orEmpty(page.Jobs))
	}
	out := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "ID\tITEM\tSTATE\tDONE\tREASON\tFROM\tDESTINATION")
	for _, r := range page.Jobs {
		fmt.Fprintf(out, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Item, r.State, doneText(r.State, r.Progress), reasonCode(r.LastReason), r.Peer, placeText(r.Destination))
	}
	return out.Flush()
}

// stateText is a job's state, with what a person needs to know beside it.
func stateText(s job.Snapshot) string {
	if s.Pausing {
		return string(s.State) + " (pausing)"
	}
	return string(s.State)
}

func doneText(state job.State, p job.ProgressView) string {
	if p.BytesTotal == 0 && p.ItemsTotal == 0 && state != job.Succeeded {
		return "-"
	}
	text := bytesText(p.BytesDone) + " of " + bytesText(p.BytesTotal)
	if p.ItemsTotal > 1 {
		text += fmt.Sprintf(", %d of %d items", p.ItemsDone, p.ItemsTotal)
	}
	return text
}

func reasonCode(r *job.Reason) string {
	if r == nil {
		return "-"
	}
	return string(r.Code)
}

// orEmpty makes an array of JSON of no entries [], not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func printJSON(c *cli.Context, v any) error {
	out := json.NewEncoder(c.App.Writer)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// printLine prints v as one line of JSON.
func printLine(c *cli.Context, v any) error {
	out := json.NewEncoder(c.App.Writer)
	out.SetEscapeHTML(false)
	return out.Encode(v)
}
