// Command mover moves bulk data between hosts: `mover run` is the service, the
// other commands are its tools.
//
// The command knows how to read arguments, show progress and turn outcomes
// into exit codes. What moves data is package node; the tools talk to a running
// node through package client, or read its configuration and state directory.
//
//	mover run --config /etc/mover/config.yaml
//	mover cp ./checkpoint host-b:incoming/
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

func main() { os.Exit(run(context.Background(), os.Args, os.Stdout, os.Stderr)) }

// run is main without the process: it returns the exit code.
func run(ctx context.Context, arguments []string, stdout, stderr io.Writer) int {
	app := newApp(stdout, stderr)
	if len(arguments) > 1 && arguments[1] == completeCommand {
		for _, c := range candidates(app, arguments[2:]) {
			fmt.Fprintln(stdout, c)
		}
		return exitOK
	}
	if len(arguments) > 1 && arguments[1] == "help" { // as many other programs have it
		arguments = append(slices.Concat(arguments[:1], arguments[2:]), "--help")
	}
	if len(arguments) > 2 && !strings.HasPrefix(arguments[1], "-") && app.Command(arguments[1]) == nil {
		arguments = arguments[:2] // the library has an answer of its own to --help of what there is not
	}
	err := app.RunContext(ctx, optionsFirst(app, arguments))
	if err == nil {
		return exitOK
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{code: exitFailed, err: err}
	}
	if text := e.Error(); text != "" {
		fmt.Fprintln(stderr, "mover: "+strings.ReplaceAll(text, "\n", "\nmover: "))
	}
	return e.code
}

const description = `mover moves files, trees and buffers between hosts over RDMA, or over TCP where
there is no RDMA hardware, and says something has arrived only when it is
verified and durable there.

One "mover run" serves each host. A place is NODE:ROOT/sub/path, where ROOT is
one of the node's roots, NODE:buffer:NAME, or a local path inside a root of the
node asked.

The commands that ask a node (cp, plan, jobs, buffers, peers, roots, drain, top)
use the Unix socket of this host's node if there is one, and need no token there.
Otherwise, or to ask another: --server, --token-file and --ca, or MOVER_SERVER,
MOVER_TOKEN_FILE and MOVER_CA.

` + exitCodes

func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:            "mover",
		Usage:           "move bulk data between hosts at the speed of the fabric",
		Description:     description,
		HideVersion:     true, // the library's has -v and a text of its own
		Flags:           []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version"}},
		HideHelpCommand: true,
		Writer:          stdout,
		ErrWriter:       stderr,
		// run, not the library, prints the error and chooses the code.
		ExitErrHandler: func(*cli.Context, error) {},
		Commands: []*cli.Command{
			runCommand(), cpCommand(), planCommand(), jobsCommand(), buffersCommand(),
			peersCommand(), rootsCommand(), devicesCommand(), topCommand(), drainCommand(), healthzCommand(), doctorCommand(),
			configCommand(), identityCommand(), caCommand(), tokenCommand(), benchCommand(), completionCommand(), versionCommand(),
		},
		// A pattern or a label may have a comma in it; see valuesOf.
		DisableSliceFlagSeparator: true,
		OnUsageError:              usageError,
		Action:                    needCommand,
	}
	prepare(app.Commands)
	return app
}

// prepare gives every command the same answers to wrong usage.
func prepare(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = usageError
		c.HideHelpCommand = true
		if len(c.Subcommands) > 0 {
			c.Action = needCommand
			prepare(c.Subcommands)
		}
	}
}
