package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"mover/lab/remote"
)

// verbsScenarios prove the lab itself, with Debian's programs alone: what fails
// here is not mover's fault.
func verbsScenarios() []scenario {
	return []scenario{
		{name: "rails", ci: true, deadline: 3 * time.Minute, run: checkRails},
	}
}

// checkRails shows that each rail is an RDMA port with the MTU and GID it
// should have, on its NUMA node, and that RDMA Writes pass between the guests
// over each of them and not over the other.
func checkRails(ctx context.Context, l *Lab) error {
	l.Step("looking at the devices")
	err := l.Both(func(n *Node) error {
		for rail := range Rails {
			if err := n.checkDevice(ctx, rail); err != nil {
				return fmt.Errorf("rail %d of guest %s: %w", rail, n.Name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for rail := range Rails {
		rate, err := l.writeBandwidth(ctx, rail)
		if err != nil {
			return fmt.Errorf("rail %d: %w", rail, err)
		}
		l.Step("ib_write_bw from a to b over rail %d: %.3f Gbit/s", rail, rate)
	}
	return nil
}

func (n *Node) checkDevice(ctx context.Context, rail int) error {
	out, err := n.Run(ctx, "ibv_devinfo", "-v", "-d", fmt.Sprintf("rxe%d", rail), "-i", "1")
	if err != nil {
		return err
	}
	for _, want := range []string{`state:\s+PORT_ACTIVE`, `active_mtu:\s+4096`, `link_layer:\s+Ethernet`} {
		if !regexp.MustCompile(want).MatchString(out) {
			return fmt.Errorf("ibv_devinfo shows no %s:\n%s", want, out)
		}
	}
	if _, err := findGID(out, n.Address(rail)); err != nil {
		return err
	}
	// A virtio card is a child of the PCI device that has the NUMA node.
	node, err := n.Sh(ctx, `cat "$(readlink -f /sys/class/net/$1/device/..)/numa_node"`, fmt.Sprintf("rail%d", rail))
	if err != nil {
		return err
	}
	if node != strconv.Itoa(rail) {
		return fmt.Errorf("it is on NUMA node %s", node)
	}
	pages, err := n.ReadFile(ctx, fmt.Sprintf("/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/free_hugepages", rail))
	if err != nil {
		return err
	}
	if free, err := strconv.Atoi(pages); err != nil || free < hugePages/2 {
		return fmt.Errorf("%s free huge pages", pages)
	}
	return nil
}

// writeBandwidth runs ib_write_bw from a to b and returns Gbit/s. The counters
// of both rails show that it used the right one.
func (l *Lab) writeBandwidth(ctx context.Context, rail int) (float64, error) {
	const size, count = 1 << 20, 8
	other := (rail + 1) % Rails
	before, err := l.A.PortCounters(ctx, other)
	if err != nil {
		return 0, err
	}
	args := func(n *Node) ([]string, error) {
		gid, err := n.GIDIndex(ctx, rail)
		return []string{"ib_write_bw", "-d", fmt.Sprintf("rxe%d", rail), "-x", strconv.Itoa(gid), "-F", "--report_gbits",
			"-s", strconv.Itoa(size), "-n", strconv.Itoa(count), "-t", "4", "-p", perftestPort}, err
	}
	serverArgs, err := args(l.B)
	if err != nil {
		return 0, err
	}
	clientArgs, err := args(l.A)
	if err != nil {
		return 0, err
	}
	server, err := l.B.Start(ctx, fmt.Sprintf("ib_write_bw%d", rail), remote.Command{Args: serverArgs})
	if err != nil {
		return 0, err
	}
	if err := l.B.AwaitListening(ctx, perftestPort, server); err != nil {
		return 0, err
	}
	out, err := l.A.Run(ctx, append(clientArgs, l.B.Address(rail))...)
	if err != nil {
		return 0, err
	}
	if exit, err := server.Wait(); err != nil || exit.Code != 0 {
		return 0, fmt.Errorf("the server ended %+v %v: %s", exit, err, server.Tail())
	}
	after, err := l.A.PortCounters(ctx, other)
	if err != nil {
		return 0, err
	}
	if moved := after["tx_bytes"] - before["tx_bytes"]; moved > size*count/10 {
		return 0, fmt.Errorf("%d bytes left by rail %d", moved, other)
	}
	return parseBandwidth(out, size)
}

// perftestPort is where perftest's servers meet their clients.
const perftestPort = "18515"

// AwaitListening waits until something listens on a TCP port of the guest; by,
// if not nil, is expected to, and its end is an error.
func (n *Node) AwaitListening(ctx context.Context, port string, by *Background) error {
	return Await(ctx, "a listener on port "+port+" of guest "+n.Name, func(ctx context.Context) (bool, string, error) {
		if by != nil {
			select {
			case <-by.Done():
				return false, "", fmt.Errorf("it ended: %s", by.Tail())
			default:
			}
		}
		r, err := n.Remote().Run(ctx, remote.Command{Args: []string{"ss", "-Hltn", "sport = :" + port}})
		return len(r.Stdout) > 0, "none", err
	})
}

// parseBandwidth finds the average in perftest's table: bytes, iterations,
// peak, average, message rate.
func parseBandwidth(text string, size int) (float64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != strconv.Itoa(size) {
			continue
		}
		return strconv.ParseFloat(fields[3], 64)
	}
	return 0, fmt.Errorf("ib_write_bw printed no result for %d bytes:\n%s", size, text)
}
