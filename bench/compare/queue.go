package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"mover/bench/pairs"
)

const (
	// submitClients submit at once, each as soon as it has its answer.
	submitClients = 64
	// submitCount is how many submits one run measures: less than a queue
	// holds (jobs.max_queued), and a second or two of them.
	submitCount = 2000
	// submitsAimed is the target, submits a second.
	submitsAimed = 1000
	// latencyCount is how many submits, one after the other, make one p95.
	latencyCount = 200
	// latencyAimed is the target, milliseconds.
	latencyAimed = 10
	// smallJobs are run by smallClients, each one after the other.
	smallJobs    = 100
	smallClients = 10
	// besideAimed is how many times longer a small job may take beside a huge.
	besideAimed = 3
	// blockers is jobs.max_running, the places for small jobs: as many slow
	// jobs keep those behind them queued.
	blockers     = 8
	blockerName  = "blocker"
	blockerBytes = 48 << 20
	blockerLimit = "64KiB/s"
)

// queueFigures measures what the service promises of its queue, against
// numbers. The state is on disk, and so is every submit before it is answered;
// what moves meanwhile is on tmpfs, so that the queue's syncs wait for each
// other and not for the writeback of somebody's gigabytes, which would measure
// the file system.
func (b *bench) queueFigures(ctx context.Context) (entries []pairs.Entry, err error) {
	wanted := b.selected(func(f figure) bool { return f.peer == ownTarget })
	if len(wanted) == 0 || b.ours == nil {
		return nil, nil
	}
	p, err := b.newPlace(ctx, onTmpfs, b.size, true)
	if err != nil {
		return nil, fmt.Errorf("queue figures: %w", err)
	}
	defer func() { err = errors.Join(err, p.close()) }()
	disk, err := b.newPlace(ctx, onDisk, 0, false)
	if err != nil {
		return nil, fmt.Errorf("queue figures: %w", err)
	}
	defer func() { err = errors.Join(err, disk.close()) }()
	if _, err := generate(ctx, filepath.Join(p.dir, "data", blockerName), blockerBytes); err != nil {
		return nil, err
	}
	nodes, err := b.ours.StartNodes(ctx, p, disk.dir)
	if err != nil {
		return nil, fmt.Errorf("queue figures: %w", err)
	}
	defer func() { err = errors.Join(err, nodes.Stop()) }()
	client, _ := nodes.Clients()
	load := &queueLoad{client: client, place: p}
	for _, f := range wanted {
		e, ferr := b.queueFigure(ctx, f, load, disk.filesystem)
		if ferr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, ferr))
			continue
		}
		entries = append(entries, e)
	}
	return entries, err
}

func (b *bench) queueFigure(ctx context.Context, f figure, load *queueLoad, filesystem string) (pairs.Entry, error) {
	constant := func(v float64) pairs.Measurement {
		return func(context.Context, int) (float64, error) { return v, nil }
	}
	var ours, theirs pairs.Measurement
	var setting string
	switch f.kind {
	case submitFigure:
		setting = fmt.Sprintf("%d a second; %d clients, state on %s", submitsAimed, submitClients, filesystem)
		ours, theirs = load.submitRate, constant(submitsAimed)
	case latencyFigure:
		setting = fmt.Sprintf("%d ms; one client, a huge job moves, state on %s", latencyAimed, filesystem)
		ours, theirs = load.submitLatency, constant(latencyAimed)
	case besideFigure:
		setting = fmt.Sprintf("%d x alone; %d jobs of %s by %d clients", besideAimed, smallJobs, formatBytes(treeFileBytes), smallClients)
		ours = load.smallBeside
		theirs = func(ctx context.Context, run int) (float64, error) {
			alone, err := load.small(ctx)
			return besideAimed * alone, err
		}
	default:
		return pairs.Entry{}, fmt.Errorf("it has no target of its own")
	}
	b.say("%s: warm-up", f.name)
	if _, err := ours(ctx, -1); err != nil {
		return pairs.Entry{}, fmt.Errorf("warm-up: %w", err)
	}
	return b.pairsOf(ctx, f, filesystem, setting, ours, theirs)
}

// queueLoad puts load on the queue of a node that serves a place. Its methods
// are called from one goroutine.
type queueLoad struct {
	client *jobClient
	place  *place
	names  atomic.Int64
}

// name is a name that was not used in this place.
func (l *queueLoad) name() string { return "queue-" + strconv.FormatInt(l.names.Add(1), 10) }

// submitRate is how many submits a second are answered while slow jobs hold
// the places, so that what is submitted stays queued: the figure is of the
// queue, and not of the CPU that running the jobs would take.
func (l *queueLoad) submitRate(ctx context.Context, _ int) (rate float64, err error) {
	var held []string
	defer func() { err = errors.Join(err, l.cancelAll(ctx, held)) }()
	slow := copyJob(blockerName, "")
	slow.BandwidthLimit = blockerLimit
	for range blockers {
		slow.Destination.Path = "incoming/" + l.name()
		id, err := l.client.submit(ctx, slow)
		if err != nil {
			return 0, err
		}
		held = append(held, id)
	}
	for _, id := range held {
		// It holds its place while it still waits to be allowed a byte.
		now, text, err := l.client.awaitStart(ctx, id)
		if err != nil {
			return 0, err
		}
		if terminal[now.State] {
			return 0, fmt.Errorf("a job that should hold a place ended: %s", text)
		}
	}
	ids := make([]string, submitCount)
	start := time.Now()
	err = inParallel(ctx, submitClients, submitCount, func(ctx context.Context, i int) (err error) {
		ids[i], err = l.client.submit(ctx, copyJob(treeFile(i), l.name()))
		return err
	})
	took := time.Since(start)
	for _, id := range ids {
		if id != "" {
			held = append(held, id)
		}
	}
	if err != nil {
		return 0, err
	}
	// A job that already ran was no queued one, and took CPU from the others.
	now, text, err := l.client.get(ctx, ids[0], "0s")
	if err != nil {
		return 0, err
	}
	if now.State != "queued" {
		return 0, fmt.Errorf("a job that should have stayed queued did not: %s", text)
	}
	return submitCount / took.Seconds(), nil
}

