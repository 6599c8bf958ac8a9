package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	v1 "mover/api/v1"
	"mover/client"
	"mover/job"
)

func buffersCommand() *cli.Command {
	return &cli.Command{
		Name:  "buffers",
		Usage: "named memory that applications and jobs share",
		Description: "An application maps a buffer's file (mover buffers show NAME says which); jobs\n" +
			"move it, or a part of it: mover cp host-a:buffer:weights host-b:buffer:weights.",
		Subcommands: []*cli.Command{
			{
				Name: "ls", Aliases: []string{"list"}, Usage: "print the node's buffers",
				Flags:  append(serverFlags(), &cli.BoolFlag{Name: "json", Usage: "print a JSON array of whole buffers"}),
				Action: asking(listBuffers),
			},
			{
				Name: "show", Usage: "print a buffer as JSON: its file, sizes, place, generation and leases", ArgsUsage: "NAME",
				Flags: serverFlags(),
				Action: asking(func(c *cli.Context, s *client.Client) error {
					b, err := s.Buffer(c.Context, c.Args().First())
					if err != nil {
						return err
					}
					return printJSON(c, b)
				}, "NAME"),
			},
			createBufferCommand(),
			{
				Name: "rm", Usage: "delete a buffer, when its transfers have ended", ArgsUsage: "NAME",
				Description: "Applications that have it mapped keep the memory until they let go of it.",
				Flags:       append(serverFlags(), &cli.DurationFlag{Name: "wait", Usage: "for transfers at most so `LONG`, up to 60s", Value: 30 * time.Second}),
				Action: asking(func(c *cli.Context, s *client.Client) error {
					return s.DeleteBuffer(c.Context, c.Args().First(), c.Duration("wait"))
				}, "NAME"),
			},
			{
				Name: "put", Usage: "fill a buffer from a file", ArgsUsage: "NAME FILE",
				Description: "FILE - is standard input; of a pipe, --length says how much of it. The bytes go\n" +
					"over HTTP: for speed, use mover cp.",
				Flags:  append(serverFlags(), rangeFlags()...),
				Action: putBuffer,
			},
			{
				Name: "get", Usage: "write a buffer's content to a file", ArgsUsage: "NAME FILE",
				Description: "FILE - is standard output; a file must not exist yet. The bytes go over HTTP:\n" +
					"for speed, use mover cp.",
				Flags:  append(serverFlags(), rangeFlags()...),
				Action: getBuffer,
			},
		},
	}
}

func listBuffers(c *cli.Context, s *client.Client) error {
	list, err := s.Buffers(c.Context)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, orEmpty(list.Buffers))
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSIZE\tPAGES\tNUMA\tGENERATION\tLEASES\tOWNER\tPATH")
	for _, b := range list.Buffers {
		numa := "-"
		if b.NUMANode >= 0 {
			numa = fmt.Sprint(b.NUMANode)
		}
		where := nameText(b.Path)
		if b.Error != "" {
			where = "cannot be used: " + b.Error
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", b.Name, bytesText(b.Bytes), bytesText(b.PageBytes), numa, b.Generation, len(b.Leases), b.Owner, where)
	}
	return w.Flush()
}

func createBufferCommand() *cli.Command {
	return &cli.Command{
		Name: "create", Usage: "make a buffer, and print it as JSON", ArgsUsage: "NAME",
		Description: "The same command again changes nothing; a buffer of the name with other options\n" +
			"is an error. It lasts until mover buffers rm; its content until the host starts\n" +
			"again.\n\n" +
			"   mover buffers create weights --size 4GiB --page-size 2MiB --read host-b",
		Flags: append(serverFlags(),
			&cli.StringFlag{Name: "size", Usage: "`SIZE` with its unit, such as 4GiB"},
			&cli.StringFlag{Name: "page-size", Usage: "`auto, 4KiB, 2MiB or 1GiB`", Value: "auto"},
			&cli.IntFlag{Name: "numa-node", Usage: "on the NUMA node `N`; -1 is any", Value: -1},
			&cli.StringFlag{Name: "mode", Usage: "`MODE` of the file, for programs of other users, such as 0660", Value: "0600"},
			&cli.StringFlag{Name: "group", Usage: "`GROUP` of the file", DefaultText: "the node's own"},
			&cli.StringSliceFlag{Name: "read", Usage: "jobs may carry it to `NODE`, * is all; may be repeated"},
			&cli.StringSliceFlag{Name: "write", Usage: "jobs may fill it from `NODE`, * is all; may be repeated"},
		),
		Action: func(c *cli.Context) error {
			if c.String("size") == "" {
				return usagef("mover buffers create needs --size, such as --size 4GiB")
			}
			bytes, err := parseSize(c.String("size"))
			if err != nil {
				return usagef("--size: %q %w", c.String("size"), err)
			}
			return asking(func(c *cli.Context, s *client.Client) error { return createBuffer(c, s, bytes) }, "NAME")(c)
		},
	}
}

