package datapath

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mover/engine"
	"mover/node/config"
	"mover/node/device"
	"mover/reason"
	"mover/verbs"
	"mover/verbs/soft"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSizes moves items around every boundary, one session, both rails.
func TestSizes(t *testing.T) {
	a, _, received := newHosts(t, nil)
	l := dial(t, a)
	payload := 256 << 10
	for i, n := range []int{0, 1, 4095, 4096, 4097, payload - 1, payload, payload + 1, 20*payload + 17} {
		name, p := fmt.Sprint(n), pattern(n, byte(i))
		if r := send(t, l, name, p); r.Err != nil {
			t.Fatalf("%d bytes: %v", n, r.Err)
		} else if r.CRC != engine.Checksum(p) {
			t.Errorf("%d bytes: CRC %08x, want %08x", n, r.CRC, engine.Checksum(p))
		}
		equal(t, received, name, p)
	}
	sent := uint64(0)
	for _, rail := range l.Session().Rails() {
		if rail.SentBytes.Load() == 0 {
			t.Errorf("rail %s carried nothing", rail.Local.Device)
		}
		sent += rail.SentBytes.Load()
	}
	if sent < uint64(20*payload) {
		t.Errorf("the rails carried %d bytes", sent)
	}
}

// TestLanesLost cuts lanes while items move: every item still arrives whole, in
// the same attempt, and the lanes are built again.
func TestLanesLost(t *testing.T) {
	a, b, received := newHosts(t, nil)
	l := dial(t, a)
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		random, cuts := rand.New(rand.NewPCG(1, 2)), 0
		defer func() { stopped <- cuts }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			qps := append(a.provider.all(), b.provider.all()...)
			if soft.BreakConnection(qps[random.IntN(len(qps))]) == nil {
				cuts++
			}
		}
	}()
	stats := a.path.Stats()[0].Engine
	// Until a lane was cut with writes that had not arrived: that is what must
	// be sent again. A cut between two writes proves less.
	for i := 0; i < 4 || stats.Resent.Load() == 0; i++ {
		if i == 100 {
			t.Fatal("no cut ever hit a write in flight")
		}
		name, p := fmt.Sprint("item ", i), pattern(8<<20+i, byte(i))
		r := send(t, l, name, p)
		if r.Err != nil {
			t.Errorf("%s: %v", name, r.Err)
			continue
		}
		equal(t, received, name, p)
	}
	close(stop)
	if cuts := <-stopped; cuts == 0 {
		t.Error("no lane was cut: the test tested nothing")
	}
	waitUp(t, l)
	failed := uint64(0)
	for _, rail := range l.Session().Rails() {
		failed += rail.LaneErrors.Load()
	}
	if failed == 0 {
		t.Error("lanes were cut, and no rail counts it")
	}
	t.Logf("%d lanes failed, %d slots sent again", stats.LaneErrors.Load(), stats.Resent.Load())
}

// TestPeerGone loses the control connection in mid-transfer: the item ends with
// a retryable reason, and a new session works.
func TestPeerGone(t *testing.T) {
	a, b, received := newHosts(t, nil)
	l := dial(t, a)
	done := make(chan engine.ItemResult, 1)
	p := pattern(64<<20, 9)
	item := &engine.Item{Kind: engine.Staged, Bytes: int64(len(p)), Verify: true, Meta: []byte("gone"),
		Source: &memory{p: p}, Done: func(r engine.ItemResult) { done <- r }}
	l.Session().Send(item)
	for item.Acked() == 0 {
		select {
		case r := <-done:
			t.Fatalf("ended before anything was acked: %+v", r)
		case <-time.After(time.Millisecond):
		}
	}
	(<-b.links).Conn().Close("cut by the test")
	r := <-done
	if r.Err == nil || !r.Err.Code.Retryable() {
		t.Fatalf("got %v, want a retryable reason", r.Err)
	}
	<-l.Done()
	l = dial(t, a)
	if r := send(t, l, "again", p); r.Err != nil {
		t.Fatal(r.Err)
	}
	equal(t, received, "again", p)
}

// TestNoShareLeft refuses a session when the arena is leased out, with the
// setting to change.
func TestNoShareLeft(t *testing.T) {
	a, b, _ := newHosts(t, nil)
	lease, err := b.path.Lease(48<<20, "the test's")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	_, err = tryDial(t, a)
	if reason.Of(err) != reason.PeerRefused || !strings.Contains(err.Error(), "memory.arena") {
		t.Errorf("got %v, want PEER_REFUSED with the setting", err)
	}
}

func TestWhyAndFix(t *testing.T) {
	why, fix := whyAndFix([]string{"hugetlb 2MiB: mmap: no memory: 0 of 32 pages needed are free; set vm.nr_hugepages=32", "MADV_DONTFORK: no"})
	if why != "hugetlb 2MiB: mmap: no memory: 0 of 32 pages needed are free; MADV_DONTFORK: no" || fix != "set vm.nr_hugepages=32" {
		t.Errorf("why %q, fix %q", why, fix)
	}
	if why, fix := whyAndFix(nil); why != "" || fix != "" {
		t.Errorf("why %q, fix %q of nothing", why, fix)
	}
}

