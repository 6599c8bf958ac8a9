package device

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mover/node/config"
	"mover/verbs"
	"mover/verbs/soft"
)

// ErrNoDevice is matched when no device can be used as configured.
var ErrNoDevice = errors.New("no device to use")

// Device is a device found on this host.
type Device struct {
	verbs.DeviceInfo
	Used bool
	Why  string // why it is used, or not
}

// Selection is what Select chose. It is not changed afterwards.
type Selection struct {
	// Provider opens the used devices; nil when there are none.
	Provider verbs.Provider
	// Devices are all that the providers considered have, used or not.
	Devices []Device
	// Fallback: software verbs are used though hardware was preferred.
	Fallback bool
	// Reason says in one line why this provider is used.
	Reason string
}

// Used lists the devices to open, in the provider's order.
func (s *Selection) Used() []verbs.DeviceInfo {
	var used []verbs.DeviceInfo
	for _, d := range s.Devices {
		if d.Used {
			used = append(used, d.DeviceInfo)
		}
	}
	return used
}

// Select looks at the configured providers in order and takes the first that
// has devices. log is passed on to the providers. The error matches ErrNoDevice
// and says what to change; the Selection is returned with it, for what was
// found all the same. It opens nothing. Any goroutine may call it.
func Select(cfg *config.Config, log *slog.Logger) (*Selection, error) {
	return choose(cfg, openers(cfg, log, "/sys"))
}

// A candidate is a provider by name, or the reason why it cannot be had.
type candidate struct {
	name     string
	provider verbs.Provider
	missing  string
}

func openers(cfg *config.Config, log *slog.Logger, sys string) []candidate {
	names := cfg.Devices.Providers
	if slices.Equal(names, []string{"auto"}) {
		names = []string{"ibv", "soft"}
	}
	var out []candidate
	for _, name := range names {
		c := candidate{name: name}
		switch name {
		case "ibv":
			c.missing = withoutHardware(sys)
		case "soft":
			p, err := newSoft(cfg, log)
			if err != nil {
				c.missing = err.Error()
				break
			}
			c.provider = p
		}
		out = append(out, c)
	}
	return out
}

// withoutHardware says why there is no hardware provider. A host that has
// RDMA devices must not read as one that has none.
func withoutHardware(sys string) string {
	found, err := HostDevices(sys)
	if err != nil {
		return err.Error()
	}
	if len(found) == 0 {
		return "this host has no RDMA device"
	}
	return "this host has " + strings.Join(found, ", ") + ", but this build of mover has no provider for RDMA hardware"
}

func newSoft(cfg *config.Config, log *slog.Logger) (verbs.Provider, error) {
	c := soft.Config{AllowCleartext: cfg.Soft.AllowCleartext, Logger: log}
	for _, s := range cfg.Soft.Addresses {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("soft.addresses: %w", err)
		}
		c.Addresses = append(c.Addresses, a)
	}
	if len(c.Addresses) == 0 {
		return nil, errors.New("soft.addresses is empty")
	}
	return soft.New(c)
}

func choose(cfg *config.Config, candidates []candidate) (*Selection, error) {
	s := &Selection{}
	var passed []string // why the providers before were passed over
	for i, c := range candidates {
		infos, missing := c.devices()
		if missing != "" {
			passed = append(passed, c.name+": "+missing)
			continue
		}
		if c.name == "soft" && cfg.Devices.Fallback == "forbid" {
			passed = append(passed, "soft: devices.fallback is forbid")
			s.pass(infos, "software verbs, and devices.fallback is forbid")
			continue
		}
		if s.Provider != nil {
			s.pass(infos, "the devices of "+s.Provider.Name()+" are preferred")
			continue
		}
		before := len(s.Devices)
		s.take(infos, cfg.Devices.Names)
		if !slices.ContainsFunc(s.Devices[before:], func(d Device) bool { return d.Used }) {
			passed = append(passed, c.name+": none of its devices ("+namesOf(infos)+") is in devices.names")
			continue
		}
		s.Provider = c.provider
		s.Fallback = c.name == "soft" && i > 0
		s.Reason = reasonFor(c.name, s.Fallback, passed)
	}
	if s.Provider == nil {
		s.Reason = strings.Join(passed, "; ")
		return s, fmt.Errorf("%w: %s; %s", ErrNoDevice, s.Reason, remedy(cfg))
	}
	return s, nil
}

func (c candidate) devices() (infos []verbs.DeviceInfo, missing string) {
	if c.provider == nil {
		return nil, c.missing
	}
	infos, err := c.provider.Devices()
	if err != nil {
		return nil, err.Error()
	}
	if len(infos) == 0 {
		return nil, "no device found"
	}
	return infos, ""
}

func (s *Selection) pass(infos []verbs.DeviceInfo, why string) {
	for _, info := range infos {
		s.Devices = append(s.Devices, Device{DeviceInfo: info, Why: why})
	}
}

func (s *Selection) take(infos []verbs.DeviceInfo, names []string) {
	for _, info := range infos {
		d := Device{DeviceInfo: info, Used: true, Why: "devices.names is empty: all are used"}
		if len(names) > 0 {
			d.Used = slices.Contains(names, info.Name)
			d.Why = "is in devices.names"
			if !d.Used {
				d.Why = "is not in devices.names"
			}
		}
		s.Devices = append(s.Devices, d)
	}
}

func reasonFor(name string, fallback bool, passed []string) string {
	switch {
	case fallback:
		return "falling back to software verbs: " + strings.Join(passed, "; ")
	case name == "soft":
		return "software verbs, as devices.providers asks"
	}
	return name + " has devices"
}

func remedy(cfg *config.Config) string {
	if cfg.Devices.Fallback == "forbid" {
		return "load the RDMA driver or pass the devices into the container (see `mover doctor`), or set devices.fallback: allow"
	}
	return "change devices.providers or devices.names (see `mover devices`)"
}

func namesOf(infos []verbs.DeviceInfo) string {
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name
	}
	return strings.Join(names, ", ")
}

// HostDevices lists the names of the RDMA devices that the kernel has, whether
// or not mover can use them; sys is "/sys" except in tests.
func HostDevices(sys string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(sys, "class/infiniband"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing RDMA devices: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
