package device

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"mover/verbs"
	"mover/verbs/ibv"
)

// Problem is what stands between this node and a device or port, in one line:
// what was found, and what to do about it.
type Problem struct {
	What string // names the device, and the port
	Fix  string // "" when What says it
}

func (p *Problem) Error() string {
	if p.Fix == "" {
		return p.What
	}
	return p.What + "; " + p.Fix
}

// NoDevice says that the kernel has no RDMA device, and how to get one.
func (h Host) NoDevice() *Problem {
	fix := "load its driver (mlx5_ib, irdma, bnxt_re, ...), or for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV"
	if _, err := os.Stat(h.class()); err == nil {
		// Modules are loaded: in a container, or after a link was deleted.
		fix = "look whether the adapter's driver is bound (`rdma link`); in a network namespace of its own: `rdma dev set DEVICE netns PID`, or share the host's network; for Soft-RoCE: rdma link add rxe0 type rxe netdev NETDEV"
	}
	return &Problem{"this host has no RDMA device", fix}
}

// noUverbs: devices are there, and no way from user space to any of them.
func noUverbs(devices []HostDevice) *Problem {
	return &Problem{fmt.Sprintf("this host has %s, but the kernel module ib_uverbs is not loaded", namesOfHost(devices)), "modprobe ib_uverbs"}
}

// try opens a device, asks for its limits and closes it again, or tells why
// this process cannot. Only opening shows what a container's device rules say
// and whether the library has a driver for it.
func (c *candidate) try(name string) (verbs.DeviceAttr, *Problem) {
	ctx, err := c.provider.OpenDevice(name)
	if err != nil {
		return verbs.DeviceAttr{}, c.cannotOpen(name, err)
	}
	attr, err := ctx.QueryDevice()
	if err = errors.Join(err, ctx.Close()); err != nil {
		return verbs.DeviceAttr{}, c.cannotOpen(name, err)
	}
	return attr, nil
}

func (c *candidate) cannotOpen(name string, err error) *Problem {
	what := "device " + name + " cannot be opened: "
	if a, ok := c.addresses[name]; ok {
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			return &Problem{fmt.Sprintf("%s%s is not an address of this host", what, a), "add it (see `ip addr`), or correct soft.addresses"}
		}
		return &Problem{what + err.Error(), "correct soft.addresses"}
	}
	var e *ibv.DeviceError
	if !errors.As(err, &e) {
		return &Problem{what + err.Error(), "see `mover doctor`"}
	}
	switch {
	case e.Node == "" && c.host.UverbsLoaded():
		return &Problem{what + "ib_uverbs has no node for it in this network namespace", "share the host's network with the container, or: rdma dev set " + name + " netns PID"}
	case e.Node == "":
		return &Problem{what + e.Errno.Error(), e.Hint}
	}
	return &Problem{fmt.Sprintf("%s%s: %v", what, e.Node, e.Errno), e.Hint}
}

// portProblem tells why a port carries nothing now, nil when it can. choice is
// the error of choosing its GID.
func portProblem(device string, number uint8, netdevs []string, a verbs.PortAttr, choice error) *Problem {
	at := fmt.Sprintf("device %s port %d", device, number)
	netdev := "its network interface"
	if len(netdevs) > 0 {
		netdev = netdevs[0]
	}
	switch {
	case a.State != verbs.PortActive && a.LinkLayer == verbs.LinkInfiniBand && (a.State == verbs.PortInit || a.State == verbs.PortArmed):
		return &Problem{fmt.Sprintf("%s is %s: the link is there and no subnet manager has set it up", at, a.State), "start a subnet manager (opensm), on a switch or on one host"}
	case a.State != verbs.PortActive && a.LinkLayer == verbs.LinkInfiniBand:
		return &Problem{fmt.Sprintf("%s is %s", at, a.State), "check the cable and the switch's port (`ibstat " + device + "`)"}
	case a.State != verbs.PortActive:
		return &Problem{fmt.Sprintf("%s is %s", at, a.State), "ip link set " + netdev + " up, and check the cable (`ip link`)"}
	case a.LinkLayer == verbs.LinkInfiniBand && a.LID == 0:
		return &Problem{at + " is ACTIVE and has no LID", "start a subnet manager (opensm)"}
	case choice != nil:
		return &Problem{fmt.Sprintf("%s: %v", at, choice), "give " + netdev + " an IPv4 or global IPv6 address (ip addr add), or correct devices.names"}
	}
	return nil
}
