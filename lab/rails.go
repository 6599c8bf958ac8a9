package main

import (
	"context"
	_ "embed"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"mover/lab/guest"
	"mover/lab/remote"
)

// hugePages of 2 MiB on each NUMA node: an arena and some.
const hugePages = 160

//go:embed rails.sh
var railsScript string

// nameRails names the cards by their rail, since they come in no order, and the
// host.
func (n *Node) nameRails(ctx context.Context) error {
	var script strings.Builder
	fmt.Fprintln(&script, `for card in /sys/class/net/*; do case $(cat "$card/address") in`)
	for rail := range Rails {
		fmt.Fprintf(&script, "%s) ip link set \"${card##*/}\" name rail%d ;;\n", guest.MAC(n.index, rail), rail)
	}
	fmt.Fprintf(&script, "esac; done; echo %s >/proc/sys/kernel/hostname\n", n.Name)
	_, err := n.Sh(ctx, script.String())
	return err
}

// Reset makes the guest as new: rails connected, up, with their addresses and
// rxe devices and nothing else, huge pages as at the start, no file of a node.
// It takes what is right already as it is, so that a fault may have happened or
// not. It knows nothing of processes, which end with the scenario.
func (n *Node) Reset(ctx context.Context) error {
	for rail := range Rails {
		if err := n.guest.SetLink(ctx, rail, true); err != nil {
			return err
		}
	}
	args := []string{"sh", "-euc", railsScript, "sh", strconv.Itoa(n.index + 1), strconv.Itoa(guest.LinkMTU), strconv.Itoa(hugePages)}
	if _, err := n.run(ctx, remote.Command{Args: args}); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	for rail := range Rails {
		if err := n.AwaitPort(ctx, rail, "ACTIVE"); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return n.resetMover(ctx)
}

// SetLink plugs the node's end of a rail's cable in or out. Frames of both
// directions are lost; this node's port goes down, the peer's does not.
func (n *Node) SetLink(ctx context.Context, rail int, up bool) error {
	n.lab.Note("%s: set_link rail%d %v", n.Name, rail, up)
	return n.guest.SetLink(ctx, rail, up)
}

// CutRail takes a rail's cable out at both ends, so that both ports go down.
func (l *Lab) CutRail(ctx context.Context, rail int) error {
	return l.Both(func(n *Node) error { return n.SetLink(ctx, rail, false) })
}

// MendRail plugs it in again at both ends.
func (l *Lab) MendRail(ctx context.Context, rail int) error {
	return l.Both(func(n *Node) error { return n.SetLink(ctx, rail, true) })
}

// portDir is a rail's port in sysfs
// (Documentation/ABI/stable/sysfs-class-infiniband).
func portDir(rail int) string { return fmt.Sprintf("/sys/class/infiniband/rxe%d/ports/1", rail) }

// PortState is the state of a rail's RDMA port: "ACTIVE", "DOWN", ...
func (n *Node) PortState(ctx context.Context, rail int) (string, error) {
	text, err := n.ReadFile(ctx, path.Join(portDir(rail), "state")) // "4: ACTIVE"
	if err != nil {
		return "", err
	}
	_, state, ok := strings.Cut(text, ": ")
	if !ok {
		return "", fmt.Errorf("guest %s: the state of rxe%d is %q", n.Name, rail, text)
	}
	return state, nil
}

// AwaitPort waits until a rail's port has a state.
func (n *Node) AwaitPort(ctx context.Context, rail int, state string) error {
	return Await(ctx, fmt.Sprintf("rxe%d of guest %s %s", rail, n.Name, state), func(ctx context.Context) (bool, string, error) {
		got, err := n.PortState(ctx, rail)
		return got == state, "it is " + got, err
	})
}

// PortCounters are a rail's counters by name, of the RDMA device
// (ports/1/hw_counters, such as "sent_pkts", "rcvd_seq_err", "retry_exceeded_err";
// gone with the device) and of the card ("tx_bytes", "rx_dropped", ...).
func (n *Node) PortCounters(ctx context.Context, rail int) (map[string]int64, error) {
	// Some files of hw_counters are settings.
	out, err := n.Remote().Run(ctx, remote.Command{Args: []string{"sh", "-c",
		`cd "$1" 2>/dev/null && grep -H . * 2>/dev/null; cd "$2" && grep -H . *`, "sh",
		path.Join(portDir(rail), "hw_counters"), fmt.Sprintf("/sys/class/net/rail%d/statistics", rail)}})
	if err != nil {
		return nil, fmt.Errorf("guest %s: counters of rail %d: %w", n.Name, rail, err)
	}
	return parseCounters(string(out.Stdout)), nil
}

// parseCounters reads lines "name:number"; others are left out.
func parseCounters(text string) map[string]int64 {
	counters := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if v, err := strconv.ParseInt(value, 10, 64); err == nil {
			counters[name] = v
		}
	}
	return counters
}

// GIDIndex is the index of the RoCE v2 GID that holds the rail's IPv4 address.
func (n *Node) GIDIndex(ctx context.Context, rail int) (int, error) {
	out, err := n.Run(ctx, "ibv_devinfo", "-v", "-d", fmt.Sprintf("rxe%d", rail), "-i", "1")
	if err != nil {
		return 0, err
	}
	return findGID(out, n.Address(rail))
}

var gidPattern = regexp.MustCompile(`GID\[\s*(\d+)\]:\s+(\S+), RoCE v2`)

// findGID looks for an address in what ibv_devinfo prints.
func findGID(devinfo, address string) (int, error) {
	for _, gid := range gidPattern.FindAllStringSubmatch(devinfo, -1) {
		if gid[2] == "::ffff:"+address {
			return strconv.Atoi(gid[1])
		}
	}
	return 0, fmt.Errorf("no RoCE v2 GID of %s in:\n%s", address, devinfo)
}