func createBuffer(c *cli.Context, s *client.Client, bytes int64) error {
	numa := c.Int("numa-node")
	spec := v1.BufferSpec{Bytes: job.Bytes(bytes), PageSize: c.String("page-size"), NUMANode: &numa, Mode: c.String("mode"), Group: c.String("group"),
		Read: valuesOf(c, "read"), Write: valuesOf(c, "write")}
	b, err := s.CreateBuffer(c.Context, c.Args().First(), spec)
	if err != nil {
		return err
	}
	return printJSON(c, b)
}

func rangeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "offset", Usage: "begin at this `SIZE` of the buffer", Value: "0"},
		&cli.StringFlag{Name: "length", Usage: "so many `BYTES`, such as 16MiB", DefaultText: "all there are"},
	}
}

// rangeOf reads --offset and --length; -1 is a length that was not given.
func rangeOf(c *cli.Context) (offset, length int64, err error) {
	if offset, err = parseSize(c.String("offset")); err != nil {
		return 0, 0, usagef("--offset: %q %w", c.String("offset"), err)
	}
	if c.String("length") == "" {
		return offset, -1, nil
	}
	if length, err = parseSize(c.String("length")); err != nil {
		return 0, 0, usagef("--length: %q %w", c.String("length"), err)
	}
	return offset, length, nil
}

func putBuffer(c *cli.Context) error {
	offset, length, err := rangeOf(c)
	if err != nil {
		return err
	}
	return asking(func(c *cli.Context, s *client.Client) error {
		file, name := os.Stdin, c.Args().Get(1)
		if name != "-" {
			if file, err = os.Open(name); err != nil {
				return usagef("%w", err)
			}
			defer file.Close()
		}
		info, err := file.Stat()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			return usagef("%q is a directory; a buffer is filled from a file", name)
		case info.Mode().IsRegular() && length < 0:
			length = info.Size()
		case info.Mode().IsRegular() && length > info.Size():
			return usagef("%q has %d bytes, fewer than --length", name, info.Size())
		case length < 0:
			return usagef("%q has no size of its own; give --length", name)
		}
		if length == 0 {
			return usagef("%q has no bytes to put into the buffer", name)
		}
		w, err := s.WriteBuffer(c.Context, c.Args().First(), offset, length, file, 0)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.App.ErrWriter, "%s at offset %d, generation %d\n", bytesText(w.Bytes), w.Offset, w.Generation)
		return nil
	}, "NAME", "FILE")(c)
}

func getBuffer(c *cli.Context) error {
	offset, length, err := rangeOf(c)
	if err != nil {
		return err
	}
	return asking(func(c *cli.Context, s *client.Client) error {
		r, err := s.ReadBuffer(c.Context, c.Args().First(), offset, length)
		if err != nil {
			return err
		}
		defer r.Close()
		name := c.Args().Get(1)
		if name == "-" {
			_, err := io.Copy(c.App.Writer, r)
			return err
		}
		return saveNew(name, r)
	}, "NAME", "FILE")(c)
}

// saveNew writes all of r to a new file, and leaves nothing behind if that
// fails.
func saveNew(name string, r io.Reader) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s exists; choose another name, or remove it", name)
	}
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			os.Remove(name)
		}
	}()
	_, err = io.Copy(f, r)
	return err
}
