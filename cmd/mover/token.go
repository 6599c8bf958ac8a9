package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"mover/api"
	"mover/job"
)

func tokenCommand() *cli.Command {
	return &cli.Command{
		Name:  "token",
		Usage: "manage the tokens of the HTTP API",
		Subcommands: []*cli.Command{{
			Name:  "new",
			Usage: "make a token and print it, once",
			Description: "The token goes to standard output and nowhere else; the tokens file\n" +
				"(api.tokens_file) keeps a hash. Scopes, each with the rights of those before:\n" +
				"  metrics  read /metrics\n" +
				"  read     look at jobs, peers, devices\n" +
				"  submit   submit jobs, and cancel its own\n" +
				"  admin    everything, also for other owners\n" +
				"Jobs of a token may name only the roots given to it; an admin's may name all,\n" +
				"unless some are given. A node that runs knows a new token after a restart.\n\n" +
				"   mover token new --name ci --scope submit --read host-a:data --write host-b:incoming",
			Flags: []cli.Flag{
				configFlag(),
				&cli.StringFlag{Name: "name", Usage: "what jobs will show as their owner: node/`NAME`"},
				&cli.StringFlag{Name: "scope", Usage: "`metrics, read, submit or admin`"},
				&cli.StringSliceFlag{Name: "root", Usage: "may read and write this `NODE:root`; * stands for all, on either side; may be repeated"},
				&cli.StringSliceFlag{Name: "read", Usage: "may read this `NODE:root`"},
				&cli.StringSliceFlag{Name: "write", Usage: "may write this `NODE:root`"},
			},
			Action: newToken,
		}},
	}
}

func newToken(c *cli.Context) error {
	if err := wantArgs(c); err != nil {
		return err
	}
	for _, required := range []string{"name", "scope"} {
		if c.String(required) == "" {
			return usagef("mover token new needs --%s; see `mover token new -h`", required)
		}
	}
	scope, err := api.ParseScope(c.String("scope"))
	if err != nil {
		return usagef("--scope: %q; allowed: metrics, read, submit, admin", c.String("scope"))
	}
	if !job.ValidName(c.String("name")) {
		return usagef("--name: %q; allowed: 1 to 63 of the characters A-Z a-z 0-9 . _ -, a letter or digit first", c.String("name"))
	}
	cfg, err := loadConfig(c)
	if err != nil {
		return err
	}
	roots := api.Roots{
		Read:  append(c.StringSlice("root"), c.StringSlice("read")...),
		Write: append(c.StringSlice("root"), c.StringSlice("write")...),
	}
	if err := roots.Check(); err != nil {
		return usagef("--root, --read, --write: %w", err)
	}
	if scope == api.ScopeAdmin && len(roots.Read)+len(roots.Write) == 0 {
		roots = api.AllRoots()
	}
	if err := os.MkdirAll(filepath.Dir(cfg.API.TokensFile), 0o700); err != nil {
		return fmt.Errorf("making the directory of api.tokens_file: %w", err)
	}
	plain, err := api.CreateToken(cfg.API.TokensFile, c.String("name"), scope, roots)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.ErrWriter, "added to %s; a node that runs knows it after a restart; the token is shown only here:\n", cfg.API.TokensFile)
	fmt.Fprintln(c.App.Writer, plain)
	if scope == api.ScopeSubmit && len(roots.Read)+len(roots.Write) == 0 {
		fmt.Fprintln(c.App.ErrWriter, "note: it may name no root, so its jobs can move nothing; see --read and --write")
	}
	return nil
}
