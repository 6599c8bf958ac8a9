package fabric

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"mover/verbs"
)

func TestBandwidth(t *testing.T) {
	for _, c := range []Config{
		{QPs: 1, Iterations: 1000},
		{QPs: 4, Iterations: 333, Chain: 8},
		{QPs: 1, Iterations: 501, SizeBytes: 1 << 20, Depth: 7},
		{QPs: 2, Iterations: 100, SizeBytes: 3, Depth: 1},
		{QPs: 2, Iterations: 300, SizeBytes: 1000, Op: Send},
		{QPs: 1, Iterations: 300, SizeBytes: 64, InlineBytes: 64, Op: Send},
		{QPs: 2, Duration: 50 * time.Millisecond, SizeBytes: 4096},
		{QPs: 2, Iterations: 300, Idle: IdleEvents},
		{QPs: 1, Iterations: 40, Idle: IdleSpin},
	} {
		for _, verify := range []bool{true, false} {
			c.Test, c.Verify = Bandwidth, verify
			t.Run(fmt.Sprintf("%dx%d %s %s verify %v", c.QPs, c.SizeBytes, c.Op, c.Idle, verify), func(t *testing.T) {
				cl, sv := measured(t, c)
				x, y := cl.Results[0], sv.Results[0]
				want := uint64(c.Iterations * c.QPs)
				if c.Duration > 0 {
					want = x.Messages
				}
				if x.Messages != want || x.Messages == 0 || !x.CountKnown || x.Arrived != want || x.Lost != 0 || y.Arrived != want {
					t.Errorf("sent %d, arrived %d, lost %d, server says %d; want %d", x.Messages, x.Arrived, x.Lost, y.Arrived, want)
				}
				if (x.Checked > 0) != verify || x.Checked != y.Checked {
					t.Errorf("checked %d, at the server %d", x.Checked, y.Checked)
				}
				if x.BytesPerSecond <= 0 || x.PeakBytesPerSecond < x.BytesPerSecond*0.999 || x.Elapsed <= 0 || x.CPULocal <= 0 || x.CPURemote <= 0 {
					t.Errorf("figures: %+v", x)
				}
				if x.Share != 0 {
					t.Errorf("soft has no line rate, so no share of a ceiling: %v", x.Share)
				}
				if inline := c.InlineBytes; x.InlineBytes != min(inline, x.SizeBytes) {
					t.Errorf("%d bytes inline", x.InlineBytes)
				}
			})
		}
	}
}

// TestAllSizes: the sizes are perftest's, in one conversation.
func TestAllSizes(t *testing.T) {
	cl, _ := measured(t, Config{Test: Bandwidth, All: true, AllBytes: 4096, Iterations: 50, Verify: true})
	size := 2
	for _, x := range cl.Results {
		if x.SizeBytes != size || x.Messages != 50 {
			t.Errorf("%d messages of %d bytes where 50 of %d were due", x.Messages, x.SizeBytes, size)
		}
		size *= 2
	}
	if size != 8192 {
		t.Errorf("ended before %d", size)
	}
}

func TestLatency(t *testing.T) {
	for _, c := range []Config{
		{Iterations: 200},
		{Iterations: 200, InlineBytes: InlineAuto},
		{Iterations: 100, SizeBytes: 3000, Idle: IdleEvents},
		{Duration: 50 * time.Millisecond},
	} {
		c.Test, c.Verify = Latency, true
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			cl, sv := measured(t, c)
			x := cl.Results[0]
			f := x.Latency
			if f == nil || !(0 < f.Min && f.Min <= f.Typical && f.Typical <= f.P99 && f.P99 <= f.P999 && f.P999 <= f.Max && f.Min <= f.Avg && f.Avg <= f.Max) {
				t.Fatalf("figures: %+v", f)
			}
			if c.Iterations > 0 && x.Messages != uint64(c.Iterations) || x.Messages == 0 || x.Arrived != x.Messages || sv.Results[0].Checked == 0 {
				t.Errorf("%+v", x)
			}
			if wantInline := c.InlineBytes == InlineAuto; (x.InlineBytes > 0) != wantInline {
				t.Errorf("%d bytes inline, asked %d", x.InlineBytes, c.InlineBytes)
			}
		})
	}
}

func TestRate(t *testing.T) {
	cl, _ := measured(t, Config{Test: Rate, Pollers: 2, QPs: 2, Iterations: 500, Verify: true, InlineBytes: InlineAuto})
	if len(cl.Results) != 2 || cl.Results[0].Pollers != 1 || cl.Results[1].Pollers != 2 || cl.Results[1].Messages != 2000 {
		t.Fatalf("%+v", cl.Results)
	}
	last := cl.Results[1]
	need := cl.PollersFor(TargetMessagesPerSecond)
	if each := last.MessagesPerSecond / 2; float64(need)*each < TargetMessagesPerSecond || float64(need-1)*each >= TargetMessagesPerSecond {
		t.Errorf("%d pollers of %.0f messages a second", need, each)
	}
	var b bytes.Buffer
	Table{W: &b}.End(cl)
	if !bytes.Contains(b.Bytes(), []byte("200 million messages a second would need")) {
		t.Error(b.String())
	}
}

// TestUnreliable runs where the provider has the transport.
func TestUnreliable(t *testing.T) {
	for _, c := range []Config{
		{Transport: verbs.UC, Op: Write}, {Transport: verbs.UC, Op: Write, Verify: true}, {Transport: verbs.UC, Op: Send, Verify: true},
		{Transport: verbs.UD, Verify: true, SizeBytes: 2048}, {Transport: verbs.UD, Verify: true, QPs: 2},
		{Transport: verbs.UC, Test: Latency, Verify: true, SizeBytes: 64}, {Transport: verbs.UD, Test: Latency, Verify: true, SizeBytes: 64},
	} {
		if c.Test == "" {
			c.Test = Bandwidth
		}
		c.Iterations = 200
		t.Run(fmt.Sprintf("%v %s %s verify %v", c.Transport, c.Test, c.Op, c.Verify), func(t *testing.T) {
			cl, _ := measured(t, c)
			x := cl.Results[0]
			if known := c.Verify || c.Op != Write; x.CountKnown != known {
				t.Errorf("counted: %v", x.CountKnown)
			}
			if x.CountKnown && x.Arrived+x.Lost != x.Messages || x.Messages == 0 {
				t.Errorf("%+v", x)
			}
			if c.Transport == verbs.UD && x.SizeBytes > 4096 {
				t.Errorf("%d bytes in a datagram", x.SizeBytes)
			}
		})
	}
}
