package memory

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"mover/peer"
)

// Options say what to measure.
type Options struct {
	Seconds int  // 1..3600
	Verify  bool // CRC32C at both ends
	// Count, when not 0, measures so many transfers of one item instead of
	// Seconds, which then only bounds the run. The first Items are not measured:
	// they warm up.
	Count int
	// Provider ("auto", "ibv", "soft"), Device and Idle ("spin", "adaptive")
	// replace the configuration's settings where they are not "".
	Provider, Device, Idle string
	// ItemBytes is the size of one item; Items of them are in flight at once.
	ItemBytes int64
	Items     int
	// BlockBytes is the memory behind an item, repeated over its addresses, as
	// iperf3 repeats one block; 0 gives every byte memory of its own.
	BlockBytes int64
	Program    string // this program, to be started twice
	Config     string // a configuration file for both, "" for the defaults
	Errors     io.Writer
}

// Report is what was measured. Sizes are bytes.
type Report struct {
	GbitPerSecond       float64 `json:"gbit_per_s"` // payload acked by the destination, decimal
	Bytes               int64   `json:"bytes"`
	Seconds             float64 `json:"seconds"`
	Verify              string  `json:"verify"`
	RSSBytesSource      int64   `json:"rss_bytes_source"`
	RSSBytesDestination int64   `json:"rss_bytes_destination"`
	ArenaBytes          int64   `json:"arena_bytes"` // with the items' memory
	BlockBytes          int64   `json:"block_bytes"` // 0: memory of its own for every byte
	Provider            string  `json:"provider"`
	Rails               int     `json:"rails"`
	Devices             string  `json:"devices"` // names, with commas
	Transfers           int     `json:"transfers"`
	GBPerSecond         float64 `json:"gb_per_s"` // gigabytes, decimal
	// CPUs used by each process: the source's while it was measured, the
	// destination's from the first offer to the last item published.
	CPUSource      float64 `json:"cpu_source"`
	CPUDestination float64 `json:"cpu_destination"`
}

// The names of the two nodes.
const (
	sourceName      = "bench-source"
	destinationName = "bench-destination"
)

// hello is the receiver's first line.
type hello struct {
	Control string `json:"control"`
}

// startLimit bounds starting and stopping the two processes.
const startLimit = 30 * time.Second

// Run measures once.
func Run(ctx context.Context, o Options) (Report, error) {
	dir, err := os.MkdirTemp("", "mover-bench-")
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(dir)
	ids := map[string]*peer.Identity{}
	for _, name := range []string{sourceName, destinationName} {
		if ids[name], _, err = peer.LoadOrCreate(filepath.Join(dir, name), name); err != nil {
			return Report{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.Seconds)*time.Second+2*startLimit)
	defer cancel()
	common := []string{"bench", "mem", "--dir", dir, "--seconds", strconv.Itoa(o.Seconds), "--verify", verifyName(o.Verify),
		"--item", strconv.FormatInt(o.ItemBytes, 10), "--items", strconv.Itoa(o.Items),
		"--block", strconv.FormatInt(o.BlockBytes, 10)}
	for _, option := range []struct{ name, value string }{
		{"--config", o.Config}, {"--provider", o.Provider}, {"--ib-dev", o.Device}, {"--idle", o.Idle},
	} {
		if option.value != "" {
			common = append(common, option.name, option.value)
		}
	}
	if o.Count > 0 {
		common = append(common, "--count", strconv.Itoa(o.Count))
	}
	receiver := exec.CommandContext(ctx, o.Program, append(common, "--role", "receive", "--fingerprint", ids[sourceName].Fingerprint)...)
	receiver.Stderr = o.Errors
	stop, err := receiver.StdinPipe() // its end stops the receiver
	if err != nil {
		return Report{}, err
	}
	out, err := receiver.StdoutPipe()
	if err != nil {
		return Report{}, err
	}
	if err := receiver.Start(); err != nil {
		return Report{}, err
	}
	lines := bufio.NewScanner(out)
	fail := func(what string, err error) (Report, error) {
		stop.Close()
		cancel()
		_ = receiver.Wait() // its own error was printed
		return Report{}, fmt.Errorf("%s: %w", what, err)
	}
	var h hello
	if err := readLine(lines, &h); err != nil {
		return fail("starting the receiver", err)
	}
	sender := exec.CommandContext(ctx, o.Program, append(common, "--role", "send", "--fingerprint", ids[destinationName].Fingerprint, "--control", h.Control)...)
	sender.Stderr = o.Errors
	text, err := sender.Output()
	if err != nil {
		return fail("the sender", err)
	}
	var report, received Report
	if err := json.Unmarshal(text, &report); err != nil {
		return fail("reading the sender's report", err)
	}
	stop.Close()
	if err := readLine(lines, &received); err != nil {
		return fail("reading the receiver's report", err)
	}
	if err := receiver.Wait(); err != nil {
		return Report{}, fmt.Errorf("the receiver: %w", err)
	}
	report.RSSBytesDestination, report.CPUDestination = received.RSSBytesDestination, received.CPUDestination
	return report, nil
}

func readLine(lines *bufio.Scanner, into any) error {
	if !lines.Scan() {
		if err := lines.Err(); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	}
	return json.Unmarshal(lines.Bytes(), into)
}

func verifyName(verify bool) string {
	if verify {
		return "crc32c"
	}
	return "none"
}

// pollerCPU gives each of the two processes a CPU of its own, where there are
// two: as two hosts would have.
func pollerCPU(role string) []int {
	if runtime.NumCPU() < 2 {
		return nil
	}
	if role == "receive" {
		return []int{1}
	}
	return []int{0}
}
