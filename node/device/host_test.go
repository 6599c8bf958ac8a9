package device

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"mover/verbs"
)

func TestHostWithoutDevices(t *testing.T) {
	f := newFixture(t)
	if got, err := f.Devices(); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if f.UverbsLoaded() {
		t.Error("ib_uverbs is loaded")
	}
}

func TestHostDevices(t *testing.T) {
	f := newFixture(t)
	f.infiniband()
	f.roceUp("mlx5_2", "eth2", "192.0.2.2", "192.0.2.3")
	f.rxeDown("rxe0", "eth0")
	got, err := f.Devices()
	if err != nil {
		t.Fatal(err)
	}
	want := []HostDevice{
		{Name: "mlx5_0", Uverbs: "uverbs0", Ports: []HostPort{{Number: 1, PKey: 0x7fff, Netdevs: []string{"ib0"},
			Attr: verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkInfiniBand, LID: 0x11, ActiveRate: 100e9},
			GIDs: []verbs.GIDEntry{{Index: 0, GID: parseGID(t, "fe80::506b:4b03:1"), Type: verbs.GIDInfiniBand}}}}},
		{Name: "mlx5_2", Uverbs: "uverbs1", Ports: []HostPort{{Number: 1, PKey: 0xffff, Netdevs: []string{"eth2"},
			Attr: verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkEthernet, ActiveRate: 100e9, ActiveMTU: verbs.MTU4096},
			GIDs: []verbs.GIDEntry{
				{Index: 0, GID: parseGID(t, "fe80::1"), Type: verbs.GIDRoCEv1, Netdev: "eth2"},
				{Index: 1, GID: parseGID(t, "fe80::1"), Type: verbs.GIDRoCEv2, Netdev: "eth2"},
				{Index: 2, GID: parseGID(t, "192.0.2.2"), Type: verbs.GIDRoCEv1, Netdev: "eth2"},
				{Index: 3, GID: parseGID(t, "192.0.2.2"), Type: verbs.GIDRoCEv2, Netdev: "eth2"},
				{Index: 4, GID: parseGID(t, "192.0.2.3"), Type: verbs.GIDRoCEv1, Netdev: "eth2"},
				{Index: 5, GID: parseGID(t, "192.0.2.3"), Type: verbs.GIDRoCEv2, Netdev: "eth2"}}}}},
		{Name: "rxe0", Uverbs: "uverbs2", Ports: []HostPort{{Number: 1, PKey: 0xffff, Netdevs: []string{"eth0"},
			Attr: verbs.PortAttr{State: verbs.PortDown, LinkLayer: verbs.LinkEthernet, ActiveRate: 100e9}}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestOddAttributes(t *testing.T) {
	for s, want := range map[string]uint64{
		"2.5 Gb/sec (1X SDR)": 2.5e9, "800 Gb/sec (4X XDR)": 800e9, "100 Mb/sec": 0, "": 0, "-1 Gb/sec": 0, "1e300 Gb/sec": 0, "NaN Gb/sec": 0,
	} {
		if got := rate(s); got != want {
			t.Errorf("rate %q: %d, want %d", s, got, want)
		}
	}
	for s, want := range map[string]verbs.PortState{"4: ACTIVE": verbs.PortActive, "1: DOWN": verbs.PortDown, "": verbs.PortNop, "x: y": verbs.PortNop} {
		if got := portState(s); got != want {
			t.Errorf("state %q: %v, want %v", s, got, want)
		}
	}
	if hex16("0x10000") != 0 || hex16("0xfffe") != 0xfffe {
		t.Error("hex16")
	}
	f := newFixture(t)
	for mtu, want := range map[string]verbs.MTU{"9000": verbs.MTU4096, "4192": verbs.MTU4096, "4191": verbs.MTU2048, "1500": verbs.MTU1024, "300": 0, "x": 0} {
		f.file(mtu, f.Sys, "class/net/eth9/mtu")
		if got := f.roceMTU("eth9"); got != want {
			t.Errorf("MTU %s: %v, want %v", mtu, got, want)
		}
	}
}
