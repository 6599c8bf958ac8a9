package node

import (
	"mover/engine"
	"mover/node/device"
	"mover/peer"
)

// warnOfDevices tells at the start what is in the way of each device and port
// that was to be used: the node runs without it.
func (n *Node) warnOfDevices(s *device.Selection) {
	for _, p := range s.Problems() {
		n.log.Warn("a device is not used", "why", p.What, "fix", p.Fix)
	}
	for _, d := range n.path.Devices() {
		for _, p := range d.Ports {
			if p.Err != nil {
				n.log.Warn("a port cannot be used now", "device", d.Info.Name, "port", p.Number, "why", p.Err)
			}
		}
	}
}

// describe answers a peer's question: what a session with it would be offered.
func (n *Node) describe() peer.Description {
	d := peer.Description{Node: n.cfg.Node.Name, Version: n.version, Reason: n.path.Selection().Reason, Ports: n.path.Offers()}
	if len(d.Ports) > engine.MaxPorts {
		d.Ports = d.Ports[:engine.MaxPorts]
	}
	return d
}
