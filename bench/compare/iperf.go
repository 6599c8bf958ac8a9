package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// iperfSettings are the combinations the warm-up chooses from.
var iperfSettings = []struct {
	streams int
	block   string // iperf3's -l; K and M are binary there
}{
	{1, "128K"}, {1, "1M"}, {2, "128K"}, {2, "1M"},
}

// iperf is iperf3 over loopback: one server for its life, one client a run.
type iperf struct {
	path   string
	port   int
	server *daemon
}

// startIperf starts the server. The caller must stop it.
func startIperf(ctx context.Context) (*iperf, error) {
	path, err := lookTool("iperf3", "iperf3")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	server, err := startDaemon("iperf3 server", nil, path, "-s", "-B", "127.0.0.1", "-p", strconv.Itoa(port), "--forceflush")
	if err != nil {
		return nil, err
	}
	// The server serves one test at a time and takes any connection for the
	// start of one, so it is asked by what it prints and not by connecting.
	err = server.awaitReady(ctx, func(context.Context) error {
		if strings.Contains(server.output.String(), "Server listening") {
			return nil
		}
		return errors.New("it is not listening")
	})
	if err != nil {
		return nil, errors.Join(err, server.stop())
	}
	return &iperf{path: path, port: port, server: server}, nil
}

func (p *iperf) stop() error { return p.server.stop() }

// describe names a setting for people.
func (p *iperf) describe(setting int) string {
	s := iperfSettings[setting]
	return fmt.Sprintf("iperf3 -P %d -l %s", s.streams, s.block)
}

// run measures one setting for a number of seconds and returns Gbit/s.
func (p *iperf) run(ctx context.Context, setting, seconds int) (float64, error) {
	s := iperfSettings[setting]
	out, err := runClient(ctx, time.Duration(seconds)*time.Second+startDeadline, nil, p.path,
		"-c", "127.0.0.1", "-p", strconv.Itoa(p.port), "-t", strconv.Itoa(seconds),
		"-P", strconv.Itoa(s.streams), "-l", s.block, "-J")
	if err != nil {
		return 0, err
	}
	return parseIperf(out)
}

// parseIperf takes the goodput out of the JSON report of an iperf3 TCP client:
// what the receiver got, over all streams, in decimal Gbit/s. What the sender
// sent is more by what still was in socket buffers when the time was up.
func parseIperf(report []byte) (gbitPerSecond float64, err error) {
	var r struct {
		Error string `json:"error"`
		End   struct {
			SumReceived struct {
				Bytes         float64 `json:"bytes"`
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return 0, fmt.Errorf("reading the report of iperf3: %w", err)
	}
	if r.Error != "" {
		return 0, fmt.Errorf("iperf3: %s", r.Error)
	}
	if !(r.End.SumReceived.BitsPerSecond > 0) || !(r.End.SumReceived.Bytes > 0) {
		return 0, errors.New("the report of iperf3 has no end.sum_received: its receiver got nothing")
	}
	return r.End.SumReceived.BitsPerSecond / 1e9, nil
}
