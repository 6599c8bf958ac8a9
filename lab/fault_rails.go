package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"mover/reason"
)

// faultRailScenarios cut rails and mend them.
func faultRailScenarios() []scenario {
	return []scenario{
		{name: "fault-cut-rails", ci: true, deadline: 6 * time.Minute, run: cutRails},
		{name: "fault-cut-one-end", deadline: 4 * time.Minute, run: cutOneEnd},
		{name: "fault-cut-both-briefly", deadline: 4 * time.Minute, run: cutBothBriefly},
		{name: "fault-cut-both", deadline: 4 * time.Minute, run: cutBoth},
	}
}

// lostPeer are the reasons of an attempt whose session ended because nothing
// came from the peer, or whose last lane went: which of the timers is first is
// a matter of chance.
var lostPeer = []reason.Code{reason.PeerUnreachable, reason.TransportError, reason.Stalled}

// cutRails cuts each rail in turn.
func cutRails(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	if err := l.cutDataRail(ctx); err != nil {
		return fmt.Errorf("the rail without the control connection: %w", err)
	}
	if err := l.cutControlRail(ctx); err != nil {
		return fmt.Errorf("the rail with the control connection: %w", err)
	}
	return nil
}

// cutDataRail cuts the rail that does not carry the control connection: what
// was on it moves over the other one, within the same session.
func (l *Lab) cutDataRail(ctx context.Context) error {
	rail, err := l.dataRail(ctx)
	if err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 8)
	if err != nil {
		return err
	}
	if err := l.cutDuring(ctx, t, rail); err != nil {
		return err
	}
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	if err := t.awaitBytes(ctx, s.Progress.BytesDone); err != nil {
		return err
	}
	l.Step("rail %d is down, and bytes move over rail %d", rail, 1-rail)
	if err := l.mendDuring(ctx, t, rail); err != nil {
		return err
	}
	if s, err = t.succeeded(ctx); err != nil {
		return err
	}
	return l.bothRailsBack(ctx)
}

// cutControlRail cuts the rail with the control connection until the session
// has ended and another attempt moves bytes over the other rail.
func (l *Lab) cutControlRail(ctx context.Context) error {
	rail, err := l.controlRail(ctx)
	if err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 8)
	if err != nil {
		return err
	}
	l.Step("rail %d carries the control connection", rail)
	if err := l.cutDuring(ctx, t, rail); err != nil {
		return err
	}
	failed, err := t.awaitFailure(ctx, lostPeer...)
	if err != nil {
		return err
	}
	if _, err := l.A.AwaitJob(ctx, t.id, "bytes in a later attempt", laterAttempt(failed.attempt)); err != nil {
		return err
	}
	now, err := l.controlRail(ctx)
	if err != nil {
		return err
	}
	if now == rail {
		return fmt.Errorf("the control connection is on rail %d, which is cut", rail)
	}
	l.Step("another attempt moves bytes, with the control connection on rail %d", now)
	if err := l.mendDuring(ctx, t, rail); err != nil {
		return err
	}
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	return l.bothRailsBack(ctx)
}

// cutOneEnd takes the cable out at b alone: a's port stays up, as behind a
// switch, and only timeouts tell it.
func cutOneEnd(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	rail, err := l.dataRail(ctx)
	if err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 8)
	if err != nil {
		return err
	}
	if err := l.B.SetLink(ctx, rail, false); err != nil {
		return err
	}
	if err := l.B.AwaitPort(ctx, rail, "DOWN"); err != nil {
		return err
	}
	if state, err := l.A.PortState(ctx, rail); err != nil || state != "ACTIVE" {
		return fmt.Errorf("rail %d of a is %s (%v), though its own end is plugged in", rail, state, err)
	}
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	l.Step("rail %d is cut at b alone, %d bytes moved", rail, s.Progress.BytesDone)
	if err := Await(ctx, "no lane of a up on the rail", func(ctx context.Context) (bool, string, error) {
		m, err := l.A.Metrics(ctx)
		up := m.lanesUp()
		return err == nil && up[rail] == 0, fmt.Sprintf("up, by rail: %v", up), err
	}); err != nil {
		return err
	}
	if err := l.B.SetLink(ctx, rail, true); err != nil {
		return err
	}
	if err := l.B.AwaitPort(ctx, rail, "ACTIVE"); err != nil {
		return err
	}
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	return l.bothRailsBack(ctx)
}

