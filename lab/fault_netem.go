package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// faultNetemScenarios let packets get lost, broken, late and out of order
// (tc-netem(8)), on both rails in both directions. A device's retransmission
// works in the adapter on hardware; here it is rxe's.
func faultNetemScenarios() []scenario {
	return []scenario{
		{name: "fault-netem", deadline: 6 * time.Minute, run: netem},
	}
}

// netemFault is one way in which a network is bad.
type netemFault struct {
	name string
	args []string // of netem
	// happened fails unless the counters show it.
	happened func(before, after netCounters) error
}

// netemFaults are mild enough for a transfer to get through: a rail that loses
// every tenth packet is broken, and that is another scenario.
func netemFaults() []netemFault {
	return []netemFault{
		{"loss", []string{"loss", "1%"}, func(before, after netCounters) error {
			if after.dropped == 0 {
				return fmt.Errorf("netem dropped nothing")
			}
			return movedAny(before, after, "out_of_seq_request", "rcvd_seq_err")
		}},
		{"corruption", []string{"corrupt", "1%"}, func(before, after netCounters) error {
			// netem does not count what it breaks; rxe drops what fails its
			// check of the packet, and then misses it.
			return movedAny(before, after, "out_of_seq_request", "rcvd_seq_err")
		}},
		{"reordering", []string{"delay", "3ms", "reorder", "97%"}, func(before, after netCounters) error {
			return movedAny(before, after, "out_of_seq_request", "rcvd_seq_err")
		}},
		// Without jitter, which would be reordering.
		{"delay", []string{"delay", "10ms"}, func(before, after netCounters) error {
			if after.roundTrip < 20*time.Millisecond || after.roundTrip < before.roundTrip+10*time.Millisecond {
				return fmt.Errorf("a round trip takes %v, before %v", after.roundTrip, before.roundTrip)
			}
			return nil
		}},
	}
}

// netem moves a file through each kind of bad network.
func netem(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	for _, f := range netemFaults() {
		if err := l.netem(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return l.bothRailsBack(ctx)
}

const netemBytes = 8 << 20

func (l *Lab) netem(ctx context.Context, f netemFault) error {
	before, err := l.netCounters(ctx)
	if err != nil {
		return err
	}
	if err := l.eachCard(func(n *Node, card string) error {
		// More than rxe's window of packets, so that the queue itself drops none.
		_, err := n.Run(ctx, append([]string{"tc", "qdisc", "add", "dev", card, "root", "netem", "limit", "10000"}, f.args...)...)
		return err
	}); err != nil {
		return err
	}
	l.Step("%s on every card: netem %s", f.name, strings.Join(f.args, " "))
	t, err := l.transfer(ctx, "fault.bin", netemBytes)
	if err != nil {
		return err
	}
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	after, err := l.netCounters(ctx)
	if err != nil {
		return err
	}
	l.Step("counters: %s", after.since(before))
	if after.queued < netemBytes {
		return fmt.Errorf("%d bytes of %d went through netem", after.queued, netemBytes)
	}
	if err := f.happened(before, after); err != nil {
		return fmt.Errorf("the fault has not happened: %w", err)
	}
	return l.eachCard(func(n *Node, card string) error {
		_, err := n.Run(ctx, "tc", "qdisc", "del", "dev", card, "root")
		return err
	})
}

// eachCard calls f for every rail of both guests.
func (l *Lab) eachCard(f func(n *Node, card string) error) error {
	return l.Both(func(n *Node) error {
		for rail := range Rails {
			if err := f(n, "rail"+strconv.Itoa(rail)); err != nil {
				return err
			}
		}
		return nil
	})
}

// netCounters are sums over all cards and ports of both guests.
type netCounters struct {
	queued    int64            // bytes that netem let through; 0 without it
	dropped   int64            // packets that netem dropped
	port      map[string]int64 // hw_counters and statistics of the card
	roundTrip time.Duration    // of ping over rail 0
}

func (c netCounters) since(before netCounters) string {
	text := fmt.Sprintf("%.1f MB through netem, %d packets dropped, round trip %.1f ms", float64(c.queued)/1e6, c.dropped,
		c.roundTrip.Seconds()*1e3)
	for _, name := range []string{"sent_pkts", "out_of_seq_request", "rcvd_seq_err", "duplicate_request", "completer_retry_err", "retry_exceeded_err"} {
		text += fmt.Sprintf(", %s +%d", name, c.port[name]-before.port[name])
	}
	return text
}

// movedAny fails unless one of the ports' counters has moved beyond a few.
// Counters of timeouts and repeats prove nothing: an emulated, late CPU moves
// them by itself.
func movedAny(before, after netCounters, names ...string) error {
	const few = 5
	for _, name := range names {
		if after.port[name]-before.port[name] > few {
			return nil
		}
	}
	return fmt.Errorf("none of the counters %s has moved", strings.Join(names, ", "))
}

func (l *Lab) netCounters(ctx context.Context) (netCounters, error) {
	c := netCounters{port: map[string]int64{}}
	for _, n := range []*Node{l.A, l.B} {
		for rail := range Rails {
			counters, err := n.PortCounters(ctx, rail)
			if err != nil {
				return c, err
			}
			for name, value := range counters {
				c.port[name] += value
			}
			var disciplines []qdisc
			if err := n.runJSON(ctx, &disciplines, "tc", "-s", "-j", "qdisc", "show", "dev", "rail"+strconv.Itoa(rail)); err != nil {
				return c, err
			}
			for _, d := range disciplines {
				if d.Kind == "netem" {
					c.queued, c.dropped = c.queued+d.Bytes, c.dropped+d.Drops
				}
			}
		}
	}
	out, err := l.A.Run(ctx, "/run/lab/busybox", "ping", "-c", "3", l.B.Address(0))
	if err != nil {
		return c, err
	}
	c.roundTrip, err = parseRoundTrip(out)
	return c, err
}

// qdisc is what `tc -s -j qdisc` says of one.
type qdisc struct {
	Kind  string `json:"kind"`
	Bytes int64  `json:"bytes"` // sent
	Drops int64  `json:"drops"`
}

// parseRoundTrip reads the least of "round-trip min/avg/max = a/b/c ms".
func parseRoundTrip(text string) (time.Duration, error) {
	_, rest, _ := strings.Cut(text, "min/avg/max = ")
	least, _, ok := strings.Cut(rest, "/")
	ms, err := strconv.ParseFloat(least, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("no round trip in what ping prints: %q", text)
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}
