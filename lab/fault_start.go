package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"mover/lab/remote"
)

// faultStartScenarios take away what a node needs to start. It must end with a
// line that says what is missing and what to do, and start once that is done.
func faultStartScenarios() []scenario {
	return []scenario{
		{name: "start-memlock", ci: true, deadline: 3 * time.Minute, run: startWithoutMemlock},
		{name: "start-hugepages", ci: true, deadline: 3 * time.Minute, run: startWithoutHugePages},
		{name: "start-uverbs", ci: true, deadline: 3 * time.Minute, run: startWithoutUverbs},
	}
}

// ordinaryUID is nobody's.
const ordinaryUID = "65534"

// ordinary runs a program as an ordinary user without capabilities, which would
// pass over limits and modes, with a memlock limit in KiB, or "unlimited".
func ordinary(memlock string) []string {
	return []string{"setpriv", "--reuid=" + ordinaryUID, "--regid=" + ordinaryUID, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
		"sh", "-euc", `ulimit -l "$1"; shift; exec "$@"`, "sh", memlock}
}

// giveAway lets the ordinary user have the node's files.
func (n *Node) giveAway(ctx context.Context) error {
	_, err := n.Run(ctx, "chown", "-R", ordinaryUID+":"+ordinaryUID, moverDir)
	return err
}

// fails runs a program that must fail, and returns what it said. A fault that
// does not hit an ordinary program would not show anything about the node.
func (n *Node) fails(ctx context.Context, args ...string) (string, error) {
	out, err := n.Run(ctx, args...)
	var failed *remote.ExitError
	switch {
	case errors.As(err, &failed):
		return out + failed.Output, nil
	case err != nil:
		return "", err
	}
	return "", fmt.Errorf("guest %s: %s was to fail: %s", n.Name, strings.Join(args, " "), out)
}

// refuses starts a node that must end with exit code 1 and one line that has
// all of words, which it returns.
func (n *Node) refuses(ctx context.Context, s Settings, words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyDeadline)
	defer cancel()
	said := len(n.MoverLog())
	p, err := n.LaunchMover(ctx, s)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return "", fmt.Errorf("node %s does not end: %s", n.Name, p.Tail())
	}
	exit, err := p.Wait()
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(p.Output()[said:])
	if exit.Code != 1 {
		return "", fmt.Errorf("node %s ended %+v, not with exit code 1: %s", n.Name, exit, text)
	}
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if !strings.HasPrefix(line, "mover: ") {
		return "", fmt.Errorf("the last line of node %s does not say why it ended: %s", n.Name, text)
	}
	for _, w := range words {
		if !strings.Contains(line, w) {
			return "", fmt.Errorf("the message has no %q: %s", w, line)
		}
	}
	n.lab.Step("exit code %d: %s", exit.Code, line)
	return line, nil
}

// startWithoutMemlock gives the node less memory to lock than its devices
// register.
func startWithoutMemlock(ctx context.Context, l *Lab) error {
	const limitKiB, limitMiB = "4096", "4 MiB"
	gid, err := l.B.GIDIndex(ctx, 0)
	if err != nil {
		return err
	}
	// It registers a buffer and then looks for a server, which is not there.
	pingpong := func(memlock string) []string {
		return append(ordinary(memlock), "ibv_rc_pingpong", "-d", "rxe0", "-g", strconv.Itoa(gid), "-s", strconv.Itoa(8<<20), "127.0.0.1")
	}
	l.Step("ibv_rc_pingpong with 8 MiB, as an ordinary user, memlock %s", limitMiB)
	out, err := l.B.fails(ctx, pingpong(limitKiB)...)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "Couldn't register MR") {
		return fmt.Errorf("it fails for another reason than the limit: %s", out)
	}
	if out, err = l.B.fails(ctx, pingpong("unlimited")...); err != nil {
		return err
	}
	if strings.Contains(out, "MR") || !strings.Contains(out, "connect") {
		return fmt.Errorf("without the limit it does not come as far as its connection: %s", out)
	}

	if err := l.Both(func(n *Node) error { return n.giveAway(ctx) }); err != nil {
		return err
	}
	s := faultSettings()
	s.Wrap = ordinary(limitKiB)
	line, err := l.B.refuses(ctx, s, "memlock limit too low", "the limit is "+limitMiB, "needs ", "ulimit -l ", "LimitMEMLOCK=infinity")
	if err != nil {
		return err
	}
	need := ulimitPattern.FindStringSubmatch(line)
	if need == nil {
		return fmt.Errorf("the message does not say what limit would do: %s", line)
	}
	l.Step("starting both nodes with exactly what it asks for, %s KiB", need[1])
	s.Wrap = ordinary(need[1])
	if err := l.Both(func(n *Node) error { return n.StartMover(ctx, s) }); err != nil {
		return err
	}
	t, err := l.transfer(ctx, "first.bin", 4<<20)
	if err != nil {
		return err
	}
	_, err = t.succeeded(ctx)
	return err
}

