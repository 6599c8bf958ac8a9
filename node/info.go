package node

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	v1 "mover/api/v1"
	"mover/node/datapath"
	"mover/node/device"
	"mover/verbs"
)

// info is what the API shows of the node. It implements api.NodeInfo.
type info struct {
	node     *Node
	started  time.Time
	stopping atomic.Bool
}

// Version implements api.NodeInfo.
func (i *info) Version() v1.Version {
	v := v1.Version{Node: i.node.cfg.Node.Name, Version: i.node.version, API: "v1", Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, StartedAt: i.started}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}

// Devices implements api.NodeInfo.
func (i *info) Devices(context.Context) (v1.Devices, error) {
	s := i.node.path.Selection()
	d := v1.Devices{Hardware: !i.node.path.Software(), Reason: s.Reason, Devices: []v1.Device{}}
	used := i.node.path.Devices()
	for _, found := range s.Devices {
		dev := describeDevice(found, i.node.cfg.Devices.RelaxedOrdering)
		for _, u := range used {
			if u.Info.Name != found.Name || u.Info.Provider != found.Provider {
				continue
			}
			for _, p := range u.Ports {
				dev.Ports = append(dev.Ports, port(p))
			}
		}
		d.Devices = append(d.Devices, dev)
	}
	return d, nil
}

func describeDevice(d device.Device, relaxed string) v1.Device {
	out := v1.Device{Name: d.Name, Provider: d.Provider, Used: d.Used, Why: d.Why, Software: d.Software, NUMANode: d.NUMANode,
		NetDev: d.Netdev, Detail: d.Detail, Ports: []v1.Port{}}
	if d.Used {
		out.RelaxedOrdering, out.RelaxedOrderingReason = device.RelaxedOrdering(relaxed, d.DeviceInfo, d.Attr)
	} else {
		out.Error = d.Why
	}
	return out
}

func port(p datapath.PortInfo) v1.Port {
	out := v1.Port{Number: int(p.Number), State: strings.ToLower(p.Attr.State.String()), LinkLayer: strings.ToLower(p.Attr.LinkLayer.String()),
		GID: p.GID.GID.String(), GIDType: p.GID.Type.String(), LID: int(p.Attr.LID), NetDev: p.GID.Netdev,
		MTUBytes: p.Attr.ActiveMTU.Bytes(), RateBitPerSecond: int64(p.RateBits)}
	if p.GID.Type != verbs.GIDInfiniBand && !p.GID.GID.IsZero() {
		out.Address = p.GID.GID.Addr().String()
	}
	if p.Err != nil {
		out.Error = p.Err.Error()
	}
	return out
}

// Peers implements api.NodeInfo.
func (i *info) Peers(context.Context) (v1.Peers, error) {
	n := i.node
	peers := map[string]*v1.Peer{}
	for name, p := range n.live.Load().Peers {
		peers[name] = &v1.Peer{Name: name, Addresses: p.Addresses, Fingerprint: p.Fingerprint, State: "idle", Rails: []v1.Rail{}}
	}
	for _, s := range n.sessions.all() {
		l := s.link
		who := l.Conn().Peer()
		p := peers[who.Name]
		if p == nil { // known through the CA
			p = &v1.Peer{Name: who.Name, Rails: []v1.Rail{}}
			peers[who.Name] = p
		}
		p.Fingerprint, p.State = who.Fingerprint, "connecting"
		if l.Up() {
			p.State = "connected"
		}
		if p.Since == nil || p.Since.Before(s.since) {
			p.Since = &s.since
		}
		for _, r := range l.Session().Rails() {
			rail := v1.Rail{LocalDevice: r.Local.Device, LocalPort: int(r.Local.Port), RemoteDevice: r.Remote.Device,
				RemotePort: int(r.Remote.Port), Provider: r.Local.Provider, Reason: n.path.Selection().Reason, State: "up",
				MTUBytes: min(r.Local.MTU, r.Remote.MTU).Bytes(),
				LanesUp:  int(r.LanesUp.Load()), Lanes: r.Lanes, SentBytes: r.SentBytes.Load(), ReceivedBytes: r.RecvBytes.Load()}
			if rail.LanesUp == 0 {
				rail.State = "down"
			}
			p.Rails = append(p.Rails, rail)
		}
	}
	out := v1.Peers{Peers: []v1.Peer{}}
	for _, p := range peers {
		out.Peers = append(out.Peers, *p)
	}
	slices.SortFunc(out.Peers, func(a, b v1.Peer) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Roots implements api.NodeInfo.
func (i *info) Roots(context.Context) (v1.Roots, error) {
	out := v1.Roots{Roots: []v1.Root{}}
	for _, name := range i.node.roots.names() {
		root, c := i.node.roots.get(name)
		if root == nil { // a reload took it meanwhile
			continue
		}
		r := v1.Root{Name: name, Path: root.Path(), Read: list(c.Read), Write: list(c.Write),
			QuotaBytes: int64(c.Quota), MinFreeBytes: int64(c.MinFree)}
		if fs, err := i.node.roots.space.ask(r.Path); err != nil {
			r.AvailableError = err.Error()
		} else {
			r.FreeBytes, r.TotalBytes = int64(fs.Bavail)*fs.Bsize, int64(fs.Blocks)*fs.Bsize
			r.Filesystem = filesystem(fs.Type)
		}
		out.Roots = append(out.Roots, r)
	}
	return out, nil
}

// list makes JSON's [] of what is not set.
func list(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

// filesystem names the types of statfs(2) that data lies on.
func filesystem(magic int64) string {
	names := map[int64]string{
		unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.NFS_SUPER_MAGIC: "nfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
		0x0BD00BD0: "lustre", 0x2fc12fc1: "zfs",
	}
	if s := names[magic]; s != "" {
		return s
	}
	return fmt.Sprintf("%#x", uint64(magic))
}

// Pollers implements api.NodeInfo.
func (i *info) Pollers(context.Context) (v1.Pollers, error) {
	out := v1.Pollers{Pollers: []v1.Poller{}}
	for k, s := range i.node.path.Stats() {
		cpuSeconds, _ := s.Thread.CPUSeconds()
		p := v1.Poller{ID: k, NUMANode: s.Place.Node, Idle: "adaptive",
			Steps: s.Engine.Steps.Load(), EmptySteps: s.Engine.EmptySteps.Load(), Parks: s.Thread.Parks.Load(),
			Lanes: int(s.Engine.Lanes.Load()), CPUSeconds: cpuSeconds, LongestGapMicro: s.Thread.LongestGap().Microseconds()}
		if s.Place.Pinned {
			cpu := s.Place.CPU
			p.CPU = &cpu
		}
		if s.Spins {
			p.Idle = "spin"
		}
		out.Pollers = append(out.Pollers, p)
	}
	return out, nil
}

// Ready implements api.NodeInfo.
func (i *info) Ready(context.Context) error {
	if i.stopping.Load() {
		return errStopping
	}
	return nil
}
