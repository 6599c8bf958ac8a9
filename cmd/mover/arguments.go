package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// optionsFirst moves a command's options before its other arguments, so that
// `mover jobs get ID --wait` is what it looks like: the flag package stops at
// the first argument that is no option. What follows -- stays as it is.
func optionsFirst(app *cli.App, arguments []string) []string {
	var out, options, rest []string
	if len(arguments) > 0 {
		out, arguments = append(out, arguments[0]), arguments[1:]
	}
	commands, flags := app.Commands, app.Flags
	for len(arguments) > 0 {
		a := arguments[0]
		arguments = arguments[1:]
		switch {
		case a == "--":
			rest = append(rest, arguments...)
			arguments = nil
		case len(a) > 1 && a[0] == '-':
			options = append(options, a)
			if takesValue(flags, a) && len(arguments) > 0 {
				options = append(options, arguments[0])
				arguments = arguments[1:]
			}
		default:
			if c := find(commands, a); c != nil && len(rest) == 0 && len(options) == 0 {
				out = append(out, a)
				commands, flags = c.Subcommands, c.Flags
				continue
			}
			rest = append(rest, a)
		}
	}
	out = append(out, options...)
	if len(rest) > 0 && len(commands) == 0 {
		out = append(out, "--") // or a name that begins with - would be an option
	}
	return append(out, rest...)
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// takesValue reports whether the option's value is the next argument.
func takesValue(flags []cli.Flag, option string) bool {
	if strings.Contains(option, "=") {
		return false
	}
	name := strings.TrimLeft(option, "-")
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				v, ok := f.(cli.DocGenerationFlag)
				return ok && v.TakesValue()
			}
		}
	}
	return false
}

// usageError is the answer to an option that does not exist or has a wrong
// value.
func usageError(c *cli.Context, err error, _ bool) error {
	const unknown = "flag provided but not defined: -"
	name, isUnknown := strings.CutPrefix(err.Error(), unknown)
	if !isUnknown {
		return usagef("%w; see `%s -h`", err, path(c))
	}
	hint := ""
	var names []string
	for _, f := range c.Command.Flags {
		names = append(names, f.Names()...)
	}
	if s := nearest(strings.TrimLeft(name, "-"), names); s != "" {
		hint = "; did you mean --" + s + "?"
	}
	return usagef("%s has no option --%s%s; see `%s -h`", path(c), strings.TrimLeft(name, "-"), hint, path(c))
}

// needCommand is the action of a command that only groups others.
func needCommand(c *cli.Context) error {
	if c.NArg() == 0 {
		if c.Bool("version") {
			return printVersion(c)
		}
		if len(c.Lineage()) <= 2 && c.Command.Name == c.App.Name || c.Command.Name == "" {
			return cli.ShowAppHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	commands := c.Command.Subcommands
	hint := ""
	var names []string
	for _, known := range commands {
		names = append(names, known.Name)
	}
	if s := nearest(c.Args().First(), names); s != "" {
		hint = "; did you mean " + s + "?"
	}
	return usagef("%s has no command %q%s; see `%s -h`", path(c), c.Args().First(), hint, path(c))
}

// path is the command as it was typed: "mover jobs get".
func path(c *cli.Context) string {
	if c.Command == nil || c.Command.HelpName == "" {
		return c.App.Name
	}
	return c.Command.HelpName
}

// wantArgs checks the number of arguments; names are for the message.
func wantArgs(c *cli.Context, names ...string) error {
	switch {
	case c.NArg() < len(names):
		return usagef("%s needs %s; see `%s -h`", path(c), strings.Join(names[c.NArg():], " and "), path(c))
	case c.NArg() > len(names):
		return usagef("%s: %q is one argument too many; see `%s -h`", path(c), c.Args().Get(len(names)), path(c))
	}
	return nil
}
