package fabric

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"mover/verbs"
)

// meddler is a provider whose QPs hand every chain to a function before it is
// posted, which may change it or leave messages out. What it leaves out is
// lost without a trace, as on UC and UD.
type meddler struct {
	verbs.Provider
	post func(qp verbs.QP, wrs []verbs.SendWR) []verbs.SendWR
	// as, when set, pretends that RC QPs are of this type: it tests the
	// handling of losses over a provider that has none.
	as verbs.QPType
}

func (m *meddler) OpenDevice(name string) (verbs.Context, error) {
	c, err := m.Provider.OpenDevice(name)
	return &meddlingContext{c, m}, err
}

type meddlingContext struct {
	verbs.Context
	m *meddler
}

func (c *meddlingContext) AllocPD() (verbs.PD, error) {
	p, err := c.Context.AllocPD()
	return &meddlingPD{p, c.m}, err
}

type meddlingPD struct {
	verbs.PD
	m *meddler
}

func (p *meddlingPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	if p.m.as != 0 && a.Type == p.m.as {
		a.Type = verbs.RC
	}
	q, err := p.PD.CreateQP(a)
	return &meddlingQP{q, p.m}, err
}

type meddlingQP struct {
	verbs.QP
	m *meddler
}

func (q *meddlingQP) Modify(a *verbs.QPAttr, mask verbs.AttrMask) error {
	if q.m.as != 0 && a.State != verbs.StateErr {
		b := *a
		b.MinRNRTimer, b.Timeout, b.RetryCnt, b.RNRRetry = minRNRTimer, ackTimeout, retryCount, rnrRetry
		a = &b
		mask = map[verbs.QPState]verbs.AttrMask{verbs.StateInit: verbs.InitMask(verbs.RC), verbs.StateRTR: verbs.RTRMask(verbs.RC),
			verbs.StateRTS: verbs.RTSMask(verbs.RC)}[a.State]
	}
	return q.QP.Modify(a, mask)
}

func (q *meddlingQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.m.post == nil {
		return q.QP.PostSend(wrs)
	}
	changed := q.m.post(q.QP, wrs)
	if n, err := q.QP.PostSend(changed); err != nil {
		return min(n, len(wrs)), err
	}
	return len(wrs), nil
}

func meddle(m *meddler) func(verbs.Provider) verbs.Provider {
	return func(p verbs.Provider) verbs.Provider { m.Provider = p; return m }
}

// atMessage makes a meddler that changes one message, counted over all QPs.
func atMessage(at int, change func(wr *verbs.SendWR)) *meddler {
	seen := 0
	return &meddler{post: func(_ verbs.QP, wrs []verbs.SendWR) []verbs.SendWR {
		wrs = slices.Clone(wrs)
		for i := range wrs {
			wrs[i].SGL = slices.Clone(wrs[i].SGL)
			if seen == at {
				change(&wrs[i])
			}
			seen++
		}
		return wrs
	}}
}

func memoryAt(addr uint64) *byte {
	a := uintptr(addr)
	return *(**byte)(unsafe.Pointer(&a)) // arena memory: alive, and does not move
}

// TestCheckFinds: the run fails for each kind of fault, and says which it was.
func TestCheckFinds(t *testing.T) {
	flip := func(wr *verbs.SendWR) { *memoryAt(wr.SGL[0].Addr + 77) ^= 1 }
	for _, c := range []struct {
		name   string
		op     Op
		at     int
		change func(*verbs.SendWR)
		want   string
	}{
		{"a wrong byte", Write, 195, flip, "byte 77 is"},
		{"a wrong byte in a sample", Write, 16, flip, "byte 77 is"},
		{"a missing message", Write, 190, func(wr *verbs.SendWR) { wr.SGL[0].Length = 0 }, "another message"},
		{"half a message", Write, 190, func(wr *verbs.SendWR) { wr.SGL[0].Length /= 2 }, "byte 2048 is"},
		{"a stale message", Write, 190, func(wr *verbs.SendWR) { wr.SGL[0].Addr -= 4096 }, "stale or misplaced"},
		{"a misplaced message", Write, 199, func(wr *verbs.SendWR) { wr.RemoteAddr -= 4096 }, "2 of"},
		{"a wrong byte sent", Send, 195, flip, "byte 77 is"},
		{"a wrong byte sent early", Send, 64, flip, "message 64 of QP 0: byte 77 is"},
		{"a stale message sent", Send, 190, func(wr *verbs.SendWR) { wr.SGL[0].Addr -= 4096 }, "stale or misplaced"},
		{"a short message sent", Send, 100, func(wr *verbs.SendWR) { wr.SGL[0].Length-- }, "has 4095 bytes, not 4096"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Test: Bandwidth, Op: c.op, SizeBytes: 4096, Iterations: 200, Depth: 16, Chain: 1, Moderation: 1, Verify: true}
			cl, sv := pairRun{client: cfg, server: cfg, wrapClient: meddle(atMessage(c.at, c.change))}.run(t)
			for _, err := range []error{cl.err, sv.err} {
				if !errors.Is(err, ErrWrong) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want one with %q", err, c.want)
				}
			}
		})
	}
}

