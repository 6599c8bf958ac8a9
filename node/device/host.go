package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mover/verbs"
)

// Host is where to look for what the kernel says of RDMA devices. It is what
// is known before a device is opened, or without a library to open it.
type Host struct {
	Sys string // "/sys"
	Dev string // "/dev"
	// NetdevOf names the network interface that has an address, "" when none
	// has.
	NetdevOf func(netip.Addr) string
}

// ThisHost is the host that the process runs on.
func ThisHost() Host { return Host{Sys: "/sys", Dev: "/dev", NetdevOf: netdevOf} }

// HostDevice is an RDMA device as sysfs has it.
type HostDevice struct {
	Name   string
	Uverbs string // its node below /dev/infiniband, "" when it has none
	Ports  []HostPort
}

// HostPort is a port of it. Attr has what sysfs tells: state, link layer, LID,
// rate, and the MTU of RoCE.
type HostPort struct {
	Number  uint8
	Attr    verbs.PortAttr
	GIDs    []verbs.GIDEntry // those that are set and can be read
	PKey    uint16           // entry 0 of the P_Key table, 0 when unknown
	Netdevs []string         // network interfaces on it, sorted
}

// Devices lists the RDMA devices that the kernel has, sorted by name, whether
// or not mover can use them; none is no error.
func (h Host) Devices() ([]HostDevice, error) {
	entries, err := os.ReadDir(h.class())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing RDMA devices: %w", err)
	}
	uverbs, over := h.uverbs(), h.netdevsByPort()
	var out []HostDevice
	for _, e := range entries {
		d := HostDevice{Name: e.Name(), Uverbs: uverbs[e.Name()]}
		for _, n := range numbered(filepath.Join(h.class(), e.Name(), "ports")) {
			if n > 0 && n <= maxPorts {
				d.Ports = append(d.Ports, h.port(e.Name(), uint8(n), over[portOf{e.Name(), n}]))
			}
		}
		out = append(out, d)
	}
	return out, nil
}

// maxPorts is what a port number of the verbs can be.
const maxPorts = 255

func (h Host) class() string { return filepath.Join(h.Sys, "class/infiniband") }

// uverbs maps device names to their nodes below /dev/infiniband.
func (h Host) uverbs() map[string]string {
	out := map[string]string{}
	// The pattern is well formed.
	files, _ := filepath.Glob(filepath.Join(h.Sys, "class/infiniband_verbs/uverbs*/ibdev"))
	for _, f := range files {
		if name := line(f); name != "" {
			out[name] = filepath.Base(filepath.Dir(f))
		}
	}
	return out
}

// UverbsLoaded reports whether the kernel gives user space access to RDMA
// devices at all.
func (h Host) UverbsLoaded() bool {
	_, err := os.Stat(filepath.Join(h.Sys, "class/infiniband_verbs"))
	return err == nil
}

type portOf struct {
	device string
	port   int
}

// netdevsByPort finds the network interfaces of the same hardware function:
// IPoIB's are in no GID table. dev_port counts from 0
// (Documentation/ABI/testing/sysfs-class-net).
func (h Host) netdevsByPort() map[portOf][]string {
	out := map[portOf][]string{}
	paths, _ := filepath.Glob(filepath.Join(h.Sys, "class/net/*/device/infiniband/*")) // a well-formed pattern
	for _, p := range paths {
		netdev := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(p))))
		n, err := strconv.Atoi(line(filepath.Join(h.Sys, "class/net", netdev, "dev_port")))
		if err != nil || n < 0 || n >= maxPorts {
			n = 0
		}
		at := portOf{filepath.Base(p), n + 1}
		out[at] = append(out[at], netdev)
	}
	return out
}

