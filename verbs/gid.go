package verbs

import (
	"fmt"
	"net/netip"
)

// GID is a port's 128-bit address, in network order.
type GID [16]byte

// GIDFromAddr maps an IP address to a GID: IPv6 as it is, IPv4 as
// ::ffff:a.b.c.d (RoCE v2, annex A17.4.5.2).
func GIDFromAddr(a netip.Addr) GID { return GID(a.As16()) }

// Addr is the IP address of a RoCE or soft GID, IPv4 unmapped.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// IsZero reports an empty table entry.
func (g GID) IsZero() bool { return g == GID{} }

func (g GID) String() string { return netip.AddrFrom16(g).StringExpanded() }

// GIDType is the type of a GID table entry.
type GIDType uint8

// The GID types (ibv_query_gid_ex(3)); GIDSoft is an address of the soft
// provider.
const (
	GIDUnknown GIDType = iota
	GIDInfiniBand
	GIDRoCEv1
	GIDRoCEv2
	GIDSoft
	GIDSim
)

func (t GIDType) String() string {
	names := [...]string{"unknown", "IB", "RoCE v1", "RoCE v2", "soft", "sim"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("GIDType(%d)", uint8(t))
}

// GIDEntry is one readable entry of a port's GID table.
type GIDEntry struct {
	Index  int
	GID    GID
	Type   GIDType
	Netdev string
}
