package main

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"mover/lab/remote"
)

// faultDeviceScenarios take a device away.
func faultDeviceScenarios() []scenario {
	return []scenario{
		{name: "fault-device-deleted", ci: true, deadline: 5 * time.Minute, run: deviceDeleted},
	}
}

// deviceDeleted deletes b's device on the rail without the control connection.
//
// A driver of hardware cuts its users off at once. rxe cannot (it has no
// disassociate_ucontext, see ib_uverbs_remove_one in the kernel): the device's
// node and its place among the links are gone at once, and the deletion ends
// when the last user has closed it. Until then its queue pairs may work on.
func deviceDeleted(ctx context.Context, l *Lab) error {
	if err := l.startFaulty(ctx); err != nil {
		return err
	}
	rail, err := l.dataRail(ctx)
	if err != nil {
		return err
	}
	t, err := l.longTransfer(ctx, 15)
	if err != nil {
		return err
	}
	deletion, err := l.B.Start(ctx, "deletion", remote.Command{Args: []string{"rdma", "link", "delete", railDevice(rail)}})
	if err != nil {
		return err
	}
	if err := l.B.awaitNoDevice(ctx, rail); err != nil {
		return err
	}
	s, err := t.underWay(ctx)
	if err != nil {
		return err
	}
	l.Step("b has no device node and no link of %s any more, %d bytes moved", railDevice(rail), s.Progress.BytesDone)
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	select {
	case <-deletion.Done():
		l.Step("b has closed the device by itself")
	default:
		l.Step("the deletion waits for b: stopping it")
	}
	if err := l.B.StopMover(ctx); err != nil {
		return err
	}
	if err := l.deletionEnds(ctx, deletion, rail); err != nil {
		return err
	}
	if err := l.withoutRail(ctx, rail); err != nil {
		return err
	}
	return l.deviceBack(ctx, rail)
}

// awaitNoDevice waits until a rail's device can be neither opened nor seen.
func (n *Node) awaitNoDevice(ctx context.Context, rail int) error {
	return Await(ctx, "guest "+n.Name+" without "+railDevice(rail), func(ctx context.Context) (bool, string, error) {
		out, err := n.Sh(ctx, `rdma link show; grep -H . /sys/class/infiniband_verbs/uverbs*/ibdev || true`)
		return err == nil && !strings.Contains(out, railDevice(rail)), out, err
	})
}

func (l *Lab) deletionEnds(ctx context.Context, deletion *Background, rail int) error {
	select {
	case <-deletion.Done():
	case <-ctx.Done():
		return fmt.Errorf("`rdma link delete` does not end though no node runs: %w", context.Cause(ctx))
	}
	if exit, err := deletion.Wait(); err != nil || exit.Code != 0 {
		return fmt.Errorf("`rdma link delete` ended %+v %v: %s", exit, err, deletion.Tail())
	}
	if out, err := l.B.Run(ctx, "ls", "/sys/class/infiniband"); err != nil || strings.Contains(out, railDevice(rail)) {
		return fmt.Errorf("the deletion has ended, and there is %q (%v)", out, err)
	}
	l.Step("%s is deleted", railDevice(rail))
	return nil
}

// withoutRail starts b without the device: one rail is enough.
func (l *Lab) withoutRail(ctx context.Context, rail int) error {
	if err := l.B.StartMover(ctx, faultSettings()); err != nil {
		return err
	}
	t, err := l.transfer(ctx, "first.bin", 4<<20)
	if err != nil {
		return err
	}
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	m, err := l.B.Metrics(ctx)
	if err != nil {
		return err
	}
	_, gone := m.RailBytes(rail)
	_, other := m.RailBytes(1 - rail)
	if gone != 0 || other < 4<<20 {
		return fmt.Errorf("%d bytes came over the rail that is gone, %d over the other", gone, other)
	}
	l.Step("b runs with %s alone, which has received %.1f MB", railDevice(1-rail), float64(other)/1e6)
	return nil
}

// deviceBack makes the device again. A node looks for devices when it starts.
func (l *Lab) deviceBack(ctx context.Context, rail int) error {
	if err := l.B.StopMover(ctx); err != nil {
		return err
	}
	card := fmt.Sprintf("rail%d", rail)
	if _, err := l.B.Run(ctx, "rdma", "link", "add", railDevice(rail), "type", "rxe", "netdev", card); err != nil {
		return err
	}
	if err := l.B.AwaitPort(ctx, rail, "ACTIVE"); err != nil {
		return err
	}
	if err := l.B.StartMover(ctx, faultSettings()); err != nil {
		return err
	}
	t, err := l.transfer(ctx, "first.bin", 1<<20) // makes a session
	if err != nil {
		return err
	}
	if _, err := t.succeeded(ctx); err != nil {
		return err
	}
	if err := l.bothRailsBack(ctx); err != nil {
		return err
	}
	_, err = SameFile(ctx, l.A, path.Join(DataDir, "fault.bin"), l.B, path.Join(IncomingDir, "fault.bin"))
	return err
}
