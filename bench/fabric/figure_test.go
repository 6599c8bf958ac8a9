package fabric

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mover/verbs"
)

// TestCeiling against the published shares of full packets.
func TestCeiling(t *testing.T) {
	roce := path{link: verbs.LinkEthernet, gidType: verbs.GIDRoCEv2, ipv4: true, mtu: verbs.MTU4096, transport: verbs.RC, op: Write}
	ib := path{link: verbs.LinkInfiniBand, gidType: verbs.GIDInfiniBand, mtu: verbs.MTU4096, transport: verbs.RC, op: Write}
	with := func(p path, change func(*path)) path { change(&p); return p }
	for _, c := range []struct {
		name  string
		path  path
		bytes int
		want  float64 // percent
	}{
		{"RoCE v2 4096", roce, 1 << 30, 98.04},
		{"RoCE v2 2048", with(roce, func(p *path) { p.mtu = verbs.MTU2048 }), 1 << 30, 96.15},
		{"RoCE v2 1024", with(roce, func(p *path) { p.mtu = verbs.MTU1024 }), 1 << 30, 92.59},
		{"InfiniBand 4096", ib, 1 << 30, 99.37},
		{"InfiniBand 2048", with(ib, func(p *path) { p.mtu = verbs.MTU2048 }), 1 << 30, 98.75},
		{"64 KiB has 16 bytes more", roce, 1 << 16, 100 * 65536.0 / (65536 + 16*82 + 16)},
		{"sends have not", with(roce, func(p *path) { p.op = Send }), 1 << 16, 100 * 65536.0 / (65536 + 16*82)},
		{"padding", with(roce, func(p *path) { p.op = Send }), 5, 100 * 5.0 / (5 + 3 + 82)},
		{"IPv6", with(roce, func(p *path) { p.ipv4 = false }), 4096, 100 * 4096.0 / (4096 + 102 + 16)},
		{"RoCE v1", with(roce, func(p *path) { p.gidType = verbs.GIDRoCEv1 }), 4096, 100 * 4096.0 / (4096 + 94 + 16)},
		{"GRH", with(ib, func(p *path) { p.global = true }), 4096, 100 * 4096.0 / (4096 + 66 + 16)},
		{"UD", with(roce, func(p *path) { p.transport, p.op, p.immediate = verbs.UD, Send, true }), 4096, 100 * 4096.0 / (4096 + 90 + 4)},
		{"soft", with(roce, func(p *path) { p.gidType = verbs.GIDSoft }), 4096, 0},
	} {
		if got := c.path.ceiling(c.bytes) * 100; math.Abs(got-c.want) > 0.005 {
			t.Errorf("%s: %.3f %%, want %.3f", c.name, got, c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	var trips []int64
	for i := 1000; i >= 1; i-- {
		trips = append(trips, int64(i)*2000) // half of it is i us
	}
	want := LatencyFigures{Min: 1, Max: 1000, Typical: 500, Avg: 500.5, Stdev: math.Sqrt((1000*1000 - 1) / 12.0), P99: 990, P999: 999}
	if d := cmp.Diff(want, figures(trips), cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })); d != "" {
		t.Error(d)
	}
	if f := figures([]int64{3000}); f.Min != 1.5 || f.Typical != 1.5 || f.P999 != 1.5 || f.Stdev != 0 {
		t.Errorf("%+v", f)
	}
	if figures(nil) != (LatencyFigures{}) {
		t.Error("figures of nothing")
	}
}

// TestStopwatch: the counter, where it is used, agrees with the kernel's clock.
func TestStopwatch(t *testing.T) {
	w := newStopwatch()
	var counted, timed int64
	for range 50 { // the best of: either reading may be interrupted
		a, from := w.now(), time.Now()
		for time.Since(from) < time.Millisecond {
		}
		between := []int64{w.now() - a}
		elapsed := int64(time.Since(from))
		if err := w.nanoseconds(between); err != nil {
			t.Fatal(err)
		}
		if timed == 0 || math.Abs(float64(between[0]-elapsed)) < math.Abs(float64(counted-timed)) {
			counted, timed = between[0], elapsed
		}
	}
	if r := float64(counted) / float64(timed); r < 0.95 || r > 1.05 {
		t.Errorf("%d ns counted, %d ns by the clock (counter: %v)", counted, timed, w.counter)
	}
	if got := w.ticks(time.Second); math.Abs(float64(got)*w.nsPerTick-1e9) > 1e3 {
		t.Errorf("a second has %d ticks of %v ns", got, w.nsPerTick)
	}
	if err := w.nanoseconds([]int64{5, -1}); !errors.Is(err, ErrCounter) {
		t.Error(err)
	}
}

// TestPeak: the best stretch is found, also when there are more moments than
// are remembered, and never less than the average.
func TestPeak(t *testing.T) {
	k := newPeak()
	k.begin(mark{})
	for i := range uint64(10) { // 10 messages a us, and 30 in the fifth and sixth
		fast := uint64(0)
		if i >= 4 {
			fast = 20
		}
		if i >= 5 {
			fast = 40
		}
		k.add(mark{at: int64(i+1) * 1000, posted: (i+1)*10 + fast, completed: (i+1)*10 + fast})
	}
	if got := k.messagesPerSecond(); math.Abs(got-30e6) > 1 {
		t.Errorf("peak %v", got)
	}
	k.begin(mark{})
	const many = 50 * maxMarks
	for i := range uint64(many - 1) {
		k.add(mark{at: int64(i+1) * 1000, posted: i + 1 + 8, completed: i + 1})
	}
	k.end(mark{at: many * 1000, posted: many, completed: many})
	if got := k.messagesPerSecond(); got < 1e6 || got > 1.01e6 || len(k.marks) > maxMarks {
		t.Errorf("peak %v of a steady million, %d marks", got, len(k.marks))
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "allowed: bw, lat, rate"},
		{Config{Test: Bandwidth, SizeBytes: -1}, "-s/--size: -1; allowed: 1 to"},
		{Config{Test: Bandwidth, Iterations: 4}, "-n/--iters: 4; allowed: 5 to"},
		{Config{Test: Bandwidth, QPs: 257}, "-q/--qp: 257"},
		{Config{Test: Bandwidth, Pollers: 2}, "only rate"},
		{Config{Test: Bandwidth, Transport: verbs.UD, Op: Write}, "UD has no writes"},
		{Config{Test: Bandwidth, AckTimeout: 32}, "-u/--qp-timeout: 32; allowed"},
		{Config{Test: Bandwidth, Transport: verbs.UD, SizeBytes: 65536}, "-s/--size: 65536; a UD message is one packet, and the largest MTU is 4096"},
		{Config{Test: Bandwidth, Transport: verbs.UD, SizeBytes: 2048, MTU: verbs.MTU1024}, "the MTU of -m is 1024"},
		{Config{Test: Bandwidth, Transport: 9}, "allowed: RC, UC, UD"},
		{Config{Test: Bandwidth, MTU: 7}, "allowed: 256, 512"},
		{Config{Test: Bandwidth, Idle: "lazy"}, "allowed: spin, adaptive"},
		{Config{Test: Bandwidth, Duration: 2 * time.Hour}, "-D/--duration"},
		{Config{Test: Latency, Op: Write}, "measured with sends"},
		{Config{Test: Latency, QPs: 2}, "on one QP"},
		{Config{Test: Rate, All: true}, "one size"},
		{Config{Test: Rate, Pollers: 2, CPUs: []int{1}}, "--cpus: 1 for 2"},
	} {
		_, err := c.cfg.complete()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}

// TestValidateOn: what the port refuses is known before the other side comes,
// and a default is cut where a wish is refused.
func TestValidateOn(t *testing.T) {
	port := &Port{Attr: verbs.PortAttr{ActiveMTU: verbs.MTU1024}}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Test: "x"}, "allowed: bw"},
		{Config{Test: Bandwidth, MTU: verbs.MTU2048}, "the port's active MTU is 1024"},
		{Config{Test: Bandwidth, Transport: verbs.UD, SizeBytes: 2048}, "the path MTU here is 1024"},
		{Config{Test: Bandwidth, Transport: verbs.UD, SizeBytes: 1024}, ""},
		{Config{Test: Bandwidth, Transport: verbs.UD}, ""},
		{Config{Test: Bandwidth, Transport: verbs.UD, All: true}, ""},
	} {
		err := c.cfg.ValidateOn(port)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	c := mustComplete(Config{Test: Bandwidth, Transport: verbs.UD})
	if r := c.runs(verbs.MTU1024); c.SizeBytes != 4096 || len(r) != 1 || r[0].sizeBytes != 1024 {
		t.Errorf("the default of UD: %d, %v", c.SizeBytes, r)
	}
}

