//go:build linux && cgo

package ibv

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"mover/verbs"
)

// TestAsyncEvents: each kind names its object, and is acknowledged before it
// is handed on.
func TestAsyncEvents(t *testing.T) {
	r := newRig(t, verbs.RC)
	cq, err := r.dev.CreateCQ(verbs.CQInitAttr{Entries: 1})
	must(t, err)
	for i, c := range []struct {
		kind    verbs.EventType
		element uint32
		want    verbs.AsyncEvent
	}{
		{verbs.EventPortErr, 1, verbs.AsyncEvent{Type: verbs.EventPortErr, Port: 1}},
		{verbs.EventPortActive, 2, verbs.AsyncEvent{Type: verbs.EventPortActive, Port: 2}},
		{verbs.EventGIDChange, 1, verbs.AsyncEvent{Type: verbs.EventGIDChange, Port: 1}},
		{verbs.EventLIDChange, 1, verbs.AsyncEvent{Type: verbs.EventLIDChange, Port: 1}},
		{verbs.EventQPFatal, r.qp.QPN(), verbs.AsyncEvent{Type: verbs.EventQPFatal, QPN: r.qp.QPN()}},
		{verbs.EventQPAccessErr, r.qp.QPN(), verbs.AsyncEvent{Type: verbs.EventQPAccessErr, QPN: r.qp.QPN()}},
		{verbs.EventCQErr, uint32(r.get("LAST_CQ")), verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: cq}},
		{14, 0, verbs.AsyncEvent{Type: 14}}, // of a shared receive queue, which mover has none of
	} {
		r.event(c.kind, c.element)
		got, err := r.dev.GetAsyncEvent(time.Minute)
		if err != nil || got != c.want {
			t.Errorf("%v: %+v, %v; want %+v", c.kind, got, err, c.want)
		}
		if n := r.get("ACKS"); n != uint64(i+1) || r.get("EVENTS") != n {
			t.Errorf("%v: %d events, %d acknowledged", c.kind, r.get("EVENTS"), n)
		}
	}
	must(t, cq.Destroy())
}

func TestAsyncEventTimeout(t *testing.T) {
	r := newRig(t, verbs.RC)
	for _, timeout := range []time.Duration{0, -time.Second, time.Microsecond, 3 * time.Millisecond} {
		if ev, err := r.dev.GetAsyncEvent(timeout); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("%v: %+v, %v", timeout, ev, err)
		}
	}
}

// TestAsyncEventOfDestroyed: events of what was destroyed do no harm, and the
// reader goes on to the next.
func TestAsyncEventOfDestroyed(t *testing.T) {
	r := newRig(t, verbs.RC)
	cq, err := r.dev.CreateCQ(verbs.CQInitAttr{Entries: 1})
	must(t, err)
	qp := r.newQP(verbs.RC)
	r.event(verbs.EventCQErr, uint32(r.get("LAST_CQ")))
	r.event(verbs.EventQPFatal, qp.QPN())
	r.event(verbs.EventPortErr, 1)
	must(t, qp.Destroy())
	must(t, cq.Destroy())
	ev, err := r.dev.GetAsyncEvent(time.Minute)
	if err != nil || ev.Type != verbs.EventPortErr {
		t.Errorf("%+v, %v", ev, err)
	}
}

// TestEventOfForgottenCQ: the library knows the CQ, and Go has just destroyed
// its half.
func TestEventOfForgottenCQ(t *testing.T) {
	r := newRig(t, verbs.RC)
	q := r.cq.(*compQueue)
	r.event(verbs.EventCQErr, uint32(r.get("LAST_CQ")))
	r.dev.forgetCQ(q)
	if ev, err := r.dev.GetAsyncEvent(0); !errors.Is(err, verbs.ErrTimeout) || r.get("ACKS") != 1 {
		t.Errorf("%+v, %v, %d acknowledged", ev, err, r.get("ACKS"))
	}
}

