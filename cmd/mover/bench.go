package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"mover/bench/memory"
	"mover/node/config"
)

func benchCommand() *cli.Command {
	return &cli.Command{
		Name:        "bench",
		Usage:       "measure ports of two hosts, or the data path of this one",
		Subcommands: []*cli.Command{benchBandwidthCommand(), benchLatencyCommand(), benchRateCommand(), benchMemCommand()},
	}
}

func benchMemCommand() *cli.Command {
	hidden := func(f *cli.StringFlag) *cli.StringFlag { f.Hidden = true; return f }
	return &cli.Command{
		Name:  "mem",
		Usage: "memory to memory between two processes of this host",
		Description: "Starts two processes with one poller each and moves items between their\n" +
			"registered memory, directly. Prints the rate at which the destination had the\n" +
			"bytes, verified if asked.",
		Flags: []cli.Flag{
			configFlag(),
			&cli.IntFlag{Name: "seconds", Value: 5, Usage: "how `LONG` to measure"},
			&cli.IntFlag{Name: "count", Usage: "measure so many transfers instead, after as many as are in flight; without --seconds they have 600 s"},
			&cli.StringFlag{Name: "provider", Usage: "instead of devices.providers: `auto, ibv or soft`"},
			&cli.StringFlag{Name: "ib-dev", Aliases: []string{"d"}, Usage: "instead of devices.names: one `DEVICE`, for both processes"},
			&cli.StringFlag{Name: "idle", Usage: "instead of pollers.idle: `spin or adaptive`"},
			&cli.StringFlag{Name: "verify", Value: "crc32c", Usage: "`crc32c or none`"},
			&cli.StringFlag{Name: "item", Value: "32MiB", Usage: "the `SIZE` of one item, a multiple of 2MiB, which is a page of the arena"},
			&cli.IntFlag{Name: "items", Value: 2, Usage: "items in flight"},
			&cli.StringFlag{Name: "block", Value: "1MiB", Usage: "the `SIZE` of the memory behind an item, repeated over its addresses as iperf3 repeats its block; 0: every byte has memory of its own"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
			hidden(&cli.StringFlag{Name: "role"}), hidden(&cli.StringFlag{Name: "dir"}),
			hidden(&cli.StringFlag{Name: "fingerprint"}), hidden(&cli.StringFlag{Name: "control"}),
		},
		Action: benchMem,
	}
}

func benchMem(c *cli.Context) error {
	if err := wantArgs(c); err != nil {
		return err
	}
	itemBytes, err := parseSize(c.String("item"))
	if err != nil {
		return usagef("--item: %q %w", c.String("item"), err)
	}
	blockBytes, err := parseSize(c.String("block"))
	if err != nil {
		return usagef("--block: %q %w", c.String("block"), err)
	}
	o := memory.Options{Seconds: c.Int("seconds"), Verify: c.String("verify") == "crc32c", ItemBytes: itemBytes, Items: c.Int("items"),
		BlockBytes: blockBytes, Count: c.Int("count"), Provider: c.String("provider"), Device: c.String("ib-dev"), Idle: c.String("idle")}
	if o.Count > 0 && !c.IsSet("seconds") {
		o.Seconds = 600
	}
	switch {
	case c.String("verify") != "crc32c" && c.String("verify") != "none":
		return usagef("--verify: %q; allowed: crc32c, none", c.String("verify"))
	case o.Seconds < 1 || o.Seconds > 3600:
		return usagef("--seconds: %d; allowed: 1 to 3600", o.Seconds)
	case o.Count < 0 || o.Count > 1_000_000:
		return usagef("--count: %d; allowed: 1 to 1000000", o.Count)
	case !slices.Contains([]string{"", "auto", "ibv", "soft"}, o.Provider):
		return usagef("--provider: %q; allowed: auto, ibv, soft", o.Provider)
	case !slices.Contains([]string{"", "spin", "adaptive"}, o.Idle):
		return usagef("--idle: %q; allowed: spin, adaptive", o.Idle)
	case o.Items < 1 || o.Items > 64:
		return usagef("--items: %d; allowed: 1 to 64", o.Items)
	case o.ItemBytes < 2<<20 || o.ItemBytes%(2<<20) != 0 || o.ItemBytes > 16<<30:
		return usagef("--item: %s; allowed: 2MiB to 16GiB, a multiple of 2MiB; for less, measure ports: mover bench bw --size", c.String("item"))
	case o.BlockBytes < 0 || o.BlockBytes%4096 != 0 || o.BlockBytes > 0 && o.ItemBytes%o.BlockBytes != 0:
		return usagef("--block: %s; allowed: 0, or a multiple of 4KiB that divides --item", c.String("block"))
	}
	if c.String("role") != "" {
		return benchRole(c, o)
	}
	if o.Program, err = os.Executable(); err != nil {
		return err
	}
	o.Errors = c.App.ErrWriter
	if c.IsSet("config") {
		o.Config = c.String("config")
	}
	r, err := memory.Run(c.Context, o)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(r)
	}
	fmt.Fprintf(c.App.Writer, "%.2f Gbit/s  memory to memory, verify %s, %s verbs, %d rails\n%d transfers, %.1f GB in %.2f s; CPUs %.2f and %.2f; resident %d MiB and %d MiB, arena %d MiB\n",
		r.GbitPerSecond, r.Verify, r.Provider, r.Rails, r.Transfers, float64(r.Bytes)/1e9, r.Seconds, r.CPUSource, r.CPUDestination,
		r.RSSBytesSource>>20, r.RSSBytesDestination>>20, r.ArenaBytes>>20)
	return nil
}

// benchRole is one of the two processes.
func benchRole(c *cli.Context, o memory.Options) error {
	cfg, _, err := configOrDefault(c)
	if err != nil {
		return err
	}
	if !c.IsSet("config") {
		cfg.Soft.Addresses = []string{"127.0.0.1", "127.0.0.2"} // two rails
	}
	log := newLogger(config.Log{Level: "warn", Format: "text"}, c.App.ErrWriter)
	if err := setMaxProcs(cfg, log); err != nil {
		return err
	}
	r := memory.Role{Name: c.String("role"), Dir: c.String("dir"), Fingerprint: c.String("fingerprint"), Control: c.String("control"),
		Options: o, Config: cfg, Log: log, Stdin: os.Stdin, Stdout: c.App.Writer}
	return r.Serve(c.Context)
}
