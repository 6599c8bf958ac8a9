package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"mover/client"
	"mover/job"
)

func cpCommand() *cli.Command {
	return &cli.Command{
		Name:      "cp",
		Usage:     "move a file to another node, and wait until it is verified and durable there",
		ArgsUsage: "SRC DST",
		Description: "SRC and DST are NODE:ROOT/sub/path, where ROOT is the name of one of the\n" +
			"node's roots, or a local path inside a root of the node asked. DST is the full\n" +
			"name the file will have; if it ends in /, the name of SRC is appended. An\n" +
			"existing destination is an error unless --overwrite says otherwise.\n\n" +
			"   mover cp ./model.bin host-b:incoming/\n" +
			"   mover cp host-a:data/model.bin host-b:incoming/model-2.bin\n\n" +
			"The first Ctrl-C cancels the job and waits for it to end; the second leaves\n" +
			"at once. " + exitCodes,
		Flags: append(serverFlags(),
			&cli.StringFlag{Name: "overwrite", Usage: "an existing destination: `fail, skip or always`", Value: job.OverwriteFail},
			&cli.StringFlag{Name: "verify", Usage: "compare checksums from memory to memory: `crc32c or none`", Value: job.VerifyCRC32C},
			&cli.StringFlag{Name: "expect", Usage: "fail unless the file has this `CHECKSUM`, crc32c:HEX"},
			&cli.BoolFlag{Name: "no-sync", Usage: "do not wait for the disk: faster, and a power failure can lose the file"},
			&cli.IntFlag{Name: "priority", Usage: "`-100 to 100`, higher goes first"},
			&cli.StringSliceFlag{Name: "label", Usage: "`KEY=VALUE`, to find the job again; may be repeated"},
			&cli.StringFlag{Name: "deadline", Usage: "give up after this `DURATION`, such as 2h"},
			&cli.BoolFlag{Name: "detach", Usage: "print the job's ID and return; mover jobs get ID --wait waits for it"},
		),
		Action: func(c *cli.Context) error {
			// First: in `cp --overwrite SRC DST` SRC became the option's value.
			spec, err := specOf(c)
			if err != nil {
				return err
			}
			if err := wantArgs(c, "SRC", "DST"); err != nil {
				return err
			}
			s, err := connect(c)
			if err != nil {
				return err
			}
			defer s.Close()
			return withExit(copyFile(c, s, spec))
		},
	}
}

func copyFile(c *cli.Context, s *client.Client, spec job.Spec) (err error) {
	if spec.Source, err = resolve(c.Context, s, c.Args().Get(0)); err != nil {
		return err
	}
	if spec.Destination, err = resolve(c.Context, s, c.Args().Get(1)); err != nil {
		return err
	}
	snapshot, err := s.Submit(c.Context, spec, "")
	if err != nil {
		return err
	}
	if c.Bool("detach") {
		fmt.Fprintln(c.App.Writer, snapshot.ID)
		return nil
	}
	return follow(c.Context, c.App.ErrWriter, s, snapshot.ID, true)
}

// specOf reads the options into a job without places.
func specOf(c *cli.Context) (job.Spec, error) {
	spec := job.Spec{
		Overwrite: c.String("overwrite"), Verify: c.String("verify"), Expect: c.String("expect"), Priority: c.Int("priority"),
	}
	if allowed := []string{job.OverwriteFail, job.OverwriteSkip, job.OverwriteAlways}; !slices.Contains(allowed, spec.Overwrite) {
		return spec, usagef("--overwrite needs one of %s after it, not %q; write: mover cp --overwrite always SRC DST", strings.Join(allowed, ", "), spec.Overwrite)
	}
	if allowed := []string{job.VerifyCRC32C, job.VerifyNone}; !slices.Contains(allowed, spec.Verify) {
		return spec, usagef("--verify needs one of %s after it, not %q; write: mover cp --verify none SRC DST", strings.Join(allowed, ", "), spec.Verify)
	}
	if c.Bool("no-sync") {
		durable := false
		spec.Durable = &durable
	}
	for _, label := range c.StringSlice("label") {
		key, value, found := strings.Cut(label, "=")
		if !found || key == "" {
			return spec, usagef("--label: %q; allowed: KEY=VALUE", label)
		}
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[key] = value
	}
	if d := c.String("deadline"); d != "" {
		parsed, err := job.ParseDuration(d)
		if err != nil {
			return spec, usagef("--deadline: %q %w", d, err)
		}
		spec.Deadline = parsed
	}
	return spec, nil
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
	if !utf8.ValidString(p.path) {
		return job.Place{Node: p.node, PathB64: []byte(p.path)}, nil
	}
	return job.Place{Node: p.node, Path: p.path}, nil
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
