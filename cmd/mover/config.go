package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"

	"mover/node/config"
)

const defaultConfig = "/etc/mover/config.yaml"

func configFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "config", Aliases: []string{"c"}, Value: defaultConfig, EnvVars: []string{"MOVER_CONFIG"},
		Usage: "the node's configuration `FILE`; config.yaml in the source tree shows every setting",
	}
}

// loadConfig reads the file named by --config. Its problems are usage errors:
// one line each, with file and line.
func loadConfig(c *cli.Context) (*config.Config, error) {
	file := c.String("config")
	cfg, err := config.Load(file)
	if errors.Is(err, fs.ErrNotExist) && !c.IsSet("config") {
		return nil, usagef("there is no %s; name the configuration with --config FILE, or make one: %s", file, makeConfig(file))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("%w; make one: %s", err, makeConfig(file))
	}
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	return cfg, nil
}

// withConfig is the action of a command without arguments that works on the
// configuration.
func withConfig(do func(*cli.Context, *config.Config) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := wantArgs(c); err != nil {
			return err
		}
		cfg, err := loadConfig(c)
		if err != nil {
			return err
		}
		return do(c, cfg)
	}
}

// makeConfig says how to make a first configuration.
func makeConfig(file string) string {
	return fmt.Sprintf("copy config.yaml of the source tree, which explains every setting, or begin with the line `node: {name: NAME}` in %s", file)
}

func configCommand() *cli.Command {
	return &cli.Command{
		Name:  "config",
		Usage: "check or print a configuration",
		Subcommands: []*cli.Command{
			{
				Name:  "check",
				Usage: "say whether a configuration can be used",
				Description: "Checks the file alone, so it may be meant for another host; `mover doctor`\n" +
					"checks this host against it. Every problem is one line: file:line: setting:\n" +
					"what is wrong; allowed: what would be right.",
				Flags: []cli.Flag{configFlag()},
				Action: withConfig(func(c *cli.Context, cfg *config.Config) error {
					fmt.Fprintf(c.App.Writer, "%s: ok (node %s, %s, %s)\n", c.String("config"), cfg.Node.Name,
						counted(int64(len(cfg.Peers)), "peer"), counted(int64(len(cfg.Roots)), "root"))
					return nil
				}),
			},
			{
				Name:  "print",
				Usage: "print every setting as the node would use it",
				Flags: []cli.Flag{configFlag()},
				Action: withConfig(func(c *cli.Context, cfg *config.Config) error {
					out := yaml.NewEncoder(c.App.Writer)
					out.SetIndent(2)
					defer out.Close()
					return out.Encode(cfg)
				}),
			},
		},
	}
}
