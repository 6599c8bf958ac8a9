package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"mover/bench/pairs"
	"mover/lab/remote"
)

// The figures of a port: both ends are in guest a, on the device of rail 0 and
// so of NUMA node 0.
const (
	benchRail   = 0
	benchDevice = "rxe0"
	// runTime is how long one run should take: long against the start of a
	// program, short enough for many pairs.
	runTime = 2 * time.Second
	// latencyTrips are measured in a run.
	latencyTrips = 2000
	// The CPUs of a guest for what is pinned. Left to the kernel, two that spin
	// may share one with what else their processes do, and wait a tick for each
	// message; pinned, one that spins shares its CPU with the kernel thread that
	// is its adapter. Which is worse is found out, for both sides.
	clientCPU, serverCPU = "0", "1"
)

// twoEnded is a program with a side that serves and one that connects to it, and
// how to read the client's figure.
type twoEnded struct {
	name           string // of its log
	server, client []string
	read           func(stdout string) (float64, error)
}

// measure runs both ends in the guest and returns the figure.
func (n *Node) measure(ctx context.Context, t twoEnded) (float64, error) {
	server, err := n.Start(ctx, t.name, remote.Command{Args: t.server, Dir: "/tmp"})
	if err != nil {
		return 0, err
	}
	if err := n.AwaitListening(ctx, perftestPort, server); err != nil {
		server.Kill()
		return 0, err
	}
	out, err := n.run(ctx, remote.Command{Args: t.client, Dir: "/tmp"})
	if err != nil {
		server.Kill()
		return 0, fmt.Errorf("%w; the server said: %s", err, server.Tail())
	}
	if exit, err := server.Wait(); err != nil || exit.Code != 0 {
		return 0, fmt.Errorf("the server of %s ended %+v (%v): %s", t.name, exit, err, server.Tail())
	}
	return t.read(out)
}

// messages are those of a run.
type messages struct {
	sizeBytes, qps, each int // each: of a QP
}

// bytes is how many a run moves.
func (m messages) bytes() int64 { return int64(m.sizeBytes) * int64(m.qps) * int64(m.each) }

// forRate returns as many messages as take runTime at a rate, within bounds: 16
// MiB at least, 16 GiB at most, and of each QP a multiple of perftest's lists.
func (m messages) forRate(gbits float64) messages {
	bytes := min(max(gbits*1e9/8*runTime.Seconds(), 16<<20), 16<<30)
	m.each = max(int(bytes)/m.sizeBytes/m.qps/perftestList, 1) * perftestList
	return m
}

// perftestList is how many WRs perftest posts at once in its second setting.
const perftestList = 16

// perftestSetting is a way to run perftest: with more options, and left to the
// kernel's choice of CPUs or not.
type perftestSetting struct {
	options []string
	pinned  bool
}

func (s perftestSetting) String() string {
	text := strings.Join(s.options, " ")
	if s.pinned {
		text += " pinned"
	}
	return strings.TrimSpace(text)
}

// What is tried in the warm-up; the best is the peer.
var (
	bandwidthSettings = []perftestSetting{{}, {options: []string{"-l", strconv.Itoa(perftestList)}}} // its server does nothing
	latencySettings   = []perftestSetting{{}, {pinned: true}}
)

// perftest is one of perftest's programs on the device.
func (n *Node) perftest(gid int, s perftestSetting, program string, args ...string) twoEnded {
	common := append([]string{program, "-F", "-d", benchDevice, "-x", strconv.Itoa(gid), "-p", perftestPort}, args...)
	common = append(common, s.options...)
	t := twoEnded{name: program, server: common, client: append(common[:len(common):len(common)], n.Address(benchRail))}
	if s.pinned {
		t.server, t.client = append([]string{"taskset", "-c", serverCPU}, t.server...), append([]string{"taskset", "-c", clientCPU}, t.client...)
	}
	return t
}

