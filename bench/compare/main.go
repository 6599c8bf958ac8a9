package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"mover/bench/pairs"
)

// options is the command line.
type options struct {
	out      string
	figures  []figure
	pairs    int
	seconds  int
	size     int64
	bin      string
	tmpfs    string
	disk     string
	baseline bool
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings passed in; it returns the exit status: 0
// everything asked for was measured, 1 something failed to run, 2 wrong usage.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "compare:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := compare(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "compare:", err)
		return 1
	}
	return 0
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var only, size string
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.out, "out", "out/bench.json", "write the figures to this `file`, the machine's facts to FILE-host.json")
	flags.StringVar(&only, "only", "", "measure only these figures: `NAME[,NAME]`")
	flags.IntVar(&o.pairs, "pairs", pairs.Quotable, "pairs a figure, 1 to 1000; fewer than 7 are for trying out")
	flags.IntVar(&o.seconds, "seconds", 3, "length of one memory run in `seconds`, 1 to 600")
	flags.StringVar(&size, "size", "2GiB", "`size` of the file in file figures, in KiB, MiB or GiB")
	flags.StringVar(&o.bin, "bin", "out/mover", "the mover `binary` to measure")
	flags.StringVar(&o.tmpfs, "tmpfs", "/dev/shm", "`directory` on a tmpfs to work in")
	flags.StringVar(&o.disk, "disk", "/var/tmp", "`directory` on a disk file system to work in")
	flags.BoolVar(&o.baseline, "baseline", false, "measure the peers alone; figures have no ratio and -out is not written")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: every setting is a flag, see -help", flags.Arg(0))
	}
	var err error
	if o.figures, err = selectFigures(only); err != nil {
		return o, err
	}
	if o.size, err = parseBytes(size); err != nil {
		return o, fmt.Errorf("-size: %w", err)
	}
	if o.pairs < 1 || o.pairs > 1000 {
		return o, fmt.Errorf("-pairs: %d is not in 1 to 1000", o.pairs)
	}
	if o.seconds < 1 || o.seconds > 600 {
		return o, fmt.Errorf("-seconds: %d is not in 1 to 600", o.seconds)
	}
	if o.baseline {
		return o, nil
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return o, fmt.Errorf("-bin: %w", err)
	}
	if _, err := os.Stat(o.bin); err != nil {
		return o, fmt.Errorf("-bin: %w: build mover first (make build), or measure the peers alone with -baseline", err)
	}
	return o, nil
}

// compare measures what was asked for, writes the results and prints the
// table. A figure that fails does not keep the others from being measured;
// the error returned names all that failed.
func compare(ctx context.Context, o options, stdout, progress io.Writer) error {
	facts := gatherFacts(ctx, o)
	var ours Ours
	if !o.baseline {
		mover := &binary{path: o.bin}
		version, err := mover.Version(ctx)
		if err != nil {
			return err
		}
		ours, facts.Mover = mover, version
	} else {
		facts.Mover = "peers alone"
	}
	b := newBench(o, ours, progress)
	entries, err := b.measure(ctx)
	facts.LoadAfter, facts.Filesystems = loadAverage(), b.filesystems
	if !o.baseline && len(entries) > 0 {
		err = errors.Join(err, pairs.WriteFile(o.out, entries), pairs.WriteFile(hostFile(o.out), facts))
	}
	return errors.Join(err, printTable(stdout, facts, entries))
}

// hostFile is where the machine's facts go: "out/bench-host.json" beside
// "out/bench.json".
func hostFile(out string) string {
	return strings.TrimSuffix(out, ".json") + "-host.json"
}