// TestAckTimeout: the default is by device, and a long one is no stall.
func TestAckTimeout(t *testing.T) {
	hardware := &Port{provider: "ibv"}
	rxe := &Port{provider: "ibv", Info: verbs.DeviceInfo{Software: true}}
	soft := &Port{provider: "soft", Info: verbs.DeviceInfo{Software: true}}
	for _, c := range []struct {
		port        *Port
		given, want int
	}{{hardware, 0, 14}, {rxe, 0, 18}, {soft, 0, 14}, {hardware, 20, 20}, {rxe, 1, 1}} {
		cfg := Config{Test: Bandwidth, Transport: verbs.RC, AckTimeout: c.given}
		if got := c.port.ackTimeout(&cfg); got != c.want {
			t.Errorf("%s, %d given: %d, want %d", c.port.provider, c.given, got, c.want)
		}
		if r := newReport(&cfg, c.port, true); r.AckTimeout != c.want {
			t.Errorf("the report says %d", r.AckTimeout)
		}
	}
	if r := newReport(&Config{Transport: verbs.UD}, rxe, true); r.AckTimeout != 0 {
		t.Errorf("UD has a timeout of %d", r.AckTimeout)
	}
	if ackTime(14) != 67_108_864*time.Nanosecond || ackTime(0) != 0 || ackTime(32) != 0 {
		t.Error(ackTime(14), ackTime(0), ackTime(32))
	}
	for n, want := range map[int]time.Duration{0: 10 * time.Second, 18: 10 * time.Second, 22: 2 * ackTime(22), 31: 10 * time.Minute} {
		if c := mustComplete(Config{Test: Bandwidth, AckTimeout: n}); c.Stall != want {
			t.Errorf("-u %d: a stall is %v, want %v", n, c.Stall, want)
		}
	}
}

