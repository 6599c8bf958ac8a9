//go:build linux

package main

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// held is what a node holds at one moment.
type held struct {
	at                                 time.Time
	goroutines, descriptors, residentB float64
	stateB                             float64 // the bytes in its state directory
}

// holds reads a node's metrics and the size of its state.
func (n *node) holds(ctx context.Context) (held, error) {
	h := held{at: time.Now()}
	text, err := n.get(ctx, "/metrics")
	if err != nil {
		return h, fmt.Errorf("the metrics of node %s: %w", n.name, err)
	}
	fields := map[string]*float64{"go_goroutines": &h.goroutines, "process_open_fds": &h.descriptors,
		"process_resident_memory_bytes": &h.residentB}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if to := fields[name]; to != nil {
			if *to, err = strconv.ParseFloat(value, 64); err != nil {
				return h, fmt.Errorf("the metrics of node %s: %w", n.name, err)
			}
			delete(fields, name)
		}
	}
	if len(fields) > 0 {
		return h, fmt.Errorf("the metrics of node %s lack %d of what a process holds", n.name, len(fields))
	}
	err = filepath.WalkDir(n.path("state"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it may be gone by now
		}
		if info, err := d.Info(); err == nil {
			h.stateB += float64(info.Size())
		}
		return nil
	})
	return h, err
}

// slack is what a node may hold more than before, at rest, without leaking:
// idle connections and their goroutines.
const slack = 24

// atRest waits until a node holds about what it held before.
func (n *node) atRest(ctx context.Context, before held) error {
	var now held
	var err error
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); {
		now, err = n.holds(ctx)
		if err == nil && now.goroutines <= before.goroutines+slack && now.descriptors <= before.descriptors+slack {
			return nil
		}
		if !pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("node %s at rest has %.0f goroutines and %.0f descriptors, before all this %.0f and %.0f",
		n.name, now.goroutines, now.descriptors, before.goroutines, before.descriptors)
}

// slopes are what a node's holdings grew by, from the median of the first
// third of the samples to that of the last: what goes up and down with the
// jobs does not matter, what only goes up does.
type slopes struct{ goroutines, descriptors, residentB, stateB float64 }

func slopesOf(samples []held) slopes {
	third := len(samples) / 3
	growth := func(of func(held) float64) float64 {
		return median(samples[len(samples)-third:], of) - median(samples[:third], of)
	}
	return slopes{
		growth(func(h held) float64 { return h.goroutines }), growth(func(h held) float64 { return h.descriptors }),
		growth(func(h held) float64 { return h.residentB }), growth(func(h held) float64 { return h.stateB }),
	}
}

func median(samples []held, of func(held) float64) float64 {
	values := make([]float64, len(samples))
	for i, h := range samples {
		values[i] = of(h)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// most is what slopes may be and still be about zero.
var most = slopes{goroutines: 2 * slack, descriptors: 2 * slack, residentB: 48 << 20, stateB: 8 << 20}

// problem says which slope is not about zero.
func (s slopes) problem() string {
	var all []string
	for _, x := range []struct {
		what     string
		is, most float64
	}{
		{"goroutines", s.goroutines, most.goroutines}, {"descriptors", s.descriptors, most.descriptors},
		{"resident bytes", s.residentB, most.residentB}, {"bytes of state", s.stateB, most.stateB},
	} {
		if x.is > x.most {
			all = append(all, fmt.Sprintf("%.0f %s more (%.0f would be noise)", x.is, x.what, x.most))
		}
	}
	return strings.Join(all, ", ")
}

func (s slopes) String() string {
	return fmt.Sprintf("goroutines %+.0f, descriptors %+.0f, memory %+.1f MiB, state %+.1f MiB",
		s.goroutines, s.descriptors, s.residentB/(1<<20), s.stateB/(1<<20))
}
