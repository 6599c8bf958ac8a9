package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"mover/node/config"
	"mover/node/device"
)

func devicesCommand() *cli.Command {
	return &cli.Command{
		Name:  "devices",
		Usage: "list this host's devices, which would be used, and why",
		Description: "Needs no running node. The flags override the configuration, to try what a\n" +
			"setting would do; without a configuration the defaults are shown.",
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
	if len(selection.Devices) > 0 {
		table := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "DEVICE\tPROVIDER\tUSED\tNUMA\tPORTS\tWHY\tDETAIL")
		for _, d := range selection.Devices {
			used := "no"
			if d.Used && err == nil {
				used = "yes"
			}
			numaNode := "-"
			if d.NUMANode >= 0 {
				numaNode = fmt.Sprint(d.NUMANode)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", d.Name, d.Provider, used, numaNode, d.Ports, d.Why, d.Detail)
		}
		table.Flush()
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "provider: %s (%s)\n", selection.Provider.Name(), selection.Reason)
	if selection.Fallback {
		fmt.Fprintln(c.App.Writer, "note: software verbs work everywhere and are slow; devices.fallback: forbid makes this an error")
	}
	return nil
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
