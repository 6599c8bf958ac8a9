package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	v1 "mover/api/v1"
	"mover/client"
)

// drainEvery is how often a draining node is asked how far it is.
const drainEvery = 500 * time.Millisecond

func drainCommand() *cli.Command {
	return &cli.Command{
		Name:  "drain",
		Usage: "let a node take no new jobs, before it is stopped or its host is serviced",
		Description: "What runs goes on; what waits stays for the next start; /readyz answers 503. It\n" +
			"lasts until mover starts again, or --undo. Takes an admin's token.\n\n" +
			"   mover drain --wait && systemctl stop mover",
		Flags: append(serverFlags(),
			&cli.BoolFlag{Name: "wait", Usage: "return when nothing runs any more"},
			&cli.DurationFlag{Name: "timeout", Usage: "with --wait: at most so `LONG`, such as 10m; then exit code 1"},
			&cli.BoolFlag{Name: "undo", Usage: "take jobs again"},
			&cli.BoolFlag{Name: "json", Usage: "print what is left as JSON"},
		),
		Action: func(c *cli.Context) error {
			if c.Bool("undo") && c.Bool("wait") {
				return usagef("mover drain: --undo has nothing to wait for; leave out --wait")
			}
			return asking(drain)(c)
		},
	}
}

func drain(c *cli.Context, s *client.Client) error {
	d, err := s.Drain(c.Context, c.Bool("undo"))
	if err != nil {
		return err
	}
	if c.Bool("wait") {
		if d, err = drained(c, s, d); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return printJSON(c, d)
	}
	_, err = fmt.Fprintln(c.App.Writer, drainText(d))
	return err
}

// drained waits until nothing runs on the node.
func drained(c *cli.Context, s *client.Client, d v1.Drain) (v1.Drain, error) {
	ctx, stop := untilInterrupt(c.Context)
	defer stop()
	if limit := c.Duration("timeout"); limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	said := ""
	for d.Running > 0 || d.Receiving > 0 {
		if text := drainText(d); text != said {
			fmt.Fprintln(c.App.ErrWriter, text)
			said = text
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return d, fmt.Errorf("not drained within %v: %s; wait longer, or cancel the jobs that run", c.Duration("timeout"), drainText(d))
			}
			return d, &exitError{code: exitInterrupted, err: errors.New("stopped waiting; the node takes no new jobs until `mover drain --undo`")}
		}
		next, err := s.Drain(c.Context, false)
		if err != nil {
			return d, err
		}
		d = next
	}
	return d, nil
}

func drainText(d v1.Drain) string {
	if !d.Draining {
		return "takes jobs"
	}
	if d.Running == 0 && d.Receiving == 0 {
		return fmt.Sprintf("drained: nothing runs; %s queued for the next start", counted(int64(d.Queued), "job"))
	}
	return fmt.Sprintf("draining: %s running, %s arriving, %d queued", counted(int64(d.Running), "job"), counted(int64(d.Receiving), "item"), d.Queued)
}
