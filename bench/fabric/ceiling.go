package fabric

import "mover/verbs"

// Bytes on the line beside the payload.
const (
	bthICRC     = 12 + 4 // base transport header, invariant CRC
	rethBytes   = 16     // address, key and length: once a write
	dethBytes   = 8      // UD: Q_Key and source QP, in each packet
	immBytes    = 4      // once a message
	grhHeader   = 40     // InfiniBand, where packets are routed; RoCE v1
	ethernet    = 14 + 4 // header, frame check sequence
	ethernetGap = 8 + 12 // preamble, gap between frames
	udpBytes    = 8      // RoCE v2
	ipv4Bytes   = 20
	ipv6Bytes   = 40
	infiniband  = 8 + 2 // local route header, variant CRC
)

// path is what decides on the overhead.
type path struct {
	link      verbs.LinkLayer
	gidType   verbs.GIDType
	ipv4      bool
	global    bool // InfiniBand: packets have a GRH
	mtu       verbs.MTU
	transport verbs.QPType
	op        Op
	immediate bool
}

// packetOverhead is what each packet costs beside its payload, in bytes; 0 for
// a link that it is not known for.
func (p *path) packetOverhead() int {
	n := bthICRC
	switch {
	case p.link == verbs.LinkInfiniBand:
		n += infiniband
		if p.global {
			n += grhHeader
		}
	case p.gidType == verbs.GIDRoCEv1:
		n += ethernet + ethernetGap + grhHeader
	case p.gidType == verbs.GIDRoCEv2 && p.ipv4:
		n += ethernet + ethernetGap + ipv4Bytes + udpBytes
	case p.gidType == verbs.GIDRoCEv2:
		n += ethernet + ethernetGap + ipv6Bytes + udpBytes
	default:
		return 0
	}
	if p.transport == verbs.UD {
		n += dethBytes
	}
	return n
}

// ceiling is the most that payload can be of the line's rate, for messages of
// a size: 0.98 for 64 KiB over RoCE v2 with an MTU of 4096. Acknowledgements
// go the other way and cost nothing here. It is 0 where it is not known.
func (p *path) ceiling(sizeBytes int) float64 {
	overhead := p.packetOverhead()
	if overhead == 0 || sizeBytes <= 0 || !p.mtu.Valid() {
		return 0
	}
	packets := (sizeBytes + p.mtu.Bytes() - 1) / p.mtu.Bytes()
	pad := -sizeBytes & 3 // a packet is whole words
	line := sizeBytes + pad + packets*overhead
	if p.op == Write {
		line += rethBytes
	}
	if p.immediate {
		line += immBytes
	}
	return float64(sizeBytes) / float64(line)
}
