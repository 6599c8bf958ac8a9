package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"mover/node/config"
)

// stopWithin bounds a clean shutdown; systemd and container runtimes kill a
// little later.
const stopWithin = 10 * time.Second

func runCommand() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "run this host's node until SIGTERM or SIGINT",
		Description: "A first run creates the node's key and certificate and an admin token in the\n" +
			"state directory (node.state_dir), readable by its owner alone, and says where.\n" +
			"SIGTERM or SIGINT stops it cleanly within 10 s; a second one stops it at once.\n" +
			"SIGHUP makes it read the configuration again, and take over what needs no\n" +
			"restart: peers, delegates, roots, tokens, certificates. Jobs go on. A file with\n" +
			"a mistake changes nothing; the log says what was wrong.",
		Flags: []cli.Flag{configFlag()},
		Action: withConfig(func(c *cli.Context, cfg *config.Config) error {
			log := newLogger(cfg.Log, c.App.ErrWriter)
			if err := setMaxProcs(cfg, log); err != nil {
				return err
			}
			// Before the node starts, so that a signal during start-up is seen.
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, unix.SIGTERM, unix.SIGINT)
			defer signal.Stop(signals)
			reloads := make(chan os.Signal, 1) // more at once are one
			signal.Notify(reloads, unix.SIGHUP)
			defer signal.Stop(reloads)
			return serve(c.Context, signals, stopWithin, log, func(ctx context.Context) error {
				return startNode(ctx, cfg, c.String("config"), reloads, log)
			})
		}),
	}
}

var errStoppedAtOnce = errors.New("stopped at once by a second signal; submit the jobs in flight again after the next start")

// serve runs start until it returns or is stopped: the first signal ends its
// context, a second one, or the time limit, gives up waiting for it.
func serve(parent context.Context, signals <-chan os.Signal, within time.Duration, log *slog.Logger, start func(context.Context) error) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()

	select {
	case err := <-done:
		return err
	case s := <-signals:
		log.Info("stopping", "signal", s.String(), "within", within.String())
		cancel()
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case err := <-done:
		if errors.Is(err, context.Canceled) {
			err = nil // it stopped because it was asked to
		}
		if err == nil {
			log.Info("stopped")
		}
		return err
	case <-signals:
		return errStoppedAtOnce
	case <-limit.C:
		return fmt.Errorf("did not stop within %v; submit the jobs in flight again after the next start", within)
	}
}

// discard is where a tool's logger writes: what a tool has to say is its
// output.
var discard = slog.New(slog.NewTextHandler(io.Discard, nil))
