package verbs

import (
	"fmt"
	"net/netip"
)

// GIDWish says which entry of a port's GID table is wanted. The zero value
// takes the best there is.
type GIDWish struct {
	// Addr is the configured address of the port; when it is valid only the
	// entry with this address will do.
	Addr netip.Addr
	// Like, when not zero, leaves out the entries of another address family:
	// a RoCE v2 packet has one IP header, and so both ends one family.
	Like GID
}

// gidRank orders the entries that can be used; less is better.
type gidRank int

const (
	rankIPv4      gidRank = iota // IPv4-mapped, private ranges included
	rankIPv6                     // global or unique local
	rankLinkLocal                // reaches one link, and only where both have it
	rankUnusable
)

// maxGIDIndex is what an address vector can name (sgid_index of struct
// ibv_global_route); a table may be longer.
const maxGIDIndex = 255

// ChooseGID picks the entry that a QP of the port uses as its source. On RoCE
// only version 2 will do (version 1 is not routed, and both ends must have one
// type); indexes mean nothing, since they move when addresses do. Of equals
// the first in the table is taken. The error says what the table has.
func ChooseGID(table []GIDEntry, wish GIDWish) (GIDEntry, error) {
	best, rank := GIDEntry{}, rankUnusable
	for _, e := range table {
		if r := rankGID(e, wish); r < rank {
			best, rank = e, r
		}
	}
	if rank == rankUnusable {
		return GIDEntry{}, &NoGIDError{Wish: wish, Table: table}
	}
	return best, nil
}

func rankGID(e GIDEntry, wish GIDWish) gidRank {
	if e.GID.IsZero() || e.Type == GIDUnknown || e.Type == GIDRoCEv1 || e.Index > maxGIDIndex {
		return rankUnusable
	}
	if e.Type == GIDInfiniBand {
		return rankIPv4 // index 0 is the port's own; fe80::/64 is the default subnet prefix there
	}
	a := e.GID.Addr()
	switch {
	case wish.Addr.IsValid() && a != wish.Addr.Unmap().WithZone(""):
		return rankUnusable
	case !wish.Like.IsZero() && a.Is4() != wish.Like.Addr().Is4():
		return rankUnusable
	case a.IsMulticast() || a.IsUnspecified():
		return rankUnusable
	case a.IsLinkLocalUnicast():
		return rankLinkLocal
	case a.Is4():
		return rankIPv4
	}
	return rankIPv6
}

// NoGIDError: a port has no GID that can be used.
type NoGIDError struct {
	Wish  GIDWish
	Table []GIDEntry
}

func (e *NoGIDError) Error() string {
	found := "its GID table is empty: give its network interface an address"
	if len(e.Table) > 0 {
		found = "its GID table has"
		for i, g := range e.Table {
			if i == 8 {
				found += fmt.Sprintf(" and %d more", len(e.Table)-i)
				break
			}
			found += fmt.Sprintf(" [%d] %s %s", g.Index, g.Type, g.GID.Addr())
			if g.Index > maxGIDIndex {
				found += fmt.Sprintf(" (beyond %d: no QP can name it)", maxGIDIndex)
			}
		}
	}
	want := ""
	switch {
	case e.Wish.Addr.IsValid():
		want = " with address " + e.Wish.Addr.String()
	case !e.Wish.Like.IsZero() && e.Wish.Like.Addr().Is4():
		want = " of IPv4"
	case !e.Wish.Like.IsZero():
		want = " of IPv6"
	}
	return fmt.Sprintf("verbs: no usable GID%s (RoCE needs one of version 2): %s", want, found)
}
