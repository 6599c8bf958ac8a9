package device

import (
	"mover/engine"
	"mover/verbs"
)

// Port is a port as it is now.
type Port struct {
	Number  uint8
	Attr    verbs.PortAttr
	GID     verbs.GIDEntry // the one that sessions use; zero with a Problem
	PKey    uint16         // entry 0 of the P_Key table; 0 when unknown
	Netdevs []string       // network interfaces on it, as far as known
	Problem *Problem       // why it carries nothing now; nil when it can
}

// Offer is what a session offers a peer of the port, but for its pollers.
// rateBits stands in where the port has no rate of its own.
func (p Port) Offer(info verbs.DeviceInfo, rateBits uint64) engine.PortOffer {
	mtu := p.Attr.ActiveMTU
	if !mtu.Valid() {
		mtu = verbs.MTU4096 // unknown while it is down: the least of both ends is used
	}
	if p.Attr.ActiveRate != 0 && !info.Software {
		rateBits = p.Attr.ActiveRate
	}
	return engine.PortOffer{Provider: info.Provider, Device: info.Name, Port: p.Number, LinkLayer: p.Attr.LinkLayer,
		GID: p.GID.GID, GIDType: p.GID.Type, LID: p.Attr.LID, MTU: mtu, RateBits: rateBits,
		Down: p.Problem != nil, GRHRequired: p.Attr.GRHRequired}
}

// Look is a device looked at more closely.
type Look struct {
	// Problem: it is to be used, and cannot be opened. Ports are then as sysfs
	// has them, without what only the library tells.
	Problem *Problem
	Ports   []Port
}

// Look opens a device that is used, queries its ports, also those that are not
// used (UsesPort), and closes it. It changes nothing, and works beside a node
// that uses the device. What is not used is not opened.
func (s *Selection) Look(d Device) Look {
	var look Look
	if d.Used {
		ctx, err := s.Provider.OpenDevice(d.Name)
		if err == nil {
			defer ctx.Close()
			look.Ports = s.queryPorts(ctx, d)
			return look
		}
		look.Problem = s.source.cannotOpen(d.Name, err)
	} else if d.Problem != nil {
		look.Problem = d.Problem
	}
	for _, hp := range s.host(d.Name).Ports {
		p := Port{Number: hp.Number, Attr: hp.Attr, PKey: hp.PKey, Netdevs: hp.Netdevs}
		var choice error
		p.GID, choice = verbs.ChooseGID(hp.GIDs, s.Wish(d.Name, hp.Number))
		p.Problem = portProblem(d.Name, hp.Number, hp.Netdevs, hp.Attr, choice)
		look.Ports = append(look.Ports, p)
	}
	return look
}

func (s *Selection) queryPorts(ctx verbs.Context, d Device) []Port {
	host := s.host(d.Name)
	var out []Port
	for n := 1; n <= min(d.Ports, maxPorts); n++ {
		netdevs := []string(nil)
		pkey := uint16(0)
		for _, hp := range host.Ports {
			if hp.Number == uint8(n) {
				netdevs, pkey = hp.Netdevs, hp.PKey
			}
		}
		if netdevs == nil && n == 1 && d.Netdev != "" {
			netdevs = []string{d.Netdev}
		}
		p := QueryPort(ctx, uint8(n), s.Wish(d.Name, uint8(n)), netdevs)
		p.PKey = pkey
		out = append(out, p)
	}
	return out
}

// QueryPort asks an open device for a port, its state and the GID that
// sessions use of it. netdevs, which may be empty, are named in a Problem. Any
// goroutine may call it.
func QueryPort(ctx verbs.Context, number uint8, wish verbs.GIDWish, netdevs []string) Port {
	p := Port{Number: number, Netdevs: netdevs}
	name := ctx.Device().Name
	var err error
	if p.Attr, err = ctx.QueryPort(number); err != nil {
		p.Problem = &Problem{"device " + name + ": " + err.Error(), "see `mover doctor`"}
		return p
	}
	table, err := ctx.QueryGIDTable(number)
	if err == nil {
		p.GID, err = verbs.ChooseGID(table, wish)
	}
	p.Problem = portProblem(name, number, netdevs, p.Attr, err)
	return p
}

// host is what sysfs has of a device, zero when nothing.
func (s *Selection) host(name string) HostDevice {
	for _, d := range s.hostDevices {
		if d.Name == name {
			return d
		}
	}
	return HostDevice{}
}
