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

// TestFaultScenarios: every kind of fault has a scenario; CI runs those that
// fit its ten minutes, make lab-full all.
func TestFaultScenarios(t *testing.T) {
	have, inCI := map[string]bool{}, map[string]bool{}
	for _, s := range faultScenarios() {
		have[s.name], inCI[s.name] = true, s.ci
	}
	for _, c := range []struct {
		name string
		ci   bool
	}{
		{"fault-cut-rails", true}, {"fault-gid-moves", true}, {"fault-receiver-killed", true}, {"fault-device-deleted", true},
		{"churn-qps", true}, {"start-memlock", true}, {"start-hugepages", true}, {"start-uverbs", true},
		{"fault-cut-one-end", false}, {"fault-cut-both-briefly", false}, {"fault-cut-both", false}, {"fault-netem", false},
		{"fault-receiver-stopped", false}, {"churn-sessions", false},
	} {
		if !have[c.name] || inCI[c.name] != c.ci {
			t.Errorf("%s: there %v, in CI %v, want %v", c.name, have[c.name], inCI[c.name], c.ci)
		}
	}
	if len(have) != 14 {
		t.Errorf("%d scenarios: add the new one to the table", len(have))
	}
}
