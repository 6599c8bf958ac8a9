package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"mover/engine"
	"mover/node/datapath"
)

// railCollector reads the counters of the sessions' rails.
type railCollector struct {
	sessions *sessions
	path     *datapath.Path
}

var (
	descRailInfo = desc("rail_info", "Rails of the sessions there are; always 1. fallback is true when software verbs stand in for hardware.",
		"peer", "local_device", "local_port", "remote_device", "remote_port", "provider", "fallback")
	descRailSent   = desc("rail_sent_bytes_total", "Bytes sent to a peer through a port here, trailers included.", "peer", "device", "port")
	descRailRecv   = desc("rail_received_bytes_total", "Bytes received from a peer through a port here, trailers included.", "peer", "device", "port")
	descRailErrors = desc("rail_lane_errors_total", "Lanes with a peer through a port here that failed; not those of a session that ended in order.", "peer", "device", "port")
	descRailLanes  = desc("rail_lanes", "Lanes with a peer through a port here that a session has, without those for credits.", "peer", "device", "port")
	descRailUp     = desc("rail_lanes_up", "Of rail_lanes, those that are up.", "peer", "device", "port")
)

// railKey are the labels of what a rail counts. Two rails of a port, and two
// sessions while one takes the other's place, count as one.
type railKey struct{ peer, device, port string }

// railTotal is what the rails of a key counted. Only the first three outlive a
// session.
type railTotal struct {
	sent, received, errors uint64
	lanes, up              int
	live                   bool
}

// add adds a session's rails.
func (t *railTotal) add(r *engine.Rail) {
	t.sent += r.SentBytes.Load()
	t.received += r.RecvBytes.Load()
	t.errors += r.LaneErrors.Load()
}

// railTotals are totals by key. Keys are bounded by peerLabels and the ports of
// this host.
type railTotals map[railKey]railTotal

// end keeps what the rails of a session that is over counted: else the counters
// of its peer would fall.
func (t railTotals) end(peer string, rails []*engine.Rail) {
	for _, r := range rails {
		k := keyOfRail(peer, r)
		v := t[k]
		v.add(r)
		t[k] = v
	}
}

// with are the totals with those of a session under way.
func (t railTotals) with(peer string, rails []*engine.Rail) {
	for _, r := range rails {
		k := keyOfRail(peer, r)
		v := t[k]
		v.add(r)
		v.lanes += r.Lanes
		v.up += int(r.LanesUp.Load())
		v.live = true
		t[k] = v
	}
}

func keyOfRail(peer string, r *engine.Rail) railKey {
	return railKey{peer, r.Local.Device, strconv.Itoa(int(r.Local.Port))}
}

// Describe implements prometheus.Collector.
func (c *railCollector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, descRailInfo, descRailSent, descRailRecv, descRailErrors, descRailLanes, descRailUp)
}

// railInfo are the labels of a rail.
type railInfo struct{ peer, device, port, remoteDevice, remotePort, provider string }

// Collect implements prometheus.Collector.
func (c *railCollector) Collect(ch chan<- prometheus.Metric) {
	totals, infos := c.sessions.rails()
	fallback := strconv.FormatBool(c.path.Selection().Fallback)
	for i := range infos {
		gauge(ch, descRailInfo, 1, i.peer, i.device, i.port, i.remoteDevice, i.remotePort, i.provider, fallback)
	}
	for k, v := range totals {
		counter(ch, descRailSent, float64(v.sent), k.peer, k.device, k.port)
		counter(ch, descRailRecv, float64(v.received), k.peer, k.device, k.port)
		counter(ch, descRailErrors, float64(v.errors), k.peer, k.device, k.port)
		if v.live {
			gauge(ch, descRailLanes, float64(v.lanes), k.peer, k.device, k.port)
			gauge(ch, descRailUp, float64(v.up), k.peer, k.device, k.port)
		}
	}
}
