package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// faultProcessScenarios end and stop the receiving node.
func faultProcessScenarios() []scenario {
	return []scenario{
		{name: "fault-receiver-killed", ci: true, deadline: 4 * time.Minute, run: receiverKilled},
		{name: "fault-receiver-stopped", deadline: 4 * time.Minute, run: receiverStopped},
	}
}

// receiverKilled kills b with SIGKILL and starts it again.
func receiverKilled(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 5)
	if err != nil {
		return err
	}
	before := l.B.Mover().PID()
	if err := l.B.KillMover(ctx); err != nil {
		return err
	}
	if exit, err := l.B.Mover().Wait(); err != nil || exit.Signal != syscall.SIGKILL {
		return fmt.Errorf("b ended %+v (%v), not by SIGKILL", exit, err)
	}
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	l.Step("b is killed, %d of %d bytes moved", s.Progress.BytesDone, s.Progress.BytesTotal)
	if _, err := t.awaitFailure(ctx, lostPeer...); err != nil {
		return err
	}
	if err := l.B.StartMover(ctx, faultSettings()); err != nil {
		return err
	}
	l.Step("b runs again: process %d, before %d", l.B.Mover().PID(), before)
	if s, err = t.succeeded(ctx); err != nil {
		return err
	}
	if s.Attempts < 2 {
		return fmt.Errorf("it took %d attempts, with one that failed", s.Attempts)
	}
	return l.bothRailsBack(ctx)
}

// receiverStopped stops b with SIGSTOP until a has given the attempt up, and
// lets it go on: what it then finds is an old session.
func receiverStopped(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 5)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := l.B.SignalMover(ctx, syscall.SIGSTOP); err != nil {
		return err
	}
	if err := l.B.awaitProcessState(ctx, "T"); err != nil {
		return err
	}
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	l.Step("b is stopped: state T, %d of %d bytes moved", s.Progress.BytesDone, s.Progress.BytesTotal)
	if _, err := t.awaitFailure(ctx, lostPeer...); err != nil {
		return err
	}
	if err := Await(ctx, "more than the deadline", func(context.Context) (bool, string, error) {
		return time.Since(begin) > stallAfter, "", nil
	}); err != nil {
		return err
	}
	if err := l.B.awaitProcessState(ctx, "T"); err != nil { // to the end
		return err
	}
	if err := l.B.SignalMover(ctx, syscall.SIGCONT); err != nil {
		return err
	}
	if err := l.B.awaitProcessState(ctx, "S", "R", "D"); err != nil {
		return err
	}
	l.Step("b goes on after %.1f s", time.Since(begin).Seconds())
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	return l.bothRailsBack(ctx)
}

// awaitProcessState waits until the node's process has one of states.
func (n *Node) awaitProcessState(ctx context.Context, states ...string) error {
	p := n.Mover()
	if p == nil {
		return ErrNotRunning
	}
	return Await(ctx, fmt.Sprintf("process %d of node %s in state %s", p.PID(), n.Name, strings.Join(states, " or ")),
		func(ctx context.Context) (bool, string, error) {
			text, err := n.ReadFile(ctx, fmt.Sprintf("/proc/%d/stat", p.PID()))
			if err != nil {
				return false, "", err
			}
			got, err := processState(text)
			for _, s := range states {
				if got == s {
					return true, "", nil
				}
			}
			return false, "it is in " + got, err
		})
}

// processState is the third field of /proc/PID/stat; the second may hold
// anything, spaces and parentheses too (proc(5)).
func processState(stat string) (string, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) == 0 || len(fields[0]) != 1 {
		return "", fmt.Errorf("no process state in %q", stat)
	}
	return fields[0], nil
}