// TestCompletionError: the text names what to do about each.
func TestCompletionError(t *testing.T) {
	for _, c := range []struct {
		err        CompletionError
		want, lack string
	}{
		{CompletionError{Status: verbs.WCRetryExcErr}, "ping), or raise -u", "report"},
		{CompletionError{Status: verbs.WCRemInvReqErr}, "a bug of the driver or of mover: please report it", "-u"},
		{CompletionError{Status: verbs.WCRemInvReqErr, Emulated: true}, "Soft-RoCE's driver does this when acknowledgements are late: raise -u on both sides", "bug"},
		{CompletionError{Status: verbs.WCLocProtErr, Emulated: true}, "please report it", "-u"},
	} {
		if got := c.err.Error(); !strings.Contains(got, c.want) || strings.Contains(got, c.lack) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestUnknownIsNull: what does not apply is null in JSON, not 0.
func TestUnknownIsNull(t *testing.T) {
	r := sampleReport(Bandwidth)
	r.RateBits, r.AckTimeout, r.Results = 0, 0, []Result{{SizeBytes: 1, Pollers: 1}}
	var b bytes.Buffer
	if err := r.WriteJSON(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"BW_peak", "line_gbit_per_s", "qp_timeout", "ceiling", "share_of_ceiling", "lost"} {
		if !strings.Contains(b.String(), `"`+key+`": null`) {
			t.Errorf("%s is not null: %s", key, b.String())
		}
	}
}

// TestTooLittle: what a device cannot do is said with the option to change.
func TestTooLittle(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Test: Bandwidth, Depth: MaxDepth, SizeBytes: 1}, "lower -t"},
		{Config{Test: Bandwidth, SizeBytes: 1 << 30, QPs: 16, RingBytes: 1 << 30}, "lower --ring, -q or -s"},
		{Config{Test: Bandwidth, MTU: verbs.MTU4096, Iterations: 5, InlineBytes: 900, SizeBytes: 600}, "MaxInlineBytes"},
	} {
		cl, sv := same(t, c.cfg)
		if err := errors.Join(cl.err, sv.err); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}

