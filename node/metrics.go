package node

import (
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// registerMetrics registers what the node itself counts; the API registers its
// own. Labels are bounded: pollers, peers, devices, ports, providers.
func (n *Node) registerMetrics() error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		withoutNetwork{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})},
		&pathCollector{n},
	} {
		if err := n.registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// withoutNetwork leaves out process_network_*: proc_pid_net(5) counts for all
// of the network namespace, so that the figures say nothing of this process.
type withoutNetwork struct{ all prometheus.Collector }

// Describe implements prometheus.Collector.
func (w withoutNetwork) Describe(ch chan<- *prometheus.Desc) {
	filter(w.all.Describe, ch, func(d *prometheus.Desc) *prometheus.Desc { return d })
}

// Collect implements prometheus.Collector.
func (w withoutNetwork) Collect(ch chan<- prometheus.Metric) {
	filter(w.all.Collect, ch, prometheus.Metric.Desc)
}

func filter[T any](from func(chan<- T), to chan<- T, desc func(T) *prometheus.Desc) {
	all := make(chan T)
	go func() {
		defer close(all)
		from(all)
	}()
	for v := range all {
		if !strings.Contains(desc(v).String(), `fqName: "process_network_`) {
			to <- v
		}
	}
}

// pathCollector reads the pollers' counters when it is asked; the hot loop
// knows nothing of Prometheus.
type pathCollector struct{ node *Node }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("mover_"+name, help, labels, nil)
}

var (
	descSteps    = desc("poller_steps_total", "Rounds of the poller's loop.", "poller")
	descEmpty    = desc("poller_empty_steps_total", "Rounds that found nothing to do.", "poller")
	descParks    = desc("poller_parks_total", "Times that an idle poller slept.", "poller")
	descGap      = desc("poller_step_gap_seconds", "Time between two rounds of a busy poller.", "poller")
	descPosts    = desc("poller_posts_total", "Send work requests posted.", "poller")
	descBells    = desc("poller_doorbells_total", "Chains of send work requests posted.", "poller")
	descSent     = desc("poller_sent_bytes_total", "Bytes posted, trailers included.", "poller")
	descReceived = desc("poller_received_bytes_total", "Bytes received, trailers included.", "poller")
	descSlots    = desc("poller_slots_total", "Slots written to peers.", "poller")
	descSegments = desc("poller_segments_total", "Segments written to peers.", "poller")
	descCredits  = desc("poller_credits_total", "Credits sent to peers.", "poller")
	descErrors   = desc("poller_lane_errors_total", "Lanes that failed.", "poller")
	descResent   = desc("poller_resent_total", "Slots and segments sent again after a lane was lost.", "poller")
	descArena    = desc("arena_bytes", "Registered memory of this node.")
	descDevice   = desc("device_info", "Devices in use; fallback is true when software verbs stand in for hardware.", "device", "provider", "fallback")
	descBuild    = desc("build_info", "This program; always 1.", "version", "go")
	descRailInfo = desc("rail_info", "Rails of the sessions there are; always 1. fallback is true when software verbs stand in for hardware.",
		"peer", "local_device", "local_port", "remote_device", "remote_port", "provider", "fallback")
	descRailSent = desc("rail_sent_bytes_total", "Bytes sent to a peer through a port here, since the session began.", "peer", "device", "port")
	descRailRecv = desc("rail_received_bytes_total", "Bytes received from a peer through a port here, since the session began.", "peer", "device", "port")
	descRailUp   = desc("rail_lanes_up", "Lanes with a peer through a port here that are up.", "peer", "device", "port")
	descSessions = desc("sessions", "Sessions with peers that are up.")
)

// Describe implements prometheus.Collector.
func (c *pathCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *pathCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.node
	for i, p := range n.path.Stats() {
		poller := strconv.Itoa(i)
		for _, m := range []struct {
			desc  *prometheus.Desc
			value uint64
		}{
			{descSteps, p.Engine.Steps.Load()}, {descEmpty, p.Engine.EmptySteps.Load()}, {descParks, p.Thread.Parks.Load()},
			{descPosts, p.Engine.Posts.Load()}, {descBells, p.Engine.Doorbells.Load()}, {descSent, p.Engine.SentBytes.Load()},
			{descReceived, p.Engine.RecvBytes.Load()}, {descSlots, p.Engine.Slots.Load()}, {descSegments, p.Engine.Segments.Load()},
			{descCredits, p.Engine.Credits.Load()}, {descErrors, p.Engine.LaneErrors.Load()}, {descResent, p.Engine.Resent.Load()},
		} {
			ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value), poller)
		}
		count, sum, buckets := p.Thread.GapHistogram()
		ch <- prometheus.MustNewConstHistogram(descGap, count, sum, buckets, poller)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descArena, float64(n.path.ArenaBytes()))
	gauge(descSessions, float64(len(n.control.Sessions())))
	s := n.path.Selection()
	for _, d := range s.Used() {
		gauge(descDevice, 1, d.Name, d.Provider, strconv.FormatBool(s.Fallback))
	}
	gauge(descBuild, 1, n.version, runtime.Version())
	c.collectRails(ch)
}

// railInfo are the labels of a rail.
type railInfo struct{ peer, device, port, remoteDevice, remotePort, provider string }

// collectRails sums by peer and local port: while a connection is replaced a
// peer has two sessions, and one series must not come twice.
func (c *pathCollector) collectRails(ch chan<- prometheus.Metric) {
	type key struct{ peer, device, port string }
	type sum struct {
		sent, received uint64
		up             int
	}
	sums := map[key]sum{}
	infos := map[railInfo]bool{}
	for _, s := range c.node.sessions.all() {
		for _, r := range s.link.Session().Rails() {
			k := key{s.link.Conn().Peer().Name, r.Local.Device, strconv.Itoa(int(r.Local.Port))}
			infos[railInfo{k.peer, k.device, k.port, r.Remote.Device, strconv.Itoa(int(r.Remote.Port)), r.Local.Provider}] = true
			v := sums[k]
			v.sent += r.SentBytes.Load()
			v.received += r.RecvBytes.Load()
			v.up += int(r.LanesUp.Load())
			sums[k] = v
		}
	}
	fallback := strconv.FormatBool(c.node.path.Selection().Fallback)
	for i := range infos {
		ch <- prometheus.MustNewConstMetric(descRailInfo, prometheus.GaugeValue, 1,
			i.peer, i.device, i.port, i.remoteDevice, i.remotePort, i.provider, fallback)
	}
	for k, v := range sums {
		ch <- prometheus.MustNewConstMetric(descRailSent, prometheus.CounterValue, float64(v.sent), k.peer, k.device, k.port)
		ch <- prometheus.MustNewConstMetric(descRailRecv, prometheus.CounterValue, float64(v.received), k.peer, k.device, k.port)
		ch <- prometheus.MustNewConstMetric(descRailUp, prometheus.GaugeValue, float64(v.up), k.peer, k.device, k.port)
	}
}
