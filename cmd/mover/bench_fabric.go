package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"runtime"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"mover/bench/fabric"
	"mover/node/config"
)

const fabricDescription = `Without HOST it serves one client, measures with it once, and ends; with HOST it
is the client of such a server. Give both the same options: those that must fit
(size, transport, operation, QPs, length, depth, check) are compared first.
Options mean what they mean to perftest (ib_write_bw, ib_send_lat) where perftest
has them; its "MB/sec" is MiB/s.

The two meet over plain TCP, not authenticated and not encrypted, as perftest's:
until the run ends, whoever reaches the server's port can write to the buffer of
the benchmark (and to nothing else). So it listens on 127.0.0.1 unless --listen
names another address of this host.

What arrives is checked against a pattern that depends on place and time, outside
of the timed loop: the whole ring at the end, and samples of the messages before.
A wrong or missing message fails the run (UC and UD may lose messages: those are
counted). On software verbs, as on rxe, there is no real line rate, and the share
of the ceiling is n/a.`

func benchBandwidthCommand() *cli.Command {
	return fabricCommand(fabric.Bandwidth, "bandwidth between two ports, as ib_write_bw", []cli.Flag{
		&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "sizes 2, 4, 8 .. 8 MiB"},
		opFlag(),
	})
}

func benchLatencyCommand() *cli.Command {
	return fabricCommand(fabric.Latency, "latency between two ports, as ib_send_lat: half a round trip of sends", []cli.Flag{
		&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "sizes 2, 4, 8 .. 8 MiB"},
	})
}

func benchRateCommand() *cli.Command {
	return fabricCommand(fabric.Rate, "rate of small messages, for 1, 2 .. n pollers", []cli.Flag{
		&cli.IntFlag{Name: "pollers", Value: 1, Usage: "the most pollers, each a pinned thread with its own CQ and QPs"},
		opFlag(),
	})
}

func opFlag() cli.Flag {
	return &cli.StringFlag{Name: "op", DefaultText: "write; UD: send", Usage: "`write or send`"}
}

func fabricCommand(test fabric.Test, usage string, own []cli.Flag) *cli.Command {
	return &cli.Command{
		Name:        string(test),
		Usage:       usage,
		UsageText:   fabricExamples(test),
		Description: fabricDescription,
		Flags:       append(append(own, fabricRunFlags(test)...), fabricHostFlags()...),
		Action:      func(c *cli.Context) error { return runFabric(c, test) },
	}
}

// fabricExamples is what a newcomer types first: on the server, on the client.
func fabricExamples(test fabric.Test) string {
	name := "mover bench " + string(test)
	return name + " --listen 192.0.2.1      on the server, whose address that is\n" +
		name + " 192.0.2.1               on the client\n\n" +
		name + " [OPTIONS] [HOST[:PORT]]"
}

// fabricRunFlags say what is measured.
func fabricRunFlags(test fabric.Test) []cli.Flag {
	words := map[fabric.Test]struct{ size, depth, iterations string }{
		fabric.Bandwidth: {"64KiB", "128", "5000 writes, 1000 sends"},
		fabric.Latency:   {"2", "16", "1000"},
		fabric.Rate:      {"8", "256", "a duration of 2 s"},
	}[test]
	return []cli.Flag{
		&cli.StringFlag{Name: "size", Aliases: []string{"s"}, DefaultText: words.size, Usage: "`SIZE` of a message, in bytes or as 64KiB; UD: one MTU at most"},
		&cli.IntFlag{Name: "qp-timeout", Aliases: []string{"u"}, DefaultText: "14; Soft-RoCE: 18", Usage: "RC sends again when no acknowledgement came for 4.096 us * 2^`N`, 1 .. 31"},
		&cli.IntFlag{Name: "qp", Aliases: []string{"q"}, DefaultText: "1", Usage: "QPs of each poller"},
		&cli.IntFlag{Name: "iters", Aliases: []string{"n"}, DefaultText: words.iterations, Usage: "messages of each QP"},
		&cli.StringFlag{Name: "duration", Aliases: []string{"D"}, Usage: "measure for a `TIME` instead, in seconds or as 1m30s"},
		&cli.StringFlag{Name: "connection", Aliases: []string{"c"}, Value: "RC", Usage: "`RC, UC or UD`"},
		&cli.IntFlag{Name: "tx-depth", Aliases: []string{"t"}, DefaultText: words.depth, Usage: "the most messages in flight on a QP"},
		&cli.StringFlag{Name: "ring", Value: "4MiB", Usage: "the most memory of a QP, `SIZE`, which bounds what is in flight too, down to 4 messages: none is overwritten while it is checked"},
		&cli.IntFlag{Name: "post_list", Aliases: []string{"l"}, DefaultText: "a quarter of those in flight, at most 32", Usage: "WRs that are posted at once"},
		&cli.IntFlag{Name: "cq-mod", Aliases: []string{"Q"}, Value: 100, Usage: "WRs that share a completion, at most a quarter of those in flight"},
		&cli.IntFlag{Name: "inline_size", Aliases: []string{"I"}, Value: fabric.InlineAuto, Usage: "`BYTES` that are posted inline; -1: 236 for lat and rate where the provider has it, 0 for bw"},
		&cli.IntFlag{Name: "mtu", Aliases: []string{"m"}, DefaultText: "the port's", Usage: "path MTU, 256 .. 4096; the lesser of both sides is used"},
		&cli.BoolFlag{Name: "disable_pcie_relaxed", Usage: "register memory without PCIe relaxed ordering"},
		&cli.BoolFlag{Name: "no-verify", Usage: "do not check what arrives"},
		&cli.BoolFlag{Name: "report_gbits", Usage: "Gb/sec (decimal) instead of MiB/s"},
		&cli.BoolFlag{Name: "out_json", Usage: "write the result as JSON, with perftest's keys, too"},
		&cli.StringFlag{Name: "out_json_file", Value: "perftest_out.json", Usage: "where, a `FILE`; - is standard output, and then nothing else goes there"},
	}
}

