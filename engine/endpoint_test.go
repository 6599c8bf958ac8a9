package engine

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mover/verbs"
)

// fakePort is a device of one port that is what the test says.
type fakePort struct {
	verbs.Context
	attr  verbs.PortAttr
	table []verbs.GIDEntry
	err   error
}

func (p *fakePort) QueryPort(uint8) (verbs.PortAttr, error)       { return p.attr, p.err }
func (p *fakePort) QueryGIDTable(uint8) ([]verbs.GIDEntry, error) { return p.table, p.err }
func (p *fakePort) local() *LocalPort {
	return &LocalPort{Context: p, Offer: PortOffer{Device: "mlx5_0", Port: 1}}
}

func gidOf(addr string) verbs.GID { return verbs.GIDFromAddr(netip.MustParseAddr(addr)) }

func roce(addresses ...string) *fakePort {
	p := &fakePort{attr: verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkEthernet, ActiveMTU: verbs.MTU1024}}
	for i, a := range addresses {
		p.table = append(p.table, verbs.GIDEntry{Index: 2 * i, GID: gidOf(a), Type: verbs.GIDRoCEv2})
	}
	return p
}

func ibPort(lid uint16, prefix string, grh bool) *fakePort {
	return &fakePort{attr: verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkInfiniBand, LID: lid, ActiveMTU: verbs.MTU4096, GRHRequired: grh},
		table: []verbs.GIDEntry{{GID: gidOf(prefix + "::1:2:3:4"), Type: verbs.GIDInfiniBand}}}
}

// TestEndpoint: what a port is now, and why no QP can be built on it.
func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		name string
		port *fakePort
		like string
		edit func(*fakePort)
		want string // the GID, or the error
	}{
		{"RoCE", roce("fe80::1", "fd00::1", "10.0.0.1"), "", nil, "10.0.0.1"},
		{"the peer has IPv6", roce("fe80::1", "fd00::1", "10.0.0.1"), "fd00::9", nil, "fd00::1"},
		{"the peer has IPv6, we don't", roce("10.0.0.1"), "fd00::9", nil, "no usable GID of IPv6"},
		{"no address", roce(), "", nil, "mlx5_0 port 1 here: verbs: no usable GID"},
		{"down", roce("10.0.0.1"), "", func(p *fakePort) { p.attr.State = verbs.PortDown }, "mlx5_0 port 1 here is DOWN"},
		{"no MTU", roce("10.0.0.1"), "", func(p *fakePort) { p.attr.ActiveMTU = 0 }, "no active MTU"},
		{"gone", roce("10.0.0.1"), "", func(p *fakePort) { p.err = &verbs.Error{Op: "query port", Errno: 5} }, "mlx5_0 port 1 here: verbs: query port"},
		{"InfiniBand", ibPort(7, "fe80", false), "10.0.0.1", nil, "fe80::1:2:3:4"},
		{"InfiniBand without a LID", ibPort(0, "fe80", false), "", nil, "has no LID: does a subnet manager run?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(c.port)
			}
			like := verbs.GID{}
			if c.like != "" {
				like = gidOf(c.like)
			}
			e, err := c.port.local().endpoint(like)
			got := e.gid.GID.Addr().String()
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	p := roce("10.0.0.1")
	p.table = append(p.table, verbs.GIDEntry{Index: 9, GID: gidOf("10.0.0.2"), Type: verbs.GIDRoCEv2})
	local := p.local()
	local.Wish.Addr = netip.MustParseAddr("10.0.0.2")
	if e, err := local.endpoint(verbs.GID{}); err != nil || e.gid.Index != 9 {
		t.Errorf("the wish is not heard: %+v, %v", e, err)
	}
}

