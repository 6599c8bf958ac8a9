package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mover/verbs"
)

// errNoRail: no rail with both ends up can be made of two nodes' ports.
var errNoRail = errors.New("no rail")

// PortMatch is a pair of ports that a session makes a rail of.
type PortMatch struct {
	Local, Remote int // indexes in what MatchPorts was given
	MTU           verbs.MTU
	// Down: one end can't be used now. A session needs another rail to begin;
	// this one's lanes are built once it is up.
	Down bool
}

// PortFinding is something about a local port that keeps it from being used as
// it might be, for people.
type PortFinding struct {
	Device  string
	Port    uint8
	Warning bool   // the port is used all the same, or need not be
	Found   string // what was found; it names the remote port where one is at fault
	Fix     string // what to do
}

func (f PortFinding) String() string {
	return fmt.Sprintf("%s port %d: %s; %s", f.Device, f.Port, f.Found, f.Fix)
}

// MatchPorts tells which rails a session from this node's ports to a peer's
// has, and of every local port without one, or with one that is less than it
// could be, why. It depends on nothing but its arguments; any goroutine may
// call it.
func MatchPorts(local, remote []PortOffer) ([]PortMatch, []PortFinding) {
	var matches []PortMatch
	for _, r := range matchRails(local, remote) {
		matches = append(matches, PortMatch{Local: r.port[0], Remote: r.port[1], MTU: r.mtu, Down: r.down})
	}
	var findings []PortFinding
	for i := range local {
		k := slices.IndexFunc(matches, func(m PortMatch) bool { return m.Local == i })
		if k < 0 {
			findings = append(findings, unmatched(&local[i], remote))
			continue
		}
		findings = append(findings, matchFindings(&local[i], &remote[matches[k].Remote], matches[k].MTU)...)
	}
	return matches, findings
}

// matchFindings are about a port that has a rail.
func matchFindings(l, r *PortOffer, used verbs.MTU) []PortFinding {
	var out []PortFinding
	add := func(found, fix string) {
		out = append(out, PortFinding{Device: l.Device, Port: l.Port, Warning: true, Found: found, Fix: fix})
	}
	if l.Down {
		add("the port is down or has no usable GID", downFix)
	}
	if r.Down {
		add(portName(r)+" there is down or has no usable GID", downFix)
	}
	if l.Down || r.Down {
		return out // the rest is not known
	}
	if l.MTU != r.MTU {
		add(fmt.Sprintf("its MTU is %v, that of %s there %v; %v is used", l.MTU, portName(r), r.MTU, used),
			"give both interfaces, and the switches between, the same MTU")
	}
	if !sameFamily(l, r) {
		add(fmt.Sprintf("its GID is %v, that of %s there %v, and a lane needs one address family", l.GID.Addr(), portName(r), r.GID.Addr()),
			"give both interfaces an address of the same family")
	}
	return out
}

const downFix = "check the cable and that its network interface is up and has an address (`mover devices`, `rdma link`)"

// unmatched says why a port has no rail.
func unmatched(l *PortOffer, remote []PortOffer) PortFinding {
	f := PortFinding{Device: l.Device, Port: l.Port}
	if len(remote) == 0 {
		f.Found, f.Fix = "the peer offers no port", "see `mover devices` there"
		return f
	}
	var why []string
	for i := range remote {
		found, fix := mismatch(l, &remote[i])
		if found == "" { // it could, but that one has a partner
			f.Warning = true
			f.Found, f.Fix = "it is spare: the ports there that it could reach have partners", "nothing to do, or give the peer as many ports"
			return f
		}
		why, f.Fix = append(why, found), fix
	}
	f.Found = strings.Join(slices.Compact(why), ", ")
	return f
}

