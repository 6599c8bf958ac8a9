//go:build linux

package ibv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mover/verbs"
)

// HostDevices lists the RDMA devices that the kernel knows, sorted by name,
// from sysfs alone (Documentation/ABI/stable/sysfs-class-infiniband). It needs
// neither libibverbs nor cgo. sys is where sysfs is mounted; empty means /sys.
// No devices are no error. Any goroutine may call it.
func HostDevices(sys string) ([]verbs.DeviceInfo, error) {
	if sys == "" {
		sys = "/sys"
	}
	entries, err := os.ReadDir(filepath.Join(sys, "class/infiniband"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the kernel has no RDMA core loaded
	}
	if err != nil {
		return nil, fmt.Errorf("ibv: listing RDMA devices: %w", err)
	}
	var infos []verbs.DeviceInfo
	for _, e := range entries { // sorted
		infos = append(infos, sysDevice{sys: sys, name: e.Name()}.info())
	}
	return infos, nil
}

// sysDevice is a device's folder in /sys/class/infiniband.
type sysDevice struct{ sys, name string }

func (d sysDevice) path(elem ...string) string {
	return filepath.Join(append([]string{d.sys, "class/infiniband", d.name}, elem...)...)
}

func (d sysDevice) read(elem ...string) string { return readLine(d.path(elem...)) }

// readLine is a one-line attribute without its newline, "" when it cannot be
// read: attributes come and go with drivers and containers.
func readLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (d sysDevice) info() verbs.DeviceInfo {
	info := verbs.DeviceInfo{Provider: providerName, Name: d.name, Ports: d.ports(), Software: d.software()}
	info.Netdev = d.netdev()
	info.NUMANode = d.numaNode(info.Netdev)
	info.Detail = d.detail(info)
	return info
}

// ports counts the physical ports; a device without any is none of ours, but
// is listed.
func (d sysDevice) ports() int {
	entries, err := os.ReadDir(d.path("ports"))
	if err != nil {
		return 0
	}
	return len(entries)
}

// software: rxe and siw have no bus device behind them. The description is
// looked at too, because older kernels link a virtual device to its netdev's.
func (d sysDevice) software() bool {
	if _, err := os.Stat(d.path("device")); err != nil {
		return true
	}
	for _, s := range []string{d.read("node_desc"), d.read("hca_type"), d.name} {
		if strings.HasPrefix(s, "rxe") || strings.HasPrefix(s, "siw") {
			return true
		}
	}
	return false
}

// netdev is the interface behind port 1: that of its GIDs (RoCE), the parent
// of a virtual device, or the one that shares its bus device (IPoIB).
func (d sysDevice) netdev() string {
	folder := d.path("ports/1/gid_attrs/ndevs")
	entries, err := os.ReadDir(folder)
	if err == nil {
		// The lowest number is the interface itself, later ones are VLANs and
		// the like on top of it. As text "10" would come before "2".
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return number(a.Name()) - number(b.Name()) })
		for _, e := range entries {
			if s := readLine(filepath.Join(folder, e.Name())); s != "" {
				return s
			}
		}
	}
	if s := d.read("parent"); s != "" {
		return s
	}
	if entries, err := os.ReadDir(d.path("device/net")); err == nil && len(entries) > 0 {
		return entries[0].Name()
	}
	return ""
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

// numaNode is the node of the bus device, or of the interface under a virtual
// one; -1 when unknown.
func (d sysDevice) numaNode(netdev string) int {
	if n := d.nodeAbove(d.path("device")); n >= 0 {
		return n
	}
	return d.netdevNode(netdev, 4)
}

// netdevNode is the node of an interface, or of the one it is stacked on
// (VLAN, bond): depth bounds the stack.
func (d sysDevice) netdevNode(netdev string, depth int) int {
	if netdev == "" || depth == 0 {
		return -1
	}
	folder := filepath.Join(d.sys, "class/net", netdev)
	if n := d.nodeAbove(filepath.Join(folder, "device")); n >= 0 {
		return n
	}
	lower, err := filepath.Glob(filepath.Join(folder, "lower_*"))
	if err != nil {
		return -1
	}
	for _, l := range lower {
		if n := d.netdevNode(strings.TrimPrefix(filepath.Base(l), "lower_"), depth-1); n >= 0 {
			return n
		}
	}
	return -1
}

// nodeAbove looks for numa_node in a device's folder and those above it: a
// virtio interface's own device is virtioN, and the PCI device above has it.
func (d sysDevice) nodeAbove(link string) int {
	root, err := filepath.EvalSymlinks(d.sys)
	if err != nil {
		return -1
	}
	at, err := filepath.EvalSymlinks(link)
	if err != nil {
		return -1
	}
	for ; strings.HasPrefix(at, root+string(filepath.Separator)); at = filepath.Dir(at) {
		if n, err := strconv.Atoi(readLine(filepath.Join(at, "numa_node"))); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// detail is one line for people.
func (d sysDevice) detail(info verbs.DeviceInfo) string {
	var parts []string
	add := func(label, value string) {
		if value != "" {
			parts = append(parts, strings.TrimSpace(label+" "+value))
		}
	}
	if info.Software {
		s := "software device"
		if info.Netdev != "" {
			s += " on " + info.Netdev
		}
		add("", s)
	}
	if driver, err := filepath.EvalSymlinks(d.path("device/driver")); err == nil {
		add("driver", filepath.Base(driver))
	}
	add("type", d.read("hca_type"))
	add("board", d.read("board_id"))
	add("firmware", d.read("fw_ver"))
	add("node GUID", d.read("node_guid"))
	return strings.Join(parts, ", ")
}

// uverbs is the name of the device's node in /dev/infiniband, "" without one.
func (d sysDevice) uverbs() string {
	folder := filepath.Join(d.sys, "class/infiniband_verbs")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if readLine(filepath.Join(folder, e.Name(), "ibdev")) == d.name {
			return e.Name()
		}
	}
	return ""
}
