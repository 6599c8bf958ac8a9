package main

import (
	"strings"
	"testing"
	"time"

	"mover/job"
	"mover/reason"
)

func TestFindRail(t *testing.T) {
	const one = "0      0      10.77.1.1:41234      10.77.1.2:9471\n"
	for _, c := range []struct {
		text string
		rail int
		err  string
	}{
		{one, 1, ""},
		{one + one, 1, ""},
		{"0 0 10.77.0.1:9471 10.77.0.2:40000\n\n", 0, ""},
		{"", 0, "no control connection"},
		{one + "0 0 10.77.0.1:41234 10.77.0.2:9471\n", 0, "several rails"},
		{"0 0 10.77.2.1:41234 10.77.2.2:9471\n", 0, "off the rails"},
		{"0 0 192.168.0.1:41234 192.168.0.2:9471\n", 0, "off the rails"},
	} {
		rail, err := findRail(c.text)
		if c.err == "" && (err != nil || rail != c.rail) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: %d, %v", c.text, rail, err)
		}
	}
}

func TestProcessState(t *testing.T) {
	for text, want := range map[string]string{
		"12 (mover) S 1 2": "S", "12 (a) b) (c) T 1": "T", "": "", "12 (mover)": "", "12 (mover) stopped": "",
	} {
		got, err := processState(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestParseRSS(t *testing.T) {
	if n, err := parseRSS("VmPeak:\t  9 kB\nVmRSS:\t   61234 kB\nRssAnon: 1 kB\n"); err != nil || n != 61234<<10 {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{"", "VmRSS:\t many kB\n"} {
		if n, err := parseRSS(text); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
}

func TestParseRoundTrip(t *testing.T) {
	got, err := parseRoundTrip("3 packets transmitted\nround-trip min/avg/max = 40.250/41.1/42.0 ms\n")
	if err != nil || got != 40250*time.Microsecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "round-trip min/avg/max = / ms"} {
		if got, err := parseRoundTrip(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestNetemHappened: a fault that has moved no counter is not taken for one.
func TestNetemHappened(t *testing.T) {
	quiet := netCounters{port: map[string]int64{"rcvd_seq_err": 3, "out_of_seq_request": 1}, roundTrip: time.Millisecond}
	bad := netCounters{port: map[string]int64{"rcvd_seq_err": 90, "out_of_seq_request": 95}, roundTrip: 45 * time.Millisecond, dropped: 90}
	for _, f := range netemFaults() {
		if err := f.happened(quiet, quiet); err == nil {
			t.Errorf("%s: nothing happened, and that passes", f.name)
		}
		if err := f.happened(quiet, bad); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
	unnoticed := bad
	unnoticed.port = quiet.port
	if err := netemFaults()[0].happened(quiet, unnoticed); err == nil {
		t.Error("packets were dropped and no device has missed them, and that passes")
	}
}

// TestTransferReasons: each failed attempt once, in order, and none that only
// is remembered from before.
func TestTransferReasons(t *testing.T) {
	tr := &transfer{lab: &Lab{log: &scenarioLog{}}}
	view := func(state job.State, version uint64, attempt int, code reason.Code) job.Snapshot {
		s := job.Snapshot{State: state, Version: version, Attempts: attempt}
		if code != "" {
			s.LastReason = &job.Reason{Code: code, Detail: "why"}
		}
		return s
	}
	for _, s := range []job.Snapshot{
		view(job.Queued, 1, 0, ""), view(job.Running, 2, 1, ""),
		view(job.Queued, 3, 1, reason.Stalled), view(job.Queued, 3, 1, reason.Stalled),
		view(job.Running, 4, 2, reason.Stalled),
		view(job.Queued, 5, 2, reason.PeerUnreachable),
		view(job.Succeeded, 6, 3, ""),
	} {
		tr.take(s)
	}
	got := failureText(tr.failures())
	if want := "; before: attempt 1: STALLED: why; attempt 2: PEER_UNREACHABLE: why"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFaultScenarios: what CI runs covers each kind.
func TestFaultScenarios(t *testing.T) {
	kinds := map[string]bool{}
	for _, s := range faultScenarios() {
		if s.ci {
			kinds[s.name] = true
		}
	}
	for _, want := range []string{"fault-cut-rails", "fault-cut-both", "fault-netem", "fault-gid-moves",
		"fault-receiver-killed", "fault-receiver-stopped", "fault-device-deleted", "churn-qps", "churn-sessions",
		"start-memlock", "start-hugepages", "start-uverbs"} {
		if !kinds[want] {
			t.Errorf("%s is not run in CI", want)
		}
	}
}
