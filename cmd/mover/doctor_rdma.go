package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mover/engine"
	"mover/node/config"
	"mover/node/device"
	"mover/verbs"
	"mover/verbs/ibv"
)

// needsRDMA reports whether the node would refuse to start without hardware.
func needsRDMA(cfg *config.Config) bool {
	return cfg.Devices.Fallback == "forbid" || slices.Equal(cfg.Devices.Providers, []string{"ibv"})
}

// wantsRDMA reports whether it would use hardware.
func wantsRDMA(cfg *config.Config) bool {
	return !slices.Equal(cfg.Devices.Providers, []string{"soft"})
}

// checkRDMA looks for what stands between hardware and any process: kernel
// modules, device nodes, the library.
func checkRDMA(host device.Host, cfg *config.Config) []finding {
	bad := warn
	if needsRDMA(cfg) {
		bad = fail
	}
	if !wantsRDMA(cfg) {
		// Not this node's business; but it is worth knowing.
		bad = func(subject, fix, format string, args ...any) finding {
			return ok(subject, format+" (not wanted: devices.providers is soft)", args...)
		}
	}
	devices, err := host.Devices()
	if err != nil {
		return []finding{fail("rdma", "mount sysfs on /sys", "%v", err)}
	}
	modules := "the kernel module ib_uverbs is not loaded"
	if host.UverbsLoaded() {
		modules = "the kernel module ib_uverbs is loaded"
	}
	if len(devices) == 0 {
		p := host.NoDevice()
		out := []finding{bad("rdma", p.Fix, "%s; %s", p.What, modules)}
		// It would stand in the way of a device that comes later.
		err := ibv.Available()
		if err == nil && cfg.Devices.Libibverbs != "" {
			_, err = ibv.New(ibv.Config{Library: cfg.Devices.Libibverbs, Sys: host.Sys, Dev: host.Dev, Logger: discard})
		}
		if err != nil {
			out = append(out, bad("libibverbs", device.LibraryFix(err), "%v", err))
		}
		return out
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	out := []finding{ok("rdma", "the kernel has %s", strings.Join(names, ", "))}
	if !host.UverbsLoaded() {
		return append(out, bad("uverbs", "modprobe ib_uverbs", "%s", modules))
	}
	for _, d := range devices {
		out = append(out, checkNode(host, d, bad))
	}
	if _, err := ibv.New(ibv.Config{Library: cfg.Devices.Libibverbs, Sys: host.Sys, Dev: host.Dev, Logger: discard}); err != nil {
		out = append(out, bad("libibverbs", device.LibraryFix(err), "%v", err))
	} else {
		out = append(out, ok("libibverbs", "can be opened"))
	}
	return out
}

func checkNode(host device.Host, d device.HostDevice, bad func(subject, fix, format string, args ...any) finding) finding {
	err := ibv.Check(host.Sys, host.Dev, d.Name)
	var e *ibv.DeviceError
	switch {
	case err == nil:
		return ok("uverbs", "%s: %s/infiniband/%s can be opened", d.Name, host.Dev, d.Uverbs)
	case errors.As(err, &e) && e.Node == "":
		return bad("uverbs", "share the host's network with the container, or: rdma dev set "+d.Name+" netns PID", "%s has no device node in this network namespace", d.Name)
	case errors.As(err, &e):
		return bad("uverbs", e.Hint, "%s: %s: %v", d.Name, e.Node, e.Errno)
	}
	return bad("uverbs", "look again: it has just gone", "%s: %v", d.Name, err)
}

// checkDevices looks at what the node would use, port by port, and returns
// what it would offer a peer.
func checkDevices(cfg *config.Config, s *device.Selection, selectErr error) (out []finding, offers []engine.PortOffer) {
	if selectErr != nil {
		return []finding{fail("devices", "see the lines above, and `mover devices`", "%v", selectErr)}, nil
	}
	used := s.Used()
	var names []string
	for _, d := range used {
		names = append(names, d.Name)
	}
	if s.Fallback {
		out = append(out, warn("devices", "if this host has RDMA hardware: see rdma above; if not: set devices.providers: soft", "%s; using %s", s.Reason, strings.Join(names, ", ")))
	} else {
		out = append(out, ok("devices", "%s; using %s", s.Reason, strings.Join(names, ", ")))
	}
	for _, p := range s.Problems() {
		out = append(out, warn("devices", p.Fix, "%s: it is not used", p.What))
	}
	type line struct {
		device device.Device
		port   device.Port
	}
	var lines []line
	usable := 0
	for _, d := range s.Devices {
		if !d.Used {
			continue
		}
		look := s.Look(d)
		if look.Problem != nil {
			out = append(out, fail("devices", look.Problem.Fix, "%s", look.Problem.What))
		}
		for _, p := range look.Ports {
			if !s.UsesPort(d.Name, p.Number) {
				continue
			}
			lines = append(lines, line{d, p})
			offers = append(offers, p.Offer(d.DeviceInfo, uint64(cfg.Session.RailRate)))
			if p.Problem == nil {
				usable++
			}
		}
		if d.Provider != "soft" {
			on, why := device.RelaxedOrdering(cfg.Devices.RelaxedOrdering, d.DeviceInfo, d.Attr)
			out = append(out, ok("relaxed order", "%s: %s (%s)", d.Name, map[bool]string{true: "on", false: "off"}[on], why))
		}
	}
	for _, l := range lines {
		out = append(out, checkPort(l.device, l.port, usable > 0)...)
	}
	return out, offers
}

// checkPort is about one port: a failure if no port can be used, else a loss
// of speed.
func checkPort(d device.Device, p device.Port, othersCan bool) []finding {
	if p.Problem != nil {
		if othersCan {
			return []finding{warn("port", p.Problem.Fix, "%s", p.Problem.What)}
		}
		return []finding{fail("port", p.Problem.Fix, "%s", p.Problem.What)}
	}
	rate := ""
	if p.Attr.ActiveRate > 0 {
		rate = ", " + config.Rate(p.Attr.ActiveRate).String()
	}
	gid := p.GID.GID.Addr().String()
	if p.Attr.LinkLayer == verbs.LinkInfiniBand {
		gid = fmt.Sprintf("%s, LID %#x", gid, p.Attr.LID)
	}
	out := []finding{ok("port", "device %s port %d is %s, %s, GID %s, MTU %v%s", d.Name, p.Number, p.Attr.State, p.Attr.LinkLayer, gid, p.Attr.ActiveMTU, rate)}
	if d.Provider == "soft" {
		return out
	}
	if p.Attr.LinkLayer == verbs.LinkEthernet && p.Attr.ActiveMTU < verbs.MTU4096 {
		netdev := "NETDEV"
		if len(p.Netdevs) > 0 {
			netdev = p.Netdevs[0]
		}
		out = append(out, warn("port", "ip link set "+netdev+" mtu 9000, on both ends and on the switches between", "device %s port %d has an MTU of %v: larger packets carry more", d.Name, p.Number, p.Attr.ActiveMTU))
	}
	const fullMember = 0x8000 // InfiniBand Architecture Specification 1, 10.9.1.1
	if p.Attr.LinkLayer == verbs.LinkInfiniBand && p.PKey != 0 && p.PKey&fullMember == 0 {
		out = append(out, warn("port", "make it a full member of the partition in the subnet manager's configuration", "device %s port %d has P_Key %#04x, a limited member: two of them cannot reach each other", d.Name, p.Number, p.PKey))
	}
	return out
}
