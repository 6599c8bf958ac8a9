//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"mover/job"
)

// counts is what was done and what came of it.
type counts struct {
	kills, restarts, stops, cuts, stalls, fills atomic.Int64
	jobs, resubmits, bytes, glances             atomic.Int64
	wrongPlaces                                 atomic.Int64 // destinations with other bytes than they may have

	mu   sync.Mutex
	acts map[string]int
	ends map[job.State]int
}

func (c *counts) act(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acts == nil {
		c.acts = map[string]int{}
	}
	c.acts[what]++
}

func (c *counts) ended(as job.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends == nil {
		c.ends = map[job.State]int{}
	}
	c.ends[as]++
}

// String is one or more lines of all counts.
func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var acts, ends []string
	for _, what := range slices.Sorted(maps.Keys(c.acts)) {
		acts = append(acts, fmt.Sprintf("%d %s", c.acts[what], what))
	}
	for _, state := range slices.Sorted(maps.Keys(c.ends)) {
		ends = append(ends, fmt.Sprintf("%d %s", c.ends[state], state))
	}
	return fmt.Sprintf("%d kills and %d restarts survived, %d stops, %d connections cut, %d stalled, %d times the disk full\n"+
		"torture: %d jobs: %s; asked of them: %s; %d submits repeated\n"+
		"torture: %d MiB moved and compared, %d looks at what was being overwritten; places with wrong bytes: %d",
		c.kills.Load(), c.restarts.Load(), c.stops.Load(), c.cuts.Load(), c.stalls.Load(), c.fills.Load(),
		c.jobs.Load(), strings.Join(ends, ", "), strings.Join(acts, ", "), c.resubmits.Load(),
		c.bytes.Load()>>20, c.glances.Load(), c.wrongPlaces.Load())
}

func (c *counts) endedAs(s job.State) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends[s]
}
