//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// cutPeriod is how often a connection is cut while connections are being cut.
const cutPeriod = 250 * time.Millisecond

// faults runs every kind of fault side by side until ctx ends; each draws from
// its own numbers, so that none depends on when another acts. On return both
// nodes run, and nothing is stopped, stalled or full.
func (t *run) faults(ctx context.Context) {
	var kinds sync.WaitGroup
	for i, n := range t.nodes {
		kinds.Go(func() { t.assault(ctx, n, t.numbers("process", i)) })
		if t.disks[i].mounted {
			kinds.Go(func() { t.fillAndEmpty(ctx, t.disks[i], t.numbers("disk", i)) })
		}
	}
	kinds.Go(func() { t.cutConnections(ctx, t.numbers("cut", 0)) })
	kinds.Go(func() { t.glance(ctx, t.numbers("glance", 0)) })
	kinds.Wait()
}

// assault kills, stops and restarts one node, again and again. In the second
// half of a long run the processes live, so that what leaks can grow.
func (t *run) assault(ctx context.Context, n *node, r *rand.Rand) {
	for pause(ctx, between(r, time.Second, 7*time.Second)) {
		kind, wait := r.IntN(10), between(r, time.Millisecond, 2*time.Second)
		switch {
		case kind < 4:
			if t.spares() {
				continue
			}
			n.kill()
			t.counts.kills.Add(1)
		case kind < 5:
			if t.spares() {
				continue
			}
			n.stop()
			t.counts.restarts.Add(1)
		default:
			// Half of the stops are longer than stall_after.
			wait = between(r, 50*time.Millisecond, 2*stallAfter)
			n.signal(syscall.SIGSTOP, false)
			t.counts.stops.Add(1)
			pause(ctx, wait)
			n.signal(syscall.SIGCONT, false)
			continue
		}
		pause(ctx, wait)
		// Not with ctx: calm has to find the node running.
		if err := n.start(context.WithoutCancel(ctx)); err != nil {
			t.wrong("%v", err)
			return
		}
	}
}

// fillAndEmpty takes the room on a small disk and gives it back.
func (t *run) fillAndEmpty(ctx context.Context, d disk, r *rand.Rand) {
	defer d.empty()
	for pause(ctx, between(r, time.Second, 6*time.Second)) {
		if err := d.fill(r.Int64N(20 << 20)); err != nil {
			t.wrong("%v", err)
			return
		}
		t.counts.fills.Add(1)
		pause(ctx, between(r, time.Second, 5*time.Second))
		d.empty()
	}
}

// cutConnections has times of cutting, of stalling and of peace.
func (t *run) cutConnections(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		length := between(r, time.Second, 6*time.Second)
		switch r.IntN(6) {
		case 0, 1, 2, 3:
			t.cutting(ctx, r, length)
		case 4:
			t.stalling(ctx, r, length)
		default:
			pause(ctx, length)
		}
	}
}

// cutting cuts one connection after the other for some time: mostly of the
// data path, of which there are many, at times the control connection.
func (t *run) cutting(ctx context.Context, r *rand.Rand, length time.Duration) {
	for end := time.Now().Add(length); time.Now().Before(end) && pause(ctx, cutPeriod); {
		all := t.take(t.nodes[r.IntN(2)])
		control, pick := r.IntN(12) == 0, r.Uint32()
		var chosen []connection
		for _, c := range all {
			if c.control == control {
				chosen = append(chosen, c)
			}
		}
		if len(chosen) > 0 {
			chosen[int(pick)%len(chosen)].cut()
			t.counts.cuts.Add(1)
		}
		closeAll(all)
	}
}

// stalling holds up all connections of a node, or those of one kind, or one.
func (t *run) stalling(ctx context.Context, r *rand.Rand, length time.Duration) {
	all := t.take(t.nodes[r.IntN(2)])
	defer closeAll(all)
	which, pick := r.IntN(4), r.Uint32()
	for i, c := range all {
		if which == 0 && c.control || which == 1 && !c.control || which == 2 && i != int(pick)%len(all) {
			continue
		}
		c.stall()
		defer c.release()
		t.counts.stalls.Add(1)
	}
	pause(ctx, length)
}

// take is connections, of which a failure is reported once.
func (t *run) take(n *node) []connection {
	all, err := n.connections([2]int{t.nodes[0].controlPort, t.nodes[1].controlPort})
	if err != nil {
		t.wrongOnce("connections", "connections cannot be cut here; in a container it takes --cap-add SYS_PTRACE: %v", err)
	}
	return all
}

// glance looks at shared destinations while jobs overwrite them.
func (t *run) glance(ctx context.Context, r *rand.Rand) {
	for pause(ctx, 200*time.Millisecond) {
		all := t.shared[t.nodes[r.IntN(2)].name]
		problem, err := all[r.IntN(len(all))].glance(r)
		if err != nil {
			t.wrong("%v", err)
		}
		if problem != "" {
			t.counts.wrongPlaces.Add(1)
			t.wrong("WRONG BYTES: %s", problem)
		}
		t.counts.glances.Add(1)
	}
}
