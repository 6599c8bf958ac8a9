//go:build linux

package ibv

import (
	"strconv"
	"strings"

	"mover/verbs"
)

// gidType reads a GID's type, for libraries that do not tell. Both
// InfiniBand's and RoCE v1's read "IB/RoCE v1"
// (Documentation/ABI/testing/sysfs-class-infiniband, gid_attrs/types).
func (d sysDevice) gidType(port uint8, index int, link verbs.LinkLayer) verbs.GIDType {
	switch d.read("ports", strconv.Itoa(int(port)), "gid_attrs/types", strconv.Itoa(index)) {
	case "RoCE v2":
		return verbs.GIDRoCEv2
	case "IB/RoCE v1":
		if link == verbs.LinkInfiniBand {
			return verbs.GIDInfiniBand
		}
		return verbs.GIDRoCEv1
	}
	if link == verbs.LinkInfiniBand {
		return verbs.GIDInfiniBand // has no other
	}
	return verbs.GIDUnknown
}

// gidNetdev is the interface of a GID, "" when there is none or it belongs to
// another network namespace (the read is EINVAL then).
func (d sysDevice) gidNetdev(port uint8, index int) string {
	return d.read("ports", strconv.Itoa(int(port)), "gid_attrs/ndevs", strconv.Itoa(index))
}

// rate reads "800 Gb/sec (4X XDR)" as bits per second, 0 when it cannot.
func (d sysDevice) rate(port uint8) uint64 {
	gbits, _, ok := strings.Cut(d.read("ports", strconv.Itoa(int(port)), "rate"), " Gb/sec")
	if !ok {
		return 0
	}
	f, err := strconv.ParseFloat(gbits, 64)
	if err != nil || f < 0 || f > 1e6 {
		return 0
	}
	return uint64(f * 1e9)
}

// linkRate is width times speed in bits per second; both are the encodings of
// ibv_query_port(3). 0 when either is unknown.
func linkRate(width uint8, speed uint32) uint64 {
	lanes := map[uint8]uint64{1: 1, 2: 4, 4: 8, 8: 12, 16: 2}[width]
	perLane := map[uint32]uint64{
		1: 2_500_000_000, 2: 5_000_000_000, 4: 10_000_000_000, // SDR, DDR, QDR
		8: 10_000_000_000, 16: 14_000_000_000, 32: 25_000_000_000, // FDR10, FDR, EDR
		64: 50_000_000_000, 128: 100_000_000_000, 256: 200_000_000_000, // HDR, NDR, XDR
	}[speed]
	return lanes * perLane
}

// speedNDR is the fastest that fits the 8 bits of the older query: XDR reads as
// NDR there, and sysfs has the truth.
const speedNDR = 128

func (d sysDevice) portRate(port uint8, width uint8, speed uint32) uint64 {
	rate := linkRate(width, speed)
	if rate == 0 || speed == speedNDR {
		return max(rate, d.rate(port))
	}
	return rate
}
