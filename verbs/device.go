package verbs

import "fmt"

// LinkLayer is the link layer of a port (ibv_query_port(3), link_layer).
type LinkLayer uint8

// The link layers.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet // RoCE, iWARP, and soft
)

func (l LinkLayer) String() string {
	switch l {
	case LinkInfiniBand:
		return "InfiniBand"
	case LinkEthernet:
		return "Ethernet"
	}
	return "unspecified"
}

// DeviceInfo names a device before it is opened.
type DeviceInfo struct {
	Provider string // the provider's name
	Name     string // "mlx5_0", "rxe0", "soft0"
	Netdev   string // the network interface behind port 1, "" when unknown
	NUMANode int    // -1 when unknown
	Ports    int    // physical ports; they are numbered from 1
	Software bool   // the data path runs on the CPU (soft, rxe)
	Detail   string // one line for people: firmware, address, why it is here
}

// DeviceAttr holds the limits of a device (ibv_query_device(3)).
type DeviceAttr struct {
	MaxMRSize   uint64 // bytes in one MR
	MaxQP       int
	MaxQPWR     int // work requests outstanding on one queue
	MaxSGE      int // per work request
	MaxCQ       int
	MaxCQE      int // entries of one CQ
	MaxMR       int
	MaxPD       int
	MaxAH       int
	MaxQPRdAtom int    // reads and atomics a QP can take as responder
	PageSizeCap uint64 // mask of page sizes
	// RelaxedOrdering: AccessRelaxedOrdering reaches the device. Where it is
	// false the flag is accepted and has no effect (it is an optional access
	// flag of ibv_reg_mr(3)).
	RelaxedOrdering bool
}

// PortState is the logical state of a port.
type PortState uint8

// The port states of ibv_query_port(3).
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
)

func (s PortState) String() string {
	names := [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("PortState(%d)", uint8(s))
}

// MTU is the path MTU in the encoding of enum ibv_mtu.
type MTU uint8

// The path MTUs.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Valid reports whether m is one of the five values; what a peer sends is not.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 }

// Bytes is the payload of a full packet, 0 for an invalid value.
func (m MTU) Bytes() int {
	if !m.Valid() {
		return 0
	}
	return 128 << m
}

func (m MTU) String() string { return fmt.Sprint(m.Bytes()) }

// PortAttr is what ibv_query_port(3) tells of a port.
type PortAttr struct {
	State        PortState
	LinkLayer    LinkLayer
	MaxMTU       MTU
	ActiveMTU    MTU
	LID          uint16 // 0 on Ethernet
	SubnetPrefix uint64 // InfiniBand: the upper half of GID 0
	GIDTableLen  int
	PKeyTableLen int
	// ActiveRate is the link's signalling rate in bits per second, width times
	// speed; 0 when the provider has none of its own (soft).
	ActiveRate uint64
	// GRHRequired is IBV_QPF_GRH_REQUIRED.
	GRHRequired bool
}
