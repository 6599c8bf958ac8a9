package api

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mover/job"
)

// metrics are those of requests, and of the jobs, which are read when asked
// for. Every label has a bounded set of values: never an id, a path or a name.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(cfg Config) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mover_http_requests_total", Help: "Requests to the HTTP API, by route, method and status.",
		}, []string{"route", "method", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mover_http_request_seconds", Help: "Time to answer a request to the HTTP API, long polls included.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 30, 60},
		}, []string{"route", "method"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, &jobCollector{cfg.Queue, cfg.Receiving, cfg.Clock}} {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) request(route, method string, status int, took time.Duration) {
	method = methodLabel(method)
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route, method).Observe(took.Seconds())
}

// methodLabel bounds what a client may make of the method.
func methodLabel(method string) string {
	if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}, method) {
		return method
	}
	return "other"
}

// jobCollector reads the figures of the queue at the time of a scrape.
type jobCollector struct {
	queue     *job.Queue
	receiving *job.Receiving // may be nil
	clock     job.Clock      // that the jobs' times are of
}

var (
	jobsDesc          = prometheus.NewDesc("mover_jobs", "Jobs of this node, by state; ended ones as long as they are kept.", []string{"state"}, nil)
	attemptsDesc      = prometheus.NewDesc("mover_attempts_total", "Attempts at jobs that ended, by reason code; OK is success.", []string{"code"}, nil)
	runningDesc       = prometheus.NewDesc("mover_attempts_running", "Attempts at jobs under way.", nil, nil)
	bytesDesc         = prometheus.NewDesc("mover_job_bytes_total", "Bytes moved by attempts at jobs, those that failed included.", nil, nil)
	queueAgeDesc      = prometheus.NewDesc("mover_queue_age_seconds", "Time since the job was submitted that waits longest without ever having run; 0 when none does.", nil, nil)
	storeDesc         = prometheus.NewDesc("mover_queue_store_up", "1 while changes to jobs can be stored, 0 while they cannot and new jobs are refused.", nil, nil)
	drainingDesc      = prometheus.NewDesc("mover_draining", "1 while this node takes no new jobs because it was drained.", nil, nil)
	receivingDesc     = prometheus.NewDesc("mover_receiving_items", "Items that other nodes' jobs are bringing here.", nil, nil)
	receivedBytesDesc = prometheus.NewDesc("mover_received_bytes_total", "Bytes that other nodes' jobs brought here.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *jobCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobsDesc, attemptsDesc, runningDesc, bytesDesc, queueAgeDesc, storeDesc, drainingDesc, receivingDesc, receivedBytesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *jobCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.queue.Stats()
	for state, n := range s.Jobs {
		ch <- prometheus.MustNewConstMetric(jobsDesc, prometheus.GaugeValue, float64(n), string(state))
	}
	for code, n := range s.Attempts {
		if code == "" {
			code = "OK"
		}
		ch <- prometheus.MustNewConstMetric(attemptsDesc, prometheus.CounterValue, float64(n), string(code))
	}
	ch <- prometheus.MustNewConstMetric(runningDesc, prometheus.GaugeValue, float64(s.Running))
	ch <- prometheus.MustNewConstMetric(bytesDesc, prometheus.CounterValue, float64(s.Bytes))
	age := 0.0
	if !s.OldestQueued.IsZero() {
		age = max(c.clock.Now().Sub(s.OldestQueued).Seconds(), 0)
	}
	ch <- prometheus.MustNewConstMetric(queueAgeDesc, prometheus.GaugeValue, age)
	ch <- prometheus.MustNewConstMetric(storeDesc, prometheus.GaugeValue, oneIf(s.Store == nil))
	ch <- prometheus.MustNewConstMetric(drainingDesc, prometheus.GaugeValue, oneIf(s.Draining))
	if c.receiving != nil {
		ch <- prometheus.MustNewConstMetric(receivingDesc, prometheus.GaugeValue, float64(c.receiving.Live()))
		ch <- prometheus.MustNewConstMetric(receivedBytesDesc, prometheus.CounterValue, float64(c.receiving.Received()))
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
