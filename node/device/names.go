package device

import (
	"fmt"
	"net/netip"
	"slices"

	"mover/node/config"
	"mover/verbs"
)

// match is what an entry of devices.names found.
type match struct {
	index int   // in the provider's list
	port  uint8 // 0 is every port
	wish  verbs.GIDWish
}

// find looks for an entry of devices.names among a provider's devices. Over
// one interface there may be an adapter's device and a Soft-RoCE one: the
// adapter is meant.
func (c *candidate) find(infos []verbs.DeviceInfo, n config.DeviceName) (match, bool) {
	var found []match
	for i, info := range infos {
		found = append(found, c.findIn(i, info, n)...)
	}
	if len(found) == 0 {
		return match{}, false
	}
	slices.SortStableFunc(found, func(a, b match) int {
		return bit(infos[a.index].Software) - bit(infos[b.index].Software)
	})
	return found[0], true
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *candidate) findIn(i int, info verbs.DeviceInfo, n config.DeviceName) []match {
	if n.Name == info.Name {
		if int(n.Port) > info.Ports {
			return nil
		}
		return []match{{index: i, port: n.Port}}
	}
	var found []match
	add := func(port uint8, wish verbs.GIDWish) {
		if n.Port == 0 || n.Port == port {
			found = append(found, match{index: i, port: port, wish: wish})
		}
	}
	if a, ok := c.addresses[info.Name]; ok && n.Addr.IsValid() && a.Unmap() == n.Addr {
		add(1, verbs.GIDWish{Addr: n.Addr})
	}
	over := ""
	if n.Addr.IsValid() {
		over = c.netdevOf(n.Addr)
	} else {
		over = n.Name
	}
	if c.addresses == nil || !n.Addr.IsValid() {
		for _, p := range c.ports(info) {
			inTable := slices.ContainsFunc(p.GIDs, func(g verbs.GIDEntry) bool { return n.Addr.IsValid() && g.GID.Addr() == n.Addr })
			// An address that is in no table is found by its interface: IPoIB's
			// are never there, RoCE's not while the port is down.
			if inTable || over != "" && slices.Contains(p.Netdevs, over) {
				wish := verbs.GIDWish{Addr: n.Addr}
				if !n.Addr.IsValid() {
					wish.Addr = addressOf(p, n.Name)
				}
				add(p.Number, wish)
			}
		}
	}
	return found
}

// addressOf is the address of an interface that shares a port with others, as
// VLANs do: which network it is on matters, and a GIDWish can tell only by
// address. The zero address where the interface has the port for itself, or no
// address yet.
func addressOf(p HostPort, netdev string) netip.Addr {
	var own []verbs.GIDEntry
	for _, g := range p.GIDs {
		if g.Netdev == netdev {
			own = append(own, g)
		}
	}
	if len(own) == len(p.GIDs) {
		return netip.Addr{}
	}
	g, err := verbs.ChooseGID(own, verbs.GIDWish{})
	if err != nil {
		return netip.Addr{}
	}
	return g.GID.Addr()
}

func (c *candidate) netdevOf(a netip.Addr) string {
	if c.host.NetdevOf == nil {
		return ""
	}
	return c.host.NetdevOf(a)
}

// ports are a device's as sysfs has them, or else what its provider says of
// its first.
func (c *candidate) ports(info verbs.DeviceInfo) []HostPort {
	for _, d := range c.hostDevices {
		if d.Name == info.Name {
			return d.Ports
		}
	}
	if info.Netdev == "" {
		return nil
	}
	return []HostPort{{Number: 1, Netdevs: []string{info.Netdev}}}
}

// chosen is what devices.names wants of one device.
type chosen struct {
	all    bool
	ports  map[uint8]bool
	wishes map[uint8]verbs.GIDWish
	why    string
}

func (c *chosen) add(name string, m match) error {
	if c.ports == nil {
		c.ports, c.wishes = map[uint8]bool{}, map[uint8]verbs.GIDWish{}
	}
	if m.port == 0 {
		c.all = true
	}
	c.ports[m.port] = true
	if m.wish.Addr.IsValid() {
		if other, taken := c.wishes[m.port]; taken && other.Addr != m.wish.Addr {
			return fmt.Errorf("devices.names: %s and %s are addresses of one port, which uses one; remove the other", other.Addr, m.wish.Addr)
		}
		c.wishes[m.port] = m.wish
	}
	if c.why != "" {
		c.why += ", "
	}
	c.why += name
	return nil
}

func (c *chosen) reason() string { return "is in devices.names: " + c.why }
