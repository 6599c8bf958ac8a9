package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

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
		&cli.StringFlag{
			Name: "server", EnvVars: []string{"MOVER_SERVER"}, DefaultText: "this host's socket, else " + client.DefaultServer,
			Usage: "the `URL` of the node's HTTP API: https://HOST:PORT, or unix:///path/of/its/socket, which needs no token",
		},
		&cli.StringFlag{
			Name: "token-file", EnvVars: []string{"MOVER_TOKEN_FILE"},
			Value: filepath.Join(config.Default().Node.StateDir, config.TokenFileName), Usage: "the `FILE` with a token of that node",
		},
		&cli.StringFlag{Name: "ca", EnvVars: []string{"MOVER_CA"}, Usage: "a PEM `FILE` that vouches for the node, for https"},
	}
}

// socketScheme begins the address of a Unix socket.
const socketScheme = "unix://"

// serverOf is the address of the node to ask: the one that is named; else the
// socket of the node that this host's configuration describes, where the kernel
// says who asks; else its usual TCP address. Who names a token wants to be who
// the token says, which the socket would not look at.
func serverOf(c flagged) string {
	if s := c.String("server"); s != "" {
		return s
	}
	if !c.IsSet("token-file") {
		if s := localSocket(os.Getenv("MOVER_CONFIG")); s != "" {
			return socketScheme + s
		}
	}
	return client.DefaultServer
}

// localSocket is the socket of this host's node, "" when there is none that
// this user can see.
func localSocket(file string) string {
	if file == "" {
		file = defaultConfig
	}
	cfg, err := config.Load(file)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		cfg, err = config.Parse("defaults", nil)
	}
	if err != nil {
		return "" // `mover run` and `mover config check` say why
	}
	info, err := os.Stat(cfg.SocketPath())
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return ""
	}
	return cfg.SocketPath()
}

func connect(c *cli.Context) (*client.Client, error) {
	s, err := client.New(client.Config{Server: serverOf(c), TokenFile: c.String("token-file"), CAFile: c.String("ca")})
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return s, nil
}

// asking is the action of a command that asks a node and has so many arguments
// as names.
func asking(do func(*cli.Context, *client.Client) error, names ...string) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := wantArgs(c, names...); err != nil {
			return err
		}
		s, err := connect(c)
		if err != nil {
			return err
		}
		defer s.Close()
		return withExit(do(c, s))
	}
}

// valuesOf are the values of an option that may be repeated, or have several
// values with commas between them.
func valuesOf(c *cli.Context, option string) (out []string) {
	for _, v := range c.StringSlice(option) {
		for word := range strings.SplitSeq(v, ",") {
			if word = strings.TrimSpace(word); word != "" {
				out = append(out, word)
			}
		}
	}
	return out
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