// cutBothBriefly cuts everything for less than stall_after.
func cutBothBriefly(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 8)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := l.cutDuring(ctx, t, 0, 1); err != nil {
		return err
	}
	if err := l.mendDuring(ctx, t, 0, 1); err != nil {
		return err
	}
	l.Step("both rails were cut for %.1f s", time.Since(begin).Seconds())
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	return l.bothRailsBack(ctx)
}

// cutBoth cuts everything until the attempt has failed.
func cutBoth(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 8)
	if err != nil {
		return err
	}
	if err := l.cutDuring(ctx, t, 0, 1); err != nil {
		return err
	}
	if _, err := t.awaitFailure(ctx, lostPeer...); err != nil {
		return err
	}
	if err := l.mendDuring(ctx, t, 0, 1); err != nil {
		return err
	}
	s, err := t.succeeded(ctx)
	if err != nil {
		return err
	}
	if s.Attempts < 2 {
		return fmt.Errorf("it took %d attempts, with one that failed", s.Attempts)
	}
	return l.bothRailsBack(ctx)
}

// cutDuring cuts rails at both ends, waits until the ports are down, and fails
// unless the transfer was still under way then.
func (l *Lab) cutDuring(ctx context.Context, t *transfer, rails ...int) error {
	for _, rail := range rails {
		if err := l.CutRail(ctx, rail); err != nil {
			return err
		}
	}
	if err := l.awaitPorts(ctx, "DOWN", rails...); err != nil {
		return err
	}
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	l.Step("cut: ports of rails %v DOWN at both ends, %d of %d bytes moved", rails, s.Progress.BytesDone, s.Progress.BytesTotal)
	return nil
}

// mendDuring mends rails at both ends and waits until the ports are up; the
// transfer must not have ended before.
func (l *Lab) mendDuring(ctx context.Context, t *transfer, rails ...int) error {
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	for _, rail := range rails {
		if err := l.MendRail(ctx, rail); err != nil {
			return err
		}
	}
	if err := l.awaitPorts(ctx, "ACTIVE", rails...); err != nil {
		return err
	}
	l.Step("mended: ports of rails %v ACTIVE at both ends, %d of %d bytes moved before", rails, s.Progress.BytesDone, s.Progress.BytesTotal)
	return nil
}

func (l *Lab) awaitPorts(ctx context.Context, state string, rails ...int) error {
	return l.Both(func(n *Node) error {
		for _, rail := range rails {
			if err := n.AwaitPort(ctx, rail, state); err != nil {
				return err
			}
		}
		return nil
	})
}

// dataRail is the rail that does not carry the control connection.
func (l *Lab) dataRail(ctx context.Context) (int, error) {
	control, err := l.controlRail(ctx)
	return 1 - control, err
}

// controlRail is the rail with the control connection between the nodes.
func (l *Lab) controlRail(ctx context.Context) (int, error) {
	out, err := l.A.Run(ctx, "ss", "-Htn", "state", "established", "( dport = :"+controlPort+" or sport = :"+controlPort+" )")
	if err != nil {
		return 0, err
	}
	return findRail(out)
}

// findRail finds the one rail whose addresses are in the lines of ss:
// receive queue, send queue, local, remote.
func findRail(text string) (int, error) {
	found := -1
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		var rail, host, port int
		if _, err := fmt.Sscanf(fields[2], "10.77.%d.%d:%d", &rail, &host, &port); err != nil || rail < 0 || rail >= Rails {
			return 0, fmt.Errorf("a control connection off the rails: %q", line)
		}
		if found >= 0 && found != rail {
			return 0, fmt.Errorf("control connections on several rails: %q", text)
		}
		found = rail
	}
	if found < 0 {
		return 0, fmt.Errorf("no control connection: %q", text)
	}
	return found, nil
}
