//go:build linux

package ibv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mover/verbs"
)

// sysTree is a fixture of sysfs: files by path, links by path and target.
type sysTree struct {
	files, links map[string]string
}

func (s sysTree) make(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range s.files {
		path = filepath.Join(root, path)
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		check(os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	for path, target := range s.links {
		path = filepath.Join(root, path)
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		rel, err := filepath.Rel(filepath.Dir(path), filepath.Join(root, target))
		check(err)
		check(os.Symlink(rel, path))
	}
	return root
}

func TestHostDevices(t *testing.T) {
	const pci = "devices/pci0000:00/0000:00:03.0"
	roce := map[string]string{
		pci + "/numa_node": "1", pci + "/net/ens3f0np0/mtu": "9000",
		"class/infiniband/mlx5_0/fw_ver": "22.31.1014", "class/infiniband/mlx5_0/board_id": "MT_0000000224",
		"class/infiniband/mlx5_0/hca_type": "MT4125", "class/infiniband/mlx5_0/node_guid": "0c42:a103:0065:2b4a",
		"class/infiniband/mlx5_0/node_desc": "host mlx5_0", "class/infiniband/mlx5_0/ports/1/rate": "100 Gb/sec (4X EDR)",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0":  "ens3f0np0",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/10": "vlan7",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/2":  "vlan5",
		"bus/pci/drivers/mlx5_core/x":                        "",
	}
	for _, c := range []struct {
		name string
		tree sysTree
		want []verbs.DeviceInfo
	}{
		{"no RDMA", sysTree{}, nil},
		{"adapter, RoCE", sysTree{files: roce, links: map[string]string{"class/infiniband/mlx5_0/device": pci,
			pci + "/driver": "bus/pci/drivers/mlx5_core"}},
			[]verbs.DeviceInfo{{Provider: "ibv", Name: "mlx5_0", Netdev: "ens3f0np0", NUMANode: 1, Ports: 1,
				Detail: "driver mlx5_core, type MT4125, board MT_0000000224, firmware 22.31.1014, node GUID 0c42:a103:0065:2b4a"}}},
		{"adapter, InfiniBand, two ports, node unknown", sysTree{files: map[string]string{
			pci + "/numa_node": "-1", pci + "/net/ib0/mtu": "2044", "class/infiniband/ibp3s0/ports/1/rate": "x",
			"class/infiniband/ibp3s0/ports/2/rate": "x", "class/infiniband/ibp3s0/ports/1/gid_attrs/ndevs/0": ""},
			links: map[string]string{"class/infiniband/ibp3s0/device": pci}},
			[]verbs.DeviceInfo{{Provider: "ibv", Name: "ibp3s0", Netdev: "ib0", NUMANode: -1, Ports: 2}}},
		{"Soft-RoCE on virtio, sorted", sysTree{files: map[string]string{
			pci + "/numa_node": "0", pci + "/virtio0/features": "1", "devices/pci0000:80/0000:80:01.0/0000:81:00.0/numa_node": "1",
			"devices/pci0000:80/0000:80:01.0/0000:81:00.0/virtio1/features": "1",
			"class/infiniband/rxe1/parent":                                  "eth1", "class/infiniband/rxe1/ports/1/rate": "x",
			"class/infiniband/rxe0/parent": "eth0", "class/infiniband/rxe0/ports/1/rate": "x", "class/infiniband/rxe0/node_desc": "rxe",
			"class/infiniband/rxe0/node_guid": "5054:00ff:fe12:3456"},
			links: map[string]string{"class/net/eth0/device": pci + "/virtio0",
				"class/net/eth1/device": "devices/pci0000:80/0000:80:01.0/0000:81:00.0/virtio1"}},
			[]verbs.DeviceInfo{
				{Provider: "ibv", Name: "rxe0", Netdev: "eth0", NUMANode: 0, Ports: 1, Software: true,
					Detail: "software device on eth0, node GUID 5054:00ff:fe12:3456"},
				{Provider: "ibv", Name: "rxe1", Netdev: "eth1", NUMANode: 1, Ports: 1, Software: true, Detail: "software device on eth1"}}},
		{"Soft-RoCE on a VLAN", sysTree{files: map[string]string{pci + "/numa_node": "3", "class/infiniband/rxe0/parent": "bond0.5",
			"class/infiniband/rxe0/ports/1/rate": "x", "class/net/bond0.5/mtu": "1500", "class/net/bond0/mtu": "1500"},
			links: map[string]string{"class/net/eth0/device": pci, "class/net/bond0.5/lower_bond0": "class/net/bond0",
				"class/net/bond0/lower_eth0": "class/net/eth0"}},
			[]verbs.DeviceInfo{{Provider: "ibv", Name: "rxe0", Netdev: "bond0.5", NUMANode: 3, Ports: 1, Software: true,
				Detail: "software device on bond0.5"}}},
		{"Soft-RoCE on nothing known, renamed, with a device link", sysTree{files: map[string]string{
			"devices/virtual/net/veth0/mtu": "9000", "class/infiniband/rocep0/ports/1/rate": "x", "class/infiniband/rocep0/node_desc": "rxe",
			"class/infiniband/rocep0/parent": "veth0"},
			links: map[string]string{"class/infiniband/rocep0/device": "devices/virtual/net/veth0", "class/net/veth0": "devices/virtual/net/veth0"}},
			[]verbs.DeviceInfo{{Provider: "ibv", Name: "rocep0", Netdev: "veth0", NUMANode: -1, Ports: 1, Software: true,
				Detail: "software device on veth0"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := HostDevices(c.tree.make(t))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestHostDevicesUnreadable(t *testing.T) {
	root := sysTree{files: map[string]string{"class/infiniband": "not a folder"}}.make(t)
	if infos, err := HostDevices(root); err == nil {
		t.Errorf("devices %v from a file", infos)
	}
}

func TestGIDType(t *testing.T) {
	root := sysTree{files: map[string]string{
		"class/infiniband/d/ports/2/gid_attrs/types/0": "IB/RoCE v1",
		"class/infiniband/d/ports/2/gid_attrs/types/1": "RoCE v2",
		"class/infiniband/d/ports/2/gid_attrs/types/2": "RoCE v9",
	}}.make(t)
	d := sysDevice{sys: root, name: "d"}
	for _, c := range []struct {
		index int
		link  verbs.LinkLayer
		want  verbs.GIDType
	}{
		{0, verbs.LinkInfiniBand, verbs.GIDInfiniBand}, {0, verbs.LinkEthernet, verbs.GIDRoCEv1},
		{1, verbs.LinkEthernet, verbs.GIDRoCEv2}, {2, verbs.LinkEthernet, verbs.GIDUnknown},
		{3, verbs.LinkEthernet, verbs.GIDUnknown}, {3, verbs.LinkInfiniBand, verbs.GIDInfiniBand},
	} {
		if got := d.gidType(2, c.index, c.link); got != c.want {
			t.Errorf("index %d on %v: %v, want %v", c.index, c.link, got, c.want)
		}
	}
}

func TestRate(t *testing.T) {
	const G = 1_000_000_000
	for _, c := range []struct {
		width uint8
		speed uint32
		sysfs string
		want  uint64
	}{
		{2, 1, "", 10 * G}, {2, 2, "", 20 * G}, {2, 4, "", 40 * G}, {2, 8, "", 40 * G}, {2, 16, "", 56 * G}, {2, 32, "", 100 * G},
		{2, 64, "", 200 * G}, {2, 128, "", 400 * G}, {2, 256, "", 800 * G}, {1, 32, "", 25 * G}, {16, 64, "", 100 * G},
		{4, 64, "", 400 * G}, {8, 4, "", 120 * G}, {1, 1, "", 2*G + G/2},
		{2, 128, "800 Gb/sec (4X XDR)", 800 * G}, // XDR does not fit the 8 bits of the query
		{2, 128, "400 Gb/sec (4X NDR)", 400 * G},
		{2, 0, "2.5 Gb/sec (1X SDR)", 2*G + G/2}, {3, 4, "56 Gb/sec (4X FDR)", 56 * G},
		{2, 32, "10 Gb/sec", 100 * G}, // what was asked of the device counts
		{0, 0, "", 0}, {2, 512, "", 0}, {2, 3, "fast", 0}, {0, 0, "-5 Gb/sec", 0}, {0, 0, "1e300 Gb/sec", 0},
	} {
		root := sysTree{files: map[string]string{"class/infiniband/d/ports/1/rate": c.sysfs}}.make(t)
		if got := (sysDevice{sys: root, name: "d"}).portRate(1, c.width, c.speed); got != c.want {
			t.Errorf("width %d, speed %d, %q: %d, want %d", c.width, c.speed, c.sysfs, got, c.want)
		}
	}
}
