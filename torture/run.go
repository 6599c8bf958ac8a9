//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

// longRun is from when on a run has slopes: its second half lets the processes
// live, and what they hold is compared over that time.
const longRun = 20 * time.Minute

// run is one torture. Its methods may be called by any goroutine once it was
// made.
type run struct {
	options
	dir     string
	begin   time.Time
	length  time.Duration
	nodes   [2]*node
	disks   [2]disk
	sources map[string]sources   // by node
	shared  map[string][]*shared // by node
	targets map[string]string    // by node: the path of its target buffer
	spans   map[string]chan *span

	orders  atomic.Int64
	counts  counts
	isCalm  atomic.Bool
	samples [2][]held

	mu       sync.Mutex
	problems int
	once     map[string]bool
	own      map[string]ownEnd // by path: destinations of one job, once it has ended
}

// ownEnd is a destination that was removed after its job had ended.
type ownEnd struct {
	order     *order
	succeeded bool
}

// maxProblems bounds what is printed; the first tell the most.
const maxProblems = 40

// wrong reports that something does not hold.
func (t *run) wrong(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems++
	if t.problems <= maxProblems {
		fmt.Printf("torture: WRONG at %v: %s\n", time.Since(t.begin).Round(time.Millisecond), fmt.Sprintf(format, args...))
	}
}

// wrongOnce reports something that would be seen again and again.
func (t *run) wrongOnce(key, format string, args ...any) {
	t.mu.Lock()
	seen := t.once[key]
	t.once[key] = true
	t.mu.Unlock()
	if !seen {
		t.wrong(format, args...)
	}
}

func (t *run) endedOwn(o *order, succeeded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own[o.path()] = ownEnd{o, succeeded}
}

// numbers are those of one part of the schedule.
func (t *run) numbers(part string, i int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, part, i)
	return rand.New(rand.NewPCG(t.seed, h.Sum64()))
}

func (t *run) other(n *node) *node {
	if n == t.nodes[0] {
		return t.nodes[1]
	}
	return t.nodes[0]
}

func (t *run) calm() bool { return t.isCalm.Load() }

func (t *run) scheduleLeft() time.Duration { return max(0, t.length-time.Since(t.begin)) }

// spares reports whether processes are to live on.
func (t *run) spares() bool { return t.length >= longRun && time.Since(t.begin) > t.length/2 }

// torture is the whole: what holds is in ok, what prevented a run is the error.
func torture(ctx context.Context, o options) (ok bool, err error) {
	t := &run{options: o, length: time.Duration(o.minutes * float64(time.Minute)), begin: time.Now(),
		once: map[string]bool{}, own: map[string]ownEnd{}}
	fmt.Printf("torture: seed %d, %v of faults, then calm\n", t.seed, t.length)
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return false, fmt.Errorf("the directory of logs: %w", err)
	}
	if t.dir, err = os.MkdirTemp(o.out, "run-"); err != nil {
		return false, fmt.Errorf("a directory to work in: %w", err)
	}
	defer func() { t.cleanUp(ok) }()
	if err := t.prepare(ctx); err != nil {
		return false, err
	}
	before, err := t.warmUp(ctx)
	if err != nil {
		return false, err
	}
	t.storm(ctx)
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	t.inspect(ctx, before)
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Printf("torture: %v\n", &t.counts)
	if t.problems > 0 {
		fmt.Printf("torture: FAILED: %d things are wrong\ntorture: to run it again: make torture MINUTES=%g SEED=%d\ntorture: the nodes' logs: %s\n",
			t.problems, t.minutes, t.seed, o.out)
		return false, nil
	}
	fmt.Printf("torture: nothing lost, seed %d\n", t.seed)
	return true, nil
}

