package node

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mover/node/device"
)

// hardwarePort names a port of a device of libibverbs.
type hardwarePort struct {
	device string
	number uint8
}

// hardwarePorts are the ports in use that the kernel may keep counters of:
// those of software verbs have none.
func hardwarePorts(s *device.Selection) []hardwarePort {
	var ports []hardwarePort
	for _, d := range s.Used() {
		if d.Provider != "ibv" {
			continue
		}
		for n := 1; n <= d.Ports; n++ {
			if s.UsesPort(d.Name, uint8(n)) {
				ports = append(ports, hardwarePort{d.Name, uint8(n)})
			}
		}
	}
	return ports
}

// portCount is a counter of a port.
type portCount struct {
	port  hardwarePort
	name  string // as the kernel names its file
	value uint64
}

// portReadLimit bounds the wait for the counters: some drivers ask the adapter's
// firmware for each, and one that hangs does not answer for a minute.
const portReadLimit = 2 * time.Second

// portReader reads the counters of ports from sysfs. Its methods may be called
// from any goroutine but a poller's.
type portReader struct {
	sys   string // where sysfs is mounted
	ports []hardwarePort
	read  func(path string) ([]byte, error)
	limit time.Duration

	mu    sync.Mutex
	under *portReading // way; nil when nobody reads
}

// portReading is one reading of all ports. counts is written before done is
// closed.
type portReading struct {
	done   chan struct{}
	counts []portCount
}

func newPortReader(sys string, ports []hardwarePort) *portReader {
	return &portReader{sys: sys, ports: ports, read: os.ReadFile, limit: portReadLimit}
}

// counts are the counters now; nil when they can't be read in time. However
// many ask, only one goroutine waits for a device that hangs.
func (r *portReader) counts() []portCount {
	if len(r.ports) == 0 {
		return nil
	}
	r.mu.Lock()
	reading := r.under
	if reading == nil {
		reading = &portReading{done: make(chan struct{})}
		r.under = reading
		go r.run(reading)
	}
	r.mu.Unlock()
	limit := time.NewTimer(r.limit)
	defer limit.Stop()
	select {
	case <-reading.done:
		return reading.counts
	case <-limit.C:
		return nil
	}
}

func (r *portReader) run(reading *portReading) {
	for _, p := range r.ports {
		reading.counts = append(reading.counts, r.port(p)...)
	}
	r.mu.Lock()
	r.under = nil
	r.mu.Unlock()
	close(reading.done)
}

// port reads the counters of a port that are in the table. What is not there,
// or is no number ("N/A (no PMA)"), is left out.
func (r *portReader) port(p hardwarePort) []portCount {
	var counts []portCount
	seen := map[string]bool{}
	base := filepath.Join(r.sys, "class/infiniband", p.device, "ports", strconv.Itoa(int(p.number)))
	for _, dir := range []string{"counters", "hw_counters"} {
		files, err := os.ReadDir(filepath.Join(base, dir))
		if err != nil {
			continue
		}
		for _, f := range files {
			name := f.Name()
			if !portCounters[name] || seen[name] {
				continue
			}
			text, err := r.read(filepath.Join(base, dir, name))
			if err != nil {
				continue
			}
			value, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
			if err != nil {
				continue
			}
			seen[name] = true
			counts = append(counts, portCount{p, name, value})
		}
	}
	return counts
}

// portCollector has the counters of ports as metrics.
type portCollector struct{ reader *portReader }

var (
	descPort         = desc("port_events_total", "What a port counted; counter is the kernel's, or the driver's, name for it.", "device", "port", "counter")
	descPortSent     = desc("port_sent_bytes_total", "Bytes that a port sent, of all programs.", "device", "port")
	descPortReceived = desc("port_received_bytes_total", "Bytes that a port received, of all programs.", "device", "port")
)

// Describe implements prometheus.Collector.
func (c *portCollector) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, descPort, descPortSent, descPortReceived)
}

// wordBytes is the unit of port_xmit_data and port_rcv_data: an octet of each
// of four lanes (Documentation/ABI/stable/sysfs-class-infiniband).
const wordBytes = 4

// Collect implements prometheus.Collector.
func (c *portCollector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.reader.counts() {
		port := strconv.Itoa(int(v.port.number))
		switch v.name {
		case "port_xmit_data":
			counter(ch, descPortSent, wordBytes*float64(v.value), v.port.device, port)
		case "port_rcv_data":
			counter(ch, descPortReceived, wordBytes*float64(v.value), v.port.device, port)
		default:
			counter(ch, descPort, float64(v.value), v.port.device, port, v.name)
		}
	}
}
