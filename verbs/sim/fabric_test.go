package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"mover/verbs"
	"mover/verbs/sim"
)

// TestClock: time passes only by Step and Advance, and events run in order.
func TestClock(t *testing.T) {
	f := sim.New(1, sim.Options{})
	if _, ok := f.NextEvent(); ok || f.Step() || f.Now() != 0 {
		t.Fatal("a new fabric has events")
	}
	var ran []int
	for i, at := range []time.Duration{3 * ms, ms, 2 * ms} {
		f.After(at, func() { ran = append(ran, i) })
	}
	if at, ok := f.NextEvent(); !ok || at != ms {
		t.Errorf("next event at %v", at)
	}
	if !f.Step() || f.Now() != ms {
		t.Errorf("after a step it is %v", f.Now())
	}
	f.Advance(ms + 500*time.Microsecond)
	if f.Now() != 2500*time.Microsecond || !slices.Equal(ran, []int{1, 2}) {
		t.Errorf("at %v: ran %v", f.Now(), ran)
	}
	f.Advance(time.Second)
	if f.Now() != time.Second+2500*time.Microsecond || len(ran) != 3 {
		t.Errorf("at %v: ran %v", f.Now(), ran)
	}
	if !strings.Contains(f.Trace(), "test") {
		t.Errorf("the trace lacks the events:\n%s", f.Trace())
	}
}

// TestTies: among events of one instant the seed chooses.
func TestTies(t *testing.T) {
	orders := map[string]bool{}
	for seed := range uint64(30) {
		f := sim.New(seed, sim.Options{})
		order := ""
		for _, name := range []string{"x", "y", "z"} {
			f.After(ms, func() { order += name })
		}
		f.Advance(ms)
		orders[order] = true
	}
	if len(orders) != 6 {
		t.Errorf("orders seen: %v, want all six", orders)
	}
}

// TestTopology: ports, subnets and what the queries tell of them.
func TestTopology(t *testing.T) {
	ports := []sim.Port{{Subnet: 1}, {Subnet: 2, BitsPerSecond: 25e9, MTU: verbs.MTU1024}}
	devices := []sim.Device{{Name: "mx1", NUMANode: 1, Ports: ports, MaxMRSize: 1 << 20}, {Name: "mx0"}}
	r := &rig{t: t, f: sim.New(1, sim.Options{Hosts: []sim.Host{{Name: "a", Devices: devices}, {Name: "b", Devices: devices}}})}
	list, err := r.f.Provider("b").Devices()
	r.must(err)
	if len(list) != 2 || list[0].Name != "mx0" || list[1].Ports != 2 || list[1].NUMANode != 1 || list[1].Provider != "sim" {
		t.Errorf("devices %+v", list)
	}
	if _, err := r.f.Provider("a").OpenDevice("mx7"); err == nil {
		t.Error("a device that is not there was opened")
	}
	a, err := r.f.Provider("a").OpenDevice("mx1")
	r.must(err)
	attr, err := a.QueryPort(2)
	r.must(err)
	if attr.ActiveMTU != verbs.MTU1024 || attr.ActiveRate != 25e9 || attr.State != verbs.PortActive {
		t.Errorf("port %+v", attr)
	}
	seen := map[verbs.GID]bool{}
	for _, host := range []string{"a", "b"} {
		for _, dev := range []string{"mx0", "mx1"} {
			ctx, err := r.f.Provider(host).OpenDevice(dev)
			r.must(err)
			for port := range ctx.Device().Ports {
				table, err := ctx.QueryGIDTable(uint8(port + 1))
				r.must(err)
				for _, e := range table {
					if seen[e.GID] || e.Type != verbs.GIDSim {
						t.Errorf("GID entry %+v", e)
					}
					seen[e.GID] = true
				}
			}
		}
	}
}

// TestSubnets: ports of different subnets do not reach each other.
func TestSubnets(t *testing.T) {
	opt := sim.Options{Hosts: []sim.Host{
		{Name: "a", Devices: []sim.Device{{Name: "sim0", Ports: []sim.Port{{Subnet: 1}}}}},
		{Name: "b", Devices: []sim.Device{{Name: "sim0", Ports: []sim.Port{{Subnet: 2}}}}}}}
	r := newRig(t, 1, opt, 1)
	r.post(r.a.qps[0], r.write(r.a, r.b, 0, 8))
	r.until(func() bool { return len(r.a.wcs) == 1 })
	wantCause(t, r.a.wcs, 1, verbs.WCRetryExcErr)
}

// TestRate: the wire takes its time.
func TestRate(t *testing.T) {
	devices := []sim.Device{{Name: "sim0", Ports: []sim.Port{{BitsPerSecond: 1e9}}}}
	r := newRig(t, 1, sim.Options{Hosts: []sim.Host{{Name: "a", Devices: devices}, {Name: "b", Devices: devices}}}, 2)
	const n = 125_000 // 1 ms each, all from one place
	for i := range 6 {
		r.post(r.a.qps[i%2], r.write(r.a, r.b, i%2*n, n))
	}
	r.until(func() bool { return len(r.a.wcs) == 6 })
	if r.f.Now() < 6*ms || r.f.Now() > 8*ms {
		t.Errorf("6 ms of data took %v", r.f.Now())
	}
}

// TestSolicited: a channel armed for solicited completions ignores the others.
func TestSolicited(t *testing.T) {
	r := newRig(t, 1, sim.Options{}, 1)
	r.recv(r.b.qps[0])
	r.recv(r.b.qps[0])
	r.must(r.b.cq.ReqNotify(true))
	r.post(r.a.qps[0], r.writeImm(r.a, r.b, 0, 8))
	r.until(func() bool { return len(r.b.wcs) == 1 })
	if r.f.Notified(r.b.cq) {
		t.Error("an unsolicited completion was announced")
	}
	wr := r.writeImm(r.a, r.b, 0, 8)
	wr.Flags |= verbs.SendSolicited
	r.post(r.a.qps[0], wr)
	r.until(func() bool { return len(r.b.wcs) == 2 })
	if !r.f.Notified(r.b.cq) {
		t.Error("a solicited completion was not announced")
	}
}
