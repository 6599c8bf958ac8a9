package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"mover/client"
	"mover/job"
)

const placesHelp = `SRC and DST are NODE:ROOT/sub/path, where ROOT is the name of one of the
node's roots; NODE:buffer:NAME[+OFFSET[+LENGTH]], a buffer or a part of it,
as in host-b:buffer:weights+1GiB+512MiB; or a local path inside a root of the
node asked. Any two nodes will do: the source's carries the job out.

DST is the full name the source will have; if it ends in /, the name of SRC is
appended, unless SRC ends in / too: then what is in SRC goes into DST. An
existing directory is merged. An existing file is an error unless --overwrite
says otherwise; nothing is ever deleted at the destination.
`

func cpCommand() *cli.Command {
	return &cli.Command{
		Name:      "cp",
		Usage:     "move a file, tree or buffer to another node, and wait until it is verified and durable there",
		ArgsUsage: "SRC DST",
		Description: placesHelp + "\n" +
			"   mover cp ./model.bin host-b:incoming/\n" +
			"   mover cp -r host-a:data/ckpt-0042 host-b:incoming/ckpt-0042\n" +
			"   mover cp host-a:data/weights.bin host-b:buffer:weights\n\n" +
			"The first Ctrl-C cancels the job and waits for it to end; the second leaves\n" +
			"at once. " + exitCodes,
		Flags: append(append(serverFlags(), specFlags()...),
			&cli.BoolFlag{Name: "detach", Usage: "print the job's ID and return; mover jobs wait ID waits for it"},
			&cli.BoolFlag{Name: "dry-run", Usage: "do nothing: print what the job would do, as mover plan does"},
			&cli.BoolFlag{Name: "json", Usage: "print the job as JSON when it has ended (--detach: when it is kept)"},
		),
		Action: func(c *cli.Context) error {
			return withSpec(c, func(s *client.Client, spec job.Spec) error {
				if c.Bool("dry-run") {
					return showPlan(c, s, spec)
				}
				return copyItems(c, s, spec)
			})
		},
	}
}

// specFlags are the options of a job.
func specFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "recursive", Aliases: []string{"r"}, Usage: "move a directory and what is in it"},
		&cli.StringSliceFlag{Name: "include", Usage: "of a directory, only what matches `PATTERN`, such as *.bin; may be repeated, the last that matches decides, ! before it turns it round"},
		&cli.StringSliceFlag{Name: "exclude", Usage: "leave out what matches `PATTERN`, such as tmp/ or **/*.log; may be repeated, likewise"},
		&cli.StringFlag{Name: "overwrite", Usage: "an existing destination: `fail, skip, always, if_newer or if_different`", Value: job.OverwriteFail},
		&cli.StringFlag{Name: "compare", Usage: "what if_different looks at: size and `mtime, or crc`", Value: job.CompareMtime},
		&cli.StringFlag{Name: "verify", Usage: "compare checksums from memory to memory: `crc32c or none`", Value: job.VerifyCRC32C},
		&cli.StringFlag{Name: "expect", Usage: "fail unless the file has this `CHECKSUM`, crc32c:HEX"},
		&cli.BoolFlag{Name: "no-durable", Aliases: []string{"no-sync"}, Usage: "do not wait for the disk: faster, and a power failure can lose the file"},
		&cli.StringSliceFlag{Name: "preserve", Usage: "`WHAT` of the source's metadata to keep: mode, mtime, owner, xattrs, hardlinks, or none; may be repeated", DefaultText: "mode,mtime"},
		&cli.StringFlag{Name: "on-error", Usage: "an item fails: `stop` the job, or continue and end partial", Value: job.OnErrorStop},
		&cli.StringFlag{Name: "bandwidth-limit", Usage: "at most this `RATE`, such as 20Gbit/s or 2.5GB/s"},
		&cli.IntFlag{Name: "priority", Usage: "`-100 to 100`, higher goes first"},
		&cli.StringSliceFlag{Name: "label", Usage: "`KEY=VALUE`, to find the job again; may be repeated"},
		&cli.StringFlag{Name: "deadline", Usage: "give up after this `DURATION`, such as 2h"},
	}
}

// withSpec reads the options and the two places, and does something with them.
func withSpec(c *cli.Context, do func(*client.Client, job.Spec) error) error {
	// First: in `cp --overwrite SRC DST` SRC became the option's value.
	spec, err := specOf(c)
	if err != nil {
		return err
	}
	return asking(func(c *cli.Context, s *client.Client) error {
		source, destination := c.Args().Get(0), c.Args().Get(1)
		if spec.Source, err = resolve(c.Context, s, source); err != nil {
			return err
		}
		if spec.Destination, err = resolve(c.Context, s, destination); err != nil {
			return err
		}
		if err := wantRecursive(spec, source); err != nil {
			return err
		}
		return do(s, spec)
	}, "SRC", "DST")(c)
}

// wantRecursive says early what the node would find out in an attempt.
func wantRecursive(spec job.Spec, source string) error {
	if spec.Recursive || isRemotePlace(source) {
		return nil
	}
	if info, err := os.Lstat(source); err == nil && info.IsDir() {
		return usagef("%q is a directory; add -r to move it and what is in it", source)
	}
	return nil
}

func copyItems(c *cli.Context, s *client.Client, spec job.Spec) error {
	snapshot, err := s.Submit(c.Context, spec, "")
	if err != nil {
		return err
	}
	switch {
	case c.Bool("detach") && c.Bool("json"):
		return printJSON(c, snapshot)
	case c.Bool("detach"):
		_, err := fmt.Fprintln(c.App.Writer, snapshot.ID)
		return err
	}
	ended := follow(c.Context, c.App.ErrWriter, s, snapshot.ID, true)
	if !c.Bool("json") {
		return ended
	}
	return printEnded(c, s, snapshot.ID, ended)
}