var ulimitPattern = regexp.MustCompile(`ulimit -l (\d+)`)

// startWithoutHugePages has others use up the huge pages that the node insists
// on.
func startWithoutHugePages(ctx context.Context, l *Lab) error {
	const mount = "/tmp/hugepages"
	l.Step("taking all huge pages of b")
	if _, err := l.B.Sh(ctx, `mkdir -p "$1"; mount -t hugetlbfs none "$1"; fallocate -l "$2" "$1/taken"`, mount,
		strconv.FormatInt(Rails*hugePages*2<<20, 10)); err != nil {
		return err
	}
	undo := func(ctx context.Context) error {
		_, err := l.B.Sh(ctx, `rm -f "$1/taken" "$1/more"; umount "$1"`, mount)
		return err
	}
	defer func() { _ = undo(context.WithoutCancel(ctx)) }() // when it has not come to undo below
	for rail := range Rails {
		free, err := l.B.ReadFile(ctx, fmt.Sprintf("/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/free_hugepages", rail))
		if err != nil {
			return err
		}
		if free != "0" {
			return fmt.Errorf("NUMA node %d has %s free huge pages", rail, free)
		}
	}
	out, err := l.B.fails(ctx, "fallocate", "-l", strconv.Itoa(2<<20), mount+"/more")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "No space left") {
		return fmt.Errorf("another huge page is refused for another reason: %s", out)
	}
	s := faultSettings()
	s.Set["memory.hugepages"] = "2MiB"
	if _, err := l.B.refuses(ctx, s, "memory.hugepages", "NUMA node 0", "0 of the 64 pages", "nr_hugepages"); err != nil {
		return err
	}
	if err := undo(ctx); err != nil {
		return err
	}
	l.Step("the huge pages are free again: starting b")
	return l.B.StartMover(ctx, s)
}

// startWithoutUverbs takes the right to open the devices' nodes away.
func startWithoutUverbs(ctx context.Context, l *Lab) error {
	if _, err := l.B.Sh(ctx, `chmod 600 /dev/infiniband/uverbs*`); err != nil {
		return err
	}
	out, err := l.B.fails(ctx, append(ordinary("unlimited"), "sh", "-c", ": </dev/infiniband/uverbs0")...)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "Permission denied") {
		return fmt.Errorf("the device's node cannot be opened for another reason: %s", out)
	}
	if err := l.B.giveAway(ctx); err != nil {
		return err
	}
	s := faultSettings()
	s.Wrap = ordinary("unlimited")
	if _, err := l.B.refuses(ctx, s, "rxe0", "/dev/infiniband/uverbs", "permission denied"); err != nil {
		return err
	}
	if _, err := l.B.Sh(ctx, `chmod 666 /dev/infiniband/uverbs*`); err != nil {
		return err
	}
	l.Step("the devices' nodes can be opened again: starting b")
	return l.B.StartMover(ctx, s)
}