// TestCloseWakesReader: Close does not pull the device from under a reader
// that waits.
func TestCloseWakesReader(t *testing.T) {
	d := newFake(t).open()
	started, done := make(chan struct{}), make(chan error)
	go func() {
		close(started)
		_, err := d.GetAsyncEvent(time.Hour)
		done <- err
	}()
	<-started
	must(t, d.Close())
	if err := <-done; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("the reader got %v", err)
	}
}

// TestCQError: after CQ_ERR a queue answers with ErrCQOverrun for good, and
// its neighbours live.
func TestCQError(t *testing.T) {
	r := newRig(t, verbs.RC)
	bad := uint32(r.get("LAST_CQ"))
	other, err := r.dev.CreateCQ(verbs.CQInitAttr{Entries: 1})
	must(t, err)
	r.connect(r.qp)
	if _, err := r.qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Flags: verbs.SendSignaled}}); err != nil {
		t.Fatal(err)
	}
	r.event(verbs.EventCQErr, bad)
	if _, err := r.dev.GetAsyncEvent(time.Minute); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n, err := r.cq.Poll(make([]verbs.WC, 4)); n != 0 || !errors.Is(err, verbs.ErrCQOverrun) {
			t.Errorf("poll after CQ_ERR: %d, %v", n, err)
		}
	}
	if _, err := other.Poll(make([]verbs.WC, 4)); err != nil {
		t.Errorf("the other queue: %v", err)
	}
	must(t, other.Destroy())
}

// TestDeviceFatal: every queue answers with a final error, nothing new is
// made, and what is open can be closed though the kernel says EIO.
func TestDeviceFatal(t *testing.T) {
	r := newRig(t, verbs.RC)
	mr, err := r.pd.RegMR(pages(t, 1), 0)
	must(t, err)
	r.event(verbs.EventDeviceFatal, 0)
	r.rawEvent(0xffff, 0)
	ev, err := r.dev.GetAsyncEvent(time.Minute)
	if err != nil || ev.Type != verbs.EventDeviceFatal {
		t.Fatalf("%+v, %v", ev, err)
	}
	if n, err := r.cq.Poll(make([]verbs.WC, 4)); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("poll after DEVICE_FATAL: %d, %v", n, err)
	}
	if _, err := r.dev.AllocPD(); !errors.Is(err, syscall.EIO) {
		t.Errorf("allocate a PD after DEVICE_FATAL: %v", err)
	}
	for range 2 { // the kernel's queue is closed
		if _, err := r.dev.GetAsyncEvent(time.Minute); err == nil || errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("an event of a device that is gone: %v", err)
		}
		r.rawEvent(0xffff, 0)
	}
	// The library frees nothing then; the kernel has.
	r.set("DESTROY_ERRNO", uint64(syscall.EIO))
	must(t, mr.Dereg())
	if c := r.dev.Counts(); c.MR != 0 {
		t.Errorf("counts %+v", c)
	}
	r.set("LIVE", r.get("LIVE")-1)
	r.set("DESTROY_ERRNO", uint64(syscall.EBUSY)) // any other error is one
	if err := r.qp.Destroy(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("destroy: %v", err)
	}
	r.set("DESTROY_ERRNO", 0)
}

// TestEventsRace: a reader, an owner that polls, and a destroyer at once, for
// the race detector.
func TestEventsRace(t *testing.T) {
	r := newRig(t, verbs.RC)
	const rounds = 50
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			if _, err := r.dev.GetAsyncEvent(time.Minute); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range rounds {
		cq, err := r.dev.CreateCQ(verbs.CQInitAttr{Entries: 1})
		must(t, err)
		r.event(verbs.EventPortActive, 1)
		if _, err := cq.Poll(make([]verbs.WC, 1)); err != nil {
			t.Error(err)
		}
		must(t, cq.Destroy())
	}
	<-done
}