// prepare makes the nodes, what they have, and starts them.
func (t *run) prepare(ctx context.Context) error {
	if t.inside {
		if err := ownSharedMemory(); err != nil {
			return err
		}
	}
	p := &ports{next: 10000 + int(t.seed%8000)}
	for i, name := range []string{"torture-a", "torture-b"} {
		n, err := newNode(ctx, name, filepath.Join(t.dir, name), t.mover, p, t.wrong)
		if err != nil {
			return err
		}
		t.nodes[i] = n
		t.disks[i] = mountSmall(n.path("small"), t.inside)
	}
	t.sources, t.shared = map[string]sources{}, map[string][]*shared{}
	t.targets, t.spans = map[string]string{}, map[string]chan *span{}
	for i, n := range t.nodes {
		if err := n.configure(t.other(n)); err != nil {
			return err
		}
		var err error
		if t.sources[n.name], err = makeSources(n, t.numbers("sources", i)); err != nil {
			return err
		}
		if t.shared[n.name], err = makeShared(n, t.numbers("shared", i)); err != nil {
			return err
		}
		if err := n.start(ctx); err != nil {
			return err
		}
		if err := t.makeBuffers(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// makeBuffers makes a node's two buffers and fills the one that jobs read.
func (t *run) makeBuffers(ctx context.Context, n *node) error {
	all := []string{"*"}
	for name, length := range map[string]int64{sourceBuffer: sourceBufferBytes, targetBuffer: spans * spanBytes} {
		b, err := n.client.CreateBuffer(ctx, name, v1.BufferSpec{Bytes: *size(length), Read: all, Write: all})
		if err != nil {
			return err
		}
		if name == targetBuffer {
			t.targets[n.name] = b.Path
		} else if err := os.WriteFile(b.Path, t.sources[n.name].buffer, 0o600); err != nil {
			return fmt.Errorf("filling the source buffer: %w", err)
		}
	}
	t.spans[n.name] = make(chan *span, spans)
	for i := range spans {
		t.spans[n.name] <- &span{n, i}
	}
	return nil
}

// calmOrders runs jobs in peace, all of which have to succeed.
func (t *run) calmOrders(ctx context.Context, part string) {
	r := t.numbers(part, 0)
	for range 16 {
		o := t.nextOrder(r, true)
		before := t.counts.endedAs(job.Succeeded)
		t.serve(ctx, o, r)
		if ctx.Err() == nil && t.counts.endedAs(job.Succeeded) == before {
			t.wrong("%v: did not succeed although nothing stood in its way", o)
		}
	}
}

// warmUp runs jobs before any fault, and returns what the nodes hold then.
func (t *run) warmUp(ctx context.Context) (before [2]held, err error) {
	t.calmOrders(ctx, "before")
	for i, n := range t.nodes {
		if before[i], err = n.holds(ctx); err != nil {
			return before, err
		}
	}
	return before, ctx.Err()
}

// storm runs jobs and faults together, then waits for all jobs to end in calm.
func (t *run) storm(ctx context.Context) {
	t.begin = time.Now()
	faulty, end := context.WithTimeout(ctx, t.length)
	defer end()
	var customers, watchers sync.WaitGroup
	at := 8
	if t.race {
		at = 4
	}
	for i := range at {
		customers.Go(func() {
			r := t.numbers("customer", i)
			for faulty.Err() == nil {
				t.serve(ctx, t.nextOrder(r, false), r)
			}
		})
	}
	watching, stop := context.WithCancel(ctx)
	watchers.Go(func() { t.watch(watching) })
	t.faults(faulty)
	t.isCalm.Store(true)
	fmt.Printf("torture: calm after %v; waiting for the jobs to end\n", time.Since(t.begin).Round(time.Second))
	customers.Wait()
	stop()
	watchers.Wait()
}

// watch tells how far it is and takes samples of what the nodes hold while
// their processes live on.
func (t *run) watch(ctx context.Context) {
	for tick := 1; pause(ctx, 5*time.Second); tick++ {
		if tick%6 == 0 {
			fmt.Printf("torture: %v: %d jobs, %d kills, %d cuts, %d MiB\n", time.Since(t.begin).Round(time.Second),
				t.counts.jobs.Load(), t.counts.kills.Load(), t.counts.cuts.Load(), t.counts.bytes.Load()>>20)
		}
		if !t.spares() || t.calm() {
			continue
		}
		for i, n := range t.nodes {
			if h, err := n.holds(ctx); err == nil { // it may be stopped
				t.samples[i] = append(t.samples[i], h)
			}
		}
	}
}

// cleanUp ends the nodes and removes everything but the logs, which stay if
// anything is wrong.
func (t *run) cleanUp(ok bool) {
	for i, n := range t.nodes {
		if n == nil {
			continue
		}
		n.kill()
		if n.client != nil {
			n.client.Close()
		}
		kept := filepath.Join(t.out, n.name+".log")
		_ = os.Remove(kept)
		if !ok {
			_ = os.Rename(n.logFile(), kept)
		}
		if t.disks[i].mounted {
			t.disks[i].unmount()
		}
		if path := t.targets[n.name]; path != "" && !t.inside {
			_ = os.Remove(path)
			_ = os.Remove(filepath.Join(filepath.Dir(path), "mover."+n.name+"."+sourceBuffer))
		}
	}
	if err := os.RemoveAll(t.dir); err != nil {
		fmt.Fprintln(os.Stderr, "torture: what was used is not removed:", err)
	}
}
