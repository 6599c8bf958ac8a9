package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mover/bench/fabric"
)

// freePort is a TCP port that nobody listens on at the moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// bothSides runs `mover bench TEST` as server and client, with the same
// options and those of each.
func bothSides(t *testing.T, test, both, serverOnly, clientOnly string) (client, server ended) {
	t.Helper()
	port := freePort(t)
	common := append([]string{"bench", test, "--provider", "soft", "-p", port}, strings.Fields(both)...)
	served := make(chan ended, 1)
	go func() { served <- mover(t, append(append([]string{}, common...), strings.Fields(serverOnly)...)...) }()
	client = mover(t, append(append(append([]string{}, common...), strings.Fields(clientOnly)...), "127.0.0.1")...)
	return client, <-served
}

func TestBenchFabric(t *testing.T) {
	for _, c := range []struct{ test, both, columns string }{
		{"bw", "-s 64KiB -q 4 -n 200 --report_gbits", "#bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"},
		{"bw", "-D 0.2 -s 4096 --events", "BW peak[MB/sec]    BW average[MB/sec]"},
		{"lat", "-n 100", "t_typical[usec]"},
		{"rate", "--pollers 2 -n 500", "200 million messages a second would need"},
	} {
		client, server := bothSides(t, c.test, c.both, "", "")
		client.want(t, exitOK, c.columns, "provider: soft (software verbs, as --provider asks)", "Pattern check  : ON", "n/a")
		server.want(t, exitOK, "waiting for a client on 127.0.0.1:", "checks of content passed")
	}
}

func TestBenchFabricJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.json")
	client, server := bothSides(t, "bw", "-n 100 -s 1024", "", "--out_json --out_json_file="+file)
	client.want(t, exitOK)
	server.want(t, exitOK)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Results map[string]any `json:"results"`
	}
	if err := json.Unmarshal(text, &d); err != nil || d.Results["MsgSize"] != 1024.0 || d.Results["n_iterations"] != 100.0 || d.Results["BW_average"] == 0.0 {
		t.Errorf("%v: %s", err, text)
	}
	client, _ = bothSides(t, "lat", "-n 100", "", "--out_json_file -")
	client.want(t, exitOK, `"t_typical"`)
	if !json.Valid([]byte(client.stdout)) {
		t.Errorf("more than JSON on standard output:\n%s", client.stdout)
	}
}

func TestBenchFabricMismatch(t *testing.T) {
	client, server := bothSides(t, "bw", "-n 100", "-s 4096", "-s 64KiB")
	client.want(t, exitUsage, "the two sides do not fit: -s/--size is 65536 here and 4096 there; start both with the same options")
	server.want(t, exitUsage, "-s/--size is 4096 here and 65536 there")
}

func TestBenchFabricRefuses(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"bw -s 0", exitUsage, `--size: "0"; allowed: 1 to`},
		{"bw -s 1XB", exitUsage, `--size: "1XB"`},
		{"bw -D 0", exitUsage, `--duration: "0"`},
		{"bw -q 0", exitUsage, "--qp: 0; allowed: 1 and more"},
		{"bw -q 1000", exitUsage, "-q/--qp: 1000"},
		{"bw -c XRC", exitUsage, `--connection: "XRC"; allowed: RC, UC, UD`},
		{"bw -m 1500", exitUsage, "--mtu: 1500; allowed: 256, 512, 1024, 2048, 4096"},
		{"bw -e --idle spin", exitUsage, "choose one"},
		{"bw --idle lazy", exitUsage, "allowed: spin, adaptive"},
		{"bw --provider tcp", exitUsage, "allowed: auto, ibv, soft"},
		{"bw --cpus a", exitUsage, "--cpus:"},
		{"bw -p 0", exitUsage, "--port: 0"},
		{"bw a b", exitUsage, `"b" is one argument too many`},
		{"bw :1", exitUsage, "has no host"},
		{"bw h:x", exitUsage, "the port is not a number"},
		{"bw --provider soft -d rxe7", exitFailed, "rxe7"},
		{"bw --provider soft -x 5", exitFailed, "has no GID 5"},
		{"bw --provider soft -i 2", exitFailed, "has no port 2"},
		{"bw --provider soft --soft-address 192.0.2.1", exitFailed, "give --allow-cleartext only"},
		{"bw --provider soft --wait 50ms -p " + freePort(t), exitFailed, "no client came to 127.0.0.1:"},
		{"bw -u 0", exitUsage, "--qp-timeout: 0; allowed: 1 and more"},
		{"bw -u 32", exitUsage, "-u/--qp-timeout: 32; allowed:"},
		{"bw -n 100 -D 1", exitUsage, "--iters and --duration say two things; choose one"},
		{"bw -a -s 64", exitUsage, "--all and --size say two things; choose one"},
		{"bw -c UD -s 64KiB", exitUsage, "the largest MTU is 4096"},
		{"bw -c UD -m 1024 -s 2048", exitUsage, "the MTU of -m is 1024"},
		{"bw -c UD --op write", exitUsage, "UD has no writes"},
		{"lat --op write", exitUsage, "has no option --op"},
		{"mem --idle never", exitUsage, "allowed: spin, adaptive"},
		{"mem --provider tcp", exitUsage, "allowed: auto, ibv, soft"},
		{"mem --count -1", exitUsage, "--count: -1"},
	} {
		mover(t, append([]string{"bench"}, strings.Fields(c.args)...)...).want(t, c.code, c.want)
	}
	for _, name := range []string{"bw", "lat", "rate", "mem"} {
		mover(t, "bench", name, "-h").want(t, exitOK, "USAGE:", "OPTIONS:", "--provider")
	}
	mover(t, "bench", "bw", "-h").want(t, exitOK, "not authenticated and not encrypted")
}