// fabricHostFlags say what of this host is used.
func fabricHostFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "provider", Value: "auto", Usage: "`auto, ibv or soft`; auto: ibv if it has devices"},
		&cli.StringFlag{Name: "ib-dev", Aliases: []string{"d"}, DefaultText: "the first with an active port", Usage: "`DEVICE` by name, network interface or address"},
		&cli.UintFlag{Name: "ib-port", Aliases: []string{"i"}, DefaultText: "its first active one", Usage: "port of the device"},
		&cli.IntFlag{Name: "gid-index", Aliases: []string{"x"}, Value: -1, Usage: "entry of the GID table; -1: the best by type and address"},
		&cli.StringFlag{Name: "libibverbs", Usage: "the library, a `PATH`, instead of the system's"},
		&cli.StringFlag{Name: "soft-address", Value: "127.0.0.1", Usage: "`ADDRESS` of the software device"},
		&cli.BoolFlag{Name: "allow-cleartext", Usage: "let the software device have an address off loopback"},
		&cli.StringFlag{Name: "idle", DefaultText: "spin; soft: adaptive", Usage: "a poller without work: `spin or adaptive`"},
		&cli.BoolFlag{Name: "events", Aliases: []string{"e"}, Usage: "wait for completion events instead of polling"},
		&cli.StringFlag{Name: "cpus", DefaultText: "near the device, if enough are left for the rest", Usage: "`LIST` of CPUs for the pollers, as 2,3 or 4-7"},
		&cli.IntFlag{Name: "port", Aliases: []string{"p"}, Value: fabricPort, Usage: "TCP port of the server"},
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1", Usage: "server: the `ADDRESS` to listen on; see above before naming another"},
		&cli.DurationFlag{Name: "wait", Value: time.Minute, Usage: "server: how long to wait for a client"},
	}
}

// runFabric is one side of a measurement.
func runFabric(c *cli.Context, test fabric.Test) (err error) {
	if c.NArg() > 1 {
		return usagef("%s: %q is one argument too many; see `%s -h`", path(c), c.Args().Get(1), path(c))
	}
	cfg, err := fabricConfig(c, test)
	if err != nil {
		return err
	}
	log := newLogger(config.Log{Level: "warn", Format: "text"}, c.App.ErrWriter)
	ctx, stop := signal.NotifyContext(c.Context, unix.SIGINT, unix.SIGTERM)
	defer stop()
	port, why, err := openFabricPort(c, log)
	if err != nil {
		return err
	}
	defer func() {
		if e := port.Close(); err == nil && e != nil {
			err = fmt.Errorf("closing %s: %w", port.Info.Name, e)
		}
	}()
	if least := procsFor(cfg.Pollers); runtime.GOMAXPROCS(0) < least {
		runtime.GOMAXPROCS(least) // as setMaxProcs does for a node
	}
	o := newFabricOutput(c)
	if err := cfg.ValidateOn(port); err != nil {
		return usageOf(err)
	}
	fmt.Fprintf(o.text, "provider: %s (%s)\n", port.Info.Provider, inOptions.Replace(why))
	conn, err := meet(ctx, c, o.text)
	if err != nil {
		return interrupted(ctx, err)
	}
	measure := fabric.Serve
	if c.NArg() == 1 {
		measure = fabric.Client
	}
	report, err := measure(ctx, cfg, port, conn, o.show())
	if err != nil {
		return interrupted(ctx, usageOf(ofOptions(err)))
	}
	return o.end(report)
}

// usageOf gives errors of the options their exit code.
func usageOf(err error) error {
	if errors.Is(err, fabric.ErrConfig) || errors.Is(err, fabric.ErrMismatch) {
		return &exitError{code: exitUsage, err: err}
	}
	return err
}

// interrupted turns the end by a signal into its exit code.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return &exitError{code: exitInterrupted, err: errors.New("interrupted; nothing was measured to the end")}
	}
	return err
}
