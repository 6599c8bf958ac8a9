package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"mover/bench/pairs"
)

// Stub ops: what mover costs when post and poll only touch memory, which an
// emulated link would hide. They are Go benchmarks of the packages themselves,
// and run on the host. Many short runs, because a machine with other tenants
// leaves a short one alone now and then; reported is the median as for every
// figure, and the best beside it.
const (
	stubName   = "stub"
	stubRuns   = 41
	stubRounds = "500x"
	// stubDeadline is for building the tests, too.
	stubDeadline = 10 * time.Minute
	// stubDelayNs is the deliberate delay a WR of the self-check in verbs/ibv.
	stubDelayNs = 2000
	// stubSeen is the least share of the delay that must show.
	stubSeen = 0.9
)

// stubFigure is a benchmark with its limit.
type stubFigure struct {
	name    string // of the entry
	pkg     string
	pattern string // of -bench
	line    string // the benchmark's, without the count of CPUs
	metric  string // of the line
	limitNs float64
	means   string
}

var stubFigures = []stubFigure{
	{"stub-wr", "./verbs/ibv", `^BenchmarkStubOps$/^chain=32$`, "BenchmarkStubOps/chain=32", "ns/WR", 60,
		"a raw WR through verbs/ibv, posted and polled, 32 a chain"},
	{"stub-chunk", "./engine", `^BenchmarkStubOps$/^slots$/^batch=32$`, "BenchmarkStubOps/slots/batch=32", "ns/chunk", 300,
		"a chunk through the engine, ready to posted to completed and credited, 32 a batch"},
}

// stubDelayed is the self-check of stub-wr.
var stubDelayed = stubFigure{"stub-delay", "./verbs/ibv", `^BenchmarkStubOpsDelayed$/^chain=32$`, "BenchmarkStubOpsDelayed/chain=32", "ns/WR", stubDelayNs,
	"what stub-wr shows of a deliberate delay of 2 us a WR"}

// stub measures the figures and checks that they tell: a benchmark that does
// not see the delay has measured nothing.
func (b *bencher) stub(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, stubDeadline)
	defer cancel()
	var plain stubRun
	for _, f := range stubFigures {
		b.say("stub: %s", f.means)
		run, ferr := f.run(ctx)
		var e pairs.Entry
		if ferr == nil {
			e, ferr = f.entry(run)
		}
		if ferr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", f.name, ferr))
			continue
		}
		b.say("   %s: %.1f ns, at best %.1f, %d allocations", f.name, e.Ours, slices.Min(run.values), run.allocs)
		b.entries = append(b.entries, e)
		if f.pkg == stubDelayed.pkg {
			plain = run
		}
	}
	if plain.values == nil {
		return err // without it the check has nothing to compare
	}
	b.say("stub: %s", stubDelayed.means)
	delayed, derr := stubDelayed.run(ctx)
	if derr == nil {
		var e pairs.Entry
		if e, derr = delayEntry(plain, delayed); e.Name != "" {
			b.say("   %s: %.0f ns", e.Name, e.Ours)
			b.entries = append(b.entries, e)
		}
	}
	if derr != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", stubDelayed.name, derr))
	}
	return err
}

func (b *bencher) say(format string, args ...any) {
	fmt.Fprintf(b.host.stdout, "lab: "+format+"\n", args...)
}

// stubRun is what a benchmark printed, run by run.
type stubRun struct {
	values []float64
	allocs int64 // the most of a run, for each round
}

func (f stubFigure) run(ctx context.Context) (stubRun, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-buildvcs=false", "-run", "^$", "-bench", f.pattern, "-benchmem", "-benchtime", stubRounds,
		"-count", strconv.Itoa(stubRuns), f.pkg)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return stubRun{}, fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return parseStub(string(out), f.line, f.metric, stubRuns)
}

// parseStub reads the lines of one benchmark, which are
//
//	BenchmarkStubOps/chain=32-2   1000  1374 ns/op  42.9 ns/WR  0 B/op  0 allocs/op
func parseStub(text, name, metric string, runs int) (r stubRun, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != name && !isWithCPUs(fields[0], name) {
			continue
		}
		found := 0
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return r, fmt.Errorf("%q: %w", line, err)
			}
			switch fields[i+1] {
			case metric:
				r.values, found = append(r.values, v), found+1
			case "allocs/op":
				r.allocs, found = max(r.allocs, int64(v)), found+1
			}
		}
		if found != 2 {
			return r, fmt.Errorf("%q has no %s or no allocs/op", line, metric)
		}
	}
	if len(r.values) != runs {
		return r, fmt.Errorf("%d runs of %s, not %d: %s", len(r.values), name, runs, text)
	}
	return r, nil
}

// isWithCPUs: "name-8" is name with GOMAXPROCS 8.
func isWithCPUs(field, name string) bool {
	cpus, ok := strings.CutPrefix(field, name+"-")
	_, err := strconv.ParseUint(cpus, 10, 16)
	return ok && err == nil
}

// entry compares a benchmark with its limit: 1 and more is within.
func (f stubFigure) entry(run stubRun) (pairs.Entry, error) {
	target := 1.0
	e := pairs.Entry{Name: f.name, Peer: "limit", Unit: "ns", Target: &target, Allocs: &run.allocs,
		Setting: fmt.Sprintf("%s; best run %.1f ns", f.means, slices.Min(run.values))}
	err := e.Compare(pairs.LowerIsBetter, run.values, slices.Repeat([]float64{f.limitNs}, len(run.values)))
	e.TheirsAll = nil // nothing was measured there
	return e, err
}

// delayEntry is the self-check, of the best runs of both: the clock bounds the
// delay from below, and noise only adds.
func delayEntry(plain, delayed stubRun) (pairs.Entry, error) {
	target := stubSeen
	seen := slices.Min(delayed.values) - slices.Min(plain.values)
	e := pairs.Entry{Name: stubDelayed.name, Peer: "deliberate delay", Unit: "ns", Target: &target, Setting: stubDelayed.means}
	if seen > 0 {
		if err := e.Compare(pairs.HigherIsBetter, []float64{seen}, []float64{stubDelayNs}); err != nil {
			return pairs.Entry{}, err
		}
		e.TheirsAll = nil
	}
	if seen < stubSeen*stubDelayNs {
		return e, fmt.Errorf("a delay of %d ns a WR shows as %.0f ns: the benchmark does not measure what it should", stubDelayNs, seen)
	}
	return e, nil
}
