package device

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"mover/verbs"
	"mover/verbs/ibv"
)

// fixture builds trees of sysfs and /dev as the kernel shows them.
type fixture struct {
	t *testing.T
	Host
	addresses map[netip.Addr]string
	uverbs    int
}

func newFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	f := &fixture{t: t, addresses: map[netip.Addr]string{}}
	f.Host = Host{Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev"),
		NetdevOf: func(a netip.Addr) string { return f.addresses[a] }}
	return f
}

func (f *fixture) file(text string, parts ...string) {
	f.t.Helper()
	name := filepath.Join(parts...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// gid is one entry of a GID table.
type gid struct {
	index         int
	address, kind string
	netdev        string
}

func roce(netdev string, addresses ...string) []gid {
	var out []gid
	for i, a := range addresses {
		out = append(out, gid{2 * i, a, "IB/RoCE v1", netdev}, gid{2*i + 1, a, "RoCE v2", netdev})
	}
	return out
}

func (f *fixture) port(device string, port int, state, layer string, gids ...gid) {
	dir := filepath.Join(f.Sys, "class/infiniband", device, "ports", fmt.Sprint(port))
	f.file(state, dir, "state")
	f.file(layer, dir, "link_layer")
	f.file("100 Gb/sec (4X EDR)", dir, "rate")
	f.file("0xffff", dir, "pkeys/0")
	f.file("0x0", dir, "lid")
	f.file("0000:0000:0000:0000:0000:0000:0000:0000", dir, "gids/250")
	for _, g := range gids {
		f.file(netip.MustParseAddr(g.address).StringExpanded(), dir, "gids", fmt.Sprint(g.index))
		f.file(g.kind, dir, "gid_attrs/types", fmt.Sprint(g.index))
		if g.netdev != "" {
			f.file(g.netdev, dir, "gid_attrs/ndevs", fmt.Sprint(g.index))
			f.file("9000", f.Sys, "class/net", g.netdev, "mtu")
		}
	}
}

// node gives a device its uverbs node.
func (f *fixture) node(device string) string {
	name := fmt.Sprintf("uverbs%d", f.uverbs)
	f.uverbs++
	f.file(device, f.Sys, "class/infiniband_verbs", name, "ibdev")
	f.file("", f.Dev, "infiniband", name)
	return filepath.Join(f.Dev, "infiniband", name)
}

// infiniband is an adapter with one InfiniBand port and IPoIB on it.
func (f *fixture) infiniband() {
	f.port("mlx5_0", 1, "4: ACTIVE", "InfiniBand", gid{0, "fe80::506b:4b03:1", "IB/RoCE v1", ""})
	f.file("0x11", f.Sys, "class/infiniband/mlx5_0/ports/1/lid")
	f.file("0x7fff", f.Sys, "class/infiniband/mlx5_0/ports/1/pkeys/0")
	f.file("0", f.Sys, "class/net/ib0/dev_port")
	f.file("mlx5_0", f.Sys, "class/net/ib0/device/infiniband/mlx5_0/node_desc")
	f.addresses[netip.MustParseAddr("192.0.2.10")] = "ib0"
	f.node("mlx5_0")
}

// roceUp is a RoCE adapter's port, up, with two addresses.
func (f *fixture) roceUp(device, netdev, address, second string) {
	f.port(device, 1, "4: ACTIVE", "Ethernet", roce(netdev, "fe80::1", "::ffff:"+address, "::ffff:"+second)...)
	f.addresses[netip.MustParseAddr(address)] = netdev
	f.node(device)
}

// rxe is Soft-RoCE over an interface.
func (f *fixture) rxe(device, netdev, address string) {
	f.port(device, 1, "4: ACTIVE", "Ethernet", roce(netdev, "fe80::2", "::ffff:"+address)...)
	f.file(netdev, f.Sys, "class/infiniband", device, "parent")
	f.node(device)
}

// rxeDown is Soft-RoCE over an interface that is down.
func (f *fixture) rxeDown(device, netdev string) {
	f.port(device, 1, "1: DOWN", "Ethernet")
	f.file(netdev, f.Sys, "class/infiniband", device, "parent")
	f.node(device)
}

// listed is a provider that has just these devices.
type listed struct {
	name    string
	infos   []verbs.DeviceInfo
	open    map[string]verbs.Context
	opened  []string
	missing error
	check   func(name string) error // what opening answers; nil opens
}

func provider(name string, devices ...string) *listed {
	l := &listed{name: name}
	for _, d := range devices {
		l.infos = append(l.infos, verbs.DeviceInfo{Provider: name, Name: d, Ports: 1, NUMANode: -1})
	}
	return l
}

func (l *listed) Name() string                         { return l.name }
func (l *listed) Devices() ([]verbs.DeviceInfo, error) { return l.infos, l.missing }
func (l *listed) OpenDevice(name string) (verbs.Context, error) {
	l.opened = append(l.opened, name)
	if l.check != nil {
		if err := l.check(name); err != nil {
			return nil, err
		}
	}
	if c, ok := l.open[name]; ok {
		return c, nil
	}
	return &opened{}, nil
}

// checked is a provider of the fixture's devices that opens what the real one
// would, as far as sysfs and /dev tell.
func (f *fixture) checked(devices ...string) *listed {
	l := provider("ibv", devices...)
	l.check = func(name string) error { return ibv.Check(f.Sys, f.Dev, name) }
	return l
}

// opened is an open device that answers questions and nothing else.
type opened struct {
	verbs.Context
	info   verbs.DeviceInfo
	port   verbs.PortAttr
	table  []verbs.GIDEntry
	fails  error
	closed bool
}

func (o *opened) Device() verbs.DeviceInfo                      { return o.info }
func (o *opened) QueryDevice() (verbs.DeviceAttr, error)        { return verbs.DeviceAttr{MaxQP: 7}, nil }
func (o *opened) QueryPort(uint8) (verbs.PortAttr, error)       { return o.port, o.fails }
func (o *opened) QueryGIDTable(uint8) ([]verbs.GIDEntry, error) { return o.table, nil }
func (o *opened) Close() error                                  { o.closed = true; return nil }
