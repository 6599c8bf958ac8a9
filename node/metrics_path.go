package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"mover/node/datapath"
)

// pathCollector reads the pollers' counters and the arenas when it is asked;
// the hot loop knows nothing of Prometheus.
type pathCollector struct{ path *datapath.Path }

var (
	descSteps    = desc("poller_steps_total", "Rounds of the poller's loop.", "poller")
	descEmpty    = desc("poller_empty_steps_total", "Rounds that found nothing to do.", "poller")
	descParks    = desc("poller_parks_total", "Times that an idle poller slept.", "poller")
	descCPU      = desc("poller_cpu_seconds_total", "Processor time of the poller's thread; absent where the kernel does not tell.", "poller")
	descBusy     = desc("poller_busy_seconds_total", "Time of the rounds that found something to do: its rate is the busy ratio.", "poller")
	descGap      = desc("poller_step_gap_seconds", "Time between two rounds of a poller that does not sleep.", "poller")
	descLongest  = desc("poller_longest_gap_seconds", "The longest time between two rounds since the start.", "poller")
	descPosts    = desc("poller_posts_total", "Send work requests posted.", "poller")
	descBells    = desc("poller_doorbells_total", "Chains of send work requests posted.", "poller")
	descSent     = desc("poller_sent_bytes_total", "Bytes posted, trailers included.", "poller")
	descReceived = desc("poller_received_bytes_total", "Bytes received, trailers included.", "poller")
	descSlots    = desc("poller_slots_total", "Slots written to peers.", "poller")
	descSegments = desc("poller_segments_total", "Segments written to peers.", "poller")
	descCredits  = desc("poller_credits_total", "Credits sent to peers.", "poller")
	descLanes    = desc("poller_lanes", "Lanes that the poller polls, those for credits included.", "poller")
	descErrors   = desc("poller_lane_errors_total", "Lanes that failed; not those of a session that ended in order.", "poller")
	descResent   = desc("poller_resent_total", "Slots and segments sent again after a lane was lost.", "poller")

	descArena        = desc("arena_bytes", "Registered memory for sessions.", "numa_node")
	descArenaFree    = desc("arena_free_bytes", "Of arena_bytes, what no session has leased.", "numa_node")
	descArenaLargest = desc("arena_largest_free_bytes", "The largest free piece of the arena: a session's share is one piece.", "numa_node")
	descArenaShares  = desc("arena_shares", "Shares of the arena that sessions have leased.", "numa_node")
)

// Describe implements prometheus.Collector.
func (c *pathCollector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, descSteps, descEmpty, descParks, descCPU, descBusy, descGap, descLongest, descPosts, descBells, descSent, descReceived,
		descSlots, descSegments, descCredits, descLanes, descErrors, descResent, descArena, descArenaFree, descArenaLargest, descArenaShares)
}

// Collect implements prometheus.Collector.
func (c *pathCollector) Collect(ch chan<- prometheus.Metric) {
	for i, p := range c.path.Stats() {
		collectPoller(ch, strconv.Itoa(i), p)
	}
	for _, a := range c.path.Arenas() {
		node := strconv.Itoa(a.Node)
		gauge(ch, descArena, float64(a.Bytes), node)
		gauge(ch, descArenaFree, float64(a.Free), node)
		gauge(ch, descArenaLargest, float64(a.LargestFree), node)
		gauge(ch, descArenaShares, float64(a.Shares), node)
	}
}

func collectPoller(ch chan<- prometheus.Metric, poller string, p datapath.PollerStats) {
	for _, m := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{
		{descSteps, p.Engine.Steps.Load()}, {descEmpty, p.Engine.EmptySteps.Load()}, {descParks, p.Thread.Parks.Load()},
		{descPosts, p.Engine.Posts.Load()}, {descBells, p.Engine.Doorbells.Load()}, {descSent, p.Engine.SentBytes.Load()},
		{descReceived, p.Engine.RecvBytes.Load()}, {descSlots, p.Engine.Slots.Load()}, {descSegments, p.Engine.Segments.Load()},
		{descCredits, p.Engine.Credits.Load()}, {descErrors, p.Engine.LaneErrors.Load()}, {descResent, p.Engine.Resent.Load()},
	} {
		counter(ch, m.desc, float64(m.value), poller)
	}
	if seconds, known := p.Thread.CPUSeconds(); known {
		counter(ch, descCPU, seconds, poller)
	}
	counter(ch, descBusy, p.Thread.Busy().Seconds(), poller)
	gauge(ch, descLongest, p.Thread.LongestGap().Seconds(), poller)
	gauge(ch, descLanes, float64(p.Engine.Lanes.Load()), poller)
	count, sum, buckets := p.Thread.GapHistogram()
	ch <- prometheus.MustNewConstHistogram(descGap, count, sum, buckets, poller)
}
