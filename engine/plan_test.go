package engine

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"mover/verbs"
)

func testPort(provider, addr string, pollers ...uint16) PortOffer {
	if len(pollers) == 0 {
		pollers = []uint16{0}
	}
	return PortOffer{Provider: provider, Device: provider + "0", Port: 1, LinkLayer: verbs.LinkEthernet,
		GID: verbs.GIDFromAddr(netip.MustParseAddr(addr)), GIDType: verbs.GIDSoft, MTU: verbs.MTU4096,
		RateBits: 100e9, Pollers: pollers}
}

func testOpen(lanes uint16, ports ...PortOffer) *Open {
	return &Open{Ports: ports, PayloadBytes: 1 << 20, LanesPerRail: lanes, LaneDepth: 32, SegmentBytes: 16 << 20}
}

func planText(p *plan) string {
	var b strings.Builder
	for _, r := range p.rails {
		fmt.Fprintf(&b, "rail %d-%d;", r.port[0], r.port[1])
	}
	for _, l := range p.lanes {
		kind := "lane"
		if l.credit {
			kind = "credit"
		}
		fmt.Fprintf(&b, " %s r%d g%d", kind, l.rail, l.group)
	}
	for _, g := range p.groups {
		fmt.Fprintf(&b, "; group %d-%d", g.poller[0], g.poller[1])
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	ib := testPort("ibv", "10.0.0.3")
	ib.LinkLayer, ib.GIDType = verbs.LinkInfiniBand, verbs.GIDInfiniBand
	for _, c := range []struct {
		name     string
		d, a     *Open
		want     string
		wantFail string
	}{
		{name: "two loopback rails",
			d:    testOpen(2, testPort("soft", "127.0.0.1"), testPort("soft", "127.0.0.2")),
			a:    testOpen(2, testPort("soft", "127.0.0.1"), testPort("soft", "127.0.0.2")),
			want: "rail 0-0;rail 1-1; lane r0 g0 lane r0 g0 credit r0 g0 lane r1 g0 lane r1 g0 credit r1 g0; group 0-0"},
		{name: "unequal ports: the second is a spare",
			d:    testOpen(1, testPort("soft", "10.0.0.1"), testPort("soft", "10.0.0.2")),
			a:    testOpen(3, testPort("soft", "10.0.0.9")),
			want: "rail 0-0; lane r0 g0 credit r0 g0; group 0-0"},
		{name: "subnets go together, whatever the order",
			d:    testOpen(1, testPort("soft", "10.0.1.1"), testPort("soft", "10.0.2.1")),
			a:    testOpen(1, testPort("soft", "10.0.2.2"), testPort("soft", "10.0.1.2")),
			want: "rail 0-1;rail 1-0; lane r0 g0 credit r0 g0 lane r1 g0 credit r1 g0; group 0-0"},
		{name: "different subnets are matched last",
			d:    testOpen(1, testPort("soft", "10.0.1.1"), testPort("soft", "10.0.2.1")),
			a:    testOpen(1, testPort("soft", "10.9.9.9"), testPort("soft", "10.0.2.2")),
			want: "rail 1-1;rail 0-0; lane r0 g0 credit r0 g0 lane r1 g0 credit r1 g0; group 0-0"},
		{name: "several pollers",
			d:    testOpen(3, testPort("soft", "10.0.0.1", 0, 1)),
			a:    testOpen(3, testPort("soft", "10.0.0.2", 5)),
			want: "rail 0-0; lane r0 g0 lane r0 g1 lane r0 g0 credit r0 g0 credit r0 g1; group 0-5; group 1-5"},
		{name: "providers never mix", d: testOpen(1, testPort("soft", "10.0.0.1")), a: testOpen(1, testPort("sim", "10.0.0.2")),
			wantFail: errNoRail.Error()},
		{name: "link layers never mix", d: testOpen(1, testPort("ibv", "10.0.0.1")), a: testOpen(1, ib), wantFail: errNoRail.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := newPlan(c.d, c.a)
			switch {
			case c.wantFail != "":
				if err == nil || !strings.Contains(err.Error(), c.wantFail) {
					t.Errorf("%v, want %q", err, c.wantFail)
				}
			case err != nil:
				t.Error(err)
			default:
				if diff := cmp.Diff(c.want, planText(p)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestPlanNumbers(t *testing.T) {
	d := testOpen(1, testPort("soft", "10.0.0.1"))
	a := testOpen(1, testPort("soft", "10.0.0.2"))
	a.PayloadBytes, a.LaneDepth, a.SegmentBytes = 12288, 7, 100_000
	p, err := newPlan(d, a)
	if err != nil {
		t.Fatal(err)
	}
	// 7 x 12288 is less than 100000, and whole chunks already.
	if p.payloadBytes != 12288 || p.depth != 7 || p.segmentBytes != 86016 {
		t.Errorf("payload %d depth %d segment %d", p.payloadBytes, p.depth, p.segmentBytes)
	}
}

func drawOpen(t *rapid.T, side string) *Open {
	o := &Open{PayloadBytes: 4096 * uint32(rapid.IntRange(1, 64).Draw(t, side+"payload")),
		LanesPerRail: rapid.Uint16Range(1, 5).Draw(t, side+"lanes"), LaneDepth: rapid.Uint16Range(1, 64).Draw(t, side+"depth"),
		SegmentBytes: rapid.Uint32Range(1<<20, 1<<30).Draw(t, side+"segment")}
	for range rapid.IntRange(1, 5).Draw(t, side+"ports") {
		addr := fmt.Sprintf("10.0.%d.%d", rapid.IntRange(0, 2).Draw(t, side+"subnet"), rapid.IntRange(1, 250).Draw(t, side+"host"))
		o.Ports = append(o.Ports, testPort(rapid.SampledFrom([]string{"soft", "ibv"}).Draw(t, side+"provider"), addr,
			rapid.SliceOfN(rapid.Uint16Range(0, 3), 1, 4).Draw(t, side+"pollers")...))
	}
	return o
}

// TestPlanProperties: both sides derive the same plan (newPlan has no other
// input), ports are used once, every lane's group and rail exist, and every
// group has a credit lane on every rail that it has lanes on.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, a := drawOpen(t, "d"), drawOpen(t, "a")
		for _, o := range []*Open{d, a} {
			if err := checkOpen(o); err != nil {
				t.Fatal(err)
			}
		}
		p, err := newPlan(d, a)
		again, errAgain := newPlan(d, a)
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("%v, then %v", err, errAgain)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(planText(p), planText(again)); diff != "" {
			t.Fatal(diff)
		}
		if p.segmentBytes < p.payloadBytes || p.segmentBytes%p.payloadBytes != 0 || p.segmentBytes > p.depth*p.payloadBytes {
			t.Fatalf("segment of %d bytes, payload %d, depth %d", p.segmentBytes, p.payloadBytes, p.depth)
		}
		used := map[[2]int]bool{}
		for _, r := range p.rails {
			for side, port := range r.port {
				if used[[2]int{side, port}] {
					t.Fatalf("port %d of side %d is on two rails", port, side)
				}
				used[[2]int{side, port}] = true
			}
			if !compatible(&d.Ports[r.port[0]], &a.Ports[r.port[1]]) {
				t.Fatal("a rail of incompatible ports")
			}
		}
		data, credit := map[[2]uint16]int{}, map[[2]uint16]int{}
		for _, l := range p.lanes {
			if int(l.rail) >= len(p.rails) || int(l.group) >= len(p.groups) {
				t.Fatalf("lane %+v", l)
			}
			if l.credit {
				credit[[2]uint16{l.group, l.rail}]++
			} else {
				data[[2]uint16{l.group, l.rail}]++
			}
		}
		for at := range data {
			if credit[at] != 1 {
				t.Fatalf("group %d has %d credit lanes on rail %d", at[0], credit[at], at[1])
			}
		}
		if len(credit) != len(data) {
			t.Fatal("a credit lane without data lanes")
		}
		// The other side, which dials: the same number of rails.
		if q, err := newPlan(a, d); err != nil || len(q.rails) != len(p.rails) {
			t.Fatalf("dialled from the other side: %v", err)
		}
	})
}

func TestCheckOpen(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Open)
		want string
	}{
		{"good", func(*Open) {}, ""},
		{"no ports", func(o *Open) { o.Ports = nil }, "no ports"},
		{"too many ports", func(o *Open) { o.Ports = make([]PortOffer, MaxPorts+1) }, "65 ports"},
		{"payload 0", func(o *Open) { o.PayloadBytes = 0 }, "payload"},
		{"payload odd", func(o *Open) { o.PayloadBytes = 4097 }, "payload"},
		{"payload huge", func(o *Open) { o.PayloadBytes = 32 << 20 }, "payload"},
		{"no lanes", func(o *Open) { o.LanesPerRail = 0 }, "lanes per rail"},
		{"too many lanes", func(o *Open) { o.LanesPerRail = MaxLanesPerRail + 1 }, "lanes per rail"},
		{"depth 0", func(o *Open) { o.LaneDepth = 0 }, "depth"},
		{"depth huge", func(o *Open) { o.LaneDepth = MaxLaneDepth + 1 }, "depth"},
		{"segment below payload", func(o *Open) { o.SegmentBytes = 4096 }, "segment"},
		{"segment huge", func(o *Open) { o.SegmentBytes = 1<<30 + 1 }, "segment"},
		{"no pollers", func(o *Open) { o.Ports[0].Pollers = nil }, "port 0"},
		{"too many pollers", func(o *Open) { o.Ports[0].Pollers = make([]uint16, 33) }, "port 0"},
		{"poller out of range", func(o *Open) { o.Ports[0].Pollers = []uint16{MaxGroups} }, "poller 256"},
		{"MTU", func(o *Open) { o.Ports[0].MTU = 6 }, "port 0"},
		{"rate", func(o *Open) { o.Ports[0].RateBits = 0 }, "port 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOpen(4, testPort("soft", "10.0.0.1"))
			c.edit(o)
			err := checkOpen(o)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
