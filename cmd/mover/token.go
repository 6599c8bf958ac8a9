package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"mover/api"
	"mover/job"
	"mover/node/config"
)

func tokenCommand() *cli.Command {
	return &cli.Command{
		Name:  "token",
		Usage: "manage the tokens of the HTTP API",
		Subcommands: []*cli.Command{listTokensCommand(), revokeTokenCommand(), {
			Name:  "new",
			Usage: "make a token and print it, once",
			Description: "The token goes to standard output and nowhere else; the tokens file\n" +
				"(api.tokens_file) keeps a hash. Scopes, each with the rights of those before:\n" +
				"  metrics  read /metrics\n" +
				"  read     look at jobs, peers, devices\n" +
				"  submit   submit jobs, and cancel its own\n" +
				"  admin    everything, also for other owners\n" +
				"Jobs of a token may name only the roots given to it; an admin's may name all,\n" +
				"unless some are given. A node that runs knows a new token after a reload (SIGHUP)\n" +
				"or a restart.\n\n" +
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
		Read:  append(valuesOf(c, "root"), valuesOf(c, "read")...),
		Write: append(valuesOf(c, "root"), valuesOf(c, "write")...),
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
	fmt.Fprintf(c.App.ErrWriter, "added to %s; a node that runs knows it after a SIGHUP or a restart; the token is shown only here:\n", cfg.API.TokensFile)
	fmt.Fprintln(c.App.Writer, plain)
	if scope == api.ScopeSubmit && len(roots.Read)+len(roots.Write) == 0 {
		fmt.Fprintln(c.App.ErrWriter, "note: it may name no root, so its jobs can move nothing; see --read and --write")
	}
	return nil
}

func listTokensCommand() *cli.Command {
	return &cli.Command{
		Name:    "ls",
		Aliases: []string{"list"},
		Usage:   "print the tokens of the tokens file: names, scopes and roots",
		Flags:   []cli.Flag{configFlag(), &cli.BoolFlag{Name: "json", Usage: "print a JSON array"}},
		Action: withConfig(func(c *cli.Context, cfg *config.Config) error {
			list, err := api.ListTokens(cfg.API.TokensFile)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				out := []tokenJSON{}
				for _, t := range list {
					out = append(out, tokenJSON{t.Name, t.Scope.String(), orEmpty(t.Roots.Read), orEmpty(t.Roots.Write)})
				}
				return printJSON(c, out)
			}
			w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tSCOPE\tREADS\tWRITES")
			for _, t := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Name, t.Scope, orDash(strings.Join(t.Roots.Read, " ")), orDash(strings.Join(t.Roots.Write, " ")))
			}
			return w.Flush()
		}),
	}
}

type tokenJSON struct {
	Name  string   `json:"name"`
	Scope string   `json:"scope"`
	Read  []string `json:"read"`
	Write []string `json:"write"`
}

func revokeTokenCommand() *cli.Command {
	return &cli.Command{
		Name:      "revoke",
		Usage:     "remove a token from the tokens file",
		ArgsUsage: "NAME",
		Description: "A node that runs refuses it after a reload (SIGHUP) or a restart. Its jobs go\n" +
			"on: mover jobs ls --owner NODE/NAME lists them.",
		Flags: []cli.Flag{configFlag()},
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, "NAME"); err != nil {
				return err
			}
			cfg, err := loadConfig(c)
			if err != nil {
				return err
			}
			err = api.RevokeToken(cfg.API.TokensFile, c.Args().First())
			if err != nil {
				return err
			}
			fmt.Fprintf(c.App.ErrWriter, "removed from %s; a node that runs refuses it after a SIGHUP or a restart\n", cfg.API.TokensFile)
			return nil
		},
	}
}