// TestSpinRefused says what to change where spinning would take every CPU.
func TestSpinRefused(t *testing.T) {
	cfg := config.Default()
	cfg.Pollers.Idle, cfg.Pollers.PerNode = "spin", 16
	log := slog.New(slog.DiscardHandler)
	selection, err := Prepare(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(cfg, log, selection)
	if err == nil {
		_ = p.Close(t.Context())
		t.Skip("this host has CPUs for 16 spinning pollers")
	}
	if !strings.Contains(err.Error(), "pollers.") {
		t.Errorf("%v: no setting named", err)
	}
}

// TestPortDown: a port that is down when a session begins is offered all the
// same; its rail joins when the port is up, without an event that tells of it.
func TestPortDown(t *testing.T) {
	for _, side := range []int{0, 1} {
		a, b, received := newHosts(t, nil)
		h := []*host{a, b}[side]
		name := h.path.devices[1].info.Name
		h.provider.setDown(name, true)
		for i, d := range h.path.Devices() {
			if err := d.Ports[0].Err; (err != nil) != (i == 1) {
				t.Errorf("device %d: %v", i, err)
			}
		}
		l := dial(t, a)
		rails := l.Session().Rails()
		if len(rails) != 2 || rails[0].LanesUp.Load() == 0 || rails[1].LanesUp.Load() != 0 || !rails[1].Local.Down && !rails[1].Remote.Down {
			t.Fatalf("%d rails", len(rails))
		}
		p := pattern(1<<20+3, 1)
		if r := send(t, l, "one rail", p); r.Err != nil {
			t.Fatal(r.Err)
		}
		equal(t, received, "one rail", p)
		h.provider.setDown(name, false)
		waitUp(t, l)
		if r := send(t, l, "two rails", p); r.Err != nil {
			t.Fatal(r.Err)
		}
		equal(t, received, "two rails", p)
	}
}

// TestNoPortUp: a node none of whose ports can be used offers no session, and
// says which ports and what to do.
func TestNoPortUp(t *testing.T) {
	a, _, _ := newHosts(t, nil)
	for _, d := range a.path.devices {
		a.provider.setDown(d.info.Name, true)
	}
	_, err := a.path.ports()
	if err == nil || !strings.Contains(err.Error(), a.path.devices[0].info.Name+" port 1 is DOWN") || !strings.Contains(err.Error(), "mover devices") {
		t.Errorf("%v", err)
	}
}

// waitUp waits until every rail has all its lanes.
func waitUp(t *testing.T, l *Link) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for _, rail := range l.Session().Rails() {
		for rail.LanesUp.Load() != int64(rail.Lanes) {
			if time.Now().After(deadline) {
				t.Fatalf("rail %s: %d of %d lanes are up", rail.Local.Device, rail.LanesUp.Load(), rail.Lanes)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestTimers: a session gives up on a silent peer, and on a silent lane, before
// its attempts stall, within bounds.
func TestTimers(t *testing.T) {
	for _, c := range []struct{ stall, dead, lane time.Duration }{
		{time.Second, 3 * time.Second, 2 * time.Second}, {3 * time.Second, 3 * time.Second, 3 * time.Second},
		{6 * time.Second, 6 * time.Second, 6 * time.Second}, {time.Hour, 10 * time.Second, 10 * time.Second},
	} {
		if deadAfter(c.stall) != c.dead || laneLimit(c.stall) != c.lane {
			t.Errorf("stall_after %v: dead after %v, lane after %v", c.stall, deadAfter(c.stall), laneLimit(c.stall))
		}
	}
}

// TestAckTimeout: the adapter never waits less than what is configured.
func TestAckTimeout(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want uint8
	}{{time.Nanosecond, 1}, {67 * time.Millisecond, 14}, {67109 * time.Microsecond, 15}, {268 * time.Millisecond, 16}, {5 * time.Second, 21}, {3 * time.Hour, 31}} {
		if got := ackTimeout(c.d); got != c.want {
			t.Errorf("%v: %d, want %d", c.d, got, c.want)
		}
	}
}

type namedProvider struct {
	verbs.Provider
	name string
}

func (p namedProvider) Name() string { return p.name }

// TestAside: the way to RTS is taken beside the poller where the kernel may
// block, and only there.
func TestAside(t *testing.T) {
	for name, want := range map[string]bool{"soft": false, "ibv": true} {
		p := &Path{selection: &device.Selection{Provider: namedProvider{name: name}}}
		if got := p.aside() != nil; got != want {
			t.Errorf("%s: aside %v", name, got)
		}
	}
}