func sampleReport(test Test) *Report {
	c := *mustComplete(Config{Test: test, Verify: true})
	r := &Report{Config: c, Client: true, Device: "mlx5_0", Remote: "mlx5_1", Provider: "ibv", Link: verbs.LinkEthernet, RateBits: 100e9,
		GID:        verbs.GIDEntry{Index: 3, Type: verbs.GIDRoCEv2, GID: verbs.GID{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1}},
		AckTimeout: 14, LocalMTU: verbs.MTU4096, RemoteMTU: verbs.MTU4096, MTU: verbs.MTU4096}
	r.path = path{link: r.Link, gidType: r.GID.Type, ipv4: true, mtu: r.MTU, transport: c.Transport, op: c.Op}
	x := Result{SizeBytes: c.SizeBytes, Pollers: 1, InFlight: 64, Chain: 16, Moderation: 16, Messages: 5000, Elapsed: 26 * time.Millisecond,
		BytesPerSecond: 12.25e9, PeakBytesPerSecond: 12.5e9, MessagesPerSecond: 187000, CountKnown: true, Arrived: 5000, Checked: 71, CPULocal: 1.01, CPURemote: 0.02}
	switch test {
	case Latency:
		x.Latency = &LatencyFigures{Min: 1.1, Max: 9.5, Typical: 1.26, Avg: 1.3, Stdev: 0.2, P99: 1.43, P999: 2.87}
	case Rate:
		r.add(x)
		x.Pollers, x.MessagesPerSecond = 2, 20e6
	}
	r.add(x)
	return r
}

// TestDocuments compares the JSON, whose keys scripts read, and the text with
// files; MOVER_WRITE_GOLDEN=1 writes them.
func TestDocuments(t *testing.T) {
	for _, test := range []Test{Bandwidth, Latency, Rate} {
		r := sampleReport(test)
		var doc, text bytes.Buffer
		if err := r.WriteJSON(&doc, true); err != nil {
			t.Fatal(err)
		}
		for _, gigabits := range []bool{true, false} {
			table := Table{W: &text, Gigabits: gigabits}
			table.Begin(r)
			for _, x := range r.Results {
				table.Line(r, x)
			}
			table.End(r)
		}
		for name, got := range map[string][]byte{string(test) + ".json": doc.Bytes(), string(test) + ".txt": text.Bytes()} {
			file := filepath.Join("testdata", name)
			if os.Getenv("MOVER_WRITE_GOLDEN") != "" {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("%s:\n%s", file, d)
			}
		}
		if !json.Valid(doc.Bytes()) {
			t.Error("not JSON")
		}
	}
}

func TestJSONOfSeveral(t *testing.T) {
	r := sampleReport(Bandwidth)
	r.Config.All = true
	var b bytes.Buffer
	if err := r.WriteJSON(&b, false); err != nil {
		t.Fatal(err)
	}
	var d struct {
		Results []map[string]any `json:"results"`
	}
	if err := json.Unmarshal(b.Bytes(), &d); err != nil || len(d.Results) != 1 || d.Results[0]["BW_average"] == nil {
		t.Errorf("%v: %s", err, b.String())
	}
	r.Results = nil
	if r.WriteJSON(&b, false) == nil {
		t.Error("a report of nothing")
	}
}