// mismatch says why two ports can't be the ends of one rail; "" when they can.
func mismatch(l, r *PortOffer) (found, fix string) {
	switch {
	case l.Provider != r.Provider:
		return fmt.Sprintf("providers differ: %s here, %s at %s there", l.Provider, r.Provider, portName(r)),
			"see `mover devices` on both nodes for why each uses what it does (devices.providers, devices.fallback)"
	case !compatible(l, r) && l.LinkLayer != r.LinkLayer:
		return fmt.Sprintf("%s here is %s, %s there is %s", portName(l), l.LinkLayer, portName(r), r.LinkLayer),
			"they can't reach each other: use ports of one fabric (devices.names)"
	case !compatible(l, r):
		return fmt.Sprintf("GID types differ: %s here, %s at %s there", l.GIDType, r.GIDType, portName(r)),
			"give both interfaces an IP address, so that both have RoCE v2"
	}
	return "", ""
}

// noRail says in one line why two nodes have no rail to begin a session on.
func noRail(local, remote []PortOffer) string {
	matches, findings := MatchPorts(local, remote)
	text := "no port here can reach one there"
	if len(matches) > 0 {
		text = "no rail has both its ends up"
	}
	const most = 4
	for i, f := range findings {
		if i == most {
			text += fmt.Sprintf("; and %d ports more", len(findings)-i)
			break
		}
		text += "; " + f.String()
	}
	return text
}

func portName(p *PortOffer) string { return fmt.Sprintf("%s port %d", p.Device, p.Port) }

// compatible reports whether two ports may become a rail. What a port that is
// down does not know of itself yet, it is given credit for.
func compatible(a, b *PortOffer) bool {
	layer := a.LinkLayer == b.LinkLayer || a.Down && a.LinkLayer == verbs.LinkUnspecified || b.Down && b.LinkLayer == verbs.LinkUnspecified
	gid := a.GIDType == b.GIDType || a.Down && a.GIDType == verbs.GIDUnknown || b.Down && b.GIDType == verbs.GIDUnknown
	return a.Provider == b.Provider && layer && gid
}

// sameFamily reports whether two known GIDs are of one address family: a RoCE
// packet has one IP header.
func sameFamily(a, b *PortOffer) bool {
	return a.GID.Addr().Is4() == b.GID.Addr().Is4()
}

// sameSubnet reports whether two known GIDs are of one subnet.
func sameSubnet(a, b *PortOffer) bool {
	return !a.GID.IsZero() && !b.GID.IsZero() && subnet(a) == subnet(b)
}

// subnet is what two ports of one subnet share: the subnet prefix on
// InfiniBand and IPv6 (64 bits), 24 bits of an IPv4-mapped GID elsewhere. It
// only orders the matching; ports of different subnets may still be matched.
func subnet(p *PortOffer) [16]byte {
	s := [16]byte(p.GID)
	keep := 8
	if p.GID.Addr().Is4() {
		keep = 15
	}
	clear(s[keep:])
	return s
}

// matchRails pairs ports in order of index: first those that are up, within a
// subnet or fabric, then within an address family, then those left over, which
// a router may connect; at last, in the same order, with ports that are down,
// which so never cost a rail that could be used now. Ports without a partner
// stay spare. Index 0 of a pair is the dialler's.
func matchRails(dialler, acceptor []PortOffer) []planRail {
	var rails []planRail
	used := [2]map[int]bool{{}, {}}
	near := []func(a, b *PortOffer) bool{sameSubnet, sameFamily, func(_, _ *PortOffer) bool { return true }}
	for pass := range 2 * len(near) {
		down, fits := pass >= len(near), near[pass%len(near)]
		for i := range dialler {
			for j := range acceptor {
				d, a := &dialler[i], &acceptor[j]
				if used[0][i] || used[1][j] || (d.Down || a.Down) != down || !compatible(d, a) || !fits(d, a) {
					continue
				}
				if len(rails) == MaxRails {
					return rails
				}
				used[0][i], used[1][j] = true, true
				rails = append(rails, planRail{port: [2]int{i, j}, mtu: min(d.MTU, a.MTU), down: down})
			}
		}
	}
	return rails
}
