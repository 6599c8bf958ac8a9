package node

import (
	"mover/engine"
	"mover/node/datapath"
	"mover/node/device"
	"mover/peer"
	"mover/verbs"
)

// warnOfDevices tells at the start what is in the way of each device and port
// that was to be used: the node runs without it.
func (n *Node) warnOfDevices(s *device.Selection) {
	for _, p := range s.Problems() {
		n.log.Warn("a device is not used", "why", p.What, "fix", p.Fix)
	}
	for _, d := range n.path.Devices() {
		for _, p := range d.Ports {
			if p.Err != nil && s.UsesPort(d.Info.Name, p.Number) {
				n.log.Warn("a port cannot be used now", "device", d.Info.Name, "port", p.Number, "why", p.Err)
			}
		}
	}
}

// describe answers a peer's question: what a session with it would be offered.
func (n *Node) describe() peer.Description {
	s := n.path.Selection()
	d := peer.Description{Node: n.cfg.Node.Name, Version: n.version, Reason: s.Reason}
	for _, dev := range n.path.Devices() {
		for _, p := range dev.Ports {
			if s.UsesPort(dev.Info.Name, p.Number) && len(d.Ports) < engine.MaxPorts {
				d.Ports = append(d.Ports, offer(dev.Info, p, uint64(n.cfg.Session.RailRate)))
			}
		}
	}
	return d
}

func offer(info verbs.DeviceInfo, p datapath.PortInfo, rateBits uint64) engine.PortOffer {
	port := device.Port{Number: p.Number, Attr: p.Attr, GID: p.GID}
	if p.Err != nil {
		port.Problem = &device.Problem{What: p.Err.Error()}
	}
	return port.Offer(info, rateBits)
}
