package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"mover/job"
)

// demoScenarios do what `make demo` does, between two hosts.
func demoScenarios() []scenario {
	return []scenario{
		{name: "demo", ci: true, deadline: 5 * time.Minute, run: func(ctx context.Context, l *Lab) error { return demo(ctx, l, "ibv") }},
		{name: "demo-soft", deadline: 5 * time.Minute, run: func(ctx context.Context, l *Lab) error { return demo(ctx, l, "soft") }},
	}
}

// Sizes that emulation moves in seconds.
const (
	curlBytes = 16 << 20
	copyBytes = 8 << 20
)

// demo starts two nodes, moves one file submitted with curl and one with
// `mover cp`, and compares both.
func demo(ctx context.Context, l *Lab, provider string) error {
	l.Step("starting the nodes")
	if err := l.Both(func(n *Node) error { return n.StartMover(ctx, Settings{Provider: provider}) }); err != nil {
		return err
	}
	if err := l.showDevices(ctx, provider); err != nil {
		return err
	}
	one, two := path.Join(DataDir, "one.bin"), path.Join(DataDir, "two.bin")
	for file, size := range map[string]int64{one: curlBytes, two: copyBytes} {
		if _, err := l.A.Generate(ctx, file, size); err != nil {
			return err
		}
	}

	l.Step("moving one.bin, %d MiB, submitted with curl", curlBytes>>20)
	s, err := l.A.submitWithCurl(ctx, l.A.Send("one.bin"))
	if err != nil {
		return err
	}
	if s, err = l.A.WaitSucceeded(ctx, s.ID); err != nil {
		return err
	}
	if s.Result == nil || !s.Result.Verified || !s.Result.Durable {
		return fmt.Errorf("the job is not verified and durable: %s", brief(s))
	}
	if s.Attempts != 1 {
		l.Step("it took %d attempts, the last failure was: %s", s.Attempts, brief(s))
	}
	l.Step("%.1f MB/s, verified and durable", float64(curlBytes)/1e6/s.Result.Seconds)

	l.Step("moving two.bin, %d MiB, with mover cp", copyBytes>>20)
	if _, err := l.A.Run(ctx, MoverProgram, "cp", "--server", "http://"+apiAddress, "--token-file", TokenFile, two, "b:incoming/"); err != nil {
		return err
	}
	for _, name := range []string{"one.bin", "two.bin"} {
		sum, err := SameFile(ctx, l.A, path.Join(DataDir, name), l.B, path.Join(IncomingDir, name))
		if err != nil {
			return err
		}
		l.Step("sha256 of %s is %s on both sides", name, sum)
	}
	if left, err := l.B.Sh(ctx, `ls -A "$1"`, IncomingDir); err != nil || left != "one.bin\ntwo.bin" {
		return fmt.Errorf("in b's incoming there is %q, not the two files alone (%v)", left, err)
	}
	if err := l.bothRailsCarried(ctx, curlBytes+copyBytes); err != nil {
		return err
	}
	if err := l.showTroubles(ctx); err != nil {
		return err
	}
	l.Step("stopping the nodes")
	return l.Both(func(n *Node) error { return n.StopMover(ctx) })
}

// showDevices checks that the node uses one device a rail, of the provider that
// was asked for.
func (l *Lab) showDevices(ctx context.Context, provider string) error {
	return l.Both(func(n *Node) error {
		api, err := n.API(ctx)
		if err != nil {
			return err
		}
		d, err := api.Devices(ctx)
		if err != nil {
			return err
		}
		var names []string
		for _, device := range d.Devices {
			if device.Error != "" || device.Provider != provider {
				return fmt.Errorf("node %s: device %s is of %s: %s", n.Name, device.Name, device.Provider, device.Error)
			}
			names = append(names, device.Name)
			n.lab.Note("%s: %+v", n.Name, device)
		}
		if len(names) != Rails {
			return fmt.Errorf("node %s uses %v, not one device a rail: %s", n.Name, names, d.Reason)
		}
		l.Step("node %s uses %s: %s", n.Name, strings.Join(names, ", "), d.Reason)
		return nil
	})
}

// bothRailsCarried shows the bytes per rail from a to b, and fails if one has
// carried next to nothing, or one side knows less than was moved.
func (l *Lab) bothRailsCarried(ctx context.Context, total int64) error {
	sent, err := l.A.Metrics(ctx)
	if err != nil {
		return err
	}
	received, err := l.B.Metrics(ctx)
	if err != nil {
		return err
	}
	var out, in int64
	for rail := range Rails {
		s, _ := sent.RailBytes(rail)
		_, r := received.RailBytes(rail)
		l.Step("rail %d: %.1f MB sent, %.1f MB received", rail, float64(s)/1e6, float64(r)/1e6)
		if s < total/20 {
			return fmt.Errorf("rail %d carried %d bytes of %d", rail, s, total)
		}
		out, in = out+s, in+r
	}
	if out < total || in < total {
		return fmt.Errorf("%d bytes were moved, the rails know of %d sent and %d received", total, out, in)
	}
	return nil
}

// showTroubles tells of lanes that were lost and what the devices counted. It is
// no failure: Soft-RoCE that waits too long for a CPU loses a lane at times, and
// that mover goes on is right.
func (l *Lab) showTroubles(ctx context.Context) error {
	for _, n := range []*Node{l.A, l.B} {
		m, err := n.Metrics(ctx)
		if err != nil {
			return err
		}
		if lost := m.Sum("mover_poller_lane_errors_total"); lost > 0 {
			l.Step("node %s: %.0f lanes lost and built again, %.0f slots and segments sent twice", n.Name, lost, m.Sum("mover_poller_resent_total"))
		}
		for rail := range Rails {
			counters, err := n.PortCounters(ctx, rail)
			if err != nil {
				return err
			}
			maps.DeleteFunc(counters, func(_ string, v int64) bool { return v == 0 })
			l.Note("%s: rail %d: %v", n.Name, rail, counters)
		}
	}
	return nil
}

// submitWithCurl submits as docs/api.md says, in the guest.
func (n *Node) submitWithCurl(ctx context.Context, spec job.Spec) (job.Snapshot, error) {
	var s job.Snapshot
	body, err := json.Marshal(spec)
	if err != nil {
		return s, err
	}
	out, err := n.Sh(ctx, `curl -sS --max-time 60 --fail-with-body "$1/v1/jobs" -H "Authorization: Bearer $(cat "$2")" \
		-H 'Content-Type: application/json' -d "$3"`, "http://"+apiAddress, TokenFile, string(body))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("the answer to the submit: %w: %q", err, out)
	}
	n.lab.Step("curl POST /v1/jobs -> job %s", s.ID)
	return s, nil
}