// TestAddressVector: RoCE is routed by GID, InfiniBand by LID, with a GRH only
// where it is needed.
func TestAddressVector(t *testing.T) {
	const fe80, other = "fe80", "fd77"
	gid := func(prefix string) verbs.GID { return gidOf(prefix + "::5:6:7:8") }
	for _, c := range []struct {
		name string
		port *fakePort
		peer LaneEnd
		grh  bool // of the peer's port
		want verbs.AHAttr
		fail string
	}{
		{"RoCE", roce("10.0.0.1"), LaneEnd{GID: gidOf("10.0.0.2"), LID: 9}, false,
			verbs.AHAttr{Port: 1, IsGlobal: true, DGID: gidOf("10.0.0.2"), SGIDIndex: 3, HopLimit: 64}, ""},
		{"one subnet", ibPort(7, fe80, false), LaneEnd{GID: gid(fe80), LID: 9}, false, verbs.AHAttr{Port: 1, DLID: 9}, ""},
		{"one subnet, GID unknown", ibPort(7, fe80, false), LaneEnd{LID: 9}, false, verbs.AHAttr{Port: 1, DLID: 9}, ""},
		{"GRH required here", ibPort(7, fe80, true), LaneEnd{GID: gid(fe80), LID: 9}, false,
			verbs.AHAttr{Port: 1, DLID: 9, IsGlobal: true, DGID: gid(fe80), SGIDIndex: 3, HopLimit: 64}, ""},
		{"GRH required there", ibPort(7, fe80, false), LaneEnd{GID: gid(fe80), LID: 9}, true,
			verbs.AHAttr{Port: 1, DLID: 9, IsGlobal: true, DGID: gid(fe80), SGIDIndex: 3, HopLimit: 64}, ""},
		{"another subnet", ibPort(7, fe80, false), LaneEnd{GID: gid(other), LID: 9}, false,
			verbs.AHAttr{Port: 1, DLID: 9, IsGlobal: true, DGID: gid(other), SGIDIndex: 3, HopLimit: 64}, ""},
		{"no LID there", ibPort(7, fe80, false), LaneEnd{GID: gid(fe80)}, false, verbs.AHAttr{}, "no LID"},
		{"a GRH to nowhere", ibPort(7, fe80, true), LaneEnd{LID: 9}, false, verbs.AHAttr{}, "told no GID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := c.port.local().endpoint(verbs.GID{})
			if err != nil {
				t.Fatal(err)
			}
			e.gid.Index = 3
			av, err := e.addressVector(1, &c.peer, c.grh)
			if c.fail != "" {
				if err == nil || !strings.Contains(err.Error(), c.fail) {
					t.Errorf("%v, want %q", err, c.fail)
				}
				return
			}
			if diff := cmp.Diff(c.want, av); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

// TestCheckPeer: an address of the peer's that no port has is a violation; one
// that differs from what was offered is not.
func TestCheckPeer(t *testing.T) {
	for _, c := range []struct {
		gid  string
		want string
	}{
		{"10.9.9.9", ""}, {"::", "no port's"}, {"224.0.0.1", "no port's"}, {"ff02::1", "no port's"}, {"0.0.0.0", "no port's"},
		{"fd00::1", "another family"},
	} {
		e, err := roce("10.0.0.1").local().endpoint(verbs.GID{})
		if err != nil {
			t.Fatal(err)
		}
		err = e.checkPeer(&LaneEnd{GID: gidOf(c.gid)})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.gid, err, c.want)
		}
	}
	e, _ := ibPort(7, "fe80", false).local().endpoint(verbs.GID{})
	if err := e.checkPeer(&LaneEnd{}); err != nil {
		t.Errorf("InfiniBand: %v", err)
	}
}

// TestEventHits: which lanes an event takes down.
func TestEventHits(t *testing.T) {
	for _, c := range []struct {
		name  string
		port  *fakePort
		event verbs.AsyncEvent
		edit  func(*fakePort)
		want  string
	}{
		{"port error", roce("10.0.0.1"), verbs.AsyncEvent{Type: verbs.EventPortErr, Port: 1}, nil, "PORT_ERR"},
		{"port error elsewhere", roce("10.0.0.1"), verbs.AsyncEvent{Type: verbs.EventPortErr, Port: 2}, nil, ""},
		{"device", roce("10.0.0.1"), verbs.AsyncEvent{Type: verbs.EventDeviceFatal}, nil, "DEVICE_FATAL"},
		{"GIDs as before", roce("10.0.0.1"), verbs.AsyncEvent{Type: verbs.EventGIDChange, Port: 1},
			func(p *fakePort) { p.table = append(roce("10.0.0.3").table, p.table...); p.table[0].Index = 7 }, ""},
		{"GID elsewhere", roce("10.0.0.1"), verbs.AsyncEvent{Type: verbs.EventGIDChange, Port: 1},
			func(p *fakePort) { p.table[0].Index = 7 }, "at another index than 0"},
		{"GID gone", roce("10.0.0.1"), verbs.AsyncEvent{Type: verbs.EventGIDChange, Port: 1},
			func(p *fakePort) { p.table[0].GID = gidOf("10.0.0.3") }, "has lost its GID 10.0.0.1"},
		{"GID gone at another port", roce("10.0.0.1"), verbs.AsyncEvent{Type: verbs.EventGIDChange, Port: 2},
			func(p *fakePort) { p.table = nil }, ""},
		{"LID", ibPort(7, "fe80", false), verbs.AsyncEvent{Type: verbs.EventLIDChange, Port: 1},
			func(p *fakePort) { p.attr.LID = 8 }, "had LID 7, and has 8"},
		{"LID as before", ibPort(7, "fe80", false), verbs.AsyncEvent{Type: verbs.EventLIDChange, Port: 1}, nil, ""},
		{"P_Key", ibPort(7, "fe80", false), verbs.AsyncEvent{Type: verbs.EventPKeyChange, Port: 1}, nil, ""},
		{"device gone", roce("10.0.0.1"), verbs.AsyncEvent{Type: verbs.EventGIDChange, Port: 1},
			func(p *fakePort) { p.err = verbs.ErrClosed }, "device closed"},
		{"subnet manager", ibPort(7, "fe80", false), verbs.AsyncEvent{Type: verbs.EventSMChange, Port: 1}, func(p *fakePort) { p.table = nil }, ""},
		{"client reregister", ibPort(7, "fe80", false), verbs.AsyncEvent{Type: verbs.EventClientRereg, Port: 1}, func(p *fakePort) { p.table = nil }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			local := c.port.local()
			e, err := local.endpoint(verbs.GID{})
			if err != nil {
				t.Fatal(err)
			}
			if c.edit != nil {
				c.edit(c.port)
			}
			l := &sessionLane{here: e, group: &sessionGroup{}}
			if got := l.hit(local, c.event); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	for _, e := range []verbs.EventType{verbs.EventPortActive, verbs.EventGIDChange, verbs.EventLIDChange, verbs.EventPKeyChange} {
		if !mayMend(e) {
			t.Errorf("%v mends nothing", e)
		}
	}
	if mayMend(verbs.EventPortErr) || mayMend(verbs.EventClientRereg) {
		t.Error("what is no mend is taken for one")
	}
}
