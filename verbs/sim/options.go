package sim

import (
	"time"

	"mover/verbs"
)

// Options describe a Fabric; zero values stand for the defaults named.
type Options struct {
	// Hosts: "a" and "b", each with the devices sim0 and sim1 of one port, all
	// in one subnet.
	Hosts []Host
	// MaxLatency of a message, one way, before rare outliers 20 times as long:
	// 5 us.
	MaxLatency time.Duration
	// MaxCompletionDelay is how long a completion is kept from the CQ, before
	// rare outliers 20 times as long: 20 us.
	MaxCompletionDelay time.Duration
	// MaxPlacementDelay bounds how long accepted bytes stay out of memory when
	// no completion forces them in: 2 ms.
	MaxPlacementDelay time.Duration
	// Calm places bytes on arrival and completes at once, for tests about
	// something else. Faults still happen.
	Calm bool
	// FixedGIDs keeps GID indexes across port flaps; real ones move.
	FixedGIDs bool
	// Faults that happen at random: none.
	Faults Faults
}

// Host is a host of the fabric.
type Host struct {
	Name    string
	Devices []Device
}

// Device is a device of a host.
type Device struct {
	Name     string
	NUMANode int    // 0
	Ports    []Port // none stands for one default port
	// MaxMRSize in bytes: 1 TiB.
	MaxMRSize uint64
	// MaxQPWR of one queue: 16384.
	MaxQPWR int
}

// Port is a port of a device. Ports reach each other when their subnets are
// equal.
type Port struct {
	Subnet uint8
	// BitsPerSecond is the rate: 100e9.
	BitsPerSecond uint64
	// MTU is the active MTU: 4096.
	MTU verbs.MTU
}

// Faults are probabilities, 0 to 1, drawn once per message that arrives.
type Faults struct {
	KillQP      float64 // the sender's QP ends, as KillQP says
	Corrupt     float64 // one byte of the payload is flipped
	Hold        float64 // the receiving device's completions stop for up to 50 ms
	PortFlap    float64 // the sender's port is down for up to 50 ms
	CutRail     float64 // the two ports lose each other for up to 50 ms
	OverrunCQ   float64 // the receiver's CQ dies
	DeviceFatal float64 // the receiving device dies

	// Of UC and UD only; RC repeats what the fabric loses.
	LosePacket float64 // drawn once per packet: it is lost
	// ReorderUD, drawn once per datagram: it and others of its own QP may pass
	// each other. Datagrams of different QPs, or for different ports, always
	// may.
	ReorderUD float64
}

// PortID names a port of the fabric.
type PortID struct {
	Host, Device string
	Port         uint8
}

func (o *Options) setDefaults() {
	if len(o.Hosts) == 0 {
		for _, name := range []string{"a", "b"} {
			o.Hosts = append(o.Hosts, Host{Name: name, Devices: []Device{{Name: "sim0"}, {Name: "sim1"}}})
		}
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.MaxLatency, 5*time.Microsecond)
	def(&o.MaxCompletionDelay, 20*time.Microsecond)
	def(&o.MaxPlacementDelay, 2*time.Millisecond)
}
