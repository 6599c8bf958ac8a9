package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"mover/bench/pairs"
)

// bench runs figures one after the other. It is used by one goroutine.
type bench struct {
	options
	ours                Ours // nil: the peers alone
	progress            io.Writer
	filesystems         []filesystemFact
	source, destination memoryWatch
}

func newBench(o options, ours Ours, progress io.Writer) *bench {
	return &bench{
		options: o, ours: ours, progress: progress,
		source:      memoryWatch{name: "rss-source"},
		destination: memoryWatch{name: "rss-destination"},
	}
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

// measure runs all selected figures. It returns what was measured even when
// some of it failed.
func (b *bench) measure(ctx context.Context) ([]pairs.Entry, error) {
	entries, err := b.memoryFigures(ctx)
	for _, kind := range []placeKind{onTmpfs, onDisk} {
		more, ferr := b.fileFigures(ctx, kind)
		entries, err = append(entries, more...), errors.Join(err, ferr)
	}
	more, qerr := b.queueFigures(ctx)
	entries, err = append(entries, more...), errors.Join(err, qerr)
	for _, watch := range []*memoryWatch{&b.source, &b.destination} {
		if len(watch.seen) == 0 {
			continue // no process of ours ran to its end
		}
		e, werr := watch.result()
		if werr != nil {
			err = errors.Join(err, werr)
			continue
		}
		entries = append(entries, e)
	}
	return entries, err
}

// selected returns the figures asked for that satisfy keep.
func (b *bench) selected(keep func(figure) bool) []figure {
	var kept []figure
	for _, f := range b.figures {
		if keep(f) {
			kept = append(kept, f)
		}
	}
	return kept
}

// memoryFigures measures memory to memory and buffer to buffer against iperf3.
// The warm-up chooses the peer's setting once for all of them.
func (b *bench) memoryFigures(ctx context.Context) (entries []pairs.Entry, err error) {
	wanted := b.selected(func(f figure) bool { return f.kind == memoryFigure || f.kind == bufferFigure })
	if len(wanted) == 0 {
		return nil, nil
	}
	peer, err := startIperf(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, peer.stop()) }()
	b.say("iperf3: choosing the best of %d settings", len(iperfSettings))
	best, err := pairs.Calibrate(ctx, len(iperfSettings), pairs.HigherIsBetter, func(ctx context.Context, s int) (float64, error) {
		v, err := peer.run(ctx, s, 1)
		b.say("  %s: %.1f Gbit/s", peer.describe(s), v)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("iperf3: %w", err)
	}
	for _, f := range wanted {
		figureOf := b.memoryFigure
		if f.kind == bufferFigure {
			figureOf = b.bufferFigure
		}
		e, ferr := figureOf(ctx, f, peer, best)
		if ferr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, ferr))
			continue
		}
		entries = append(entries, e)
	}
	return entries, err
}

func (b *bench) memoryFigure(ctx context.Context, f figure, peer *iperf, setting int) (pairs.Entry, error) {
	var ours pairs.Measurement
	if b.ours != nil {
		ours = func(ctx context.Context, _ int) (float64, error) {
			r, err := b.ours.Memory(ctx, f.verify, b.seconds)
			if err != nil {
				return 0, err
			}
			b.source.add("memory", resident{r.RSSBytesSource, r.ArenaBytes})
			b.destination.add("memory", resident{r.RSSBytesDestination, r.ArenaBytes})
			return r.GbitPerSecond, nil
		}
		b.say("%s: warm-up", f.name)
		if _, err := b.ours.Memory(ctx, f.verify, 1); err != nil {
			return pairs.Entry{}, fmt.Errorf("warm-up: %w", err)
		}
	}
	theirs := func(ctx context.Context, _ int) (float64, error) { return peer.run(ctx, setting, b.seconds) }
	return b.pairsOf(ctx, f, "memory", peer.describe(setting), ours, theirs)
}

// pairsOf measures the pairs of one figure and tells of each value.
func (b *bench) pairsOf(ctx context.Context, f figure, filesystem, setting string, ours, theirs pairs.Measurement) (pairs.Entry, error) {
	b.say("%s: %d pairs against %s", f.name, b.pairs, setting)
	told := func(who string, m pairs.Measurement) pairs.Measurement {
		if m == nil {
			return nil
		}
		return func(ctx context.Context, run int) (float64, error) {
			v, err := m(ctx, run)
			if err == nil {
				b.say("  %2d %-7s %8.2f %s", run+1, who, v, f.unit())
			}
			return v, err
		}
	}
	oursAll, theirsAll, err := pairs.Measure(ctx, b.pairs, told("mover", ours), told(f.peer, theirs))
	if err != nil {
		return pairs.Entry{}, err
	}
	return f.result(filesystem, setting, oursAll, theirsAll)
}

