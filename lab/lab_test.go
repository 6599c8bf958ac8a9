package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mover/node/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConfig: what the lab writes is a configuration that mover takes.
func TestConfig(t *testing.T) {
	c := configNode{name: "a", peer: "b", address: []string{"10.77.0.1", "10.77.1.1"}, peerAddress: []string{"10.77.0.2", "10.77.1.2"},
		peerFingerprint: "sha256:" + strings.Repeat("0123456789abcdef", 4)}
	load := func(t *testing.T, s Settings) *config.Config {
		t.Helper()
		text, err := c.render(s)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(file)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return cfg
	}
	cfg := load(t, Settings{})
	if diff := cmp.Diff([]string{"ibv"}, cfg.Devices.Providers); diff != "" || cfg.Devices.Fallback != "forbid" {
		t.Errorf("devices: %+v", cfg.Devices)
	}
	if diff := cmp.Diff([]string{"10.77.0.1:9471", "10.77.1.1:9471"}, cfg.Control.Listen); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"10.77.0.2:9471", "10.77.1.2:9471"}, cfg.Peers["b"].Addresses); diff != "" {
		t.Error(diff)
	}
	soft := load(t, Settings{Provider: "soft", Set: map[string]any{"jobs.stall_after": "3s", "memory.arena": nil, "workers": 2}})
	if diff := cmp.Diff(c.address, soft.Soft.Addresses); diff != "" || !soft.Soft.AllowCleartext {
		t.Errorf("soft: %+v", soft.Soft)
	}
	if soft.Workers != 2 || soft.Jobs.StallAfter.String() == cfg.Jobs.StallAfter.String() || soft.Memory.Arena == cfg.Memory.Arena {
		t.Errorf("changed settings: %+v %+v %d", soft.Jobs, soft.Memory, soft.Workers)
	}
	for name, s := range map[string]Settings{
		"a provider":        {Provider: "tcp"},
		"below a plain one": {Set: map[string]any{"workers": 2, "workers.max": 3}},
	} {
		if _, err := c.render(s); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestParseMetrics(t *testing.T) {
	m, err := parseMetrics(`# HELP mover_rail_sent_bytes_total Bytes.
# TYPE mover_rail_sent_bytes_total counter
mover_rail_sent_bytes_total{peer="b",device="rxe0",port="1"} 1.5e+06
mover_rail_sent_bytes_total{peer="c",device="rxe0",port="1"} 10
mover_rail_sent_bytes_total{peer="b",device="soft1",port="1"} 7 1700000000
mover_rail_received_bytes_total{device="rxe0"} 3
go_goroutines 12
odd{text="a \"quoted\", {brace}"} NaN
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(m) != 6 || m[5].Labels["text"] != `a "quoted", {brace}` {
		t.Errorf("%+v", m)
	}
	if got := m.Sum("mover_rail_sent_bytes_total", "device", "rxe0", "peer", "b"); got != 1.5e6 {
		t.Errorf("one series: %v", got)
	}
	if got := m.Sum("mover_rail_sent_bytes_total"); got != 1500017 {
		t.Errorf("all series: %v", got)
	}
	if sent, received := m.RailBytes(0); sent != 1500010 || received != 3 {
		t.Errorf("rail 0: %d %d", sent, received)
	}
	if sent, _ := m.RailBytes(1); sent != 7 {
		t.Errorf("rail 1: %d", sent)
	}
	for _, bad := range []string{"name", "name x", "name{a} 1", "name{a=b} 1", `name{a="b" 1`, `name{a="b"}`} {
		if m, err := parseMetrics(bad); err == nil {
			t.Errorf("%q is %+v", bad, m)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add("a{b=\"c\"} 1\n# x\nd 2 3\n")
	f.Add("a{")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMetrics(text)
		if err == nil && len(m) > strings.Count(text, "\n")+1 {
			t.Fatalf("%d samples in %q", len(m), text)
		}
	})
}

func TestParseCounters(t *testing.T) {
	got := parseCounters("sent_pkts:12\nlifespan:10\nlast\nmode:auto\nrcvd:-1\n")
	if diff := cmp.Diff(map[string]int64{"sent_pkts": 12, "lifespan": 10, "rcvd": -1}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFindGID(t *testing.T) {
	const text = "\t\t\tGID[  0]:\t\tfe80::5054:ff:fe4d:0, RoCE v2\n\t\t\tGID[ 11]:\t\t::ffff:10.77.0.12, RoCE v2\n" +
		"\t\t\tGID[  2]:\t\t::ffff:10.77.0.1, RoCE v1\n\t\t\tGID[  3]:\t\t::ffff:10.77.0.1, RoCE v2\n"
	if i, err := findGID(text, "10.77.0.1"); err != nil || i != 3 {
		t.Errorf("%d, %v", i, err)
	}
	if i, err := findGID(text, "10.77.1.1"); err == nil {
		t.Errorf("another address has index %d", i)
	}
}

func TestParseBandwidth(t *testing.T) {
	const text = ` #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    8                0.15               0.13		   0.000016
`
	if rate, err := parseBandwidth(text, 1<<20); err != nil || rate != 0.13 {
		t.Errorf("%v, %v", rate, err)
	}
	if _, err := parseBandwidth(text, 65536); err == nil {
		t.Error("a result of another size")
	}
}

func TestParseTests(t *testing.T) {
	passed, others := parseTests("=== RUN   TestA\n--- PASS: TestA (0.1s)\n    --- PASS: TestA/one (0.1s)\n    --- SKIP: TestA/two (0.1s)\n--- FAIL: TestB (2s)\nPASS\n")
	if diff := cmp.Diff([]string{"TestA/two (SKIP)", "TestB (FAIL)"}, others); diff != "" || passed != 2 {
		t.Errorf("%d passed; %s", passed, diff)
	}
}

func TestChoose(t *testing.T) {
	all := []scenario{{name: "rails", ci: true}, {name: "demo", ci: true}, {name: "demo-soft"}}
	names := func(chosen []scenario) (s string) {
		for _, c := range chosen {
			s += c.name + " "
		}
		return s
	}
	for _, test := range []struct {
		pattern string
		full    bool
		want    string
	}{
		{"", false, "rails demo "}, {"", true, "rails demo demo-soft "}, {"demo", false, "demo "}, {"demo.*|x", false, "demo demo-soft "},
	} {
		chosen, err := choose(all, test.pattern, test.full)
		if err != nil || names(chosen) != test.want {
			t.Errorf("%q %v: %q, %v", test.pattern, test.full, names(chosen), err)
		}
	}
	for _, bad := range []string{"nosuch", "("} {
		if _, err := choose(all, bad, false); err == nil {
			t.Errorf("%q chooses", bad)
		}
	}
}

// TestScenarios: names are unique and good for files, deadlines are there, and
// CI's part is bounded.
func TestScenarios(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios() {
		if seen[s.name] || s.name == "" || strings.Trim(s.name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("name %q", s.name)
		}
		seen[s.name] = true
		if s.deadline <= 0 || s.run == nil {
			t.Errorf("%s has no deadline or nothing to run", s.name)
		}
	}
}

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing": {}, "two": {"run", "shell"}, "unknown": {"boot"}, "a flag": {"-x", "run"}, "both": {"-full", "-run", "rails", "run"},
		"no such scenario": {"-run", "nosuch", "run"}, "accel": {"-accel", "hvf", "run"},
	} {
		var stderr bytes.Buffer
		if code := run(args, nil, io.Discard, &stderr); code != 2 || stderr.Len() == 0 {
			t.Errorf("%s: %d, %q", name, code, stderr.String())
		}
	}
	var stdout bytes.Buffer
	if code := run([]string{"list"}, nil, &stdout, io.Discard); code != 0 || !strings.Contains(stdout.String(), "rails") {
		t.Errorf("list: %d, %q", code, stdout.String())
	}
	var stderr bytes.Buffer
	if code := run([]string{"-mover", filepath.Join(t.TempDir(), "none"), "-out", t.TempDir(), "run"}, nil, io.Discard, &stderr); code != 1 || !strings.Contains(stderr.String(), "make build") {
		t.Errorf("no mover: %d, %q", code, stderr.String())
	}
}

func TestOccupy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := occupy(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := occupy(path); err == nil {
		again()
		t.Error("two labs in one directory")
	}
	release()
	release, err = occupy(path)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestReport(t *testing.T) {
	r := report{Scenarios: []result{{Name: "rails", Passed: true}, {Name: "demo", Error: "first\nlater"}}}
	var b bytes.Buffer
	if failed := r.print(&b); failed != 1 || !strings.Contains(b.String(), "FAILED") || !strings.Contains(b.String(), "first") || strings.Contains(b.String(), "later") {
		t.Errorf("%d failed:\n%s", failed, b.String())
	}
}

func TestAwait(t *testing.T) {
	tries := 0
	check := func(context.Context) (bool, string, error) { tries++; return tries == 2, "not yet", nil }
	if err := Await(t.Context(), "it", check); err != nil || tries != 2 {
		t.Errorf("%v after %d", err, tries)
	}
	broken := errors.New("broken")
	if err := Await(t.Context(), "it", func(context.Context) (bool, string, error) { return false, "", broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Await(ctx, "it", func(context.Context) (bool, string, error) { cancel(); return false, "not yet", nil })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("%v", err)
	}
}

// TestSwitchboard: keys go to the shell in front, output of the other waits.
func TestSwitchboard(t *testing.T) {
	var screen, a, b bytes.Buffer
	s := &switchboard{out: &screen, keys: [2]io.Writer{&a, &b}}
	for _, w := range []struct {
		index int
		text  string
	}{{0, "a1 "}, {1, strings.Repeat("x", hiddenBytes)}, {1, "b1 "}} {
		if _, err := io.WriteString(s.screen(w.index), w.text); err != nil {
			t.Fatal(err)
		}
	}
	if screen.String() != "a1 " {
		t.Errorf("%q", screen.String())
	}
	s.read(strings.NewReader("ls\n\x1dpwd\n\x1d\x1d"))
	if a.String() != "ls\n" || b.String() != "pwd\n" {
		t.Errorf("keys %q, %q", a.String(), b.String())
	}
	if shown := screen.String(); !strings.Contains(shown, "xxb1 ") || len(shown) > hiddenBytes+200 {
		t.Errorf("%d bytes shown, the end is %q", len(shown), shown[max(0, len(shown)-100):])
	}
}
