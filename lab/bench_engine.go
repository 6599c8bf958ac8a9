package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"mover/lab/remote"
)

const (
	// engineItemBytes is the buffer that is moved.
	engineItemBytes = 64 << 20
	// engineConfig is the configuration of both processes, in the guest.
	engineConfig = moverDir + "/bench.yaml"
)

// engineSettings are those of the two processes of `mover bench mem`: one
// device, so one NUMA node and one poller each. Within a guest there is no slow
// link, for which the lab lowers what is in flight: the session's sizes are
// mover's defaults.
func engineSettings() Settings {
	return Settings{Set: map[string]any{
		"devices.names": []string{benchDevice}, "pollers.idle": "spin",
		"session.slot_payload": nil, "session.segment": nil, "session.rail_rate": nil, "session.lanes_per_rail": nil, "session.lane_depth": nil,
		"memory": nil,
	}}
}

// readyEngine compares a transfer of one buffer through the engine, sessions
// and all, with ib_write_bw at 1 MiB. Neither looks at the bytes.
func readyEngine(ctx context.Context, l *Lab) (comparison, error) {
	n := l.A
	gid, err := n.GIDIndex(ctx, benchRail)
	if err != nil {
		return comparison{}, err
	}
	m, setting, err := n.calibrateWriteBW(ctx, gid, messages{sizeBytes: 1 << 20, qps: 1})
	if err != nil {
		return comparison{}, err
	}
	text, err := n.config("").render(engineSettings())
	if err != nil {
		return comparison{}, err
	}
	if err := n.Remote().WriteFile(ctx, engineConfig, text, 0o644); err != nil {
		return comparison{}, fmt.Errorf("guest %s: %w", n.Name, err)
	}
	count := max(int(m.bytes()/engineItemBytes), 2)
	ours := func(ctx context.Context, _ int) (float64, error) { return n.engineTransfers(ctx, count) }
	if _, err := ours(ctx, 0); err != nil {
		return comparison{}, fmt.Errorf("mover, warm-up: %w", err)
	}
	return comparison{ours: ours, filesystem: "memory",
		setting: strings.Join(n.writeBW(gid, m, setting).server, " ") + "; mover: verify none, one transfer after the other",
		theirs:  func(ctx context.Context, _ int) (float64, error) { return n.measure(ctx, n.writeBW(gid, m, setting)) },
	}, nil
}

// memoryReport is what is used of the JSON of `mover bench mem`.
type memoryReport struct {
	GbitPerSecond float64 `json:"gbit_per_s"`
	Provider      string  `json:"provider"`
	Devices       string  `json:"devices"`
	Transfers     int     `json:"transfers"`
	Bytes         int64   `json:"bytes"`
}

// engineTransfers runs `mover bench mem` and returns Gbit/s.
func (n *Node) engineTransfers(ctx context.Context, count int) (float64, error) {
	out, err := n.run(ctx, remote.Command{Dir: "/tmp", Args: []string{MoverProgram, "bench", "mem", "--config", engineConfig,
		"--provider", "ibv", "-d", benchDevice, "--idle", "spin", "--item", strconv.Itoa(engineItemBytes), "--items", "1",
		"--block", "0", "--count", strconv.Itoa(count), "--verify", "none", "--json"}})
	if err != nil {
		return 0, err
	}
	r, err := parseMemoryReport([]byte(out))
	if err == nil && (r.Provider != "ibv" || r.Devices != benchDevice || r.Transfers != count || r.Bytes != int64(count)*engineItemBytes) {
		err = fmt.Errorf("mover bench mem did not move %d items of %d bytes over %s of ibv: %+v", count, engineItemBytes, benchDevice, r)
	}
	return r.GbitPerSecond, err
}

func parseMemoryReport(text []byte) (memoryReport, error) {
	var r memoryReport
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("reading the report of mover bench mem: %w: %q", err, text)
	}
	return r, nil
}
