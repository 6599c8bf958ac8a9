//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mover/client"
	"mover/job"
)

// inspect looks at both nodes once every job has ended: do they work, is
// nothing left, nothing damaged, nothing said that must not be.
func (t *run) inspect(ctx context.Context, before [2]held) {
	t.calmOrders(ctx, "after")
	for i, n := range t.nodes {
		t.noneLive(ctx, n)
		if err := n.atRest(ctx, before[i]); err != nil {
			t.wrong("%v", err)
		}
		t.slopes(n, t.samples[i])
		for _, s := range t.shared[n.name] {
			problem, err := s.check()
			if err != nil {
				t.wrong("%v", err)
			}
			if problem != "" {
				t.counts.wrongPlaces.Add(1)
				t.wrong("WRONG BYTES: %s", problem)
			}
		}
		t.noPartials(ctx, n)
		t.noStrangers(n)
		t.sourcesUntouched(n)
	}
	for _, n := range t.nodes {
		n.stop()
		if err := t.readLog(n); err != nil {
			t.wrong("%v", err)
		}
	}
}

// noneLive makes sure that no job is left that no customer knows of, and that
// nothing is being received.
func (t *run) noneLive(ctx context.Context, n *node) {
	live := []job.State{job.Queued, job.Preparing, job.Running, job.Verifying, job.Publishing, job.Paused, job.Canceling}
	list, err := n.client.List(ctx, client.ListOptions{States: live})
	if err != nil {
		t.wrong("node %s does not list its jobs: %v", n.name, err)
	}
	for _, j := range list.Jobs {
		t.wrong("job %s is still %s on node %s, all have ended", j.ID, j.State, n.name)
	}
	for end := time.Now().Add(time.Minute); ; {
		receiving, err := n.client.Receiving(ctx, client.ListOptions{States: live})
		if err == nil && len(receiving.Jobs) == 0 {
			return
		}
		if time.Now().After(end) || !pause(ctx, time.Second) {
			t.wrong("node %s still receives %d items, all jobs have ended (%v)", n.name, len(receiving.Jobs), err)
			return
		}
	}
}

// slopes compares what a node held over the second half of a long run.
func (t *run) slopes(n *node, samples []held) {
	if len(samples) < 30 {
		return
	}
	s := slopesOf(samples)
	fmt.Printf("torture: node %s, %d samples over %v: %v\n", n.name, len(samples),
		samples[len(samples)-1].at.Sub(samples[0].at).Round(time.Second), s)
	if problem := s.problem(); problem != "" {
		t.wrong("node %s grows: %s", n.name, problem)
	}
}

// noPartials waits until no partial file is left, which takes as long as the
// other side's ended attempts take to be noticed.
func (t *run) noPartials(ctx context.Context, n *node) {
	for end := time.Now().Add(time.Minute); ; {
		var left []string
		for _, root := range []string{"incoming", "small"} {
			err := filepath.WalkDir(n.path(root), func(path string, d fs.DirEntry, err error) error {
				if err == nil && isPartial(d.Name()) {
					left = append(left, path)
				}
				return nil
			})
			if err != nil {
				t.wrong("%v", err)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) || !pause(ctx, time.Second) {
			t.wrong("node %s: %d partial files are left, all jobs have ended: %s", n.name, len(left), left[0])
			return
		}
	}
}

// noStrangers looks for what should not be at the destinations: other names
// than the jobs', and what was removed after its job had succeeded, which then
// was published twice.
func (t *run) noStrangers(n *node) {
	known := map[string]bool{}
	for _, s := range t.shared[n.name] {
		known[s.path()] = true
	}
	for _, dir := range []string{n.path("incoming"), n.path("small", smallRoot)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.wrong("looking for strangers: %v", err)
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if known[path] || isPartial(e.Name()) {
				continue
			}
			if problem := t.stranger(path); problem != "" {
				t.wrong("%s: %s", path, problem)
			}
		}
	}
}

// stranger says what is wrong with a destination that is there at the end.
func (t *run) stranger(path string) string {
	t.mu.Lock()
	end, ok := t.own[path]
	t.mu.Unlock()
	found, partials, err := look(path)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "no job has this destination"
	case end.succeeded && partials == 0:
		return fmt.Sprintf("%v had succeeded, and was removed; it is there again", end.order)
	}
	// A job that was given up may have been published after it had ended.
	return end.order.want.hasAll(found)
}

// sourcesUntouched makes sure that what the jobs read is what it was.
func (t *run) sourcesUntouched(n *node) {
	s := t.sources[n.name]
	for _, list := range [][]*source{s.files, s.trees, s.versions, s.treeVersions} {
		for _, src := range list {
			found, _, err := look(n.path("data", src.name))
			if err != nil {
				t.wrong("%v", err)
				continue
			}
			if problem := src.has.differs(found); problem != "" {
				t.wrong("the source %s of node %s was changed: %s", src.name, n.name, problem)
			}
		}
	}
}

// alarms are what a log must not have.
var alarms = []string{"panic:", "DATA RACE", "fatal error:", "SIGSEGV"}

// readLog looks for alarms in a node's log.
func (t *run) readLog(n *node) error {
	f, err := os.Open(n.logFile())
	if err != nil {
		return fmt.Errorf("the log of node %s: %w", n.name, err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		for _, alarm := range alarms {
			if strings.Contains(line, alarm) {
				t.wrongOnce(n.name+alarm, "the log of node %s has %q: %s", n.name, alarm, strings.TrimSpace(line))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the log of node %s: %w", n.name, err)
		}
	}
}
