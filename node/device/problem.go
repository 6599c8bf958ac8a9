package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"

	"mover/verbs"
)

// Problem is what stands between this node and a device or port, in one line:
// what was found, and what to do about it.
type Problem struct {
	What string // names the device, and the port
	Fix  string
}

func (p *Problem) Error() string { return p.What + "; " + p.Fix }

// noDevice: the kernel has none.
func (h Host) noDevice() *Problem {
	fix := "load the RDMA driver of its adapter (mlx5_ib, irdma, bnxt_re, ...), or for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV"
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

// Openable tells why a device's node cannot be opened by this process, nil
// when it can. It opens the node and closes it again: that is the only way to
// see what a container's device rules say, and changes nothing.
func (h Host) Openable(d HostDevice) *Problem {
	if d.Uverbs == "" {
		if !h.UverbsLoaded() {
			return &Problem{fmt.Sprintf("device %s cannot be opened: the kernel module ib_uverbs is not loaded", d.Name), "modprobe ib_uverbs"}
		}
		return &Problem{fmt.Sprintf("device %s cannot be opened: ib_uverbs has no node for it in this network namespace", d.Name),
			"share the host's network with the container, or: rdma dev set " + d.Name + " netns PID"}
	}
	path := filepath.Join(h.Dev, "infiniband", d.Uverbs)
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err == nil {
		f.Close()
		return nil
	}
	what := fmt.Sprintf("device %s cannot be opened: %v", d.Name, err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Problem{what, "pass the nodes into the container (docker: --device /dev/infiniband), or look whether udev made them"}
	case errors.Is(err, syscall.EPERM):
		// Not EACCES: the file's mode allows it, the device controller does not.
		return &Problem{what, "allow the device in the container (docker: --device " + path + "; systemd: DeviceAllow=" + path + " rw)"}
	case errors.Is(err, fs.ErrPermission):
		return &Problem{what, "give the user mover runs as access: usermod -aG rdma USER, or a udev rule that sets mode 0666 on " + path}
	}
	return &Problem{what, "look at the kernel's log (dmesg)"}
}

// unlisted: the kernel has a device that libibverbs does not know.
func unlisted(name string) *Problem {
	return &Problem{fmt.Sprintf("the kernel has device %s, but libibverbs does not list it", name),
		"install its user-space driver (Debian: ibverbs-providers; RHEL: libibverbs), of the same version as libibverbs"}
}

// softOpenable tells why software verbs cannot use an address.
func softOpenable(name string, a netip.Addr) *Problem {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", netip.AddrPortFrom(a, 0).String())
	if err == nil {
		l.Close()
		return nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && errno == syscall.EADDRNOTAVAIL {
		return &Problem{fmt.Sprintf("device %s cannot be opened: %s is not an address of this host", name, a), "add the address (see `ip addr`), or correct soft.addresses"}
	}
	return &Problem{fmt.Sprintf("device %s cannot be opened: %v", name, err), "correct soft.addresses"}
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