// printEnded prints a job as JSON, and returns how its watching ended.
func printEnded(c *cli.Context, s *client.Client, id job.ID, ended error) error {
	snapshot, err := s.Get(c.Context, id)
	if err == nil {
		err = printJSON(c, snapshot)
	}
	if ended != nil {
		return ended
	}
	return err
}

// specOf reads the options into a job without places.
func specOf(c *cli.Context) (job.Spec, error) {
	spec := job.Spec{
		Recursive: c.Bool("recursive"), Include: c.StringSlice("include"), Exclude: c.StringSlice("exclude"),
		Expect: c.String("expect"), Priority: c.Int("priority"),
	}
	for _, o := range []struct {
		name, example string
		to            *string
		allowed       []string
	}{
		{"overwrite", job.OverwriteAlways, &spec.Overwrite, []string{job.OverwriteFail, job.OverwriteSkip, job.OverwriteAlways, job.OverwriteIfNewer, job.OverwriteIfDifferent}},
		{"compare", job.CompareCRC, &spec.Compare, []string{job.CompareMtime, job.CompareCRC}},
		{"verify", job.VerifyNone, &spec.Verify, []string{job.VerifyCRC32C, job.VerifyNone}},
		{"on-error", job.OnErrorContinue, &spec.OnError, []string{job.OnErrorStop, job.OnErrorContinue}},
	} {
		if v := c.String(o.name); !slices.Contains(o.allowed, v) {
			return spec, usagef("--%s needs one of %s after it, not %q; write: %s --%s %s SRC DST", o.name, strings.Join(o.allowed, ", "), v, path(c), o.name, o.example)
		}
		// What was not asked for is the node's to choose, and of a buffer it
		// would be refused: there is nothing to overwrite, or to compare.
		if c.IsSet(o.name) {
			*o.to = c.String(o.name)
		}
	}
	if _, err := job.ParseSelection(spec.Include, spec.Exclude); err != nil {
		return spec, usagef("--%w", err)
	}
	if c.Bool("no-durable") {
		durable := false
		spec.Durable = &durable
	}
	var err error
	if spec.Preserve, err = preserveOf(c); err != nil {
		return spec, err
	}
	if spec.Labels, err = labelsOf(c); err != nil {
		return spec, err
	}
	if spec.BandwidthLimit, err = rateOf(c); err != nil {
		return spec, err
	}
	spec.Deadline, err = deadlineOf(c)
	return spec, err
}

// preserveOf is nil, the default, without the option.
func preserveOf(c *cli.Context) ([]string, error) {
	if !c.IsSet("preserve") {
		return nil, nil
	}
	allowed := []string{job.PreserveMode, job.PreserveMtime, job.PreserveOwner, job.PreserveXattrs, job.PreserveHardlinks}
	out := []string{}
	list := valuesOf(c, "preserve")
	for _, word := range list {
		switch {
		case word == "none" && len(list) == 1:
		case slices.Contains(allowed, word):
			out = append(out, word)
		default:
			return nil, usagef("--preserve: %q; allowed: %s, or none alone", word, strings.Join(allowed, ", "))
		}
	}
	return out, nil
}

func labelsOf(c *cli.Context) (map[string]string, error) {
	var out map[string]string
	for _, label := range c.StringSlice("label") {
		key, value, found := strings.Cut(label, "=")
		if !found || key == "" {
			return nil, usagef("--label: %q; allowed: KEY=VALUE", label)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out, nil
}

func rateOf(c *cli.Context) (job.Rate, error) {
	s := c.String("bandwidth-limit")
	if s == "" {
		return 0, nil
	}
	rate, err := job.ParseRate(s)
	if err != nil {
		return 0, usagef("--bandwidth-limit: %q %w", s, err)
	}
	return rate, nil
}

func deadlineOf(c *cli.Context) (job.Duration, error) {
	s := c.String("deadline")
	if s == "" {
		return 0, nil
	}
	d, err := job.ParseDuration(s)
	if err != nil {
		return 0, usagef("--deadline: %q %w", s, err)
	}
	return d, nil
}

// resolve turns an argument into a place of a job.
func resolve(ctx context.Context, s *client.Client, argument string) (job.Place, error) {
	if argument == "" {
		return job.Place{}, usagef("an empty place; write NODE:ROOT/path, or a local path")
	}
	var p place
	var err error
	if isRemotePlace(argument) {
		p, err = parseRemote(argument)
	} else {
		p, err = resolveLocal(ctx, s, argument)
	}
	if err != nil {
		return job.Place{}, err
	}
	return p.ofJob(), nil
}

func resolveLocal(ctx context.Context, s *client.Client, argument string) (place, error) {
	if !isThisHost(s.Server(), hostAddresses()) {
		return place{}, usagef("%q is a path of this host, but the node asked (%s) is on another; write NODE:ROOT/path", argument, s.Server())
	}
	answer, err := s.Roots(ctx)
	if err != nil {
		return place{}, err
	}
	var roots []rootDir
	for _, r := range answer.Roots {
		roots = append(roots, rootDir{r.Name, r.Path})
	}
	dir, err := os.Getwd()
	if err != nil {
		return place{}, fmt.Errorf("the working directory: %w", err)
	}
	p, err := mapLocal(argument, dir, roots)
	if err == nil || !beginsWithRoot(argument, roots) {
		return p, err
	}
	// The name of a root where a path of this host was expected.
	node := "NODE"
	if v, e := s.Version(ctx); e == nil {
		node = v.Node
	}
	return p, usagef("%w; did you mean %s:%s?", err, node, argument)
}
