package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"mover/node/config"
	"mover/peer"
)

func caCommand() *cli.Command {
	dir := func() cli.Flag {
		return &cli.StringFlag{Name: "dir", Value: "mover-ca", Usage: "the `DIRECTORY` of the CA"}
	}
	return &cli.Command{
		Name:  "ca",
		Usage: "make the certificates of a fleet, offline",
		Description: "With a CA (control.ca) every node knows every other by its name, and peers need\n" +
			"no fingerprint. Keep the CA's directory where no node is.\n\n" +
			"   mover ca init\n" +
			"   mover ca issue --dns host-a.example.com --ip 192.0.2.1 host-a",
		Subcommands: []*cli.Command{
			{
				Name:  "init",
				Usage: "make a CA: a key and a certificate for ten years",
				Description: "Never replaces one: every certificate it issued would stop working. Only the\n" +
					"owner can read its files.",
				Flags:  []cli.Flag{dir()},
				Action: initCA,
			},
			{
				Name:      "issue",
				Usage:     "make a node's key and certificate, signed by the CA",
				ArgsUsage: "NODE",
				Description: "Written to a directory of its own, for the node's state directory. Never\n" +
					"replaces one. --dns and --ip let the same certificate serve the HTTP API\n" +
					"(api.tls_cert, api.tls_key).",
				Flags: []cli.Flag{
					dir(),
					&cli.StringFlag{Name: "out", Usage: "a new `DIRECTORY` for the node's files", DefaultText: "NODE in the CA's directory"},
					&cli.StringSliceFlag{Name: "dns", Usage: "a host `NAME` by which clients reach the node's HTTP API; may be repeated"},
					&cli.StringSliceFlag{Name: "ip", Usage: "an `ADDRESS` by which they reach it; may be repeated"},
					&cli.IntFlag{Name: "days", Value: 825, Usage: "valid for so many `DAYS`"},
				},
				Action: issueCertificate,
			},
		},
	}
}

func initCA(c *cli.Context) error {
	if err := wantArgs(c); err != nil {
		return err
	}
	dir := c.String("dir")
	if err := peer.InitCA(dir); err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "made %s, which stays offline and secret, and %s,\nwhich every node's control.ca names. Next, for each node: mover ca issue --dir %s NODE\n",
		filepath.Join(dir, peer.CAKeyFile), filepath.Join(dir, peer.CACertFile), dir)
	return nil
}

func issueCertificate(c *cli.Context) error {
	if err := wantArgs(c, "NODE"); err != nil {
		return err
	}
	node := c.Args().First()
	if err := config.NodeName(node); err != nil {
		return usagef("%w: 1 to 63 of a-z 0-9 . -, first and last a letter or digit", err)
	}
	const maxDays = 3650
	if days := c.Int("days"); days < 1 || days > maxDays {
		return usagef("--days: %d; allowed: 1 to %d", days, maxDays)
	}
	var ips []net.IP
	for _, s := range valuesOf(c, "ip") {
		ip := net.ParseIP(s)
		if ip == nil {
			return usagef("--ip: %q is not an IP address", s)
		}
		ips = append(ips, ip)
	}
	out := c.String("out")
	if out == "" {
		out = filepath.Join(c.String("dir"), node)
	}
	id, err := peer.Issue(c.String("dir"), node, valuesOf(c, "dns"), ips, time.Duration(c.Int("days"))*24*time.Hour)
	if err != nil {
		return err
	}
	if err := id.Save(out); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w; it is not replaced, because %s may be using it", err, node)
		}
		return err
	}
	fmt.Fprintf(c.App.Writer, "made %s and %s, %s.\nMove them to the directory identity in %s's node.state_dir, for the user mover runs as; and\ncopy %s to the path that control.ca names there.\n",
		filepath.Join(out, peer.KeyFile), filepath.Join(out, peer.CertFile), id.Fingerprint, node, filepath.Join(c.String("dir"), peer.CACertFile))
	return nil
}