// writeBW is ib_write_bw, in Gbit/s. Not with --report_gbits: two decimals of
// Gbit/s are too coarse for what a guest does.
func (n *Node) writeBW(gid int, m messages, s perftestSetting) twoEnded {
	t := n.perftest(gid, s, "ib_write_bw", "-s", strconv.Itoa(m.sizeBytes), "-q", strconv.Itoa(m.qps), "-n", strconv.Itoa(m.each))
	t.read = func(out string) (float64, error) {
		mib, err := parseBandwidth(out, m.sizeBytes) // "MB/sec" is MiB/s
		return mib * 8 * (1 << 20) / 1e9, err
	}
	return t
}

// What is tried of mover in the warm-up. ib_write_bw has up to 128 messages in
// flight; mover's ring is kept small by default, to stay in a cache.
var (
	moverSettings          = []perftestSetting{{}, {pinned: true}}
	moverBandwidthSettings = append(moverSettings[:2:2], perftestSetting{options: []string{"--ring", "64MiB"}})
)

// moverBench is `mover bench TEST` on the device, with one poller that spins.
func (n *Node) moverBench(test string, s perftestSetting, read func([]byte) (float64, error), args ...string) twoEnded {
	common := append([]string{MoverProgram, "bench", test, "--provider", "ibv", "-d", benchDevice, "-p", perftestPort, "--idle", "spin"}, args...)
	common = append(common, s.options...)
	server := append(common[:len(common):len(common)], "--listen", n.Address(benchRail))
	client := append(common[:len(common):len(common)], "--out_json_file", "-", n.Address(benchRail))
	if s.pinned {
		server, client = append(server, "--cpus", serverCPU), append(client[:len(client)-1:len(client)-1], "--cpus", clientCPU, n.Address(benchRail))
	}
	return twoEnded{name: "mover-bench-" + test, server: server, client: client,
		read: func(out string) (float64, error) { return read([]byte(out)) }}
}

// moverBW is `mover bench bw`, in Gbit/s.
func (n *Node) moverBW(m messages, s perftestSetting) twoEnded {
	return n.moverBench("bw", s, func(out []byte) (float64, error) {
		r, err := parseFabric(out)
		if err == nil && (r.MsgSize != m.sizeBytes || r.Messages != m.qps*m.each) {
			err = fmt.Errorf("mover bench bw moved %d messages of %d bytes, not %d of %d", r.Messages, r.MsgSize, m.qps*m.each, m.sizeBytes)
		}
		return r.GbitPerSecond, err
	}, "-s", strconv.Itoa(m.sizeBytes), "-q", strconv.Itoa(m.qps), "-n", strconv.Itoa(m.each))
}

// fabricResult is what is used of the JSON of `mover bench bw` and `lat`.
type fabricResult struct {
	MsgSize       int     `json:"MsgSize"`
	Messages      int     `json:"messages"`
	GbitPerSecond float64 `json:"gbit_per_s"`
	Typical       float64 `json:"t_typical"` // us
}

