package sim

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"mover/verbs"
)

const providerName = "sim"

// host is a host of the fabric and its provider.
type host struct {
	f       *Fabric
	name    string
	index   int
	devices []*device
}

func newHost(f *Fabric, index int, cfg Host) *host {
	h := &host{f: f, name: cfg.Name, index: index}
	for i, dc := range cfg.Devices {
		if h.device(dc.Name) != nil {
			panic(fmt.Sprintf("sim: host %q has two devices %q", h.name, dc.Name))
		}
		h.devices = append(h.devices, newDevice(h, i, dc))
	}
	return h
}

func (h *host) device(name string) *device {
	for _, d := range h.devices {
		if d.cfg.Name == name {
			return d
		}
	}
	return nil
}

// Name is "sim".
func (h *host) Name() string { return providerName }

// Devices lists the host's devices.
func (h *host) Devices() ([]verbs.DeviceInfo, error) {
	var list []verbs.DeviceInfo
	for _, d := range h.devices {
		list = append(list, d.info())
	}
	slices.SortFunc(list, func(a, b verbs.DeviceInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// OpenDevice opens a device; it may be open many times.
func (h *host) OpenDevice(name string) (verbs.Context, error) {
	d := h.device(name)
	if d == nil {
		return nil, &verbs.Error{Op: "open device " + name, Errno: syscall.ENODEV,
			Detail: "host " + h.name + " has no such device"}
	}
	c := &context{f: h.f, dev: d}
	d.contexts = append(d.contexts, c)
	return c, nil
}
