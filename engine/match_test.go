package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mover/verbs"
)

// named is a port of hardware.
func named(device, addr string, edit ...func(*PortOffer)) PortOffer {
	p := testPort("ibv", addr)
	p.Device, p.GIDType = device, verbs.GIDRoCEv2
	for _, e := range edit {
		e(&p)
	}
	return p
}

func isDown(p *PortOffer) { p.Down = true }

// unknown is a port that is down and knows nothing of itself.
func unknown(p *PortOffer) {
	p.Down, p.GID, p.GIDType, p.LinkLayer = true, verbs.GID{}, verbs.GIDUnknown, verbs.LinkUnspecified
}
func infiniband(p *PortOffer) {
	p.LinkLayer, p.GIDType, p.LID = verbs.LinkInfiniBand, verbs.GIDInfiniBand, 7
}
func mtu(m verbs.MTU) func(*PortOffer) { return func(p *PortOffer) { p.MTU = m } }

func TestMatchPorts(t *testing.T) {
	ports := func(p ...PortOffer) []PortOffer { return p }
	for _, c := range []struct {
		name          string
		local, remote []PortOffer
		want          string   // local-remote, ! for one that is down
		found         []string // in order, of one finding each
	}{
		{name: "alike", local: ports(named("rxe0", "10.1.1.1"), named("rxe1", "10.1.2.1")),
			remote: ports(named("rxe0", "10.1.1.2"), named("rxe1", "10.1.2.2")), want: "0-0 1-1"},
		{name: "a down port never takes the partner of one that is up",
			local:  ports(named("rxe0", "10.1.1.1", isDown), named("rxe1", "10.1.2.1")),
			remote: ports(named("rxe0", "10.1.1.2"), named("rxe1", "10.1.2.2")), want: "1-1 0-0!",
			found: []string{"rxe0 port 1: the port is down"}},
		{name: "up-up across subnets before a down port of the same subnet",
			local:  ports(named("rxe0", "10.1.1.1"), named("rxe1", "10.1.2.1")),
			remote: ports(named("rxe0", "10.1.1.2", isDown), named("rxe1", "10.1.3.2")), want: "0-1 1-0!",
			found: []string{"rxe1 port 1: rxe0 port 1 there is down"}},
		{name: "down ports by subnet where both are known",
			local:  ports(named("rxe0", "10.1.1.1"), named("rxe1", "10.1.2.1"), named("rxe2", "10.1.3.1")),
			remote: ports(named("rxe0", "10.1.1.2"), named("rxe2", "10.1.3.2", isDown), named("rxe1", "10.1.2.2", isDown)), want: "0-0 1-2! 2-1!",
			found: []string{"rxe1 port 1: rxe1 port 1 there", "rxe2 port 1: rxe2 port 1 there"}},
		{name: "down ports by index where they are not",
			local:  ports(named("rxe0", "10.1.1.1"), named("rxe1", "10.1.2.1", unknown)),
			remote: ports(named("rxe0", "10.1.1.2"), named("rxe1", "10.1.2.2")), want: "0-0 1-1!",
			found: []string{"rxe1 port 1: the port is down"}},
		{name: "families: those of one go together",
			local:  ports(named("rxe0", "fd00::1"), named("rxe1", "10.1.2.1")),
			remote: ports(named("rxe0", "10.7.1.2"), named("rxe1", "fd01::2")), want: "0-1 1-0"},
		{name: "families: last of all", local: ports(named("rxe0", "fd00::1")), remote: ports(named("rxe0", "10.7.1.2")), want: "0-0",
			found: []string{"rxe0 port 1: its GID is fd00::1, that of rxe0 port 1 there 10.7.1.2"}},
		{name: "MTU", local: ports(named("rxe0", "10.1.1.1", mtu(verbs.MTU4096))), remote: ports(named("rxe7", "10.1.1.2", mtu(verbs.MTU1024))), want: "0-0",
			found: []string{"rxe0 port 1: its MTU is 4096, that of rxe7 port 1 there 1024; 1024 is used"}},
		{name: "a spare", local: ports(named("rxe0", "10.1.1.1"), named("rxe1", "10.1.2.1")), remote: ports(named("rxe0", "10.1.1.2")), want: "0-0",
			found: []string{"rxe1 port 1: it is spare"}},
		{name: "link layers", local: ports(named("mlx5_0", "10.1.1.1", infiniband)), remote: ports(named("rxe0", "10.1.1.2")),
			found: []string{"mlx5_0 port 1: mlx5_0 port 1 here is InfiniBand, rxe0 port 1 there is Ethernet; "}},
		{name: "GID types", local: ports(named("mlx5_0", "10.1.1.1", func(p *PortOffer) { p.GIDType = verbs.GIDRoCEv1 })), remote: ports(named("rxe0", "10.1.1.2")),
			found: []string{"GID types differ: RoCE v1 here, RoCE v2 at rxe0 port 1 there"}},
		{name: "providers", local: ports(named("rxe0", "10.1.1.1")), remote: ports(testPort("soft", "10.1.1.2")),
			found: []string{"providers differ: ibv here, soft at soft0 port 1 there; see `mover devices`"}},
		{name: "nothing there", local: ports(named("rxe0", "10.1.1.1")), found: []string{"rxe0 port 1: the peer offers no port"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			matches, findings := MatchPorts(c.local, c.remote)
			var got []string
			for _, m := range matches {
				text := fmt.Sprintf("%d-%d", m.Local, m.Remote)
				if m.Down {
					text += "!"
				}
				got = append(got, text)
				if want := min(c.local[m.Local].MTU, c.remote[m.Remote].MTU); m.MTU != want {
					t.Errorf("MTU %v, want %v", m.MTU, want)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
			if len(findings) != len(c.found) {
				t.Fatalf("found %v, want %q", findings, c.found)
			}
			for i, f := range findings {
				if !strings.Contains(f.String(), c.found[i]) || f.Fix == "" {
					t.Errorf("found %q, want %q", f, c.found[i])
				}
				if f.Warning != (c.want != "") {
					t.Errorf("%v: warning %v", f, f.Warning)
				}
			}
		})
	}
}

// TestNoRail: two nodes without a rail are told why, each in its own words.
func TestNoRail(t *testing.T) {
	a := testOpen(1, named("rxe0", "10.1.1.1", isDown), named("rxe1", "10.1.2.1"))
	b := testOpen(1, named("rxe0", "10.1.1.2"), named("rxe1", "10.1.2.2", isDown))
	a.Ports[1].Provider = "soft" // so that no pair is up
	b.Ports[1].Provider = "soft"
	if _, err := newPlan(a, b); err != errNoRail {
		t.Fatalf("%v, want errNoRail", err)
	}
	got := noRail(a.Ports, b.Ports)
	for _, want := range []string{"no rail has both its ends up", "rxe0 port 1: the port is down", "rxe1 port 1 there is down", "mover devices"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	many := make([]PortOffer, 9)
	for i := range many {
		many[i] = named(fmt.Sprint("mlx5_", i), "10.1.1.1", infiniband)
	}
	if got := noRail(many, b.Ports[:1]); !strings.Contains(got, "and 5 ports more") {
		t.Errorf("%q is not bounded", got)
	}
}

// TestMatchProperties: up-up pairs are as many as they can be, and a match does
// not depend on which side looks.
func TestMatchProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, a := drawOpen(t, "d").Ports, drawOpen(t, "a").Ports
		for _, ports := range [][]PortOffer{d, a} {
			for i := range ports {
				ports[i].Down = rapid.Bool().Draw(t, "down")
			}
		}
		up, down := 0, 0
		for _, r := range matchRails(d, a) {
			if r.down != (d[r.port[0]].Down || a[r.port[1]].Down) {
				t.Fatalf("%+v: down?", r)
			}
			if r.down {
				down++
			} else if up++; down > 0 {
				t.Fatal("a rail that is up comes behind one that is down")
			}
		}
		count := func(ports []PortOffer, provider string) (n int) {
			for i := range ports {
				if ports[i].Provider == provider && !ports[i].Down {
					n++
				}
			}
			return n
		}
		if want := min(count(d, "soft"), count(a, "soft")) + min(count(d, "ibv"), count(a, "ibv")); up != want {
			t.Fatalf("%d rails are up, %d could be", up, want)
		}
		if back := matchRails(a, d); len(back) != up+down {
			t.Fatalf("%d rails from here, %d from there", up+down, len(back))
		}
	})
}
