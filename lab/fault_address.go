package main

import (
	"context"
	"fmt"
	"strings"
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
// connection, and gives it back at another index. A lane that was built again
// with the old index would never work.
func gidMoves(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	control, err := l.controlRail(ctx)
	if err != nil {
		return err
	}
	rail := 1 - control
	before, err := l.B.GIDIndex(ctx, rail)
	if err != nil {
		return err
	}
	t, err := l.longTransfer(ctx)
	if err != nil {
		return err
	}
	card, address := fmt.Sprintf("rail%d", rail), l.B.Address(rail)+"/24"
	if _, err := l.B.Sh(ctx, `ip addr del "$2" dev "$1"`, card, address); err != nil {
		return err
	}
	if err := Await(ctx, "no GID of the address", func(ctx context.Context) (bool, string, error) {
		index, err := l.B.GIDIndex(ctx, rail)
		return err != nil && strings.Contains(err.Error(), "no RoCE v2 GID"), fmt.Sprintf("index %d, %v", index, err), nil
	}); err != nil {
		return err
	}
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	l.Step("rail %d of b has lost its address and the GID at index %d, %d bytes moved", rail, before, s.Progress.BytesDone)
	if err := Await(ctx, "no lane of b up on the rail", func(ctx context.Context) (bool, string, error) {
		m, err := l.B.Metrics(ctx)
		up := m.lanesUp()
		return err == nil && up[rail] == 0, fmt.Sprintf("up, by rail: %v", up), err
	}); err != nil {
		return err
	}
	if s, err = t.underWay(ctx); err != nil {
		return err
	}
	if _, err := l.B.Sh(ctx, `ip addr add "$3" dev "$1"; ip addr add "$2" dev "$1"; ip addr del "$3" dev "$1"`, card, address, strayAddress); err != nil {
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
	return l.bothRailsBack(ctx)
}
