package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// registerMetrics registers what the node itself counts; the API registers its
// own. Labels are bounded: pollers, devices, providers.
func (n *Node) registerMetrics() error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&pathCollector{n},
	} {
		if err := n.registry.Register(c); err != nil {
			return err
		}
	}
	return nil
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
	descDevice   = desc("device_info", "Devices in use; fallback is 1 when software verbs stand in for hardware.", "device", "provider", "fallback")
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
}
