package main

import (
	"context"
	"fmt"
	"regexp"
	"time"
)

// faultAddressScenarios move the GID that a port's lanes use.
func faultAddressScenarios() []scenario {
	return []scenario{
		{name: "fault-gid-moves", ci: true, deadline: 4 * time.Minute, run: gidMoves},
	}
}

// strayAddress takes the place in the GID table that the rail's own address
// had, so that this one comes back at another.
const strayAddress = "10.77.200.1/24"

// gidMoves removes the address of b's port on the rail without the control
// connection, and gives it back at another index. Meanwhile the port has the
// GID of its link-local address, over which lanes may be built again; the next
// session must find the address at its new index.
func gidMoves(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	rail, err := l.dataRail(ctx)
	if err != nil {
		return err
	}
	before, err := l.B.GIDIndex(ctx, rail)
	if err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 15)
	if err != nil {
		return err
	}
	said := len(l.B.MoverLog())
	card, address := fmt.Sprintf("rail%d", rail), l.B.Address(rail)+"/24"
	if _, err := l.B.Run(ctx, "ip", "addr", "del", address, "dev", card); err != nil {
		return err
	}
	if err := l.B.awaitLog(ctx, said, regexp.MustCompile(fmt.Sprintf("device=%s event=GID_CHANGE", railDevice(rail)))); err != nil {
		return err
	}
	if index, err := l.B.GIDIndex(ctx, rail); err == nil {
		return fmt.Errorf("the GID of an address that is removed is at index %d", index)
	}
	if err := l.B.awaitLog(ctx, said, regexp.MustCompile(fmt.Sprintf(`msg="lane down" .*rail=%d `, rail))); err != nil {
		return err
	}
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	l.Step("rail %d of b has lost its address, the GID at index %d and its lanes, %d bytes moved", rail, before, s.Progress.BytesDone)
	if _, err := l.B.Sh(ctx, `ip addr add "$3" dev "$1"; ip addr add "$2" dev "$1"; ip addr del "$3" dev "$1"`, card, address, strayAddress); err != nil {
		return err
	}
	if s, err = t.underWay(ctx); err != nil {
		return err
	}
	after := -1
	if err := Await(ctx, "the GID of the address", func(ctx context.Context) (bool, string, error) {
		after, err = l.B.GIDIndex(ctx, rail)
		return err == nil, fmt.Sprint(err), nil
	}); err != nil {
		return err
	}
	if after == before {
		return fmt.Errorf("the GID is at index %d again: it was to move", after)
	}
	l.Step("the GID has moved from index %d to %d, %d bytes moved before", before, after, s.Progress.BytesDone)
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	if err := l.bothRailsBack(ctx); err != nil {
		return err
	}

	said = len(l.B.MoverLog())
	if err := l.endSession(ctx); err != nil {
		return err
	}
	if t, err = l.transfer(ctx, "first.bin", 1<<20); err != nil {
		return err
	}
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	local := fmt.Sprintf(`msg=rail .*rail=%d local="%s port 1 \(%s\)"`, rail, railDevice(rail), regexp.QuoteMeta(l.B.Address(rail)))
	if err := l.B.awaitLog(ctx, said, regexp.MustCompile(local)); err != nil {
		return err
	}
	l.Step("another session uses the address again")
	return l.bothRailsBack(ctx)
}

// awaitLog waits until the node has logged a line, after what it had said.
func (n *Node) awaitLog(ctx context.Context, said int, line *regexp.Regexp) error {
	return Await(ctx, fmt.Sprintf("%q in the log of node %s", line, n.Name), func(context.Context) (bool, string, error) {
		text := n.MoverLog()[said:]
		return line.MatchString(text), text[max(0, len(text)-500):], nil
	})
}
