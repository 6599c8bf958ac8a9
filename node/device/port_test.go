package device

import (
	"errors"
	"strings"
	"testing"

	"mover/engine"
	"mover/node/config"
	"mover/verbs"
)

func active(layer verbs.LinkLayer, lid uint16) verbs.PortAttr {
	return verbs.PortAttr{State: verbs.PortActive, LinkLayer: layer, LID: lid, ActiveMTU: verbs.MTU4096, ActiveRate: 200e9}
}

func withState(a verbs.PortAttr, s verbs.PortState) verbs.PortAttr {
	a.State = s
	return a
}

func TestPortProblems(t *testing.T) {
	gid := verbs.GIDEntry{GID: parseGID(t, "192.0.2.1"), Type: verbs.GIDRoCEv2}
	v1 := verbs.GIDEntry{GID: parseGID(t, "192.0.2.1"), Type: verbs.GIDRoCEv1}
	own := verbs.GIDEntry{GID: parseGID(t, "fe80::1"), Type: verbs.GIDInfiniBand}
	for _, c := range []struct {
		name   string
		attr   verbs.PortAttr
		table  []verbs.GIDEntry
		wish   string
		netdev string
		want   string // "" is no problem
	}{
		{name: "RoCE", attr: active(verbs.LinkEthernet, 0), table: []verbs.GIDEntry{v1, gid}},
		{name: "InfiniBand", attr: active(verbs.LinkInfiniBand, 7), table: []verbs.GIDEntry{own}},
		{name: "the wished address", attr: active(verbs.LinkEthernet, 0), table: []verbs.GIDEntry{gid}, wish: "192.0.2.1"},
		{name: "another address", attr: active(verbs.LinkEthernet, 0), table: []verbs.GIDEntry{gid}, wish: "192.0.2.9", netdev: "eth1",
			want: "device d0 port 1: verbs: no usable GID with address 192.0.2.9 (RoCE needs one of version 2): its GID table has [0] RoCE v2 192.0.2.1; give eth1 an IPv4"},
		{name: "RoCE v1 alone", attr: active(verbs.LinkEthernet, 0), table: []verbs.GIDEntry{v1}, want: "its GID table has [0] RoCE v1 192.0.2.1; give its network interface an IPv4"},
		{name: "no address", attr: active(verbs.LinkEthernet, 0), want: "its GID table is empty"},
		{name: "down", attr: withState(active(verbs.LinkEthernet, 0), verbs.PortDown), table: []verbs.GIDEntry{gid}, netdev: "eth1", want: "device d0 port 1 is DOWN; ip link set eth1 up"},
		{name: "no cable", attr: withState(active(verbs.LinkInfiniBand, 0), verbs.PortDown), want: "device d0 port 1 is DOWN; check the cable and the switch's port (`ibstat d0`)"},
		{name: "no subnet manager", attr: withState(active(verbs.LinkInfiniBand, 0), verbs.PortInit), table: []verbs.GIDEntry{own}, want: "d0 port 1 is INIT: the link is there and no subnet manager has set it up; start a subnet manager"},
		{name: "no LID", attr: active(verbs.LinkInfiniBand, 0), table: []verbs.GIDEntry{own}, want: "is ACTIVE and has no LID; start a subnet manager"},
	} {
		ctx := &opened{info: verbs.DeviceInfo{Provider: "ibv", Name: "d0", Ports: 1}, port: c.attr, table: c.table}
		wish := verbs.GIDWish{}
		if c.wish != "" {
			wish.Addr = parseGID(t, c.wish).Addr()
		}
		var netdevs []string
		if c.netdev != "" {
			netdevs = []string{c.netdev}
		}
		p := QueryPort(ctx, 1, wish, netdevs)
		switch {
		case c.want == "" && p.Problem != nil:
			t.Errorf("%s: %v", c.name, p.Problem)
		case c.want != "" && (p.Problem == nil || !strings.Contains(p.Problem.Error(), c.want) || strings.Contains(p.Problem.Error(), "\n")):
			t.Errorf("%s: %v; want %s", c.name, p.Problem, c.want)
		}
		if o := p.Offer(ctx.info, 1e9); o.Down != (c.want != "") || o.RateBits != 200e9 || o.Device != "d0" || o.LID != c.attr.LID {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
	p := QueryPort(&opened{info: verbs.DeviceInfo{Name: "d0"}, fails: errors.New("gone")}, 1, verbs.GIDWish{}, nil)
	if p.Problem == nil || !strings.Contains(p.Problem.Error(), "device d0: gone") {
		t.Error(p.Problem)
	}
	// A rate that emulation invents is not the rate of anything.
	if o := (Port{Attr: active(verbs.LinkEthernet, 0)}).Offer(verbs.DeviceInfo{Software: true}, 1e9); o.RateBits != 1e9 {
		t.Errorf("%+v", o)
	}
}

// TestLook: what is used is opened and closed; what is not, or cannot be, is
// looked up in sysfs.
func TestLook(t *testing.T) {
	f := newFixture(t)
	f.infiniband()
	f.roceUp("mlx5_2", "eth2", "192.0.2.2", "192.0.2.3")
	f.rxeDown("rxe0", "eth0")
	p := provider("ibv", "mlx5_0", "mlx5_2", "rxe0")
	open := &opened{info: p.infos[1], port: active(verbs.LinkEthernet, 0), table: []verbs.GIDEntry{{Index: 5, GID: parseGID(t, "192.0.2.3"), Type: verbs.GIDRoCEv2}}}
	p.open = map[string]verbs.Context{"mlx5_2": open}
	gone := false
	p.check = func(name string) error {
		if name == "rxe0" && gone {
			return errors.New("no such device")
		}
		return nil
	}
	cfg := config.Default()
	cfg.Devices.Names = []string{"192.0.2.3", "rxe0"}
	s, err := choose(cfg, []candidate{f.hardware(func() (verbs.Provider, error) { return p, nil })})
	if err != nil {
		t.Fatal(err)
	}
	p.opened, open.closed, gone = nil, false, true // as when the device is deleted in between
	looks := map[string]Look{}
	for _, d := range s.Devices {
		looks[d.Name] = s.Look(d)
	}
	if strings.Join(p.opened, " ") != "mlx5_2 rxe0" || !open.closed {
		t.Errorf("opened %v, closed %v", p.opened, open.closed)
	}
	if l := looks["mlx5_0"]; l.Problem != nil || len(l.Ports) != 1 || l.Ports[0].Attr.LID != 0x11 || l.Ports[0].PKey != 0x7fff || l.Ports[0].Problem != nil {
		t.Errorf("%+v", l)
	}
	if l := looks["mlx5_2"]; l.Problem != nil || len(l.Ports) != 1 || l.Ports[0].GID.Index != 5 || l.Ports[0].Netdevs[0] != "eth2" {
		t.Errorf("%+v", l)
	}
	if s.Devices[1].Attr.MaxQP != 7 {
		t.Errorf("%+v", s.Devices[1])
	}
	l := looks["rxe0"]
	if l.Problem == nil || !strings.Contains(l.Problem.Error(), "no such device") || len(l.Ports) != 1 || l.Ports[0].Problem == nil ||
		!strings.Contains(l.Ports[0].Problem.Error(), "device rxe0 port 1 is DOWN; ip link set eth0 up") {
		t.Errorf("%+v", l)
	}
}

// TestOffersMeet: what two hosts of fixtures offer is matched, or said why not.
func TestOffersMeet(t *testing.T) {
	offers := func(build func(f *fixture)) []engine.PortOffer {
		f := newFixture(t)
		build(f)
		var out []engine.PortOffer
		for _, d := range must(f.Devices()) {
			s := &Selection{hostDevices: []HostDevice{d}}
			info := verbs.DeviceInfo{Provider: "ibv", Name: d.Name, Ports: len(d.Ports)}
			for _, p := range s.Look(Device{DeviceInfo: info}).Ports {
				out = append(out, p.Offer(info, 1e9))
			}
		}
		return out
	}
	ib := offers(func(f *fixture) { f.infiniband() })
	eth := offers(func(f *fixture) { f.roceUp("mlx5_2", "eth2", "192.0.2.2", "192.0.2.3") })
	down := offers(func(f *fixture) { f.rxeDown("rxe0", "eth0") })
	v1 := offers(func(f *fixture) {
		f.port("old0", 1, "4: ACTIVE", "Ethernet", gid{0, "::ffff:192.0.2.2", "IB/RoCE v1", "eth7"})
	})
	for _, c := range []struct {
		name          string
		local, remote []engine.PortOffer
		want          string
	}{
		{"link layers", ib, eth, "mlx5_0 port 1 here is InfiniBand, mlx5_2 port 1 there is Ethernet"},
		{"down there", eth, down, "rxe0 port 1 there is down"},
		{"RoCE v1 alone there", eth, v1, "old0 port 1 there is down or has no usable GID"},
		{"alike", eth, eth, ""},
		{"InfiniBand", ib, ib, ""},
	} {
		_, findings := engine.MatchPorts(c.local, c.remote)
		text := ""
		for _, f := range findings {
			text += f.String()
		}
		if !strings.Contains(text, c.want) || c.want == "" && text != "" {
			t.Errorf("%s: %q; want %q", c.name, text, c.want)
		}
	}
}

func TestRelaxedOrdering(t *testing.T) {
	hardware, software := verbs.DeviceInfo{Name: "mlx5_0"}, verbs.DeviceInfo{Name: "rxe0", Software: true}
	has, lacks := verbs.DeviceAttr{RelaxedOrdering: true}, verbs.DeviceAttr{}
	for _, c := range []struct {
		setting string
		info    verbs.DeviceInfo
		attr    verbs.DeviceAttr
		want    bool
		why     string
	}{
		{"auto", hardware, has, true, "auto"},
		{"auto", hardware, lacks, false, "has it"},
		{"auto", software, has, false, "no PCIe"},
		{"on", hardware, has, true, "is on"},
		{"on", hardware, lacks, false, "has it"},
		{"off", hardware, has, false, "is off"},
	} {
		if on, why := RelaxedOrdering(c.setting, c.info, c.attr); on != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s, %s: %v, %s", c.setting, c.info.Name, on, why)
		}
	}
}
