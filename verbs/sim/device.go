package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"mover/verbs"
)

// device is a device; several contexts may be open on it.
type device struct {
	f        *Fabric
	host     *host
	index    int
	cfg      Device
	ports    []*port
	contexts []*context
	qps      []*qp // live, in order of creation
	regions  []*mr // live, in order of registration
	lkeys    map[uint32]*mr
	rkeys    map[uint32]*mr
	revoked  map[uint32]bool // rkeys deregistered
	fatal    bool
	heldTill int64 // no completion before
}

// port is a port of a device.
type port struct {
	dev   *device
	num   uint8
	cfg   Port
	up    bool
	flaps int  // how often it went down
	opErr bool // this flap ends WRs with LOC_QP_OP_ERR, as rxe does
	// firstGID is the index of the first entry; it moves with flaps.
	firstGID int
	txFree   int64 // when the link has sent what it was given
}

func newDevice(h *host, index int, cfg Device) *device {
	if len(cfg.Ports) == 0 {
		cfg.Ports = []Port{{}}
	}
	if cfg.MaxMRSize == 0 {
		cfg.MaxMRSize = 1 << 40
	}
	if cfg.MaxQPWR == 0 {
		cfg.MaxQPWR = 16384
	}
	d := &device{f: h.f, host: h, index: index, cfg: cfg, lkeys: map[uint32]*mr{}, rkeys: map[uint32]*mr{},
		revoked: map[uint32]bool{}}
	for i, pc := range cfg.Ports {
		if pc.BitsPerSecond == 0 {
			pc.BitsPerSecond = 100e9
		}
		if pc.MTU == 0 {
			pc.MTU = verbs.MTU4096
		}
		d.ports = append(d.ports, &port{dev: d, num: uint8(i + 1), cfg: pc, up: true})
	}
	return d
}

func (d *device) info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Provider: providerName, Name: d.cfg.Name, Netdev: d.ports[0].netdev(),
		NUMANode: d.cfg.NUMANode, Ports: len(d.ports), Software: true, Detail: "simulated, host " + d.host.name}
}

func (d *device) attr() verbs.DeviceAttr {
	return verbs.DeviceAttr{MaxMRSize: d.cfg.MaxMRSize, MaxQP: 1 << 16, MaxQPWR: d.cfg.MaxQPWR, MaxSGE: 16,
		MaxCQ: 1 << 16, MaxCQE: 1 << 20, MaxMR: 1 << 20, MaxPD: 1 << 16, MaxAH: maxAH, MaxQPRdAtom: 16,
		PageSizeCap: ^uint64(0xfff)}
}

// notify queues an asynchronous event for every open context.
func (d *device) notify(ev verbs.AsyncEvent) {
	for _, c := range d.contexts {
		c.notify(ev)
	}
}

func (p *port) netdev() string { return fmt.Sprintf("sim%d%d", p.dev.index, p.num) }

// gids are the port's two addresses: link-local, and IPv4-mapped with the
// subnet, the host and the port in it.
func (p *port) gids() [2]verbs.GID {
	id := byte(p.dev.index*8 + int(p.num))
	local := netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 13: p.cfg.Subnet, 14: byte(p.dev.host.index), 15: id})
	v4 := netip.AddrFrom4([4]byte{10, p.cfg.Subnet, byte(p.dev.host.index), id})
	return [2]verbs.GID{verbs.GIDFromAddr(local), verbs.GIDFromAddr(v4)}
}

func (p *port) table() []verbs.GIDEntry {
	var entries []verbs.GIDEntry
	for i, g := range p.gids() {
		entries = append(entries, verbs.GIDEntry{Index: p.firstGID + i, GID: g, Type: verbs.GIDSim, Netdev: p.netdev()})
	}
	return entries
}

func (p *port) attr() verbs.PortAttr {
	state := verbs.PortActive
	if !p.up || p.dev.fatal {
		state = verbs.PortDown
	}
	return verbs.PortAttr{State: state, LinkLayer: verbs.LinkEthernet, MaxMTU: verbs.MTU4096, ActiveMTU: p.cfg.MTU,
		GIDTableLen: 256, PKeyTableLen: 1, ActiveRate: p.cfg.BitsPerSecond, GRHRequired: true}
}

// wireTime is how long the link is busy with n bytes, in nanoseconds.
func (p *port) wireTime(n uint32) int64 {
	return int64(float64(n) * 8e9 / float64(p.cfg.BitsPerSecond))
}

// resolve finds where an address vector leads from the port: to which port, and
// under which source address.
func (p *port) resolve(op string, av *verbs.AHAttr) (*port, verbs.GID, error) {
	if !av.IsGlobal {
		return nil, verbs.GID{}, invalid(op, "the port requires a GRH")
	}
	table := p.table()
	i := slices.IndexFunc(table, func(e verbs.GIDEntry) bool { return e.Index == av.SGIDIndex })
	if i < 0 {
		return nil, verbs.GID{}, invalid(op, "no GID at this index; query the table again")
	}
	remote := p.dev.f.portOf(av.DGID)
	if remote == nil { // the address is not resolved, as on RoCE
		return nil, verbs.GID{}, &verbs.Error{Op: op, Errno: syscall.ETIMEDOUT, Detail: "nobody has GID " + av.DGID.String()}
	}
	return remote, table[i].GID, nil
}

// portOf finds the port that has the GID, or nil.
func (f *Fabric) portOf(g verbs.GID) *port {
	for _, h := range f.hosts {
		for _, d := range h.devices {
			for _, p := range d.ports {
				if gids := p.gids(); g == gids[0] || g == gids[1] {
					return p
				}
			}
		}
	}
	return nil
}

// path reports whether a packet from p under the address sgid gets to q
// under the address dgid.
func (f *Fabric) path(p, q *port, sgid, dgid verbs.GID) bool {
	return f.reach(p, q) && isLinkLocal(sgid) == isLinkLocal(dgid)
}

func isLinkLocal(g verbs.GID) bool { return g.Addr().IsLinkLocalUnicast() }

// reach reports whether packets get from p to q.
func (f *Fabric) reach(p, q *port) bool {
	return p.up && q.up && !p.dev.fatal && !q.dev.fatal && p.cfg.Subnet == q.cfg.Subnet &&
		!f.cuts[[2]*port{p, q}] && !f.cuts[[2]*port{q, p}]
}
