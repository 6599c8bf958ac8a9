//go:build linux

package ibv

import (
	"log/slog"

	"mover/verbs"
)

const providerName = "ibv"

// defaultLibrary is the name that dlopen(3) searches for.
const defaultLibrary = "libibverbs.so.1"

// Config is what New needs. The zero value is right on a host.
type Config struct {
	// Library is libibverbs: a file name that dlopen(3) searches for, or a
	// path. Empty means libibverbs.so.1.
	Library string
	// Sys is where sysfs is mounted; empty means /sys. libibverbs itself
	// always reads /sys.
	Sys string
	// Dev is where infiniband/uverbsN are; empty means /dev. It is only looked
	// at to explain a failure.
	Dev string
	// Logger gets what was opened and what a driver did against the rules; nil
	// discards.
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	if c.Library == "" {
		c.Library = defaultLibrary
	}
	if c.Sys == "" {
		c.Sys = "/sys"
	}
	if c.Dev == "" {
		c.Dev = "/dev"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Provider lists and opens RDMA devices. Its methods may be called from any
// goroutine.
type Provider struct {
	cfg Config
	lib *library
}

// New opens libibverbs, which stays open until the process ends. The error
// matches ErrUnavailable and says what is missing: a *LibraryError, or a
// *BuildError when this binary was built without RDMA. No device is opened.
func New(cfg Config) (*Provider, error) {
	cfg.setDefaults()
	lib, err := loadLibrary(cfg.Library)
	if err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, lib: lib}, nil
}

// Name is "ibv".
func (p *Provider) Name() string { return providerName }

// Devices lists what the kernel has, sorted by name, also devices that cannot
// be opened: OpenDevice says why. An empty list is no error.
func (p *Provider) Devices() ([]verbs.DeviceInfo, error) { return HostDevices(p.cfg.Sys) }

// OpenDevice opens a device by name. The error is a *DeviceError, or matches
// ErrNoDevice.
func (p *Provider) OpenDevice(name string) (verbs.Context, error) {
	info, err := hostDevice(p.cfg.Sys, name)
	if err != nil {
		return nil, err
	}
	return p.lib.openDevice(p.cfg, info)
}

// hostDevice is the device of HostDevices with that name.
func hostDevice(sys, name string) (verbs.DeviceInfo, error) {
	infos, err := HostDevices(sys)
	if err != nil {
		return verbs.DeviceInfo{}, err
	}
	for _, info := range infos {
		if info.Name == name {
			return info, nil
		}
	}
	return verbs.DeviceInfo{}, noDevice(name, infos)
}

// Check reports why a device of HostDevices cannot be opened, as far as sysfs
// and /dev tell, without libibverbs: nil, a *DeviceError, or an error that
// matches ErrNoDevice. sys and dev are as in Config.
func Check(sys, dev, name string) error {
	cfg := Config{Sys: sys, Dev: dev}
	cfg.setDefaults()
	if _, err := hostDevice(cfg.Sys, name); err != nil {
		return err
	}
	if err := checkNode(cfg, name); err != nil {
		return err // never a nil *DeviceError as an error
	}
	return nil
}

// Available reports whether this build has the provider at all: nil, or the
// *BuildError that New would answer with. It opens nothing.
func Available() error {
	if lacks := buildLacks(); lacks != "" {
		return &BuildError{Lacks: lacks}
	}
	return nil
}
