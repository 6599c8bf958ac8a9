package verbs

import (
	"net/netip"
	"strings"
	"testing"
)

func TestChooseGID(t *testing.T) {
	entry := func(index int, typ GIDType, addr string) GIDEntry {
		return GIDEntry{Index: index, Type: typ, GID: GIDFromAddr(netip.MustParseAddr(addr))}
	}
	usual := []GIDEntry{ // what a RoCE port with one IPv4 address shows
		entry(0, GIDRoCEv1, "fe80::1"), entry(1, GIDRoCEv2, "fe80::1"),
		entry(2, GIDRoCEv1, "10.0.0.1"), entry(3, GIDRoCEv2, "10.0.0.1"),
	}
	for _, c := range []struct {
		name  string
		table []GIDEntry
		wish  GIDWish
		want  int // index, -1 when none will do
	}{
		{"IPv4 of version 2", usual, GIDWish{}, 3},
		{"private ranges are first class", []GIDEntry{entry(1, GIDRoCEv2, "2001:db8::1"), entry(2, GIDRoCEv2, "192.168.1.1")}, GIDWish{}, 2},
		{"the configured address", append(usual, entry(5, GIDRoCEv2, "10.0.0.2")), GIDWish{Addr: netip.MustParseAddr("10.0.0.2")}, 5},
		{"the configured address, as IPv6 writes it", usual, GIDWish{Addr: netip.MustParseAddr("::ffff:10.0.0.1")}, 3},
		{"the configured IPv6 address", append(usual, entry(7, GIDRoCEv2, "fd00::7")), GIDWish{Addr: netip.MustParseAddr("fd00::7")}, 7},
		{"the configured address is gone", usual, GIDWish{Addr: netip.MustParseAddr("10.0.0.9")}, -1},
		{"unique local IPv6 before link-local", []GIDEntry{entry(0, GIDRoCEv2, "fe80::1"), entry(4, GIDRoCEv2, "fd00::1")}, GIDWish{}, 4},
		{"link-local when there is nothing else", usual[:2], GIDWish{}, 1},
		{"version 1 alone", []GIDEntry{usual[0], usual[2]}, GIDWish{}, -1},
		{"IPv6 like the peer", append(usual, entry(9, GIDRoCEv2, "2001:db8::1")), GIDWish{Like: GIDFromAddr(netip.MustParseAddr("fd00::1"))}, 9},
		{"IPv4 like the peer", []GIDEntry{entry(9, GIDRoCEv2, "2001:db8::1")}, GIDWish{Like: GIDFromAddr(netip.MustParseAddr("10.0.0.1"))}, -1},
		{"zero entries", []GIDEntry{{Index: 0, Type: GIDRoCEv2}, entry(1, GIDRoCEv2, "10.0.0.1")}, GIDWish{}, 1},
		{"types that nobody could read", []GIDEntry{entry(0, GIDUnknown, "10.0.0.1")}, GIDWish{}, -1},
		{"multicast", []GIDEntry{entry(0, GIDRoCEv2, "224.0.0.1"), entry(1, GIDRoCEv2, "ff02::1")}, GIDWish{}, -1},
		{"InfiniBand with the default prefix", []GIDEntry{entry(0, GIDInfiniBand, "fe80::2:c903:0:1")}, GIDWish{}, 0},
		{"InfiniBand takes no address", []GIDEntry{entry(0, GIDInfiniBand, "fe80::2")}, GIDWish{Like: GIDFromAddr(netip.MustParseAddr("10.0.0.1"))}, 0},
		{"soft", []GIDEntry{entry(0, GIDSoft, "127.0.0.1")}, GIDWish{}, 0},
		{"after a flap the same address has another index", []GIDEntry{entry(11, GIDRoCEv2, "fe80::1"), entry(12, GIDRoCEv2, "10.0.0.1")}, GIDWish{Addr: netip.MustParseAddr("10.0.0.1")}, 12},
		{"an index that an address vector can't name", []GIDEntry{entry(256, GIDRoCEv2, "10.0.0.1"), entry(255, GIDRoCEv2, "fe80::1")}, GIDWish{}, 255},
		{"none but such", []GIDEntry{entry(256, GIDRoCEv2, "10.0.0.1")}, GIDWish{}, -1},
		{"empty", nil, GIDWish{}, -1},
	} {
		got, err := ChooseGID(c.table, c.wish)
		if err != nil {
			got.Index = -1
			if !strings.Contains(err.Error(), "GID") {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if got.Index != c.want {
			t.Errorf("%s: index %d (%v), want %d", c.name, got.Index, err, c.want)
		}
	}
}