// TestBenchFabricWords: no text names what only a configuration has, or an
// option that was not given.
func TestBenchFabricWords(t *testing.T) {
	for _, args := range []string{"--soft-address 192.0.2.1", "--soft-address x", "--soft-address 192.0.2.1 --allow-cleartext", "-d rxe7"} {
		got := mover(t, append([]string{"bench", "bw", "--provider", "soft"}, strings.Fields(args)...)...)
		got.want(t, exitFailed)
		for _, lack := range []string{"devices.", "soft.a", `--ib-dev ""`} {
			if strings.Contains(got.stderr, lack) {
				t.Errorf("%s: %q in: %s", args, lack, got.stderr)
			}
		}
	}
	cause := errors.New("set soft.allow_cleartext: true, or correct devices.names")
	if err := ofOptions(cause); !errors.Is(err, cause) || err.Error() != "give --allow-cleartext, or correct -d" || ofOptions(nil) != nil {
		t.Error(err)
	}
}

// TestBenchFabricHints: what is to be typed next is whole.
func TestBenchFabricHints(t *testing.T) {
	port := freePort(t)
	mover(t, "bench", "bw", "--provider", "soft", "--wait", "50ms", "-p", port).want(t, exitFailed, "start it with: mover bench bw -p "+port+" HOST")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mover(t, "bench", "bw", "--provider", "soft", "-p", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)).want(t, exitFailed, "choose another with -p, on both sides")
	if got := portOption("h:18515") + portOption("[::1]:7"); got != " -p 7" {
		t.Error(got)
	}
	help := mover(t, "bench", "bw", "-h").stdout
	if server, client := strings.Index(help, "mover bench bw --listen 192.0.2.1 "), strings.Index(help, "mover bench bw 192.0.2.1 "); server < 0 || client < server || client > strings.Index(help, "DESCRIPTION:") {
		t.Error(help)
	}
}

func TestServerAddress(t *testing.T) {
	for in, want := range map[string]string{
		"h": "h:18515", "h:1": "h:1", "192.0.2.1": "192.0.2.1:18515", "192.0.2.1:7": "192.0.2.1:7",
		"::1": "[::1]:18515", "[::1]": "[::1]:18515", "[::1]:7": "[::1]:7", "2001:db8::1:7": "[2001:db8::1:7]:18515",
		"": "", ":7": "", "h:0": "", "h:65536": "", "h:x": "", "[::1]:": "",
	} {
		got, err := serverAddress(in, fabricPort)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseBytesAndSeconds(t *testing.T) {
	for in, want := range map[string]int{"1": 1, "65536": 65536, "64KiB": 65536, "8 MiB": 8 << 20, "1073741824": fabric.MaxSizeBytes,
		"0": 0, "-1": 0, "2GiB": 0, "64K": 0, "": 0} {
		got, err := parseBytes("size", in)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("size %q: %d, %v", in, got, err)
		}
	}
	for in, want := range map[string]time.Duration{"": 0, "5": 5 * time.Second, "0.5": 500 * time.Millisecond, "1m30s": 90 * time.Second,
		"0": -1, "-1": -1, "x": -1, "NaN": -1, "1e300": -1, "2h": -1} {
		got, err := parseSeconds(in)
		if err != nil {
			got = -1
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("duration %q: %s", in, d)
		}
	}
}
