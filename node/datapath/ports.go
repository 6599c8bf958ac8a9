package datapath

import (
	"errors"
	"slices"

	"mover/engine"
	"mover/node/device"
	"mover/reason"
	"mover/verbs"
)

// DeviceInfo is a device in use, as it is now.
type DeviceInfo struct {
	Info  verbs.DeviceInfo
	Ports []PortInfo
}

// PortInfo is one port of it.
type PortInfo struct {
	Number   uint8
	Attr     verbs.PortAttr
	GID      verbs.GIDEntry // the one that sessions use
	RateBits uint64         // what bytes in flight are sized by
	Err      error          // why it can't be used
}

// Devices are the devices and ports in use, queried now.
func (p *Path) Devices() []DeviceInfo {
	var out []DeviceInfo
	for _, d := range p.devices {
		info := DeviceInfo{Info: d.info}
		for n := uint8(1); int(n) <= d.info.Ports; n++ {
			if p.selection.UsesPort(d.info.Name, n) {
				info.Ports = append(info.Ports, p.queryPort(d, n))
			}
		}
		out = append(out, info)
	}
	return out
}

func (p *Path) queryPort(d *openDevice, number uint8) PortInfo {
	q, offer := p.look(d, number)
	info := PortInfo{Number: number, Attr: q.Attr, GID: q.GID, RateBits: offer.RateBits}
	if q.Problem != nil {
		info.Err = q.Problem
	}
	return info
}

// look asks a port what it is now, and makes an offer of it.
func (p *Path) look(d *openDevice, number uint8) (device.Port, engine.PortOffer) {
	var netdevs []string
	if number == 1 && d.info.Netdev != "" {
		netdevs = []string{d.info.Netdev}
	}
	q := device.QueryPort(d.ctx, number, p.selection.Wish(d.info.Name, number), netdevs)
	offer := q.Offer(d.info, uint64(p.cfg.Session.RailRate))
	// What a port that is down tells of its rate says little, and bounds what is
	// in flight once it is up.
	if offer.Down {
		offer.RateBits = max(offer.RateBits, uint64(p.cfg.Session.RailRate))
	}
	return q, offer
}

// Offers are what a session would offer a peer now.
func (p *Path) Offers() []engine.PortOffer {
	ports, _ := p.lookAtPorts()
	var out []engine.PortOffer
	for _, port := range ports {
		out = append(out, port.Offer)
	}
	return out
}

// ports are what a session offers to a peer: also the ports that are down, for
// they may come up while it lasts.
func (p *Path) ports() ([]engine.LocalPort, error) {
	ports, unusable := p.lookAtPorts()
	if !slices.ContainsFunc(ports, func(port engine.LocalPort) bool { return !port.Offer.Down }) {
		return nil, reason.New(reason.TransportError, "no port of this node can be used (%v); see `mover devices`", errors.Join(unusable...))
	}
	for _, why := range unusable {
		p.log.Warn("a port carries nothing for now", "why", why)
	}
	return ports, nil
}

// lookAtPorts asks every port in use what it is now; unusable says why some
// carry nothing. A port that does not even answer a query is left out.
func (p *Path) lookAtPorts() (ports []engine.LocalPort, unusable []error) {
	for _, d := range p.devices {
		var pollers []uint16
		for i, place := range p.placement.Pollers {
			if place.Node == d.node {
				pollers = append(pollers, uint16(i))
			}
		}
		for n := uint8(1); int(n) <= d.info.Ports; n++ {
			if !p.selection.UsesPort(d.info.Name, n) {
				continue
			}
			q, offer := p.look(d, n)
			if q.Problem != nil {
				unusable = append(unusable, q.Problem)
			}
			if q.Attr == (verbs.PortAttr{}) {
				continue
			}
			offer.Pollers = pollers
			ports = append(ports, engine.LocalPort{Context: d.ctx, Wish: p.selection.Wish(d.info.Name, n), Channels: d.channels,
				Offer: offer, RelaxedOrdering: d.relaxed})
		}
	}
	return ports, unusable
}
