package guest

import (
	"fmt"
	"strconv"

	"mover/lab/remote"
)

// The descriptors that QEMU inherits, in the order of exec.Cmd.ExtraFiles.
const (
	fdAgent = 3
	fdQMP   = 4
	fdRails = 5 // and on
)

// CPUs is how many a guest has, one on each NUMA node.
const CPUs = 2

// LinkMTU is the MTU that rails offer: enough for RoCE's largest packets, of
// 4096 bytes and headers.
const LinkMTU = 9000

// MAC is the hardware address of a rail, by which the guest tells them apart.
// index is the guest's number on the wire, 0 or 1. The prefix is QEMU's.
func MAC(index, rail int) string { return fmt.Sprintf("52:54:00:4d:%02x:%02x", index, rail) }

// railID is the name of a rail's network backend, for set_link.
func railID(rail int) string { return "rail" + strconv.Itoa(rail) }

// arguments is QEMU's command line.
func (c Config) arguments() []string {
	nodeMiB := c.MemoryMiB / CPUs
	accelerator := []string{"-accel", "tcg,thread=multi"}
	if c.KVM {
		accelerator = []string{"-accel", "kvm"}
	}
	args := append([]string{"-name", c.Name}, accelerator...)
	args = append(args,
		// max: what the host's programs were built for must run.
		"-machine", "q35", "-cpu", "max", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", c.Image.Kernel, "-initrd", c.Image.Initramfs,
		// no_timer_check: an emulated CPU that gets no time while the kernel
		// counts timer interrupts makes it panic. tsc=reliable: the kernel does
		// not trust an emulated CPU's counter, and with the clock that is left
		// each look at the time is a system call and an exit to QEMU, which
		// whoever looks at it in a loop pays for, and perftest's unit of time is
		// off.
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 no_timer_check tsc=reliable",
		"-m", strconv.Itoa(nodeMiB*CPUs)+"M", "-smp", fmt.Sprintf("%d,sockets=%d", CPUs, CPUs),
		"-chardev", "file,id=console,path="+escape(c.Console), "-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=agent,fd=%d", fdAgent),
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name="+remote.PortName,
		"-chardev", fmt.Sprintf("socket,id=qmp,fd=%d", fdQMP), "-mon", "chardev=qmp,mode=control",
		"-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random",
	)
	// Twice, because each is mounted once, in its own way. multidevs: other
	// file systems of the host must not share inode numbers.
	for _, tag := range []string{"hostroot", "hostfiles"} {
		args = append(args, "-virtfs", "local,path=/,security_model=none,readonly=on,multidevs=remap,mount_tag="+tag)
	}
	for node := range CPUs {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", node, nodeMiB),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=memory%d", node, node),
			"-numa", fmt.Sprintf("cpu,node-id=%d,socket-id=%d", node, node))
	}
	for rail := range c.Rails {
		// A bridge has the NUMA node of what is behind it; bus numbers are
		// free, apart enough for what each holds.
		args = append(args,
			"-device", fmt.Sprintf("pxb-pcie,id=pxb%d,bus=pcie.0,bus_nr=%d,numa_node=%d", rail, 32*(rail+1), rail%CPUs),
			"-device", fmt.Sprintf("pcie-root-port,id=port%d,bus=pxb%d,chassis=%d", rail, rail, rail+1),
			"-netdev", fmt.Sprintf("socket,id=%s,fd=%d", railID(rail), fdRails+rail),
			"-device", fmt.Sprintf("virtio-net-pci,bus=port%d,netdev=%s,mac=%s,host_mtu=%d,romfile=", rail, railID(rail), MAC(c.Index, rail), LinkMTU))
	}
	return args
}

// escape doubles the commas of a value (QEMU's option syntax).
func escape(value string) string {
	out := make([]byte, 0, len(value))
	for i := range len(value) {
		out = append(out, value[i])
		if value[i] == ',' {
			out = append(out, ',')
		}
	}
	return string(out)
}
