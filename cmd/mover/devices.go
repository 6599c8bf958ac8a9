package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"mover/node/config"
	"mover/node/device"
	"mover/verbs"
)

func devicesCommand() *cli.Command {
	return &cli.Command{
		Name:  "devices",
		Usage: "list this host's devices and ports, which would be used, and why",
		Description: "Needs no running node, and does not disturb one: devices that would be used\n" +
			"are opened to ask for their ports and closed again, all others are looked up in\n" +
			"sysfs. The flags override the configuration, to try what a setting would do;\n" +
			"without a configuration the defaults are shown.",
		Flags: []cli.Flag{
			configFlag(),
			&cli.StringFlag{Name: "providers", Usage: "instead of devices.providers: auto, or a `LIST` such as ibv,soft"},
			&cli.StringFlag{Name: "fallback", Usage: "instead of devices.fallback: `allow or forbid`"},
		},
		Action: listDevices,
	}
}

func listDevices(c *cli.Context) error {
	if err := wantArgs(c); err != nil {
		return err
	}
	cfg, from, err := configOrDefault(c)
	if err != nil {
		return err
	}
	if err := overrideDevices(c, cfg); err != nil {
		return err
	}
	selection, err := device.Select(cfg, discard)
	fmt.Fprintln(c.App.Writer, "configuration: "+from)
	showDevices(c.App.Writer, cfg, selection, err == nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "provider: %s (%s)\n", selection.Provider.Name(), selection.Reason)
	if selection.Fallback {
		fmt.Fprintln(c.App.Writer, "note: software verbs work everywhere and are slow; devices.fallback: forbid makes this an error")
	}
	return nil
}

// showDevices prints a line for every port, and what there is to say of each
// device below: reasons and fixes are too long for a column.
func showDevices(w io.Writer, cfg *config.Config, selection *device.Selection, chosen bool) {
	if len(selection.Devices) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DEVICE\tPORT\tUSED\tPROVIDER\tNETDEV\tNUMA\tSTATE\tLINK\tGID\tMTU\tRATE")
	var notes []string
	for _, d := range selection.Devices {
		d.Used = d.Used && chosen
		look := selection.Look(d)
		if len(look.Ports) == 0 {
			fmt.Fprintln(table, strings.Join(deviceRow(d, "-", yesNo(d.Used), d.Netdev, "-", "-", "-", "-", "-"), "\t"))
		}
		for _, p := range look.Ports {
			fmt.Fprintln(table, strings.Join(portRow(d, p, selection.UsesPort(d.Name, p.Number)), "\t"))
		}
		notes = append(notes, deviceNotes(cfg, selection, d, look)...)
	}
	table.Flush()
	for _, n := range notes {
		fmt.Fprintln(w, n)
	}
}

// deviceRow is a line of the table; what is unknown is a dash.
func deviceRow(d device.Device, port, used, netdev, state, link, gid, mtu, rate string) []string {
	numaNode := "-"
	if d.NUMANode >= 0 {
		numaNode = fmt.Sprint(d.NUMANode)
	}
	row := []string{d.Name, port, used, d.Provider, netdev, numaNode, state, link, gid, mtu, rate}
	for i := range row {
		if row[i] == "" {
			row[i] = "-"
		}
	}
	return row
}

func portRow(d device.Device, p device.Port, used bool) []string {
	netdev := p.GID.Netdev
	if netdev == "" && len(p.Netdevs) > 0 {
		netdev = p.Netdevs[0]
	}
	gid, mtu, rate := "", "", ""
	switch {
	case p.GID.GID.IsZero():
	case p.GID.Type == verbs.GIDInfiniBand:
		gid = fmt.Sprintf("%s (LID %#x)", p.GID.GID.Addr(), p.Attr.LID)
	default:
		gid = fmt.Sprintf("%s (%s)", p.GID.GID.Addr(), p.GID.Type)
	}
	if p.Attr.ActiveMTU.Valid() {
		mtu = p.Attr.ActiveMTU.String()
	}
	if p.Attr.ActiveRate > 0 {
		rate = config.Rate(p.Attr.ActiveRate).String()
	}
	return deviceRow(d, fmt.Sprint(p.Number), yesNo(d.Used && used), netdev, p.Attr.State.String(), p.Attr.LinkLayer.String(), gid, mtu, rate)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// deviceNotes say why a device is used or not, and what is wrong with it.
func deviceNotes(cfg *config.Config, selection *device.Selection, d device.Device, look device.Look) []string {
	text := d.Name + ": " + d.Why
	if d.Detail != "" {
		text += " (" + d.Detail + ")"
	}
	notes := []string{text}
	if look.Problem != nil && look.Problem != d.Problem {
		notes = append(notes, "  "+look.Problem.Error())
	}
	if !d.Used {
		return notes
	}
	for _, p := range look.Ports {
		if p.Problem != nil && selection.UsesPort(d.Name, p.Number) {
			notes = append(notes, "  "+p.Problem.Error())
		}
	}
	if d.Provider != "soft" {
		on, why := device.RelaxedOrdering(cfg.Devices.RelaxedOrdering, d.DeviceInfo, d.Attr)
		notes = append(notes, fmt.Sprintf("  relaxed ordering: %s (%s)", map[bool]string{true: "on", false: "off"}[on], why))
	}
	return notes
}

func overrideDevices(c *cli.Context, cfg *config.Config) error {
	if c.IsSet("providers") {
		cfg.Devices.Providers = strings.Split(c.String("providers"), ",")
		for _, p := range cfg.Devices.Providers {
			if p != "ibv" && p != "soft" && (p != "auto" || len(cfg.Devices.Providers) > 1) {
				return usagef("--providers: %q; allowed: auto, or a list of ibv, soft", c.String("providers"))
			}
		}
	}
	if c.IsSet("fallback") {
		cfg.Devices.Fallback = c.String("fallback")
		if f := cfg.Devices.Fallback; f != "allow" && f != "forbid" {
			return usagef("--fallback: %q; allowed: allow, forbid", f)
		}
	}
	return nil
}
