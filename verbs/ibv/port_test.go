//go:build linux && cgo

package ibv

import (
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mover/verbs"
)

func TestQueryDevice(t *testing.T) {
	d := newFake(t).open()
	attr, err := d.QueryDevice()
	want := verbs.DeviceAttr{MaxMRSize: 1 << 30, MaxQP: 100, MaxQPWR: 1000, MaxSGE: 8, MaxCQ: 50, MaxCQE: 2000, MaxMR: 200,
		MaxPD: 40, MaxAH: 30, MaxQPRdAtom: 16, PageSizeCap: 0xfffff000, RelaxedOrdering: true}
	if err != nil || attr != want {
		t.Errorf("%+v, %v", attr, err)
	}
	if info := d.Device(); info.Name != "fake0" || info.NUMANode != 1 || info.Ports != 1 || info.Netdev != "eth7" || info.Software {
		t.Errorf("device %+v", info)
	}
}

// TestQueryPort: RoCE, InfiniBand with a LID, a port that is down, and the
// encodings of the rate.
func TestQueryPort(t *testing.T) {
	const G = 1_000_000_000
	for _, c := range []struct {
		name  string
		knobs map[string]uint64
		want  verbs.PortAttr
	}{
		{"RoCE", nil, verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkEthernet, MaxMTU: 5, ActiveMTU: 5, GIDTableLen: 10,
			PKeyTableLen: 1, ActiveRate: 100 * G}},
		{"InfiniBand", map[string]uint64{"LINK_LAYER": 1, "PORT_LID": 0xc00f, "PORT_SPEED": 64},
			verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkInfiniBand, MaxMTU: 5, ActiveMTU: 5, GIDTableLen: 10, PKeyTableLen: 1,
				ActiveRate: 200 * G, LID: 0xc00f, SubnetPrefix: 0xfe80_0000_0000_0007}},
		{"InfiniBand, link layer not told", map[string]uint64{"LINK_LAYER": 0, "PORT_LID": 7},
			verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkInfiniBand, MaxMTU: 5, ActiveMTU: 5, GIDTableLen: 10, PKeyTableLen: 1,
				ActiveRate: 100 * G, LID: 7, SubnetPrefix: 0xfe80_0000_0000_0007}},
		{"down", map[string]uint64{"PORT_STATE": 1, "PORT_MTU": 3}, verbs.PortAttr{State: verbs.PortDown, LinkLayer: verbs.LinkEthernet, MaxMTU: 5,
			ActiveMTU: 3, GIDTableLen: 10, PKeyTableLen: 1, ActiveRate: 100 * G}},
		{"GRH required, XDR in 32 bits", map[string]uint64{"PORT_FLAGS": 1, "PORT_SPEED": 128, "PORT_SPEED_EX": 256},
			verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkEthernet, MaxMTU: 5, ActiveMTU: 5, GIDTableLen: 10, PKeyTableLen: 1,
				ActiveRate: 800 * G, GRHRequired: true}},
		// The symbol of the old interface does not fill flags.
		{"old context", map[string]uint64{"OLD_CONTEXT": 1, "PORT_FLAGS": 1}, verbs.PortAttr{State: verbs.PortActive,
			LinkLayer: verbs.LinkEthernet, MaxMTU: 5, ActiveMTU: 5, GIDTableLen: 10, PKeyTableLen: 1, ActiveRate: 100 * G}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t)
			f.gid(0, "fe80:0:0:7::1", 0, 0)
			for k, v := range c.knobs {
				f.set(k, v)
			}
			d := f.open()
			got, err := d.QueryPort(1)
			must(t, err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			for _, port := range []uint8{0, 2, 255} {
				if _, err := d.QueryPort(port); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("port %d: %v", port, err)
				}
			}
			f.set("PORT_ERRNO", uint64(syscall.EIO))
			if _, err := d.QueryPort(1); !errors.Is(err, syscall.EIO) {
				t.Errorf("a query that fails: %v", err)
			}
		})
	}
}

// TestGIDTable: entries that are empty or can't be read are left out, however
// the library is asked.
func TestGIDTable(t *testing.T) {
	want := []verbs.GIDEntry{
		{Index: 1, Type: verbs.GIDRoCEv2, GID: verbs.GIDFromAddr(mustAddr(t, "10.0.0.1")), Netdev: "eth7"},
		{Index: 3, Type: verbs.GIDRoCEv1, GID: verbs.GIDFromAddr(mustAddr(t, "fe80::3"))},
		{Index: 9, Type: verbs.GIDRoCEv2, GID: verbs.GIDFromAddr(mustAddr(t, "fd00::9"))},
	}
	for name, knobs := range map[string]map[string]uint64{
		"whole table": nil,
		"by entry":    {"GID_TABLE_ERRNO": uint64(syscall.EOPNOTSUPP)},
		"by sysfs":    {"GID_TABLE_ERRNO": uint64(syscall.EINVAL), "GID_EX_ERRNO": uint64(syscall.EOPNOTSUPP)},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.gid(2, "fe80::2", 2, uint32(syscall.EINVAL)) // of another network namespace
			f.gid(3, "fe80::3", 1, 0)
			f.gid(9, "fd00::9", 2, 0)
			f.write("sys/class/infiniband/fake0/ports/1/gid_attrs/types/1", "RoCE v2")
			f.write("sys/class/infiniband/fake0/ports/1/gid_attrs/types/3", "IB/RoCE v1")
			f.write("sys/class/infiniband/fake0/ports/1/gid_attrs/types/9", "RoCE v2")
			for k, v := range knobs {
				f.set(k, v)
			}
			got, err := f.open().QueryGIDTable(1)
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestGIDTableBeyond: an entry whose index fits no address is left out, not
// chosen to fail at RTR.
func TestGIDTableBeyond(t *testing.T) {
	for _, byEntry := range []uint64{0, uint64(syscall.EOPNOTSUPP)} {
		f := newFake(t)
		f.set("GID_COUNT", 1024)
		f.set("GID_TABLE_ERRNO", byEntry)
		f.gid(255, "10.0.0.2", 2, 0)
		f.gid(256, "10.0.0.3", 2, 0)
		table, err := f.open().QueryGIDTable(1)
		must(t, err)
		if len(table) != 2 || table[0].Index != 1 || table[1].Index != 255 {
			t.Errorf("%+v, want entries 1 and 255", table)
		}
	}
}

// TestGIDTableOfOtherPort: the library's table has the entries of all ports.
func TestGIDTableOfOtherPort(t *testing.T) {
	f := newFake(t)
	f.gid(4, "10.0.0.4", 2, 0)
	f.ctl[gidOffset+32*4+24] = 2
	table, err := f.open().QueryGIDTable(1)
	if err != nil || len(table) != 1 || table[0].Index != 1 {
		t.Errorf("%+v, %v", table, err)
	}
}

func TestGIDTypes(t *testing.T) {
	for raw, want := range map[uint32]verbs.GIDType{0: verbs.GIDInfiniBand, 1: verbs.GIDRoCEv1, 2: verbs.GIDRoCEv2, 3: verbs.GIDUnknown} {
		if got := gidTypeOf(raw); got != want {
			t.Errorf("type %d is %v, want %v", raw, got, want)
		}
	}
}
