package node

import (
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// registerMetrics registers what the node itself counts; the API registers its
// own. Labels are bounded: pollers, NUMA nodes, peers, devices, ports,
// providers, codes. docs/metrics.md lists them all.
func (n *Node) registerMetrics() error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		withoutNetwork{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})},
		&nodeCollector{n}, &pathCollector{n.path}, &railCollector{n.sessions, n.path},
		&portCollector{n.hardware},
		n.sessions.attempts, n.sessions.made,
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

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("mover_"+name, help, labels, nil)
}

// gauge sends the present value of something.
func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

// counter sends a value that only grows.
func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func describe(ch chan<- *prometheus.Desc, all ...*prometheus.Desc) {
	for _, d := range all {
		ch <- d
	}
}

// nodeCollector has what belongs to no part of the data path.
type nodeCollector struct{ node *Node }

var (
	descBuild       = desc("build_info", "This program; always 1.", "version", "go")
	descDevice      = desc("device_info", "Devices in use; always 1. fallback is true when software verbs stand in for hardware.", "device", "provider", "fallback")
	descSessions    = desc("sessions", "Sessions with peers that are up.")
	descCertificate = desc("certificate_expiry_timestamp_seconds", "When the first of the certificates in use expires: of the node's own chain, of the API's, of the file of CAs.", "certificate")
	descBuffers     = desc("buffers", "Buffers of this node.")
	descBufferBytes = desc("buffer_bytes", "Memory that the buffers of this node take, in whole pages.")
	descBufferLease = desc("buffer_leases", "Ranges of buffers that jobs and clients have leased.")
	descBufferBad   = desc("buffers_unavailable", "Buffers that cannot be leased; the API says why.")
)

// Describe implements prometheus.Collector.
func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, descBuild, descDevice, descSessions, descCertificate, descBuffers, descBufferBytes, descBufferLease, descBufferBad)
}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.node
	gauge(ch, descBuild, 1, n.version, runtime.Version())
	s := n.path.Selection()
	for _, d := range s.Used() {
		gauge(ch, descDevice, 1, d.Name, d.Provider, strconv.FormatBool(s.Fallback))
	}
	gauge(ch, descSessions, float64(len(n.control.Sessions())))
	for name, end := range n.certificateEnds() {
		gauge(ch, descCertificate, float64(end.Unix()), name)
	}
	c.collectBuffers(ch)
}

func (c *nodeCollector) collectBuffers(ch chan<- prometheus.Metric) {
	var count, leases, bad int
	var bytes int64
	for _, b := range c.node.buffers.List() {
		count++
		bytes += b.MappedBytes
		leases += len(b.Leases)
		if b.Problem != "" {
			bad++
		}
	}
	gauge(ch, descBuffers, float64(count))
	gauge(ch, descBufferBytes, float64(bytes))
	gauge(ch, descBufferLease, float64(leases))
	gauge(ch, descBufferBad, float64(bad))
}