// cancelAll cancels jobs, the last first so that none starts for the end of
// another, and waits for each to end.
func (l *queueLoad) cancelAll(ctx context.Context, ids []string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), clientDeadline)
	defer stop()
	if len(ids) > blockers {
		queued := ids[blockers:]
		err := inParallel(ctx, submitClients, len(queued), func(ctx context.Context, i int) error {
			return l.client.cancel(ctx, queued[i])
		})
		if err != nil {
			return err
		}
		ids = ids[:blockers]
	}
	for _, id := range ids {
		if err := l.client.cancel(ctx, id); err != nil {
			return err
		}
		if _, _, err := l.client.await(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// submitLatency is the p95, in milliseconds, of submits one after the other
// while a huge job moves.
func (l *queueLoad) submitLatency(ctx context.Context, _ int) (p95 float64, err error) {
	times := make([]float64, 0, latencyCount)
	var ids, outs []string
	err = l.besideHuge(ctx, func(ctx context.Context) error {
		for i := range latencyCount {
			out := l.name()
			start := time.Now()
			id, err := l.client.submit(ctx, copyJob(treeFile(i), out))
			if err != nil {
				return err
			}
			times = append(times, milliseconds(time.Since(start)))
			ids, outs = append(ids, id), append(outs, out)
		}
		return nil
	})
	for i, id := range ids {
		now, text, aerr := l.client.await(ctx, id)
		if aerr == nil && now.State != "succeeded" {
			aerr = fmt.Errorf("job %s ended %s: %s", id, now.State, text)
		}
		err = errors.Join(err, aerr, remove(filepath.Join(l.place.incoming(), outs[i])))
	}
	if err != nil {
		return 0, err
	}
	return percentile95(times), nil
}

// smallBeside is small while a huge job moves.
func (l *queueLoad) smallBeside(ctx context.Context, _ int) (p95 float64, err error) {
	err = l.besideHuge(ctx, func(ctx context.Context) (err error) {
		p95, err = l.small(ctx)
		return err
	})
	return p95, err
}

// small runs the small jobs and returns the p95 of their times, from submit to
// the answer that says succeeded, in milliseconds.
func (l *queueLoad) small(ctx context.Context) (float64, error) {
	times := make([]float64, smallJobs)
	outs := make([]string, smallJobs)
	for i := range outs {
		outs[i] = l.name()
	}
	err := inParallel(ctx, smallClients, smallJobs, func(ctx context.Context, i int) error {
		start := time.Now()
		err := l.client.run(ctx, copyJob(treeFile(i), outs[i]))
		times[i] = milliseconds(time.Since(start))
		return err
	})
	for _, out := range outs {
		err = errors.Join(err, remove(filepath.Join(l.place.incoming(), out)))
	}
	if err != nil {
		return 0, err
	}
	return percentile95(times), nil
}

// besideHuge calls work while the source of the place is copied, again and
// again if work takes longer than one copy, and returns when both have ended.
func (l *queueLoad) besideHuge(ctx context.Context, work func(context.Context) error) error {
	submit := func() (id, out string, err error) {
		out = l.name()
		id, err = l.client.submit(ctx, copyJob(sourceName, out))
		return id, out, err
	}
	id, out, err := submit()
	if err != nil {
		return err
	}
	if _, _, err := l.client.awaitStart(ctx, id); err != nil {
		return err
	}
	done := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- l.keepHuge(ctx, id, out, done, submit) }()
	err = work(ctx)
	close(done)
	return errors.Join(err, <-ended)
}

// keepHuge waits for the huge job and, unless done, submits the next.
func (l *queueLoad) keepHuge(ctx context.Context, id, out string, done <-chan struct{}, submit func() (id, out string, err error)) error {
	for {
		now, text, err := l.client.await(ctx, id)
		if err == nil && now.State != "succeeded" {
			err = fmt.Errorf("the huge job ended %s: %s", now.State, text)
		}
		if err = errors.Join(err, remove(filepath.Join(l.place.incoming(), out))); err != nil {
			return err
		}
		select {
		case <-done:
			return nil
		default:
		}
		if id, out, err = submit(); err != nil {
			return err
		}
	}
}

// inParallel calls do for 0..n-1 from a number of goroutines, in order of
// their becoming free, and returns the first error; after one no more start.
func inParallel(ctx context.Context, goroutines, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// percentile95 is the smallest value that 95 % of values do not exceed
// (nearest rank). It does not change values, of which there must be one.
func percentile95(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Ceil(0.95*float64(len(sorted))))-1]
}