func parseFabric(text []byte) (fabricResult, error) {
	var d struct {
		Results fabricResult `json:"results"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return fabricResult{}, fmt.Errorf("reading the report of mover bench: %w: %q", err, text)
	}
	return d.Results, nil
}

// readyBandwidth compares `mover bench bw` with ib_write_bw.
func readyBandwidth(ctx context.Context, l *Lab, sizeBytes, qps int) (comparison, error) {
	n := l.A
	gid, err := n.GIDIndex(ctx, benchRail)
	if err != nil {
		return comparison{}, err
	}
	m, setting, err := n.calibrateWriteBW(ctx, gid, messages{sizeBytes: sizeBytes, qps: qps})
	if err != nil {
		return comparison{}, err
	}
	mine, err := n.calibrate(ctx, moverBandwidthSettings, pairs.HigherIsBetter, func(s perftestSetting) twoEnded { return n.moverBW(m, s) })
	if err != nil {
		return comparison{}, err
	}
	return comparison{filesystem: "memory", setting: strings.Join(n.writeBW(gid, m, setting).server, " "),
		ours:   func(ctx context.Context, _ int) (float64, error) { return n.measure(ctx, n.moverBW(m, mine)) },
		theirs: func(ctx context.Context, _ int) (float64, error) { return n.measure(ctx, n.writeBW(gid, m, setting)) },
	}, nil
}

// calibrateWriteBW finds out how many messages take runTime, and with which
// setting ib_write_bw is fastest.
func (n *Node) calibrateWriteBW(ctx context.Context, gid int, m messages) (messages, perftestSetting, error) {
	rate, err := n.measure(ctx, n.writeBW(gid, m.forRate(0), perftestSetting{}))
	if err != nil {
		return m, perftestSetting{}, fmt.Errorf("ib_write_bw: %w", err)
	}
	m = m.forRate(rate)
	s, err := n.calibrate(ctx, bandwidthSettings, pairs.HigherIsBetter, func(s perftestSetting) twoEnded { return n.writeBW(gid, m, s) })
	return m, s, err
}

// calibrate runs a program with every setting and returns the best.
func (n *Node) calibrate(ctx context.Context, settings []perftestSetting, o pairs.Orientation, program func(perftestSetting) twoEnded) (perftestSetting, error) {
	name := program(settings[0]).name
	n.lab.Step("%s: choosing the best of %d settings", name, len(settings))
	best, err := pairs.Calibrate(ctx, len(settings), o, func(ctx context.Context, i int) (float64, error) {
		v, err := n.measure(ctx, program(settings[i]))
		if err == nil {
			n.lab.Step("   %s %v: %.3f", name, settings[i], v)
		}
		return v, err
	})
	if err != nil {
		return perftestSetting{}, fmt.Errorf("%s: %w", name, err)
	}
	return settings[best], nil
}

// readyLatency compares the typical latency of `mover bench lat` with that of
// ib_send_lat. Both send 2 bytes inline.
func readyLatency(ctx context.Context, l *Lab) (comparison, error) {
	n := l.A
	gid, err := n.GIDIndex(ctx, benchRail)
	if err != nil {
		return comparison{}, err
	}
	trips := strconv.Itoa(latencyTrips)
	program := func(s perftestSetting) twoEnded {
		t := n.perftest(gid, s, "ib_send_lat", "-s", "2", "-n", trips)
		t.read = func(out string) (float64, error) { return parseLatency(out, 2) }
		return t
	}
	setting, err := n.calibrate(ctx, latencySettings, pairs.LowerIsBetter, program)
	if err != nil {
		return comparison{}, err
	}
	theirs := program(setting)
	mine := func(s perftestSetting) twoEnded {
		return n.moverBench("lat", s, func(out []byte) (float64, error) {
			r, err := parseFabric(out)
			if err == nil && (r.MsgSize != 2 || r.Typical <= 0) {
				err = fmt.Errorf("mover bench lat has no figure for 2 bytes: %s", out)
			}
			return r.Typical, err
		}, "-s", "2", "-n", trips)
	}
	setting, err = n.calibrate(ctx, moverSettings, pairs.LowerIsBetter, mine)
	if err != nil {
		return comparison{}, err
	}
	ours := mine(setting)
	return comparison{filesystem: "memory", setting: strings.Join(theirs.server, " "),
		ours:   func(ctx context.Context, _ int) (float64, error) { return n.measure(ctx, ours) },
		theirs: func(ctx context.Context, _ int) (float64, error) { return n.measure(ctx, theirs) },
	}, nil
}

// parseLatency finds the typical time in perftest's table: bytes, iterations,
// least, most, typical, average, deviation, 99 %, 99.9 %, all in us.
func parseLatency(text string, size int) (float64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] != strconv.Itoa(size) {
			continue
		}
		return strconv.ParseFloat(fields[4], 64)
	}
	return 0, fmt.Errorf("ib_send_lat printed no result for %d bytes:\n%s", size, text)
}
