package device

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"mover/node/config"
	"mover/verbs"
	"mover/verbs/ibv"
	"mover/verbs/soft"
)

// ErrNoDevice is matched when no device can be used as configured.
var ErrNoDevice = errors.New("no device to use")

// Device is a device found on this host.
type Device struct {
	verbs.DeviceInfo
	Used bool
	Why  string // why it is used, or not
	// Problem: it was wanted and cannot be opened, so that it is not used.
	Problem *Problem
	// Attr are its limits, known if it is used.
	Attr verbs.DeviceAttr
}

// Selection is what Select chose. It is not changed afterwards, so any
// goroutine may read it.
type Selection struct {
	// Provider opens the used devices; nil when there are none.
	Provider verbs.Provider
	// Devices are all that the providers considered have, used or not.
	Devices []Device
	// Fallback: software verbs are used though hardware was preferred.
	Fallback bool
	// Reason says in one line why this provider is used.
	Reason string

	chosen      map[string]*chosen // by device, of devices.names
	hostDevices []HostDevice
	source      *candidate // of Provider
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

// Problems are those of the devices that were wanted and cannot be opened:
// each is to be said loudly, since the node is slower than it was meant to be.
func (s *Selection) Problems() []*Problem {
	var out []*Problem
	for _, d := range s.Devices {
		if d.Problem != nil {
			out = append(out, d.Problem)
		}
	}
	return out
}

// UsesPort reports whether a port of a used device is to be used: all are,
// unless devices.names takes one by its number, interface or address.
func (s *Selection) UsesPort(device string, port uint8) bool {
	c := s.chosen[device]
	return c == nil || c.all || c.ports[port]
}

// Wish is the GID that a port is to use: the address that devices.names names
// it by, else the zero wish, which takes the best there is. It is to be asked at
// every look at the GID table, whose indexes move.
func (s *Selection) Wish(device string, port uint8) verbs.GIDWish {
	if c := s.chosen[device]; c != nil {
		return c.wishes[port]
	}
	return verbs.GIDWish{}
}

// Select looks at the configured providers in order and takes the first that
// has devices which can be opened. log is passed on to the providers. The error
// matches ErrNoDevice and says in one line what was found and what to change;
// the Selection is returned with it, for what was found all the same. Devices
// are opened and closed again, and nothing is left open. Any goroutine may call
// it.
func Select(cfg *config.Config, log *slog.Logger) (*Selection, error) {
	return ThisHost().Select(cfg, log)
}

// Select is Select on a host described elsewhere than in /sys and /dev.
func (h Host) Select(cfg *config.Config, log *slog.Logger) (*Selection, error) {
	return choose(cfg, h.candidates(cfg, log))
}

// A candidate is a provider by name, or the reason why it cannot be had.
type candidate struct {
	name        string
	provider    verbs.Provider
	missing     *Problem
	host        Host
	hostDevices []HostDevice
	found       []verbs.DeviceInfo    // hostDevices, for when there is no provider
	addresses   map[string]netip.Addr // of software devices, by name
}

func (h Host) candidates(cfg *config.Config, log *slog.Logger) []candidate {
	names := cfg.Devices.Providers
	if slices.Equal(names, []string{"auto"}) {
		names = []string{"ibv", "soft"}
	}
	var out []candidate
	for _, name := range names {
		if name == "ibv" {
			out = append(out, h.hardware(func() (verbs.Provider, error) { return openHardware(cfg, h, log) }))
		} else {
			out = append(out, h.software(cfg, log))
		}
	}
	return out
}

// hardware looks at what the kernel has before it opens the library: a host
// without devices needs none, and a host that has some must not read as one
// that has not.
func (h Host) hardware(open func() (verbs.Provider, error)) candidate {
	c := candidate{name: "ibv", host: h}
	var err error
	if c.hostDevices, err = h.Devices(); err != nil {
		c.missing = &Problem{err.Error(), "mount sysfs on " + h.Sys}
		return c
	}
	c.found, _ = ibv.HostDevices(h.Sys) // reads the same directory
	switch {
	case len(c.hostDevices) == 0:
		c.missing = h.NoDevice()
	case !h.UverbsLoaded():
		c.missing = noUverbs(c.hostDevices)
	}
	if c.missing != nil {
		return c
	}
	if c.provider, err = open(); err != nil {
		c.provider = nil
		c.missing = &Problem{fmt.Sprintf("this host has %s, but %v", namesOfHost(c.hostDevices), err), LibraryFix(err)}
		return c
	}
	return c
}

// LibraryFix is what to do, besides what err itself says, when libibverbs can't
// be used; "" when no setting helps, as in a build without it.
func LibraryFix(err error) string {
	var library *ibv.LibraryError
	if errors.As(err, &library) {
		return "its path is devices.libibverbs"
	}
	return ""
}

func (h Host) software(cfg *config.Config, log *slog.Logger) candidate {
	c := candidate{name: "soft", host: h, addresses: map[string]netip.Addr{}}
	p, err := newSoft(cfg, log)
	if err != nil {
		c.missing = &Problem{err.Error(), "correct soft.addresses"}
		return c
	}
	c.provider = p
	infos, err := p.Devices()
	for i, info := range infos {
		if err == nil && i < len(cfg.Soft.Addresses) {
			c.addresses[info.Name] = netip.MustParseAddr(cfg.Soft.Addresses[i]) // newSoft has parsed it
		}
	}
	return c
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
	p, err := soft.New(c)
	if err != nil {
		return nil, err
	}
	return injected(p), nil
}

// openHardware makes the provider of RDMA hardware.
func openHardware(cfg *config.Config, h Host, log *slog.Logger) (verbs.Provider, error) {
	p, err := ibv.New(ibv.Config{Library: cfg.Devices.Libibverbs, Sys: h.Sys, Dev: h.Dev, Logger: log})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func choose(cfg *config.Config, candidates []candidate) (*Selection, error) {
	s := &Selection{}
	var passed passedOver
	for i := range candidates {
		c := &candidates[i]
		s.hostDevices = append(s.hostDevices, c.hostDevices...)
		infos, missing := c.devices()
		if missing != nil {
			passed = append(passed, passedProvider{c.name, []*Problem{missing}})
			s.pass(c.found, missing.Error())
			continue
		}
		if c.name == "soft" && cfg.Devices.Fallback == "forbid" {
			passed = append(passed, passedProvider{c.name, []*Problem{{What: "devices.fallback is forbid"}}})
			s.pass(infos, "software verbs, and devices.fallback is forbid")
			continue
		}
		if s.Provider != nil {
			s.pass(infos, "the devices of "+s.Provider.Name()+" are preferred")
			continue
		}
		why, err := s.take(c, infos, cfg.Devices.Names)
		if err != nil {
			s.Reason = err.Error()
			return s, fmt.Errorf("%w: %w", ErrNoDevice, err)
		}
		if len(why) > 0 {
			passed = append(passed, passedProvider{c.name, why})
			continue
		}
		s.Provider, s.source = c.provider, c
		s.Fallback = c.name == "soft" && i > 0
		s.Reason = reasonFor(c.name, s.Fallback, passed) + s.software(c.name)
	}
	if s.Provider == nil {
		s.Reason = passed.found()
		asked := ""
		if len(cfg.Devices.Names) > 0 {
			asked = " as devices.names asks (" + strings.Join(cfg.Devices.Names, ", ") + ")"
		}
		return s, fmt.Errorf("%w%s: %s; %s", ErrNoDevice, asked, passed.withFixes(), remedy(cfg, passed))
	}
	return s, nil
}

func (c *candidate) devices() ([]verbs.DeviceInfo, *Problem) {
	if c.provider == nil {
		return nil, c.missing
	}
	infos, err := c.provider.Devices()
	switch {
	case err != nil:
		return nil, &Problem{err.Error(), "see `mover doctor`"}
	case len(infos) == 0:
		return nil, &Problem{"no device found", "see `mover doctor`"}
	}
	return infos, nil
}

func (s *Selection) pass(infos []verbs.DeviceInfo, why string) {
	for _, info := range infos {
		s.Devices = append(s.Devices, Device{DeviceInfo: info, Why: why})
	}
}

// take adds a provider's devices. why says that none of them can be used; the
// error is final: some are named that are not there.
func (s *Selection) take(c *candidate, infos []verbs.DeviceInfo, wanted []string) (why []*Problem, err error) {
	picked, unknown, err := c.pick(infos, wanted)
	if err != nil {
		return nil, err
	}
	if len(wanted) > 0 && len(picked) == 0 {
		s.pass(infos, "is not in devices.names")
		return []*Problem{{What: "none of its devices (" + namesOf(infos) + ") is in devices.names"}}, nil
	}
	used := 0
	for _, info := range infos {
		d := Device{DeviceInfo: info, Used: true, Why: "devices.names is empty: all are used"}
		if len(wanted) > 0 {
			if p := picked[info.Name]; p != nil {
				d.Why = p.reason()
			} else {
				d.Used, d.Why = false, "is not in devices.names"
			}
		}
		if d.Used && len(unknown) == 0 {
			d.Attr, d.Problem = c.try(info.Name)
		}
		if d.Problem != nil {
			d.Used, d.Why = false, d.Problem.Error()
			why = append(why, d.Problem)
		}
		used += bit(d.Used)
		s.Devices = append(s.Devices, d)
	}
	if len(unknown) > 0 {
		return nil, c.notThere(infos, unknown)
	}
	if used == 0 {
		return why, nil
	}
	s.chosen = picked
	return nil, nil
}

// pick finds what devices.names wants of a provider; unknown is what it has
// not.
func (c *candidate) pick(infos []verbs.DeviceInfo, wanted []string) (picked map[string]*chosen, unknown []string, err error) {
	picked = map[string]*chosen{}
	for _, w := range wanted {
		n, err := config.ParseDeviceName(w)
		if err != nil {
			return nil, nil, fmt.Errorf("devices.names: %w", err)
		}
		m, ok := c.find(infos, n)
		if !ok {
			unknown = append(unknown, w)
			continue
		}
		at := infos[m.index].Name
		if picked[at] == nil {
			picked[at] = &chosen{}
		}
		if err := picked[at].add(w, m); err != nil {
			return nil, nil, err
		}
	}
	return picked, unknown, nil
}

// notThere is the error of names that a provider has no device for, though it
// has one for others: half of what was asked for is worse than an error.
func (c *candidate) notThere(infos []verbs.DeviceInfo, unknown []string) error {
	var have []string
	for _, info := range infos {
		text := info.Name
		for _, p := range c.ports(info) {
			if len(p.Netdevs) > 0 {
				text += fmt.Sprintf(" (port %d: %s)", p.Number, strings.Join(p.Netdevs, " "))
			}
		}
		have = append(have, text)
	}
	return &Problem{fmt.Sprintf("devices.names: %s is not a device, interface or address of %s, which has %s", strings.Join(unknown, ", "), c.name, strings.Join(have, ", ")),
		"correct devices.names, or remove it (see `mover devices`)"}
}

func reasonFor(name string, fallback bool, passed passedOver) string {
	switch {
	case fallback:
		return "falling back to software verbs: " + passed.found()
	case name == "soft":
		return "software verbs, as devices.providers asks"
	}
	return name + " has devices"
}

// software tells of an RDMA stack that has no hardware below it.
func (s *Selection) software(provider string) string {
	var names []string
	for _, d := range s.Used() {
		if !d.Software {
			return ""
		}
		names = append(names, d.Name)
	}
	if provider == "soft" {
		return ""
	}
	return ", and each is software on this host's CPUs (" + strings.Join(names, ", ") + ")"
}

func namesOf(infos []verbs.DeviceInfo) string {
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name
	}
	return strings.Join(names, ", ")
}

func namesOfHost(devices []HostDevice) string {
	out := make([]string, len(devices))
	for i, d := range devices {
		out[i] = d.Name
	}
	return strings.Join(out, ", ")
}
