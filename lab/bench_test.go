package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mover/bench/pairs"
	"mover/node/config"
)

// TestFigures pins the names that other programs read, with their targets.
func TestFigures(t *testing.T) {
	want := map[string]float64{"bw-64k-q1": 0.95, "bw-64k-q4": 0.95, "bw-1m-q1": 0.95, "bw-1m-q4": 0.95,
		"lat": 1 / 1.3, "engine-64m": 0.9, "file-rcopy": 3}
	got := map[string]float64{}
	for _, f := range figures() {
		got[f.name] = f.target
		if slower := f.unit != "Gbit/s"; (f.better == pairs.LowerIsBetter) != slower {
			t.Errorf("%s: the orientation of %s", f.name, f.unit)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	for _, f := range stubFigures {
		if limit := map[string]float64{"stub-wr": 60, "stub-chunk": 300}[f.name]; f.limitNs != limit {
			t.Errorf("%s is limited to %v ns", f.name, f.limitNs)
		}
	}
}

func TestChooseFigures(t *testing.T) {
	for only, want := range map[string]struct {
		figures int
		stub    bool
	}{"": {7, true}, "stub": {0, true}, " lat, engine-64m ,": {2, false}, "stub,lat": {1, true}} {
		chosen, stub, err := chooseFigures(only)
		if err != nil || len(chosen) != want.figures || stub != want.stub {
			t.Errorf("%q: %d figures, stub %v, %v", only, len(chosen), stub, err)
		}
	}
	if _, _, err := chooseFigures("latency"); err == nil || !strings.Contains(err.Error(), "engine-64m") {
		t.Errorf("an unknown name gave %v; want the known ones listed", err)
	}
}

func TestBenchOptions(t *testing.T) {
	var said bytes.Buffer
	o, err := parseOptions([]string{"-pairs", "3", "-only", "lat", "-json", "x/y.json", "bench"}, &said)
	if err != nil || o.bench != (benchOptions{json: "x/y.json", pairs: 3, only: "lat"}) {
		t.Errorf("%+v, %v", o.bench, err)
	}
	for _, bad := range [][]string{{"-pairs", "0", "bench"}, {"-pairs", "101", "bench"}, {"-only", "nonsense", "bench"}, {"-json", "figures", "bench"}} {
		if _, err := parseOptions(bad, &said); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
}

// TestMessages: a run takes about runTime, at any rate, and divides evenly.
func TestMessages(t *testing.T) {
	for _, m := range []messages{{64 << 10, 1, 0}, {64 << 10, 4, 0}, {1 << 20, 1, 0}, {1 << 20, 4, 0}} {
		for _, gbits := range []float64{0, 0.1, 0.5, 3, 100, 1000} {
			got := m.forRate(gbits)
			bytes := float64(got.bytes())
			if got.each < perftestList || got.each%perftestList != 0 || bytes > 16<<30 || got.each > math.MaxInt32 {
				t.Errorf("%+v at %v Gbit/s: %+v", m, gbits, got)
			}
			want := min(max(gbits*1e9/8*runTime.Seconds(), 16<<20), 16<<30)
			if least := float64(m.sizeBytes * m.qps * perftestList); bytes > max(want, least) || bytes < want-least {
				t.Errorf("%+v at %v Gbit/s: %v bytes, want about %v", m, gbits, bytes, want)
			}
		}
	}
}

// What perftest 4.5 prints between its lines of dashes.
const latencyText = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       1000          105.88         4021.87      131.26     	       146.33      	143.65		301.19  		4021.87
---------------------------------------------------------------------------------------
`

// TestPerftest: what is run, and that its MiB/s become Gbit/s.
func TestPerftest(t *testing.T) {
	n := &Node{Name: "a"}
	bw := n.writeBW(1, messages{65536, 4, 160}, perftestSetting{options: []string{"-l", "16"}, pinned: true})
	want := "taskset -c 0 ib_write_bw -F -d rxe0 -x 1 -p 18515 -s 65536 -q 4 -n 160 -l 16 10.77.0.1"
	if got := strings.Join(bw.client, " "); got != want {
		t.Errorf("client: %s\nwant:   %s", got, want)
	}
	if got := strings.Join(bw.server, " "); got != strings.TrimSuffix(strings.Replace(want, "-c 0", "-c 1", 1), " 10.77.0.1") {
		t.Errorf("server: %s", got)
	}
	v, err := bw.read(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      640              30.00              25.00   \t\t   0.000400\n")
	if err != nil || math.Abs(v-0.2097152) > 1e-9 {
		t.Errorf("%v, %v", v, err)
	}
	ours := n.moverBW(messages{65536, 4, 160}, perftestSetting{pinned: true})
	if got := strings.Join(ours.client, " "); !strings.HasSuffix(got, "--idle spin -s 65536 -q 4 -n 160 --out_json_file - --cpus 0 10.77.0.1") {
		t.Errorf("our client: %s", got)
	}
	if got := strings.Join(ours.server, " "); !strings.HasSuffix(got, "--idle spin -s 65536 -q 4 -n 160 --listen 10.77.0.1 --cpus 1") {
		t.Errorf("our server: %s", got)
	}
	if got := strings.Join(n.moverBW(messages{65536, 4, 160}, perftestSetting{}).client, " "); strings.Contains(got, "--cpus") {
		t.Errorf("our client, not pinned: %s", got)
	}
	// Another count of messages is another measurement.
	if _, err := ours.read(`{"results": {"MsgSize": 65536, "messages": 641, "gbit_per_s": 1}}`); err == nil {
		t.Error("a run of another length was taken")
	}
}

func TestParseLatency(t *testing.T) {
	if v, err := parseLatency(latencyText, 2); err != nil || v != 131.26 {
		t.Errorf("%v, %v", v, err)
	}
	if _, err := parseLatency(latencyText, 4); err == nil {
		t.Error("a size that was not measured has a result")
	}
}

// TestParseMover reads what the benchmarks of mover really write.
func TestParseMover(t *testing.T) {
	for file, want := range map[string]fabricResult{
		"bw.json":  {MsgSize: 65536, Messages: 5000, GbitPerSecond: 98},
		"lat.json": {MsgSize: 2, Messages: 5000, GbitPerSecond: 98, Typical: 1.26},
	} {
		text, err := os.ReadFile(filepath.Join("../bench/fabric/testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseFabric(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
	}
	if _, err := parseFabric([]byte("provider: ibv")); err == nil {
		t.Error("text was read as JSON")
	}
	if _, err := parseMemoryReport([]byte("{")); err == nil {
		t.Error("half a report was read")
	}
}

// TestBenchSettings: configurations that mover takes, of one device with a
// poller that spins.
func TestBenchSettings(t *testing.T) {
	c := configNode{name: "a", peer: "b", address: []string{"10.77.0.1", "10.77.1.1"}, peerAddress: []string{"10.77.0.2", "10.77.1.2"}}
	for name, s := range map[string]Settings{"engine": engineSettings(), "file": fileSettings()} {
		text, err := c.render(s)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(file)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if !cmp.Equal(got.Devices.Names, []string{benchDevice}) || got.Pollers.Idle != "spin" || got.Pollers.PerNode != 1 {
			t.Errorf("%s: %+v %+v", name, got.Devices, got.Pollers)
		}
		want := config.Default()
		if same := got.Session.Segment == want.Session.Segment && got.Session.SlotPayload == want.Session.SlotPayload &&
			got.Session.LaneDepth == want.Session.LaneDepth && got.Memory.SessionShare == want.Memory.SessionShare; same != (name == "engine") {
			t.Errorf("%s: %+v", name, got.Session)
		}
	}
}

func TestListensCM(t *testing.T) {
	const text = `link rxe0/- cm-idn 0 state LISTEN ps TCP pid 320 comm rcopy src-addr 0.0.0.0:7427
link rxe0/1 cm-idn 1 lqpn 17 qp-type RC state CONNECT ps TCP pid 320 comm rcopy src-addr 10.77.0.2:7428 dst-addr 10.77.0.1:40001
`
	for port, want := range map[string]bool{"7427": true, "7428": false, "427": false, "40001": false} {
		if got := listensCM(text, port); got != want {
			t.Errorf("port %s: %v", port, got)
		}
	}
}

const stubText = `goos: linux
pkg: mover/verbs/ibv
BenchmarkStubOps/chain=32-2         	    1000	      1374 ns/op	        42.9 ns/WR	       0 B/op	       0 allocs/op
BenchmarkStubOps/chain=32-2         	    1000	      1600 ns/op	        50.0 ns/WR	      16 B/op	       1 allocs/op
BenchmarkStubOps/chain=320-2        	    1000	      1600 ns/op	        10.0 ns/WR	      16 B/op	       9 allocs/op
PASS
`

func TestParseStub(t *testing.T) {
	r, err := parseStub(stubText, "BenchmarkStubOps/chain=32", "ns/WR", 2)
	if err != nil || !cmp.Equal(r.values, []float64{42.9, 50}) || r.allocs != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	for name, bad := range map[string]string{
		"another count": strings.Replace(stubText, "chain=32-2", "chain=16-2", 1),
		"no metric":     strings.Replace(stubText, "42.9 ns/WR", "", 1),
		"no allocs":     strings.Replace(stubText, "0 allocs/op", "", 1),
		"no number":     strings.Replace(stubText, "42.9", "many", 1),
		"skipped":       "--- SKIP: BenchmarkStubOps\n",
	} {
		if r, err := parseStub(bad, "BenchmarkStubOps/chain=32", "ns/WR", 2); err == nil {
			t.Errorf("%s passes: %+v", name, r)
		}
	}
}

// TestStubEntries: what is within its limits is met, an allocation is not, and
// a delay that does not show is an error.
func TestStubEntries(t *testing.T) {
	for _, c := range []struct {
		run  stubRun
		want bool
	}{{stubRun{[]float64{50, 40, 70}, 0}, true}, {stubRun{[]float64{70, 61, 40}, 0}, false}, {stubRun{[]float64{50}, 1}, false}} {
		e, err := stubFigures[0].entry(c.run)
		if met, ok := e.Met(); err != nil || met != c.want || !ok || e.Theirs != 60 {
			t.Errorf("%+v: %+v, %v", c.run, e, err)
		}
	}
	plain := stubRun{[]float64{300, 40, 55}, 0}
	e, err := delayEntry(plain, stubRun{[]float64{9000, 2041}, 0})
	if met, _ := e.Met(); err != nil || !met || e.Ours != 2001 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, blind := range [][]float64{{1500, 1700}, {40, 41}, {30}} {
		if e, err := delayEntry(plain, stubRun{blind, 0}); err == nil {
			t.Errorf("a delay that shows as %v passes: %+v", blind, e)
		}
	}
}

// TestBenchPrint: a figure that falls short is told, and is no error.
func TestBenchPrint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lab-bench.json")
	target := 0.95
	b := &bencher{options: benchOptions{json: file, pairs: 2}, entries: []pairs.Entry{
		{Name: "bw-1m-q1", Peer: "ib_write_bw", Ours: 0.4, Theirs: 0.5, Unit: "Gbit/s", Ratio: 0.8, Low: 0.7, High: 0.9, Target: &target, Filesystem: "memory"}}}
	var out bytes.Buffer
	facts := labFacts{Mover: "mover v1", GuestKernel: "linux 6.1", Emulated: true, Packages: []labPackage{{"perftest", "4.5"}}}
	if err := b.print(&out, facts); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bw-1m-q1", ">= 0.95", "short", "fewer than 7 pairs", "mover v1", "emulated", "perftest 4.5", file} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	text, err := json.Marshal(facts)
	if err != nil || !strings.Contains(string(text), `"emulated":true`) {
		t.Errorf("%s, %v", text, err)
	}
}