// newPlace makes the place that the wanted figures need: a source file if any
// of them has use for one, else an empty one, and the tree likewise.
func (b *bench) newPlace(ctx context.Context, kind placeKind, size int64, tree bool) (*place, error) {
	parent := b.tmpfs
	if kind == onDisk {
		parent = b.disk
	}
	b.say("%s: generating %s under %s", kind, formatBytes(size), parent)
	p, err := newPlace(ctx, kind, parent, size)
	if err != nil {
		return nil, err
	}
	if tree {
		if err := p.fillTree(ctx); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	fact := filesystemFact{kind, parent, p.filesystem}
	if !slices.Contains(b.filesystems, fact) {
		b.filesystems = append(b.filesystems, fact)
	}
	return p, nil
}

// fileFigures measures the file and tree figures of one file system: one place
// and, but in a baseline run, one pair of nodes for all of them.
func (b *bench) fileFigures(ctx context.Context, kind placeKind) (entries []pairs.Entry, err error) {
	wanted := b.selected(func(f figure) bool {
		return (f.kind == fileFigure || f.kind == treeFigure) && f.place == kind
	})
	if len(wanted) == 0 {
		return nil, nil
	}
	var size int64
	if slices.ContainsFunc(wanted, func(f figure) bool { return f.kind == fileFigure }) {
		size = b.size
	}
	tree := slices.ContainsFunc(wanted, func(f figure) bool { return f.kind == treeFigure })
	p, err := b.newPlace(ctx, kind, size, tree)
	if err != nil {
		return nil, fmt.Errorf("%s figures: %w", kind, err)
	}
	defer func() { err = errors.Join(err, p.close()) }()

	var nodes Nodes
	if b.ours != nil {
		// State goes to the place's own file system: on disk the job queue
		// then pays for its durability inside the measured time, as in use.
		if nodes, err = b.ours.StartNodes(ctx, p, p.dir); err != nil {
			return nil, fmt.Errorf("%s figures: %w", kind, err)
		}
		defer func() { err = errors.Join(err, nodes.Stop()) }()
	}
	for _, f := range wanted {
		e, ferr := b.fileFigure(ctx, f, p, nodes)
		if ferr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, ferr))
			continue
		}
		entries = append(entries, e)
	}
	if nodes != nil {
		src, dst, rerr := nodes.Resident()
		if rerr != nil {
			return entries, errors.Join(err, rerr)
		}
		b.source.add(p.filesystem, src)
		b.destination.add(p.filesystem, dst)
	}
	return entries, err
}

// fileFigure measures one file or tree figure: warm-up of both sides, then pairs. The
// first and the last copy of both sides are compared with the source.
func (b *bench) fileFigure(ctx context.Context, f figure, p *place, nodes Nodes) (_ pairs.Entry, err error) {
	peer, err := startFilePeer(ctx, f.peer, p, f.what())
	if err != nil {
		return pairs.Entry{}, err
	}
	defer func() { err = errors.Join(err, peer.stop()) }()
	if err := p.warm(ctx, f.what()); err != nil {
		return pairs.Entry{}, err
	}
	b.say("%s: choosing the best of %d settings", f.name, peer.settings())
	best, err := pairs.Calibrate(ctx, peer.settings(), pairs.LowerIsBetter, func(ctx context.Context, s int) (float64, error) {
		v, err := timeCopy(ctx, p, f.what(), peer, s, 0, false)
		b.say("  %s: %.2f s", peer.describe(s), v)
		return v, err
	})
	if err != nil {
		return pairs.Entry{}, fmt.Errorf("%s: %w", f.peer, err)
	}
	edge := func(run int) bool { return run == 0 || run == b.pairs-1 }
	theirs := func(ctx context.Context, run int) (float64, error) {
		return timeCopy(ctx, p, f.what(), peer, best, run, edge(run))
	}
	var ours pairs.Measurement
	if nodes != nil {
		if _, err := timeOurs(ctx, p, nodes, f.what(), f.name+"-warm-up", false); err != nil {
			return pairs.Entry{}, fmt.Errorf("mover, warm-up: %w", err)
		}
		ours = func(ctx context.Context, run int) (float64, error) {
			return timeOurs(ctx, p, nodes, f.what(), f.name+"-"+strconv.Itoa(run), edge(run))
		}
	}
	return b.pairsOf(ctx, f, p.filesystem, peer.describe(best), ours, theirs)
}
