package main

import (
	"fmt"
	"net/netip"

	"github.com/urfave/cli/v2"

	"mover/node/config"
	"mover/peer"
)

func identityCommand() *cli.Command {
	return &cli.Command{
		Name:  "identity",
		Usage: "print this node's name and fingerprint, and what the other node needs of them",
		Description: "Creates the key and certificate in the state directory if there are none, as\n" +
			"a first `mover run` does. The fingerprint is public: it says how to recognise\n" +
			"this node, and does not let anyone be it.",
		Flags: []cli.Flag{
			configFlag(),
			&cli.BoolFlag{Name: "fingerprint", Usage: "print the fingerprint alone, for scripts"},
		},
		Action: withConfig(func(c *cli.Context, cfg *config.Config) error {
			id, created, err := peer.LoadOrCreate(cfg.IdentityDir(), cfg.Node.Name)
			if err != nil {
				return err
			}
			if created {
				fmt.Fprintf(c.App.ErrWriter, "created a key and certificate in %s\n", cfg.IdentityDir())
			}
			if c.Bool("fingerprint") {
				fmt.Fprintln(c.App.Writer, id.Fingerprint)
				return nil
			}
			fmt.Fprintf(c.App.Writer, "node:        %s\nfingerprint: %s\n\n", id.Name, id.Fingerprint)
			fmt.Fprintf(c.App.Writer, "In the other node's configuration, under peers:\n\n%s", peerSnippet(cfg, id.Fingerprint))
			return nil
		}),
	}
}

// peerSnippet is what to paste under peers on the other node.
func peerSnippet(cfg *config.Config, fingerprint string) string {
	addresses, note := "", ""
	for i, s := range cfg.Control.Listen {
		if i > 0 {
			addresses += ", "
		}
		a, err := netip.ParseAddrPort(s)
		switch {
		case err == nil && a.Addr().IsUnspecified():
			addresses += fmt.Sprintf("%q", fmt.Sprintf("%s:%d", cfg.Node.Name, a.Port()))
			note = "   # or another name or address of that host"
		case err == nil && a.Addr().IsLoopback():
			note = "   # loopback: only for a node on the same host"
			fallthrough
		default:
			addresses += fmt.Sprintf("%q", s)
		}
	}
	return fmt.Sprintf("  %s:\n    addresses: [%s]%s\n    fingerprint: %q\n", cfg.Node.Name, addresses, note, fingerprint)
}