func (h Host) port(device string, number uint8, netdevs []string) HostPort {
	dir := filepath.Join(h.class(), device, "ports", strconv.Itoa(int(number)))
	p := HostPort{Number: number, Netdevs: slices.Clone(netdevs)}
	p.Attr.State, p.Attr.LinkLayer = portState(line(filepath.Join(dir, "state"))), linkLayer(line(filepath.Join(dir, "link_layer")))
	p.Attr.LID = hex16(line(filepath.Join(dir, "lid")))
	p.Attr.ActiveRate = rate(line(filepath.Join(dir, "rate")))
	p.PKey = hex16(line(filepath.Join(dir, "pkeys/0")))
	p.GIDs = gids(dir, p.Attr.LinkLayer)
	for _, g := range p.GIDs {
		p.Netdevs = append(p.Netdevs, g.Netdev)
	}
	// rxe names its interface here also while its GID table is empty.
	if parent := line(filepath.Join(h.class(), device, "parent")); number == 1 {
		p.Netdevs = append(p.Netdevs, parent)
	}
	slices.Sort(p.Netdevs)
	p.Netdevs = slices.DeleteFunc(slices.Compact(p.Netdevs), func(s string) bool { return s == "" })
	if p.Attr.LinkLayer == verbs.LinkEthernet && len(p.Netdevs) > 0 {
		p.Attr.ActiveMTU = h.roceMTU(p.Netdevs[0])
	}
	return p
}

// gids reads a GID table. Entries that are not set, or belong to another
// network namespace, answer EINVAL.
func gids(dir string, layer verbs.LinkLayer) []verbs.GIDEntry {
	var out []verbs.GIDEntry
	for _, i := range numbered(filepath.Join(dir, "gids")) {
		a, err := netip.ParseAddr(line(filepath.Join(dir, "gids", strconv.Itoa(i))))
		if err != nil {
			continue
		}
		e := verbs.GIDEntry{Index: i, GID: verbs.GIDFromAddr(a)}
		if e.GID.IsZero() {
			continue
		}
		kind := line(filepath.Join(dir, "gid_attrs/types", strconv.Itoa(i)))
		switch {
		case layer == verbs.LinkInfiniBand:
			e.Type = verbs.GIDInfiniBand
		case kind == "RoCE v2":
			e.Type = verbs.GIDRoCEv2
		case kind == "IB/RoCE v1":
			e.Type = verbs.GIDRoCEv1
		}
		e.Netdev = line(filepath.Join(dir, "gid_attrs/ndevs", strconv.Itoa(i)))
		out = append(out, e)
	}
	return out
}

// roceHeaders are the bytes that iboe_get_mtu (include/rdma/ib_addr.h) takes
// off an interface's MTU: GRH, UDP, BTH, XRC and atomic headers, ICRC.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

func (h Host) roceMTU(netdev string) verbs.MTU {
	n, err := strconv.Atoi(line(filepath.Join(h.Sys, "class/net", netdev, "mtu")))
	if err != nil {
		return 0
	}
	for m := verbs.MTU4096; m >= verbs.MTU256; m-- {
		if n-roceHeaders >= m.Bytes() {
			return m
		}
	}
	return 0
}

// portState reads "4: ACTIVE".
func portState(s string) verbs.PortState {
	n, _, _ := strings.Cut(s, ":")
	if v, err := strconv.ParseUint(n, 10, 8); err == nil {
		return verbs.PortState(v)
	}
	return verbs.PortNop
}

func linkLayer(s string) verbs.LinkLayer {
	for _, l := range []verbs.LinkLayer{verbs.LinkInfiniBand, verbs.LinkEthernet} {
		if s == l.String() {
			return l
		}
	}
	return verbs.LinkUnspecified
}

// hex16 reads "0xffff".
func hex16(s string) uint16 {
	n, err := strconv.ParseUint(s, 0, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// rate reads "2.5 Gb/sec (1X SDR)".
func rate(s string) uint64 {
	number, rest, _ := strings.Cut(s, " ")
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(rest, "Gb/sec") || !(f >= 0 && f <= 1e6) { // NaN is neither
		return 0
	}
	return uint64(f * 1e9)
}

// numbered lists the entries of a directory that are numbers, ascending.
func numbered(dir string) []int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// line is the one line of an attribute, "" when it cannot be read.
func line(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// netdevOf asks the kernel which interface has an address.
func netdevOf(a netip.Addr) string {
	ifaces, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range ifaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, x := range addrs {
			if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr().Unmap() == a.Unmap() {
				return i.Name
			}
		}
	}
	return ""
}
