package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"mover/bench/fabric"
	"mover/node/config"
	"mover/node/device"
	"mover/numa"
	"mover/verbs"
)

// fabricConfig turns the options into what is measured. The ranges are the
// library's; they are looked at here so that a server with a wrong option does
// not first wait for a client, and a client does not use one up.
func fabricConfig(c *cli.Context, test fabric.Test) (fabric.Config, error) {
	cfg := fabric.Config{Test: test, Op: fabric.Op(c.String("op")), All: c.Bool("all"), QPs: c.Int("qp"), Iterations: c.Int("iters"),
		Depth: c.Int("tx-depth"), Chain: c.Int("post_list"), Moderation: c.Int("cq-mod"), InlineBytes: c.Int("inline_size"),
		Pollers: max(c.Int("pollers"), 1), AckTimeout: c.Int("qp-timeout"), Idle: fabric.Idle(c.String("idle")), Verify: !c.Bool("no-verify"),
		StrictOrdering: c.Bool("disable_pcie_relaxed")}
	if test == fabric.Rate {
		cfg.Pollers = c.Int("pollers")
	}
	for _, pair := range [][2]string{{"iters", "duration"}, {"all", "size"}} {
		if c.IsSet(pair[0]) && c.IsSet(pair[1]) {
			return cfg, usagef("--%s and --%s say two things; choose one", pair[0], pair[1])
		}
	}
	for _, name := range []string{"qp-timeout", "qp", "iters", "tx-depth", "pollers", "cq-mod"} {
		if c.IsSet(name) && c.Int(name) < 1 { // 0 is the library's word for the default
			return cfg, usagef("--%s: %d; allowed: 1 and more", name, c.Int(name))
		}
	}
	types := map[string]verbs.QPType{"RC": verbs.RC, "UC": verbs.UC, "UD": verbs.UD}
	var ok bool
	if cfg.Transport, ok = types[strings.ToUpper(c.String("connection"))]; !ok {
		return cfg, usagef("--connection: %q; allowed: RC, UC, UD", c.String("connection"))
	}
	mtus := map[int]verbs.MTU{0: 0, 256: verbs.MTU256, 512: verbs.MTU512, 1024: verbs.MTU1024, 2048: verbs.MTU2048, 4096: verbs.MTU4096}
	if cfg.MTU, ok = mtus[c.Int("mtu")]; !ok {
		return cfg, usagef("--mtu: %d; allowed: 256, 512, 1024, 2048, 4096", c.Int("mtu"))
	}
	var err error
	if cfg.RingBytes, err = parseBytes("ring", c.String("ring")); err != nil {
		return cfg, err
	}
	if c.IsSet("size") {
		if cfg.SizeBytes, err = parseBytes("size", c.String("size")); err != nil {
			return cfg, err
		}
	}
	if cfg.Duration, err = parseSeconds(c.String("duration")); err != nil {
		return cfg, err
	}
	if c.IsSet("cpus") {
		cpus, err := numa.ParseCPUSet(c.String("cpus"))
		if err != nil {
			return cfg, usagef("--cpus: %w", err)
		}
		cfg.CPUs = slices.Collect(cpus.All())
	}
	if c.Bool("events") {
		if c.IsSet("idle") {
			return cfg, usagef("--events and --idle say two things; choose one")
		}
		cfg.Idle = fabric.IdleEvents
	} else if !slices.Contains([]fabric.Idle{"", fabric.IdleSpin, fabric.IdleAdaptive}, cfg.Idle) {
		return cfg, usagef("--idle: %q; allowed: spin, adaptive", string(cfg.Idle))
	}
	return cfg, usageOf(cfg.Validate())
}

// parseBytes takes plain bytes, as perftest does, or a number with a unit.
func parseBytes(option, s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= fabric.MaxSizeBytes {
		return n, nil
	}
	n, err := config.ParseSize(s)
	if err != nil || n < 1 || n > fabric.MaxSizeBytes {
		return 0, usagef("--%s: %q; allowed: 1 to %d bytes, or a number with a unit, as 64KiB", option, s, fabric.MaxSizeBytes)
	}
	return int(n), nil
}

// parseSeconds takes plain seconds, as perftest does, or a Go duration.
func parseSeconds(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if n, e := strconv.ParseFloat(s, 64); e == nil && n < 1e6 {
		d, err = time.Duration(n*float64(time.Second)), nil
	}
	if err != nil || d <= 0 || d > fabric.MaxDuration {
		return 0, usagef("--duration: %q; allowed: a number of seconds, or a time such as 1m30s, up to %v", s, fabric.MaxDuration)
	}
	return d, nil
}

// openFabricPort opens the device that the options name, chosen as a node
// would choose it, and says why this provider.
func openFabricPort(c *cli.Context, log *slog.Logger) (*fabric.Port, string, error) {
	cfg, err := fabricDevices(c)
	if err != nil {
		return nil, "", err
	}
	selection, err := device.Select(cfg, log)
	if err != nil {
		given := "--provider " + c.String("provider")
		if c.IsSet("ib-dev") {
			given += fmt.Sprintf(", --ib-dev %q", c.String("ib-dev"))
		}
		return nil, "", fmt.Errorf("%s: %w", given, ofOptions(err))
	}
	if c.Uint("ib-port") > 255 {
		return nil, "", usagef("--ib-port: %d; allowed: 1 to 255", c.Uint("ib-port"))
	}
	var failures []error
	for _, info := range selection.Used() {
		number := uint8(c.Uint("ib-port"))
		if number == 0 {
			number = namedPort(selection, info)
		}
		gid := fabric.GIDChoice{Index: c.Int("gid-index"), Wish: selection.Wish(info.Name, number)}
		port, err := fabric.OpenPort(selection.Provider, info.Name, number, gid)
		if err == nil {
			return port, selection.Reason, nil
		}
		failures = append(failures, err)
	}
	return nil, "", ofOptions(errors.Join(failures...))
}

// namedPort is the port whose interface or address --ib-dev names, 0 when it
// names a whole device, or none.
func namedPort(selection *device.Selection, info verbs.DeviceInfo) uint8 {
	for n := 1; n <= info.Ports && !selection.UsesPort(info.Name, 0); n++ {
		if selection.UsesPort(info.Name, uint8(n)) {
			return uint8(n)
		}
	}
	return 0
}

// fabricDevices is the part of a configuration that device.Select reads.
func fabricDevices(c *cli.Context) (*config.Config, error) {
	cfg := config.Default()
	cfg.Devices.Libibverbs = c.String("libibverbs")
	cfg.Soft.Addresses, cfg.Soft.AllowCleartext = []string{c.String("soft-address")}, c.Bool("allow-cleartext")
	switch p := c.String("provider"); p {
	case "auto", "ibv", "soft":
		cfg.Devices.Providers = []string{p}
	default:
		return nil, usagef("--provider: %q; allowed: auto, ibv, soft", p)
	}
	if c.IsSet("ib-dev") {
		cfg.Devices.Names = []string{c.String("ib-dev")}
	}
	return cfg, nil
}
