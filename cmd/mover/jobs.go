package main

import (
	"encoding/json"

	"github.com/urfave/cli/v2"

	"mover/job"
)

func jobsCommand() *cli.Command {
	return &cli.Command{
		Name:  "jobs",
		Usage: "look at jobs",
		Subcommands: []*cli.Command{{
			Name:      "get",
			Usage:     "print a job as JSON; with --wait, when it has ended",
			ArgsUsage: "ID",
			Description: "With --wait the exit code tells how the job ended; without, 0 means only that\n" +
				"the job is known. A Ctrl-C ends the waiting, not the job. " + exitCodes,
			Flags: append(serverFlags(), &cli.BoolFlag{Name: "wait", Usage: "wait for the job to end, showing its progress"}),
			Action: func(c *cli.Context) error {
				if err := wantArgs(c, "ID"); err != nil {
					return err
				}
				id, err := job.ParseID(c.Args().First())
				if err != nil {
					return usagef("%q is not a job's ID: it is 36 characters, as `mover cp --detach` prints it", c.Args().First())
				}
				s, err := connect(c)
				if err != nil {
					return err
				}
				defer s.Close()
				return withExit(getJob(c, s, id))
			},
		}},
	}
}

func getJob(c *cli.Context, s server, id job.ID) error {
	var ended error
	if c.Bool("wait") {
		ended = follow(c.Context, c.App.ErrWriter, s, id, false)
	}
	snapshot, err := s.Get(c.Context, id)
	if err != nil {
		return err
	}
	out := json.NewEncoder(c.App.Writer)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(snapshot); err != nil {
		return err
	}
	return ended
}
