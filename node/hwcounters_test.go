package node

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// sysPort writes a port's counters into a tree like sysfs: files by the path
// below the port's directory.
func sysPort(t *testing.T, sys string, p hardwarePort, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(sys, "class/infiniband", p.device, "ports", strconv.Itoa(int(p.number)), name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sysFixture has a ConnectX with two ports, of which the second has no PMA, and
// a device in software.
func sysFixture(t *testing.T) (sys string, ports []hardwarePort) {
	t.Helper()
	sys = t.TempDir()
	ports = []hardwarePort{{"mlx5_0", 1}, {"mlx5_0", 2}, {"rxe0", 1}, {"gone0", 1}}
	sysPort(t, sys, ports[0], map[string]string{
		"counters/port_xmit_data": "250", "counters/port_rcv_data": "18446744073709551615", "counters/port_xmit_discards": "3",
		"counters/link_downed": "1", "hw_counters/link_downed": "99",
		"hw_counters/out_of_sequence": "42", "hw_counters/np_cnp_sent": "7", "hw_counters/rp_cnp_handled": "8",
		"hw_counters/lifespan": "10", "hw_counters/some_new_counter": "5",
	})
	sysPort(t, sys, ports[1], map[string]string{"counters/port_xmit_discards": "N/A (no PMA)", "hw_counters/out_of_sequence": "-1"})
	sysPort(t, sys, ports[2], map[string]string{"hw_counters/rcvd_seq_err": "6", "hw_counters/link_downed": "2"})
	return sys, ports
}

// flat are the samples of a collector, as "name{labels}".
func flat(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue()
			if m.GetGauge() != nil {
				value = m.GetGauge().GetValue()
			}
			out[strings.TrimPrefix(f.GetName(), "mover_")+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return out
}

// TestPortCounters: those of the table that the device has, under the kernel's
// names; data in bytes; nothing that is no number.
func TestPortCounters(t *testing.T) {
	sys, ports := sysFixture(t)
	got := flat(t, &portCollector{newPortReader(sys, ports)})
	want := map[string]float64{
		"port_sent_bytes_total{device=mlx5_0,port=1}":                        1000,
		"port_received_bytes_total{device=mlx5_0,port=1}":                    4 * float64(1<<64-1),
		"port_events_total{counter=port_xmit_discards,device=mlx5_0,port=1}": 3,
		"port_events_total{counter=link_downed,device=mlx5_0,port=1}":        1,
		"port_events_total{counter=out_of_sequence,device=mlx5_0,port=1}":    42,
		"port_events_total{counter=np_cnp_sent,device=mlx5_0,port=1}":        7,
		"port_events_total{counter=rp_cnp_handled,device=mlx5_0,port=1}":     8,
		"port_events_total{counter=rcvd_seq_err,device=rxe0,port=1}":         6,
		"port_events_total{counter=link_downed,device=rxe0,port=1}":          2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPortCountersOfAHungDevice: nobody waits longer than the limit, one
// goroutine alone reads, and once the device answers its counters are back.
func TestPortCountersOfAHungDevice(t *testing.T) {
	sys, ports := sysFixture(t)
	r := newPortReader(sys, ports[2:3])
	hung := make(chan struct{})
	var reads atomic.Int32
	r.limit = time.Millisecond
	r.read = func(path string) ([]byte, error) {
		reads.Add(1)
		<-hung
		return os.ReadFile(path)
	}
	for range 5 {
		if got := r.counts(); got != nil {
			t.Fatalf("got %v from a device that hangs", got)
		}
	}
	close(hung)
	r.limit = time.Minute
	if got := r.counts(); len(got) != 2 {
		t.Errorf("got %v once it answers, want 2 counters", got)
	}
	// The reading that hung reads both files; a further one may have begun after.
	if n := reads.Load(); n != 2 && n != 4 {
		t.Errorf("%d reads: every scrape waits for the device", n)
	}
}

// TestPortThatGoesAway: a device that is unplugged leaves the others'.
func TestPortThatGoesAway(t *testing.T) {
	sys, ports := sysFixture(t)
	r := newPortReader(sys, ports)
	r.read = func(path string) ([]byte, error) {
		if strings.Contains(path, "mlx5_0") {
			return nil, errors.New("no such device")
		}
		return os.ReadFile(path)
	}
	if got := r.counts(); len(got) != 2 || got[0].port.device != "rxe0" {
		t.Errorf("got %v", got)
	}
}
