package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"mover/bench/pairs"
	"mover/bench/procfs"
)

// Ours is mover as the harness needs it. One implementation runs the real
// binary; tests have another. All methods are called from one goroutine.
type Ours interface {
	// Version is what the program says of itself.
	Version(ctx context.Context) (string, error)
	// Memory moves memory to memory between two processes over loopback for
	// about the given number of seconds. verify is "none" or "crc32c".
	Memory(ctx context.Context, verify string, seconds int) (memoryRun, error)
	// StartNodes starts two nodes that serve a place and keep their state,
	// the job queue with it, below the directory state. The caller must stop
	// them.
	StartNodes(ctx context.Context, p *place, state string) (Nodes, error)
}

// Nodes are two running nodes, a (source) and b (destination).
type Nodes interface {
	// Copy runs one job that copies what (a name in the place's data folder,
	// a tree if it is treeName) to the name out in its incoming folder,
	// verified and durable, and returns the time from submit to succeeded.
	Copy(ctx context.Context, what, out string) (time.Duration, error)
	// Clients are clients of both, for figures that do more than copy.
	Clients() (source, destination *jobClient)
	// Resident is the peak resident memory of both processes so far.
	Resident() (source, destination resident, err error)
	// Stop ends both nodes. It is called once.
	Stop() error
}

// memoryRun is the JSON object that `mover bench mem -json` prints, one per
// run, alone on standard output. All sizes are bytes.
type memoryRun struct {
	GbitPerSecond       float64 `json:"gbit_per_s"` // payload the destination has (verified if asked), decimal
	Bytes               int64   `json:"bytes"`
	Seconds             float64 `json:"seconds"`
	Verify              string  `json:"verify"`
	RSSBytesSource      int64   `json:"rss_bytes_source"`      // peak, with huge pages
	RSSBytesDestination int64   `json:"rss_bytes_destination"` // the same of the other process
	ArenaBytes          int64   `json:"arena_bytes"`           // of one process; both have the same
}

// check refuses a report that contradicts itself: a rate is believed only if
// bytes and time say the same.
func (r memoryRun) check(verify string) error {
	switch {
	case !(r.GbitPerSecond > 0) || r.Bytes <= 0 || !(r.Seconds > 0):
		return fmt.Errorf("moved nothing: %+v", r)
	case r.Verify != verify:
		return fmt.Errorf("ran with verify %q, not %q", r.Verify, verify)
	case r.ArenaBytes <= 0 || r.RSSBytesSource <= 0 || r.RSSBytesDestination <= 0:
		return fmt.Errorf("did not report its memory: %+v", r)
	}
	computed := float64(r.Bytes) * 8 / r.Seconds / 1e9
	if d := computed / r.GbitPerSecond; d < 0.99 || d > 1.01 {
		return fmt.Errorf("reports %.2f Gbit/s, but its bytes and seconds make %.2f", r.GbitPerSecond, computed)
	}
	return nil
}

// binary is Ours by running the mover binary.
type binary struct {
	path string // absolute
}

func (b *binary) Version(ctx context.Context) (string, error) {
	out, err := runClient(ctx, startDeadline, nil, b.path, "version")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first, nil
}

func (b *binary) Memory(ctx context.Context, verify string, seconds int) (memoryRun, error) {
	out, err := runClient(ctx, time.Duration(seconds)*time.Second+startDeadline, nil, b.path,
		"bench", "mem", "-seconds", strconv.Itoa(seconds), "-verify", verify, "-json")
	if err != nil {
		return memoryRun{}, err
	}
	return parseMemoryRun(out, verify)
}

// parseMemoryRun reads and checks the report of `mover bench mem -json`.
func parseMemoryRun(report []byte, verify string) (memoryRun, error) {
	var r memoryRun
	if err := json.Unmarshal(report, &r); err != nil {
		return memoryRun{}, fmt.Errorf("reading the report of mover bench mem: %w", err)
	}
	if err := r.check(verify); err != nil {
		return memoryRun{}, fmt.Errorf("mover bench mem: %w", err)
	}
	return r, nil
}

func (b *binary) StartNodes(ctx context.Context, p *place, state string) (Nodes, error) {
	n, err := startNodePair(ctx, b.path, p, state)
	if err != nil {
		return nil, fmt.Errorf("starting two nodes on %s: %w", p.kind, err)
	}
	return n, nil
}

// resident is the memory of one process against what it has mapped as arenas.
type resident struct {
	peakBytes  int64 // VmHWM plus huge pages
	arenaBytes int64
}

// residentAllowance is what a node may use beside its arenas.
const residentAllowance = 96 << 20

// limitBytes is what the process may use.
func (r resident) limitBytes() int64 { return r.arenaBytes + residentAllowance }

// readResident reads the peak of a process.
func readResident(pid int, arenaBytes int64) (resident, error) {
	peak, err := procfs.PeakResident(pid)
	return resident{peakBytes: peak, arenaBytes: arenaBytes}, err
}

// memoryWatch collects the resident memory of one role over the whole run.
type memoryWatch struct {
	name string // "rss-source" or "rss-destination"
	seen []residentAt
}

type residentAt struct {
	resident
	filesystem string
}

func (w *memoryWatch) add(filesystem string, r resident) {
	w.seen = append(w.seen, residentAt{r, filesystem})
}

// result reports the observation nearest to its limit: ours is its peak,
// theirs the limit, ratio theirs/ours. There is no chance in it, so low is
// that same ratio and high the best observed. Without observations it is an
// error.
func (w *memoryWatch) result() (pairs.Entry, error) {
	if len(w.seen) == 0 {
		return pairs.Entry{}, errors.New(w.name + ": nothing was observed")
	}
	target := 1.0
	e := pairs.Entry{
		Name: w.name, Peer: "arenas + " + formatBytes(residentAllowance), Unit: "MiB",
		Target: &target, Pairs: len(w.seen),
	}
	for i, r := range w.seen {
		ours, theirs := float64(r.peakBytes)/(1<<20), float64(r.limitBytes())/(1<<20)
		ratio, err := pairs.LowerIsBetter.Ratio(ours, theirs)
		if err != nil {
			return pairs.Entry{}, fmt.Errorf("%s: %w", w.name, err)
		}
		if i == 0 || ratio < e.Ratio {
			e.Ours, e.Theirs, e.Ratio, e.Low, e.Filesystem = ours, theirs, ratio, ratio, r.filesystem
		}
		e.High = max(e.High, ratio)
	}
	return e, nil
}
