package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	v1 "mover/api/v1"
	"mover/client"
	"mover/node/config"
)

func peersCommand() *cli.Command {
	return &cli.Command{
		Name:  "peers",
		Usage: "print the nodes that a node knows, and the rails to them",
		Description: "A peer is connected while jobs need it; idle is nothing wrong. mover doctor asks\n" +
			"every peer, and says what to do.",
		Flags: append(serverFlags(), &cli.BoolFlag{Name: "json", Usage: "print a JSON array of whole peers"}),
		Action: asking(func(c *cli.Context, s *client.Client) error {
			list, err := s.Peers(c.Context)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c, orEmpty(list.Peers))
			}
			w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "PEER\tSTATE\tADDRESSES\tRAILS\tLAST ERROR")
			for _, p := range list.Peers {
				failure := "-"
				if p.LastError != "" {
					failure = p.LastError
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Name, p.State, orDash(strings.Join(p.Addresses, " ")), railsText(p.Rails), failure)
			}
			return w.Flush()
		}),
	}
}

// railsText is how many rails are up, and over which devices.
func railsText(rails []v1.Rail) string {
	if len(rails) == 0 {
		return "-"
	}
	up := 0
	var all []string
	for _, r := range rails {
		if r.State == "up" {
			up++
		}
		all = append(all, fmt.Sprintf("%s-%s %s", r.LocalDevice, r.RemoteDevice, r.State))
	}
	return fmt.Sprintf("%d of %d up (%s)", up, len(rails), strings.Join(all, ", "))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func rootsCommand() *cli.Command {
	return &cli.Command{
		Name:  "roots",
		Usage: "print the directories of a node that jobs may name, and who may",
		Flags: append(serverFlags(), &cli.BoolFlag{Name: "json", Usage: "print a JSON array of whole roots"}),
		Action: asking(func(c *cli.Context, s *client.Client) error {
			list, err := s.Roots(c.Context)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c, orEmpty(list.Roots))
			}
			w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ROOT\tPATH\tFILE SYSTEM\tFREE\tQUOTA\tREAD BY\tWRITTEN BY")
			for _, r := range list.Roots {
				quota, free := "-", bytesText(r.FreeBytes)
				if r.QuotaBytes > 0 {
					quota = config.Size(r.QuotaBytes).String()
				}
				if r.AvailableError != "" {
					free = "cannot be used: " + r.AvailableError
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, nameText(r.Path), orDash(r.Filesystem), free, quota,
					orDash(strings.Join(r.Read, " ")), orDash(strings.Join(r.Write, " ")))
			}
			return w.Flush()
		}),
	}
}