// TestUncheckedIsUnchecked: --no-verify really leaves the check out.
func TestUncheckedIsUnchecked(t *testing.T) {
	cfg := Config{Test: Bandwidth, SizeBytes: 4096, Iterations: 200, Depth: 16, Chain: 1}
	m := atMessage(195, func(wr *verbs.SendWR) { *memoryAt(wr.SGL[0].Addr) ^= 1 })
	cl, sv := pairRun{client: cfg, server: cfg, wrapClient: meddle(m)}.run(t)
	if cl.err != nil || sv.err != nil || cl.report.Results[0].Checked != 0 {
		t.Error(cl.err, sv.err)
	}
}

func TestWrongAnswerIsFound(t *testing.T) {
	cfg := Config{Test: Latency, SizeBytes: 100, Iterations: 50, Verify: true}
	m := atMessage(45, func(wr *verbs.SendWR) { *memoryAt(wr.SGL[0].Addr + 9) ^= 1 })
	cl, _ := pairRun{client: cfg, server: cfg, wrapServer: meddle(m)}.run(t)
	if !errors.Is(cl.err, ErrWrong) || !strings.Contains(cl.err.Error(), "of the answers, message 45 of QP 0: byte 9") {
		t.Error(cl.err)
	}
}

// TestLosses: on UC and UD losses are counted, and are no error; what did
// arrive is still checked.
func TestLosses(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"writes", Config{Op: Write}}, {"sends", Config{Op: Send}}, {"writes for a time", Config{Op: Write, Duration: 50 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := c.cfg
			cfg.Test, cfg.Transport, cfg.SizeBytes, cfg.Depth, cfg.QPs, cfg.Verify = Bandwidth, verbs.UC, 512, 32, 2, true
			if cfg.Duration == 0 {
				cfg.Iterations = 400
			}
			var dropped atomic.Uint64
			seen := 0
			client := &meddler{as: verbs.UC, post: func(_ verbs.QP, wrs []verbs.SendWR) []verbs.SendWR {
				kept := make([]verbs.SendWR, 0, len(wrs))
				for _, wr := range wrs {
					seen++
					// Signalled ones must complete, as they do on UC.
					if wr.Flags&verbs.SendSignaled == 0 && seen%7 == 3 {
						dropped.Add(1)
						continue
					}
					kept = append(kept, wr)
				}
				return kept
			}}
			cl, sv := pairRun{client: cfg, server: cfg, wrapClient: meddle(client), wrapServer: meddle(&meddler{as: verbs.UC})}.run(t)
			if cl.err != nil || sv.err != nil {
				t.Fatalf("client: %v\nserver: %v", cl.err, sv.err)
			}
			x := cl.report.Results[0]
			if dropped.Load() == 0 || x.Lost != dropped.Load() || x.Arrived != x.Messages-x.Lost || x.Checked == 0 {
				t.Errorf("dropped %d: %+v", dropped.Load(), x)
			}
			var b strings.Builder
			Table{W: &b}.Line(cl.report, x)
			if !strings.Contains(b.String(), "lost: ") || !strings.Contains(b.String(), "the figures count what was sent") {
				t.Error(b.String())
			}
		})
	}
}

// TestWrongContentAmongLosses: a loss excuses no wrong byte.
func TestWrongContentAmongLosses(t *testing.T) {
	for _, op := range []Op{Write, Send} {
		cfg := Config{Test: Bandwidth, Transport: verbs.UC, Op: op, SizeBytes: 512, Iterations: 200, Depth: 16, Chain: 1, Moderation: 4, Verify: true}
		seen := 0
		client := &meddler{as: verbs.UC, post: func(_ verbs.QP, wrs []verbs.SendWR) []verbs.SendWR {
			seen++
			switch seen {
			case 150, 193:
				return nil
			case 198:
				*memoryAt(wrs[0].SGL[0].Addr + 3) ^= 0x80
			}
			return wrs
		}}
		cl, _ := pairRun{client: cfg, server: cfg, wrapClient: meddle(client), wrapServer: meddle(&meddler{as: verbs.UC})}.run(t)
		if !errors.Is(cl.err, ErrWrong) || !strings.Contains(cl.err.Error(), "byte 3 is") {
			t.Errorf("%s: %v", op, cl.err)
		}
	}
}

// TestLostMessageOnRC: what never goes out on a reliable transport is a stall,
// not a hang.
func TestLostMessageOnRC(t *testing.T) {
	cfg := Config{Test: Bandwidth, SizeBytes: 512, Iterations: 100, Depth: 16, Chain: 1, Moderation: 1, Stall: 200 * time.Millisecond, Verify: true}
	seen := 0
	client := &meddler{post: func(_ verbs.QP, wrs []verbs.SendWR) []verbs.SendWR {
		if seen++; seen > 50 {
			return nil
		}
		return wrs
	}}
	cl, sv := pairRun{client: cfg, server: cfg, wrapClient: meddle(client)}.run(t)
	var remote *RemoteError
	if !errors.Is(cl.err, ErrStalled) || !errors.As(sv.err, &remote) || !strings.Contains(remote.Text, "no completion for 200ms while sending") {
		t.Errorf("client: %v\nserver: %v", cl.err, sv.err)
	}
}
