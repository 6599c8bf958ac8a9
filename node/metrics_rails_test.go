package node

import (
	"fmt"
	"testing"

	"mover/engine"
)

// railOf is a rail that counted.
func railOf(device string, port uint8, sent uint64, lanes int) *engine.Rail {
	r := &engine.Rail{Local: engine.PortOffer{Device: device, Port: port}, Lanes: lanes}
	r.SentBytes.Store(sent)
	r.LaneErrors.Store(1)
	r.LanesUp.Store(int64(lanes))
	return r
}

// TestRailCountersNeverFall: when one of two sessions with a peer ends, as when
// a connection is replaced, and when the last one has ended.
func TestRailCountersNeverFall(t *testing.T) {
	past := railTotals{}
	key := railKey{"b", "mlx5_0", "1"}
	// Two rails of a port go to two ports of the peer.
	old := []*engine.Rail{railOf("mlx5_0", 1, 100, 4), railOf("mlx5_0", 1, 10, 4), railOf("mlx5_1", 1, 1000, 4)}
	fresh := []*engine.Rail{railOf("mlx5_0", 1, 5, 4)}
	look := func(live ...[]*engine.Rail) railTotal {
		totals := railTotals{}
		for k, v := range past {
			totals[k] = v
		}
		for _, rails := range live {
			totals.with("b", rails)
		}
		return totals[key]
	}
	both := look(old, fresh)
	if both != (railTotal{sent: 115, errors: 3, lanes: 12, up: 12, live: true}) {
		t.Fatalf("two sessions: %+v", both)
	}
	past.end("b", old)
	if got := look(fresh); got != (railTotal{sent: 115, errors: 3, lanes: 4, up: 4, live: true}) {
		t.Errorf("the first has ended: %+v", got)
	}
	fresh[0].SentBytes.Add(1)
	past.end("b", fresh)
	if got := look(); got != (railTotal{sent: 116, errors: 3}) {
		t.Errorf("both have ended: %+v", got)
	}
	if got := past[railKey{"b", "mlx5_1", "1"}].sent; got != 1000 {
		t.Errorf("the other port: %d", got)
	}
}

// TestPeerLabels: what a job names becomes a label only if it is a peer's name,
// and their number is bounded.
func TestPeerLabels(t *testing.T) {
	p := newPeerLabels(func(name string) bool { return name == "listed" })
	for _, c := range []struct {
		name   string
		proved bool
		want   string
	}{
		{"listed", false, "listed"}, {"made-up", false, otherPeer}, {"by-ca", false, otherPeer},
		{"by-ca", true, "by-ca"}, {"by-ca", false, "by-ca"}, {"made-up", false, otherPeer},
	} {
		if got := p.of(c.name, c.proved); got != c.want {
			t.Errorf("%s, proved %v: %s, want %s", c.name, c.proved, got, c.want)
		}
	}
	values := map[string]bool{}
	for i := range 2 * maxPeerLabels {
		values[p.of(fmt.Sprint("p", i), true)] = true
	}
	if len(p.known) != maxPeerLabels || !values[otherPeer] || p.of("by-ca", false) != "by-ca" {
		t.Errorf("%d labels, of which 2 are not of these; other: %v", len(p.known), values[otherPeer])
	}
}
