package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mover/bench/pairs"
)

// benchOptions are those of `bench` alone.
type benchOptions struct {
	json  string
	pairs int
	only  string
}

func (o *benchOptions) register(flags *flag.FlagSet) {
	flags.StringVar(&o.json, "json", "out/lab-bench.json", "bench: write the figures to this `file`, what they depend on to FILE-host.json")
	flags.IntVar(&o.pairs, "pairs", pairs.Quotable, "bench: pairs a figure, 1 to 100; fewer than 7 are for trying out")
	flags.StringVar(&o.only, "only", "", "bench: measure only these figures: `NAME[,NAME]`")
}

func (o *benchOptions) check() error {
	if o.pairs < 1 || o.pairs > 100 {
		return fmt.Errorf("-pairs: %d is not in 1 to 100", o.pairs)
	}
	if !strings.HasSuffix(o.json, ".json") {
		return fmt.Errorf("-json: %q does not end in .json", o.json)
	}
	_, _, err := chooseFigures(o.only)
	return err
}

// figure is one comparison between mover and a peer. Guests are slow, and slow
// for both sides alike: only the ratio of a pair of runs means something.
type figure struct {
	name   string
	peer   string
	unit   string
	better pairs.Orientation
	target float64 // of the ratio, which is more than 1 when mover is ahead
	// ready makes both sides ready and runs each at least once unmeasured.
	ready func(ctx context.Context, l *Lab) (comparison, error)
}

// comparison is a figure whose two sides can be measured.
type comparison struct {
	ours, theirs pairs.Measurement
	setting      string // how the peer runs, and what mover does differently
	filesystem   string
	end          func(ctx context.Context) error // after the last pair; nil: nothing
}

// latencyTarget: at most 1.3 times the peer's.
const latencyTarget = 1 / 1.3

// figures are all of them, in the order in which they are measured.
func figures() []figure {
	bandwidth := func(name string, sizeBytes, qps int) figure {
		return figure{name: name, peer: "ib_write_bw", unit: "Gbit/s", better: pairs.HigherIsBetter, target: 0.95,
			ready: func(ctx context.Context, l *Lab) (comparison, error) { return readyBandwidth(ctx, l, sizeBytes, qps) }}
	}
	return []figure{
		bandwidth("bw-64k-q1", 64<<10, 1),
		bandwidth("bw-64k-q4", 64<<10, 4),
		bandwidth("bw-1m-q1", 1<<20, 1),
		bandwidth("bw-1m-q4", 1<<20, 4),
		{name: "lat", peer: "ib_send_lat", unit: "us", better: pairs.LowerIsBetter, target: latencyTarget, ready: readyLatency},
		{name: "engine-64m", peer: "ib_write_bw", unit: "Gbit/s", better: pairs.HigherIsBetter, target: 0.9, ready: readyEngine},
		{name: "file-rcopy", peer: "rcopy", unit: "s", better: pairs.LowerIsBetter, target: 3, ready: readyFile},
	}
}

// figureDeadline is for a machine that does other things too: a figure takes a
// minute or two on a quiet one.
const figureDeadline = 20 * time.Minute

// chooseFigures returns the figures that a list with commas names, or all, and
// whether the stub ops are among them.
func chooseFigures(only string) (chosen []figure, stub bool, err error) {
	var names []string
	for _, name := range strings.Split(only, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	wanted := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	known := []string{stubName}
	for _, f := range figures() {
		known = append(known, f.name)
		if wanted(f.name) {
			chosen = append(chosen, f)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, false, fmt.Errorf("-only: no figure is called %q; known are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, wanted(stubName), nil
}

// bencher measures. One goroutine uses it.
type bencher struct {
	options benchOptions
	host    host
	entries []pairs.Entry
}

// bench measures the figures, writes and prints them. Only what could not be
// measured is an error: a target that is missed is reported.
func bench(ctx context.Context, h host, o benchOptions) error {
	b := &bencher{options: o, host: h}
	chosen, stub, err := chooseFigures(o.only)
	if err != nil {
		return err
	}
	facts := gatherFacts(ctx, h, o)
	// First, while no guest competes for the CPUs.
	if stub {
		err = b.stub(ctx)
	}
	var proofs []scenario
	for _, f := range chosen {
		proofs = append(proofs, scenario{name: "bench-" + f.name, deadline: figureDeadline,
			run: func(ctx context.Context, l *Lab) error { return b.figure(ctx, l, f) }})
	}
	if len(proofs) > 0 {
		results, rerr := (&runner{host: h}).runAll(ctx, proofs)
		err = errors.Join(err, rerr)
		for _, r := range results {
			if !r.Passed { // what it said was shown
				err = errors.Join(err, fmt.Errorf("%s was not measured; logs are in %s", r.Name, h.out))
			}
		}
	}
	facts.finish()
	if len(b.entries) > 0 {
		err = errors.Join(err, pairs.WriteFile(o.json, b.entries), pairs.WriteFile(strings.TrimSuffix(o.json, ".json")+"-host.json", facts))
		err = errors.Join(err, b.print(h.stdout, facts))
	}
	return err
}

// figure measures one.
func (b *bencher) figure(ctx context.Context, l *Lab, f figure) error {
	c, err := f.ready(ctx, l)
	if err != nil {
		return err
	}
	l.Step("%d pairs against %s", b.options.pairs, c.setting)
	told := func(who string, m pairs.Measurement) pairs.Measurement {
		return func(ctx context.Context, run int) (float64, error) {
			v, err := m(ctx, run)
			if err == nil {
				l.Step("%2d %-11s %10.3f %s", run+1, who, v, f.unit)
			}
			return v, err
		}
	}
	ours, theirs, err := pairs.Measure(ctx, b.options.pairs, told("mover", c.ours), told(f.peer, c.theirs))
	if err == nil && c.end != nil {
		err = c.end(ctx)
	}
	if err != nil {
		return err
	}
	e := pairs.Entry{Name: f.name, Peer: f.peer, Unit: f.unit, Filesystem: c.filesystem, Target: &f.target, Setting: c.setting}
	if err := e.Compare(f.better, ours, theirs); err != nil {
		return err
	}
	l.Step("ratio %.3f (%.3f .. %.3f), target %.2f", e.Ratio, e.Low, e.High, f.target)
	b.entries = append(b.entries, e)
	return nil
}

func (b *bencher) print(w io.Writer, facts labFacts) error {
	path, err := filepath.Abs(b.options.json)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s", facts)
	if b.options.pairs < pairs.Quotable {
		fmt.Fprintf(w, "fewer than %d pairs: good for a look, not for quoting\n", pairs.Quotable)
	}
	fmt.Fprintln(w)
	if err := pairs.Table(w, b.entries); err != nil {
		return err
	}
	fmt.Fprintf(w, "lab: written to %s\n", path)
	return nil
}
