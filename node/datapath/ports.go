package datapath

import (
	"errors"
	"fmt"

	"mover/engine"
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

// Devices are the devices in use, queried now.
func (p *Path) Devices() []DeviceInfo {
	var out []DeviceInfo
	for _, d := range p.devices {
		info := DeviceInfo{Info: d.info}
		for n := 1; n <= d.info.Ports; n++ {
			info.Ports = append(info.Ports, p.queryPort(d, uint8(n)))
		}
		out = append(out, info)
	}
	return out
}

func (p *Path) queryPort(d *openDevice, number uint8) PortInfo {
	info := PortInfo{Number: number}
	if info.Attr, info.Err = d.ctx.QueryPort(number); info.Err != nil {
		return info
	}
	info.RateBits = info.Attr.ActiveRate
	if info.RateBits == 0 || d.info.Software {
		info.RateBits = uint64(p.cfg.Session.RailRate)
	}
	if info.Attr.State != verbs.PortActive {
		info.Err = fmt.Errorf("the port is %s", info.Attr.State)
		return info
	}
	info.GID, info.Err = chooseGID(d.ctx, number)
	return info
}

// ports are what a session offers to a peer: the active ones.
func (p *Path) ports() ([]engine.LocalPort, error) {
	var ports []engine.LocalPort
	var unusable []error
	for _, d := range p.devices {
		var pollers []uint16
		for i, place := range p.placement.Pollers {
			if place.Node == d.node {
				pollers = append(pollers, uint16(i))
			}
		}
		for n := 1; n <= d.info.Ports; n++ {
			q := p.queryPort(d, uint8(n))
			if q.Err != nil {
				unusable = append(unusable, fmt.Errorf("device %s port %d: %w", d.info.Name, n, q.Err))
				continue
			}
			ports = append(ports, engine.LocalPort{
				Context: d.ctx, SGIDIndex: q.GID.Index, Channels: d.channels,
				Offer: engine.PortOffer{Provider: d.info.Provider, Device: d.info.Name, Port: q.Number,
					LinkLayer: q.Attr.LinkLayer, GID: q.GID.GID, GIDType: q.GID.Type, LID: q.Attr.LID,
					MTU: q.Attr.ActiveMTU, RateBits: q.RateBits, Pollers: pollers},
			})
		}
	}
	if len(ports) == 0 {
		return nil, reason.New(reason.TransportError, "no port of this node can be used (%v); see `mover devices`", errors.Join(unusable...))
	}
	return ports, nil
}

// chooseGID takes the best entry of a port's table.
func chooseGID(ctx verbs.Context, port uint8) (verbs.GIDEntry, error) {
	table, err := ctx.QueryGIDTable(port)
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	return verbs.ChooseGID(table, verbs.GIDWish{})
}
