package main

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"mover/client"
	"mover/job"
	"mover/node/config"
)

// server is the node that a command asks; *client.Client is one.
type server interface {
	Submit(ctx context.Context, spec job.Spec, key string) (job.Snapshot, error)
	Get(ctx context.Context, id job.ID) (job.Snapshot, error)
	Wait(ctx context.Context, id job.ID, show func(job.Snapshot)) (job.Snapshot, error)
	Cancel(ctx context.Context, id job.ID) (job.Snapshot, error)
}

// serverFlags say which node to ask, and as whom.
func serverFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "server", EnvVars: []string{"MOVER_SERVER"}, Value: client.DefaultServer, Usage: "the `URL` of the node's HTTP API"},
		&cli.StringFlag{
			Name: "token-file", EnvVars: []string{"MOVER_TOKEN_FILE"},
			Value: filepath.Join(config.Default().Node.StateDir, config.TokenFileName), Usage: "the `FILE` with a token of that node",
		},
		&cli.StringFlag{Name: "ca", EnvVars: []string{"MOVER_CA"}, Usage: "a PEM `FILE` that vouches for the node, for https"},
	}
}

func connect(c *cli.Context) (*client.Client, error) {
	s, err := client.New(client.Config{Server: c.String("server"), TokenFile: c.String("token-file"), CAFile: c.String("ca")})
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return s, nil
}

// withExit gives an answer of the node the exit code that it stands for.
func withExit(err error) error {
	var e *exitError
	if err == nil || errors.As(err, &e) {
		return err
	}
	code := exitFailed
	var unreachable *client.UnreachableError
	var refused *client.Error
	switch {
	case errors.As(err, &unreachable):
		code = exitUnreachable
	case errors.As(err, &refused):
		switch refused.Status {
		case http.StatusUnauthorized, http.StatusForbidden:
			code = exitUnreachable
		case http.StatusBadRequest, http.StatusUnprocessableEntity:
			code = exitUsage
		}
	}
	return &exitError{code: code, err: err}
}
